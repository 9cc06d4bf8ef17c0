//! Eviction: which segment is swept next, and what becomes of each item in it.
//!
//! One mechanism, the sweep of a segment, serves eviction, compaction and expiry. What differs between
//! policies stands behind [`Policy`]: where newcomers go, which queue gives the next victim, and a verdict
//! per item from its queue, its two bits of frequency and its size.

mod carry;
mod choose;
mod ghost;
mod policy;
mod sweep;

pub(crate) use choose::{Aim, Nothing, Reason};
pub(crate) use ghost::Ghost;
pub use policy::PolicyKind;
pub(crate) use policy::{Census, Policy, Standing, Verdict};
pub(crate) use sweep::Sweep;

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
