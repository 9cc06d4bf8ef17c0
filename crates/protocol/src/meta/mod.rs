//! The meta dialect: `flags`, `parse` and `write` are the server's end of it.

mod flags;
mod parse;
mod write;

pub use flags::MetaFlags;
pub use parse::{MetaLine, parse_line};
pub use write::{MetaItem, hit, number, status, stored};
