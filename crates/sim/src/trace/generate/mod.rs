//! Made-up workloads, so that everything can be tried without anyone's data.

pub mod topic_tree;
