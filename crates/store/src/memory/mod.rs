//! The only folder with `unsafe`: the arena's bytes, the index lines that live in it, and the epochs
//! that decide when a segment may be written again; beside them, the release of code pages that only the start needed.
//!
//! Its safe functions rely on these rules, which the rest of the crate keeps.
//!
//! 1. Bytes of a segment are written only by the worker (or upload) that took them from its open
//!    segment, and only before they are published by a slot in the index.
//! 2. Published bytes never change until the segment is reused; state words, at the head of each
//!    item, are atomics and are never read in another way.
//! 3. A segment is reused only after nothing in the index names it and every online worker has passed
//!    (`epoch`), and while no thread holds it by reference.
//! 4. A thread that reads bytes is online, or holds the segment.
#![allow(unsafe_code, reason = "the one folder that may; every block says why it is sound")]

pub(crate) mod arena;
pub(crate) mod epoch;
#[cfg(not(loom))]
mod image;
pub(crate) mod lines;

#[cfg(not(any(miri, loom)))]
pub use arena::MappedFile;
pub(crate) use arena::{Addr, Arena, SegmentId};
pub(crate) use epoch::Epochs;
#[cfg(not(loom))]
pub use image::release_startup_pages;
pub(crate) use lines::{Line, LineId, Lines, SLOTS_PER_LINE};
