//! Eviction: the choice of the next segment to sweep, and the decision about each item in it.
//!
//! One mechanism, the sweep of a segment, serves eviction, compaction and expiry. The differences between policies
//! are in [`crate::policy::Policy`]: the queue of new items, the queue of the next victim, and a decision per item
//! from its queue, its two bits of frequency and its size.

mod choose;
mod relocation;
mod sweep;

pub(crate) use choose::SweepGoal;
pub(crate) use sweep::Sweeper;

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
#[cfg(all(test, not(loom), not(miri)))]
mod young_tests;
