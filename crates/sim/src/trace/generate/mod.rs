//! Generated workloads, for trying the tools without recorded data.

pub mod keys;
pub mod topic_tree;
pub mod twitter;
mod zipf;
