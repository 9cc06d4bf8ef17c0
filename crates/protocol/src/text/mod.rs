//! The classic text dialect: `parse` and `write` are the server's end of it, `request` and `reply`
//! the client's.

mod parse;
pub mod reply;
pub mod request;
mod write;

pub(crate) use parse::value_length;
pub use parse::{KeyToken, Parsed, next_key, parse, single_get};
pub use write::{value_line, value_line_bytes};
