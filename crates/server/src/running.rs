//! The handle on a running server.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::server_control::ServerControl;
use crate::shared::Shared;
use crate::shared::address::Address;
use crate::shared::log_output::LogLevel;
use crate::shared::memory_file::MemoryFile;
use crate::threads::Threads;

/// A server that runs in this process. It ends by [`RunningServer::stop`], by the `shutdown` command, or
/// when the handle is dropped.
pub struct RunningServer {
    shared: Arc<Shared>,
    pub(crate) threads: Threads,
    pub(crate) http_addresses: Vec<SocketAddr>,
    /// Locked until the items are saved.
    memory_file: Option<MemoryFile>,
}

impl RunningServer {
    /// One without threads, and without the memory file before it owns that.
    pub(crate) fn new(shared: Arc<Shared>) -> RunningServer {
        RunningServer {
            threads: Threads::new(Arc::clone(&shared)),
            shared,
            http_addresses: Vec::new(),
            memory_file: None,
        }
    }

    /// Takes the memory file, logs what came back in it, and gives one that was made beside another its name.
    pub(crate) fn attach_memory_file(&mut self, mut file: MemoryFile, recovery_message: &str) {
        let log = &self.shared.log;
        log.queue_line(LogLevel::Info, format!("glasscache: memory file {recovery_message}"));
        if let Some(path) = &self.shared.config.memory_file
            && let Err(error) = file.rename_over(path)
        {
            let path = path.display();
            log.queue_line(
                LogLevel::Error,
                format!("glasscache: memory file {path}: cannot be renamed: {error}"),
            );
        }
        self.memory_file = Some(file);
    }

    /// The addresses on which the server listens, with the ports chosen by the kernel.
    pub fn addresses(&self) -> Vec<Address> {
        self.shared.addresses.iter().map(|(_, address)| address.clone()).collect()
    }

    /// The addresses on which HTTP is served, with the ports chosen by the kernel: that of `--http`, then that of
    /// `--metrics`, each if it is configured.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http_addresses
    }

    /// The kernel's ids of the server's threads, workers first, for reading their CPU time.
    pub fn thread_ids(&self) -> &[i32] {
        self.threads.ids()
    }

    /// Stops the server: begun requests are completed, within a second all is over.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Like [`RunningServer::stop`]; then the items are saved if there is a memory file.
    pub fn stop_and_save(&self) {
        self.shared.stop_and_save();
    }

    /// A handle on the server for other threads.
    pub fn control(&self) -> ServerControl {
        ServerControl(Arc::clone(&self.shared))
    }

    /// Waits until the server has stopped: by a [`ServerControl`], or by the `shutdown` command. At this point
    /// everything has been started, so the memory of code that only the start needed is released.
    ///
    /// Returns whether another process has taken its place.
    pub fn join(mut self) -> bool {
        glasscache_store::release_startup_pages();
        self.join_threads();
        self.shared.phases.is_replaced()
    }

    fn join_threads(&mut self) {
        self.threads.join(&self.shared);
        if let Some(file) = self.memory_file.take() {
            self.save(&file);
        }
        self.shared.log.finish_writing();
    }

    /// Saves the items if the server was stopped to do so, unless a successor uses their memory; otherwise it says that
    /// they are lost. All threads have ended.
    fn save(&self, file: &MemoryFile) {
        let shared = &self.shared;
        if shared.phases.is_replaced() {
            return;
        }
        let (path, item_count) = (file.path().display(), shared.store.counters().items);
        if !shared.saves_at_stop() {
            if item_count > 0 {
                shared.log.queue_line(LogLevel::Warning, format!(
                    "glasscache: memory file {path}: {item_count} items are not saved; a stop by SIGUSR1 or `glasscache stop --save` saves them"
                ));
            }
            return;
        }
        let (level, outcome) = match file.save(&shared.store, shared.clock.stop_time()) {
            Ok(()) => (LogLevel::Info, format!("{item_count} items are saved")),
            Err(error) => {
                (LogLevel::Error, format!("saving failed: {error}; the next server starts empty"))
            }
        };
        shared.log.queue_line(level, format!("glasscache: memory file {path}: {outcome}"));
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.threads.abandon();
        self.shared.stop();
        self.join_threads();
    }
}
