//! Tests of the simulator over its public face: one program, one topic per file.

mod curves;
mod foreign_parquet;
mod key_streams;
mod learned_rules;
mod live_curve;
mod live_policy;
mod naive;
mod policies;
mod recorded_waits;
mod request_logs;
mod request_simulation;
mod segment_plan;
mod simulated_policies;
mod slab_classes_of_memcached;
mod slab_fill_of_memcached;
mod strategy_files;
mod topic_tree_findings;
