//! The roll-out of a strategy: a share of the requests runs it, the others are the control group, and both are measured.
//!
//! [`rollout_share`] decides which group a request belongs to, [`counts`] adds up what the requests of a group needed, [`metrics`]
//! estimates its metrics with intervals, and [`decision`] compares them with the forecast of the strategy file and with the
//! control group. [`process_rollout`] does so while one process runs; `glasscache rollout` does it over many. No clock and no
//! socket: docs/decisions/strategies.md, 0103, has the rule and its reasons.

pub mod counts;
pub mod decision;
pub mod json;
pub mod metrics;
pub mod process_rollout;
pub mod rollout_share;

#[cfg(test)]
mod simulated;
