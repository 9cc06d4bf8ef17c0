//! The item store: an index over append-only segments, without sockets or clocks.
//!
//! Items lie in segments, logs that workers append to without a lock; the index names them by address. One
//! mechanism, the sweep of a segment, evicts, compacts and expires. A [`Store`] is shared; each thread has a
//! [`Worker`], which holds its open segments and its epoch. Time is an argument (`now`), memory is one budget
//! (`memory_bytes`): items, index, ghost and whatever is charged for buffers.
//!
//! ```
//! use glasscache_store::{Config, Seconds, SetOptions, Store};
//!
//! let store = Store::new(Config { memory_bytes: 8 << 20, ..Config::default() })?;
//! let mut worker = store.worker();
//! worker.go_online();
//! let hash = store.hash(b"greeting");
//! worker.set(b"greeting", hash, b"hello", &SetOptions::default(), Seconds(2));
//! assert_eq!(worker.get(b"greeting", hash, Seconds(2)).and_then(|item| item.value()), Some(&b"hello"[..]));
//! worker.pass(); // nothing is borrowed here, so old segments may be reused
//! # Ok::<(), glasscache_store::Error>(())
//! ```
//!
//! `docs/concurrency.md` has the lock order and the atomics; `docs/decisions/0010` to `0019` the reasons.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]
#![deny(unsafe_code)]

/// Checks an invariant in tests and with the feature `strict`; costs nothing otherwise.
macro_rules! strict_assert {
    ($($condition:tt)*) => {
        if cfg!(any(test, feature = "strict")) {
            assert!($($condition)*);
        }
    };
}

mod arith;
mod attempts;
#[cfg(any(test, feature = "strict"))]
mod audit;
#[cfg(all(test, not(loom)))]
mod between;
mod compose;
mod counters;
mod eviction;
mod flush;
mod footprint;
mod guess;
mod index;
mod item;
mod listing;
mod log;
mod lookup;
mod memory;
mod publish;
mod read;
mod remove;
mod report;
mod request;
mod room;
mod segments;
mod sparse;
mod store;
mod sync;
mod upload;
mod view;
mod worker;
mod write;

#[cfg(any(test, feature = "strict"))]
pub use audit::Audit;
pub use counters::Counters;
pub use eviction::PolicyKind;
pub use footprint::{INDEX_BYTES_MEAN, record_bytes};
pub use guess::{Asked, Guess};
pub use listing::Listing;
#[cfg(not(loom))]
pub use memory::release_start_pages;
pub use report::Evicted;
pub use request::*;
pub use store::{Config, Store, index_beside_bytes};
pub use upload::{IdleUpload, Reservation};
pub use view::{Held, Item};
pub use worker::Worker;

/// Why a store cannot be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Below what one worker and one item need.
    #[error("memory limit {0} bytes is too small: at least 1048576 are needed (-m)")]
    MemoryTooSmall(u64),
    /// `cache_memlimit` beyond what was mapped at start.
    #[error("memory limit {0} bytes is too large: this server was started for at most {1} (-m)")]
    MemoryTooLarge(u64, u64),
    /// The store addresses 1 TiB, with what stands beside the limit.
    #[error(
        "memory limit {0} bytes is too large: the index addresses 1 TiB, of which it needs a fiftieth itself (-m)"
    )]
    MemoryBeyondLinks(u64),
    /// The system refused the mapping.
    #[error("cannot map {0} bytes for the store: {1}")]
    NoMemory(u64, String),
}
