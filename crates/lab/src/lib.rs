//! Everything that measures something alive: load generator, profiles, reports.
//!
//! [`load`] makes requests and times them, [`proc`] asks the kernel what they cost; the rest composes the two.
#![forbid(unsafe_code)]

pub mod bench;
pub mod counters;
pub mod load;
pub mod proc;
pub mod target;
pub mod tour;
pub mod why;
