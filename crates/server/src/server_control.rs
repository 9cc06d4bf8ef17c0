//! What other threads of the process may do with a running server.

use std::sync::Arc;

use crate::shared::Shared;

/// Stops a server, or makes it read its files again, from any thread.
#[derive(Clone)]
pub struct ServerControl(pub(crate) Arc<Shared>);

impl ServerControl {
    /// Like [`crate::RunningServer::stop`].
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Like [`crate::RunningServer::stop_and_save`].
    pub fn stop_and_save(&self) {
        self.0.stop_and_save();
    }

    /// Writes a line to the log of the server; never waits.
    pub fn log(&self, line: String) {
        self.0.log.queue_line(line);
    }

    /// Waits until the lines so far are written, for a moment at most.
    pub fn flush_log(&self) {
        self.0.log.flush();
    }

    /// Reads again the files that can change while the server runs, which are the cluster file, the file of users,
    /// the token of HTTP and the certificates, and logs the result.
    /// A file that cannot be read changes nothing.
    pub fn reload(&self) {
        let message = self.0.cluster.reload();
        self.0.log.queue_line(format!("glasscache: SIGHUP: {message}"));
        if let Some(message) = self.0.logins.reload() {
            self.0.log.queue_line(format!("glasscache: SIGHUP: {message}"));
        }
        if let Some(token) = &self.0.http_token {
            self.0.log.queue_line(format!("glasscache: SIGHUP: {}", token.reload()));
        }
        if let Some(tls) = &self.0.tls {
            let (Ok(message) | Err(message)) = tls.reload(self.0.clock.now().0);
            self.0.log.queue_line(format!("glasscache: SIGHUP: {message}"));
        }
    }
}
