//! Text that fits the terminal: sentences wrapped between words, and the width that tables have.

use std::io::stdout;

/// Width of prose without a terminal.
const DEFAULT_COLUMNS: usize = 80;

/// Width from which a line of prose becomes hard to read.
const COLUMNS_MAX: usize = 100;

/// A space that is not broken, and a per cent sign.
const NO_BREAK_PERCENT: &str = "\u{a0}%";

/// `text` in lines that fit the terminal; a word that is too long for a line stays whole.
pub(crate) fn wrap(text: &str) -> String {
    let width = find_terminal_columns().map_or(DEFAULT_COLUMNS, |columns| columns.min(COLUMNS_MAX));
    let options = textwrap::Options::new(width)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    // A number and its per cent sign stay on one line.
    let joined = text.replace(" %", NO_BREAK_PERCENT);
    textwrap::fill(&joined, options).replace(NO_BREAK_PERCENT, " %")
}

/// The width for tables: that of the terminal, and without one no limit, so that what a script reads does not depend on
/// a width.
pub(crate) fn table_columns() -> usize {
    find_terminal_columns().unwrap_or(usize::MAX)
}

/// The columns of the terminal on stdout, else those that the variable `COLUMNS` names.
fn find_terminal_columns() -> Option<usize> {
    let terminal = rustix::termios::tcgetwinsize(stdout()).ok();
    let columns = terminal
        .map(|size| usize::from(size.ws_col))
        .filter(|&columns| columns > 0);
    columns.or_else(|| {
        let named = std::env::var("COLUMNS").ok()?;
        named.parse().ok().filter(|&columns| columns > 0)
    })
}
