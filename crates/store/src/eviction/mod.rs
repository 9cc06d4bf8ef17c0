//! Eviction: which segment is swept next, and what becomes of each item in it.
//!
//! One mechanism, the sweep of a segment, serves eviction, compaction and expiry. What differs between
//! policies stands behind [`crate::policy::Policy`]: where newcomers go, which queue gives the next victim, and a
//! verdict per item from its queue, its two bits of frequency and its size.

mod carry;
mod choose;
mod sweep;

pub(crate) use choose::Aim;
pub(crate) use sweep::Sweeper;

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
