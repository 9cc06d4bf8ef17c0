//! The classic text dialect: `parse` and `write` are the server's end of it.

mod parse;
mod write;

pub(crate) use parse::value_length;
pub use parse::{KeyToken, Parsed, next_key, parse};
pub use write::{value_line, value_line_bytes};
