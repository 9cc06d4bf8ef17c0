//! The classic text protocol: `parse` and `write` are the server's end of it, `request` and `reply`
//! the client's.

mod keys;
mod parse;
pub mod reply;
pub mod request;
mod write;

pub use keys::{KeyToken, likely_key, next_key, parse_single_get};
pub use parse::{Parsed, parse};
pub use write::{value_line_bytes_max, write_small_value, write_value_line};
