//! The meta protocol: `parse` and `write` are the server's end of it, `request` and `reply`
//! the client's.

mod parse;
pub mod reply;
pub mod request;
mod write;

pub use crate::command::{MetaFlags, MetaLine, letter_set};
pub use parse::{parse_line, parse_simple_get};
pub use write::{MetaItem, write_arith, write_hit, write_status, write_stored, write_value_line};
