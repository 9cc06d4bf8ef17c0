//! Typed values: the bytes of containers and scalars that JSON would bring back as something else.
//!
//! A value is a tag and its payload, and the items of a container follow it (docs/reference/values.md has the table).
//! [`Token`] writes and reads one tag with its payload, [`Tokens`] reads them one after the other without allocating,
//! and [`Typed`] is the whole value for an application in Rust. Counts never reserve memory by themselves: each value
//! costs at least one byte of input and a fixed share of the bound, and nesting is bounded too.

mod time;
mod token;
mod tree;

pub use time::{Date, Delta, Time, Zone};
pub use token::{Token, Tokens};
pub use tree::Typed;

/// Deepest nesting of containers that is written or read.
pub const DEPTH_MAX: usize = 200;

/// Bytes of the bound on a decoded value that each typed value counts for: about what an object takes in memory.
pub const BYTES_PER_VALUE: usize = 32;

/// Whether these bytes are one whole typed value within the bounds.
pub(super) fn is_valid(bytes: &[u8], bytes_max: usize) -> bool {
    let mut tokens = Tokens::new(bytes, bytes_max);
    skip_value(&mut tokens, 0).is_some() && tokens.is_at_end()
}

/// Reads one value with all its items; `None` when it is malformed or passes a bound.
fn skip_value(tokens: &mut Tokens<'_>, depth: usize) -> Option<()> {
    let token = tokens.read()?;
    let item_count = token.item_count();
    if item_count > 0 && depth >= DEPTH_MAX {
        return None;
    }
    for index in 0..item_count {
        if token.is_name_at(index) {
            tokens.read_name()?;
        } else {
            skip_value(tokens, depth + 1)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
