//! `stats` and its families.

mod general;

use glasscache_protocol::words;

use crate::execute::Outcome;
use crate::output::Output;
use crate::turn::Turn;

/// Executes `stats` with the words behind it.
pub(crate) fn command(line: &[&[u8]], turn: &Turn<'_>, out: &mut Output<'_>) -> Outcome {
    match line {
        [] => general::write(turn, &mut out.bytes),
        _ => out.bytes.extend_from_slice(words::ERROR),
    }
    Outcome::Done
}
