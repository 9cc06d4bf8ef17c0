//! Sentences wrapped at the width of the terminal, between words.

use std::io::stdout;

/// Width without a terminal.
const COLUMNS: usize = 80;

/// Width from which a line of prose becomes hard to read.
const COLUMNS_MAX: usize = 100;

/// `text` in lines that fit the terminal.
pub(crate) fn wrap(text: &str) -> String {
    textwrap::fill(text, columns())
}

fn columns() -> usize {
    let terminal = rustix::termios::tcgetwinsize(stdout()).ok();
    let columns = terminal.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 {
        COLUMNS
    } else {
        columns.min(COLUMNS_MAX)
    }
}
