//! The roll-out of a strategy: a share of the requests runs it, the others are the control group, and both are measured.
//!
//! [`rollout_share`] decides which group a request belongs to, [`counts`] adds up what the requests of a group needed and
//! [`routes`] what those of a route waited, [`metrics`] estimates metrics with intervals, and [`decision`] compares those
//! of the strategy with those of the control group. [`process_rollout`] does so while one process runs, from when it is
//! warm ([`warm_up`]); `glasscache rollout` does it over many ([`recommendation`]), and also reports whether the forecast
//! came true ([`forecast_check`]). No clock and no socket: docs/decisions/strategies.md, 0143, has the rule and its reasons.

pub mod counts;
pub mod decision;
pub mod forecast_check;
pub mod json;
pub mod metrics;
mod numbers;
pub mod process_rollout;
pub mod recommendation;
pub mod rollout_share;
pub mod routes;
pub mod value_checks;
pub mod warm_up;

#[cfg(test)]
mod simulated;
