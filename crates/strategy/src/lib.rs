//! Near-cache policies, request scope and prefetch: what the simulator replays and a client can run.
//!
//! A strategy says what a process keeps ([`file::Strategy`]), a policy which local items stay
//! ([`policy`]), and [`rules`] what one request fetches. All of it is free of sockets, clocks and
//! values, so that the forecast of the simulator and the deed of a client are the same code. [`near`] and
//! [`scope`] are what a client needs besides; none of ours has them built in yet.
#![forbid(unsafe_code)]

pub mod file;
pub mod near;
pub mod policy;
pub mod rules;
pub mod scope;
