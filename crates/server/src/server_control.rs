//! What other threads of the process may do with a running server.

use std::sync::Arc;

use crate::shared::Shared;
use crate::shared::log_output::LogLevel;

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
    pub fn log(&self, level: LogLevel, line: String) {
        self.0.log.queue_line(level, line);
    }

    /// Waits until the lines so far are written, for a moment at most.
    pub fn flush_log(&self) {
        self.0.log.flush();
    }

    /// Reads again the files that can change while the server runs, which are the cluster file, the file of users,
    /// the token of HTTP and the certificates, logs the result, and opens the log file again.
    /// A file that cannot be read changes nothing.
    pub fn reload(&self) {
        let tls = self.0.tls.as_ref().map(|tls| tls.reload(self.0.clock.now().0));
        let token = self.0.http_token.as_ref().map(|token| Ok(token.reload()));
        let outcomes = [Some(self.0.cluster.reload()), self.0.logins.reload(), token, tls];
        for outcome in outcomes.into_iter().flatten() {
            self.0.log.queue_outcome("glasscache: SIGHUP", outcome);
        }
        self.0.log.reopen();
    }
}
