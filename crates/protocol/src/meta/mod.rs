//! The meta dialect: `flags`, `parse` and `write` are the server's end of it, `request` and `reply`
//! the client's.

mod flags;
mod parse;
pub mod reply;
pub mod request;
mod write;

pub use flags::{MetaFlags, letters};
pub use parse::{MetaLine, parse_line, plain_get};
pub use write::{MetaItem, hit, number, status, stored, value_line};
