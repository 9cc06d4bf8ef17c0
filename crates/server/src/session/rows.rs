//! The form in which all statistics are sent: `STAT <name> <value>` lines and an END.

use std::fmt::Display;
use std::io::Write as _;

/// Writes rows into a reply.
pub(super) struct Rows<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Rows<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>) -> Rows<'o> {
        Rows { out }
    }

    /// Appends one row.
    pub(super) fn write_row(&mut self, name: impl Display, value: impl Display) {
        // Writing to a vector cannot fail.
        let _ = write!(self.out, "STAT {name} {value}\r\n");
    }

    /// Ends the table.
    pub(super) fn end(self) {
        self.out.extend_from_slice(b"END\r\n");
    }
}

/// "yes" or "no".
pub(super) fn yes_or_no(condition: bool) -> &'static str {
    if condition { "yes" } else { "no" }
}

/// "on" or "off".
pub(super) fn on_or_off(condition: bool) -> &'static str {
    if condition { "on" } else { "off" }
}
