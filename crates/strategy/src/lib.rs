//! Near-cache policies, request scope and prefetch: what the simulator replays and a client can run.
//!
//! A strategy says what a process keeps ([`file::Strategy`]), a policy which local items stay ([`policy`]), and
//! [`rules`] what one request fetches. All of it is free of sockets, clocks and values, so the simulator and a client
//! run the same code. A client also needs [`near`] and [`scope`]; our clients do not use them yet.
#![forbid(unsafe_code)]

pub mod file;
pub mod near;
pub mod policy;
pub mod rules;
pub mod scope;
pub mod together;
