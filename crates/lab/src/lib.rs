//! Measurements of running servers: load generator, benchmarks, reports.
//!
//! [`load`] generates requests and measures their latency, [`proc`] measures their cost through the kernel; the other
//! modules combine the two.
//!
//! [`figures`] is a program of its own, for the figures that only the developers of this project need.
#![forbid(unsafe_code)]

pub mod access;
pub mod bench;
pub mod codec;
pub mod figures;
pub mod load;
mod paired;
pub mod proc;
pub mod profile;
pub mod python;
pub mod record;
pub mod replay;
pub mod server_process;
pub mod statistics;
pub mod target;
pub mod text;
pub mod tour;
pub mod warm;
pub mod why;

pub use glasscache_findings::counters;
