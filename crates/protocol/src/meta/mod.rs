//! The meta dialect: `flags`, `parse` and `write` are the server's end of it, `request` and `reply`
//! the client's.

mod parse;
pub mod reply;
pub mod request;
mod write;

pub use crate::command::{MetaFlags, MetaLine, letters};
pub use parse::{parse_line, plain_get};
pub use write::{MetaItem, hit, number, status, stored, value_line};
