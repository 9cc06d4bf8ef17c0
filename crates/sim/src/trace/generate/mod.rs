//! Made-up workloads, so that everything can be tried without anyone's data.

pub mod keys;
pub mod topic_tree;
pub mod twitter;
mod zipf;
