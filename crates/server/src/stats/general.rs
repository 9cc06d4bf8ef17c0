//! The rows of plain `stats`.

use std::io::Write as _;

use crate::turn::Turn;

/// Appends all rows and END.
pub(crate) fn write(turn: &Turn<'_>, out: &mut Vec<u8>) {
    let totals = turn.shared.totals();
    let store = turn.store.store().counters();
    for (name, value) in [
        ("cmd_get", totals.get_cmds),
        ("cmd_set", totals.set_cmds),
        ("get_hits", totals.get_hits),
        ("curr_items", store.items),
        ("evictions", store.evictions),
    ] {
        let _ = write!(out, "STAT {name} {value}\r\n");
    }
    out.extend_from_slice(b"END\r\n");
}
