//! The error type of this crate: why a store cannot be made or changed.

/// Why a store cannot be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The limit is too small for one worker and one item.
    #[error("memory limit {0} bytes is too small: at least 1048576 are needed (-m)")]
    MemoryTooSmall(u64),
    /// The limit of `cache_memlimit` is beyond the size mapped at start.
    #[error("memory limit {0} bytes is too large: this server was started for at most {1} (-m)")]
    MemoryTooLarge(u64, u64),
    /// The store addresses 1 TiB, including the memory outside the limit.
    #[error(
        "memory limit {0} bytes is too large: the index addresses 1 TiB, of which it needs a fiftieth itself (-m)"
    )]
    MemoryNotAddressable(u64),
    /// Items from before the last flush of each remembered prefix may still be stored.
    #[error(
        "flush of a prefix failed: {0} prefixes are remembered already; use fewer ones or flush everything"
    )]
    PrefixesFull(usize),
    /// The system refused the mapping.
    #[error("cannot map {0} bytes for the store: {1}")]
    NoMemory(u64, String),
}
