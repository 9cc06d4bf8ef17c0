//! Traces, cache policies, miss-ratio curves, slab plans and request simulation, all pure.
//!
//! Everything here computes from what it is handed: bytes over any reader, a seed, a clock that is an argument.
//! No file is opened, no thread started and nothing printed; the commands, the live lab and Python do that.
#![forbid(unsafe_code)]

pub mod curve;
pub mod error;
pub mod page;
pub mod policy;
mod random;
pub mod replay;
pub mod search;
pub mod slabs;
pub mod strategy;
pub mod trace;

pub use error::TraceError;
