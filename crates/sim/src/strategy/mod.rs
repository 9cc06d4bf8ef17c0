//! Replays a request log under a strategy and computes the waiting time of every request.
//!
//! The definitions are those of docs/reference/formats.md, sections 3 to 5, and results are equal to
//! them number by number. [`prepare`] does once what all strategies share, [`run`] replays one
//! strategy, [`figures`] makes its table, [`report`] puts them together; [`cost`] prices a call
//! (with what [`recorded_waits`] adds),
//! [`fixed`] chooses fixed sets, [`learn`] finds what requests read together,
//! [`build_file`] makes the file that a client runs, with what to expect of it ([`forecast`]);
//! [`summary`] and [`usage`] describe a log; [`replay_file`] replays such a file, and [`comparison`] compares it with what a client measured, [`noise`] says how far chance goes.

pub mod build_file;
pub mod comparison;
pub mod cost;
mod error;
pub mod figures;
mod figures_json;
pub mod fixed;
pub mod forecast;
mod item_lifetimes;
pub mod latency_sample;
pub mod latency_table;
pub mod learn;
pub mod noise;
pub mod prepare;
pub mod recorded_waits;
pub mod replay_file;
pub mod report;
pub mod run;
mod simulated_policy;
pub mod summary;
pub mod today;
pub mod tree;
pub mod usage;

pub use error::LatencyError;
pub use glasscache_strategy::file::{
    FixedRule, Forecast, LocalRule, Strategy, StrategyError, StrategyFile, parse_bytes,
};
pub use glasscache_strategy::rules::ChildrenRule;
