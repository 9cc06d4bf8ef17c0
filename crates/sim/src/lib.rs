//! Traces, cache policies, miss-ratio curves, slab plans and request simulation, all pure.
//!
//! All functions compute from their arguments: bytes from any reader, a seed, the time. No file is opened, no thread
//! started and nothing printed; the commands, the lab and Python do that.
#![forbid(unsafe_code)]

pub mod curve;
pub mod error;
pub mod key_prefix;
pub mod packed;
pub mod page;
pub mod policy;
mod random;
pub mod replay;
pub mod search;
pub mod slabs;
pub mod strategy;
pub mod trace;

pub use error::TraceError;
