//! The error type of this crate: why a server could not start.

use std::path::PathBuf;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Listening on an address failed.
    #[error("cannot listen on {0}: {1}")]
    Bind(String, std::io::Error),
    /// There is no memory for the items.
    #[error(transparent)]
    Store(#[from] glasscache_store::Error),
    /// The memory file, or the snapshot beside it, cannot be used.
    #[error("memory file (-e) {}: {reason}", .path.display())]
    MemoryFile {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The log file cannot be opened.
    #[error("log-file: {path} cannot be opened: {error}", path = .0.display(), error = .1)]
    LogFile(PathBuf, std::io::Error),
    /// The running server could not be replaced: it continues.
    #[error("replace (--replace): {0}")]
    Replace(String),
    /// The kernel refused a thread, a descriptor or a signal handler.
    #[error("cannot start the server: {0}")]
    System(std::io::Error),
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
}
