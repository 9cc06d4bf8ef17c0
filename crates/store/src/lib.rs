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
//! Modules depend downwards:
//!
//! - shared parts, which `store` joins: `segments` (which are free, open, sealed), `index`, `ghost`, `policy`,
//!   `uploads` (the registry of values that are arriving), `sparse_segments`, `flush` and `prefix_flushes`,
//!   `eviction_reports`;
//! - a record: `item` (its bytes), `item_view` (what a caller gets), `footprint` (its size), `chain` (a value in
//!   several pieces), `lookup` (from an address to its parts), `lookup_hint` (prefetching for many keys);
//! - a write: `open_segments` writes a record into a segment that a worker has open, `accounting` counts it, `publish`
//!   makes it replace another, `record_allocator` finds a segment for it, `eviction` sweeps, `retry_limits` bounds the
//!   retries; `write` is one operation on one key, and `set`, `arith`, `delete` and `get_and_update` (a get with touch,
//!   lease or vivify) decide what it does;
//! - `sampling`: which operations are reported to `live`;
//! - `live`: what a running store reports of its load, from a sample of it;
//! - `restart`: a store in a file, and the same store again in the next process;
//! - what callers use: `worker`, `get` (a get without options), `reservation` (one value that is arriving),
//!   `listing`, `request` (options and outcomes as plain data), `counters`, `epoch_participant` (whether a worker still
//!   reads).
//!
//! `docs/concurrency.md` has the lock order and the atomics; `docs/decisions/store.md` the reasons.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
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

mod accounting;
mod arith;
#[cfg(any(test, feature = "strict"))]
mod audit;
mod chain;
mod counters;
mod delete;
mod epoch_participant;
mod error;
mod eviction;
mod eviction_reports;
mod flush;
mod footprint;
mod get;
mod get_and_update;
mod ghost;
mod index;
mod item;
mod item_view;
mod listing;
mod live;
mod lookup;
mod lookup_hint;
mod memory;
mod open_segments;
mod policy;
mod prefix_flushes;
mod publish;
#[cfg(all(test, not(loom)))]
mod race_tests;
mod record_allocator;
mod request;
mod reservation;
#[cfg(not(any(miri, loom)))]
mod restart;
mod retry_limits;
mod sampling;
mod segments;
mod set;
mod sparse_segments;
mod store;
mod sync;
pub mod tuning;
mod uploads;
mod worker;
mod write;

#[cfg(any(test, feature = "strict"))]
pub use audit::Audit;
pub use counters::{Counters, EvictedOfClass};
pub use error::Error;
pub use eviction_reports::EvictedItem;
pub use footprint::{INDEX_BYTES_MEAN, record_bytes};
pub use item_view::{HeldValue, Item};
pub use listing::Listing;
pub use live::{
    CurvePoint, CurveState, HotKey, HotKeyOrder, HotKeyWindow, LiveCurve, LiveInput, LiveModel,
    LiveReport, MemoryAdvice, PolicyReport, PolicySwitch, PrefixUse, ResizeForecast, SamplingCosts,
};
pub use lookup_hint::{BucketPrefetch, LookupHint};
#[cfg(not(any(miri, loom)))]
pub use memory::MappedFile;
#[cfg(not(loom))]
pub use memory::release_startup_pages;
pub use policy::PolicyKind;
pub use request::*;
pub use reservation::Reservation;
#[cfg(not(any(miri, loom)))]
pub use restart::{
    MappedMemory, MemoryHandover, MemorySize, Snapshot, SnapshotError, StopTime, UncommittedBytes,
};
pub use store::{Config, Store, index_outside_bytes};
pub use uploads::IdleUpload;
pub use worker::Worker;
