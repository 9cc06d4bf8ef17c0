//! Measurements of running servers: load generator, benchmarks, reports.
//!
//! [`load`] generates requests and measures their latency, [`proc`] measures their cost through the kernel; the other
//! modules combine the two. [`codec`], [`profile`], [`replay`] and [`bench::live`] take one settings value and return a
//! finished [`report::Report`], so that the figures of which it is made stay inside.
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
pub mod report;
pub mod server_process;
mod statistics;
pub mod target;
pub mod text;
pub mod tour;
pub mod warm;
pub mod why;
