//! What is wrong with a cache server, in sentences: rules over the figures that it reports.
//!
//! The caller reads the figures of one server, memcached or glasscache, into [`Figures`], and [`find`] returns a
//! [`Finding`] for each rule that holds, the most important first. A rule whose figures are missing finds nothing. All
//! of it is pure, so that the command line and the page of a server report the same.
#![forbid(unsafe_code)]

pub mod connections;
pub mod counters;
pub mod curve;
pub mod figures;
pub mod finding;
pub mod hot_keys;
pub mod key_sample;
pub mod numbers;
mod rules;

pub use figures::{Figures, HotKey, Machine};
pub use finding::{Finding, KINDS, Kind};
pub use rules::find;
