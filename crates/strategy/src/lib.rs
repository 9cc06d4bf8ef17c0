//! Near-cache policies, request scope and prefetch: what the simulator replays and a client runs.
//!
//! A strategy says what a process keeps ([`notation::Strategy`], and with keys and rules [`file::StrategyFile`]), a
//! policy which local items stay ([`policy`]), and [`rules`] what one request fetches. All of it is free of sockets and
//! clocks, so the simulator and a client run the same code; a client also needs [`near_values`] and [`scope`].
#![forbid(unsafe_code)]

pub mod file;
pub mod fixed_set;
pub mod kept_memory;
pub mod key_prefixes;
pub mod local_cache;
pub mod near_values;
pub mod never_kept;
pub mod notation;
pub mod policy;
pub mod rollout;
pub mod rules;
pub mod s4fifo_settings;
pub mod scope;
pub mod session_keys;
pub mod together;
