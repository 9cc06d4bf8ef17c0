//! What is recorded: key streams and request logs.

pub mod log;
