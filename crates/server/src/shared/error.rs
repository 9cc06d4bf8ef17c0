//! Why a server could not start.

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Listening on an address failed.
    #[error("cannot listen on {0}: {1}")]
    Bind(String, std::io::Error),
    /// There is no memory for the items.
    #[error(transparent)]
    Store(#[from] glasscache_store::Error),
    /// The kernel refused a thread, a descriptor or a signal handler.
    #[error("cannot start the server: {0}")]
    System(std::io::Error),
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
}
