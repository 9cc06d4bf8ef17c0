//! Text that fits the terminal: sentences wrapped between words, and the width that tables have.

use std::io::stdout;

/// Width of prose without a terminal.
const DEFAULT_WIDTH: usize = 80;

/// Width from which a line of prose becomes hard to read.
const PROSE_WIDTH_MAX: usize = 100;

/// A space that is not broken, and a per cent sign.
const NO_BREAK_PERCENT: &str = "\u{a0}%";

/// `text` in lines that fit the terminal; a word that is too long for a line stays whole.
pub fn wrap(text: &str) -> String {
    let width = find_terminal_width().map_or(DEFAULT_WIDTH, |width| width.min(PROSE_WIDTH_MAX));
    let options = textwrap::Options::new(width)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    // A number and its per cent sign stay on one line.
    let text_with_joined_percents = text.replace(" %", NO_BREAK_PERCENT);
    textwrap::fill(&text_with_joined_percents, options).replace(NO_BREAK_PERCENT, " %")
}

/// The width for tables: that of the terminal, and without one no limit, so that what a script reads does not depend on
/// a width.
pub(super) fn table_width() -> usize {
    find_terminal_width().unwrap_or(usize::MAX)
}

/// The characters in a line of the terminal on stdout, else the number in the variable `COLUMNS`.
fn find_terminal_width() -> Option<usize> {
    let window_size = rustix::termios::tcgetwinsize(stdout()).ok();
    let width = window_size.map(|size| usize::from(size.ws_col)).filter(|&width| width > 0);
    width.or_else(|| {
        let columns_text = std::env::var("COLUMNS").ok()?;
        columns_text.parse().ok().filter(|&width| width > 0)
    })
}
