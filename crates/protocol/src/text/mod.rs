//! The classic text dialect.

pub mod reply;
pub mod request;
