//! Measurements of running servers: load generator, benchmarks, reports.
//!
//! [`load`] generates requests and measures their latency, [`proc`] measures their cost through the kernel; the other
//! modules combine the two.
#![forbid(unsafe_code)]

pub mod access;
pub mod bench;
pub mod codec;
pub mod counters;
pub mod load;
pub mod proc;
pub mod profile;
pub mod python;
pub mod record;
pub mod replay;
pub mod server_process;
pub mod statistics;
pub mod target;
pub mod tour;
pub mod warm;
pub mod why;
