//! `stats` and its families, with memcached's names, order and number of rows.
//!
//! Exporters read these rows by name and tests count them, so a row that has no meaning here stays,
//! as 0. What is true of this server and of no other stands in `stats glasscache`.

mod connections;
mod dump;
mod general;
mod own;
mod process;
mod rows;
mod settings;
mod slabs;

use glasscache_protocol::words;

use crate::execute::Outcome;
use crate::output::Output;
use crate::turn::Turn;

/// Executes `stats` with the words behind it.
pub(crate) fn command(line: &[&[u8]], turn: &Turn<'_>, out: &mut Output<'_>) -> Outcome {
    let out = &mut out.bytes;
    match line {
        [] => general::write(turn, out),
        [b"settings", ..] => settings::write(turn, out),
        [b"items", ..] => slabs::items(turn, out),
        [b"slabs", ..] => slabs::slabs(turn, out),
        // Sizes would cost a counter per size on each write; memcached has them off as well.
        [b"sizes", ..] => out.extend_from_slice(b"STAT sizes_status disabled\r\nEND\r\n"),
        [b"conns", ..] => connections::write(turn, out),
        [b"cachedump", rest @ ..] => dump::write(rest, turn, out),
        [b"detail", rest @ ..] => detail(rest, turn, out),
        [b"glasscache", ..] => own::write(turn, out),
        [b"reset", ..] => {
            turn.shared.reset();
            turn.shared.detail.clear();
            out.extend_from_slice(words::RESET);
        }
        _ => out.extend_from_slice(words::ERROR),
    }
    Outcome::Done
}

fn detail(line: &[&[u8]], turn: &Turn<'_>, out: &mut Vec<u8>) {
    if !turn.shared.config.dump_enabled {
        return out.extend_from_slice(b"CLIENT_ERROR stats detail not allowed\r\n");
    }
    match line {
        [switch @ (b"on" | b"off"), ..] => {
            turn.shared.detail.switch(*switch == b"on");
            turn.shared.observe();
            out.extend_from_slice(words::OK);
        }
        [b"dump", ..] => turn.shared.detail.dump(out),
        _ => out.extend_from_slice(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
    }
}
