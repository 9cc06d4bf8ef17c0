//! The meta dialect: two-letter commands with flags.

pub mod reply;
pub mod request;
