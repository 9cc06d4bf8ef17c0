//! Traces, cache policies, miss-ratio curves, slab plans and request simulation, all pure.
#![forbid(unsafe_code)]

pub mod slabs;
pub mod strategy;
pub mod trace;
