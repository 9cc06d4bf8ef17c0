//! Tables that fit the terminal: cells of prose are wrapped between words, and columns without room follow in a second
//! block under the same first column.

use std::fmt::Write as _;

use super::word_wrap::table_width;

/// Spaces between two columns.
const COLUMN_GAP: usize = 2;

/// The least characters of a column whose prose is wrapped.
const PROSE_WIDTH_MIN: usize = 20;

/// How a table is to be printed.
#[derive(Debug, Clone, Copy)]
pub struct TableLayout<'a> {
    /// Spaces before each line.
    pub indent: usize,
    /// Leading columns that name the row: every block repeats them.
    pub name_column_count: usize,
    /// Whether each column is right-aligned.
    pub is_right_aligned: &'a [bool],
}

/// Formats a table, whose first row is the header, for the terminal, or without a limit if stdout is not a terminal.
pub fn format_table(rows: &[&Vec<String>], layout: TableLayout<'_>) -> String {
    fit_to_width(rows, layout, table_width())
}

/// Formats names and a text about each, in two columns.
pub fn format_two_columns(rows: impl IntoIterator<Item = (String, String)>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, text)| vec![name, text]).collect();
    let layout = TableLayout { indent: 0, name_column_count: 1, is_right_aligned: &[] };
    format_table(&rows.iter().collect::<Vec<_>>(), layout)
}

/// Formats a table for a terminal of `terminal_width` characters.
fn fit_to_width(rows: &[&Vec<String>], layout: TableLayout<'_>, terminal_width: usize) -> String {
    let width_max = terminal_width.saturating_sub(layout.indent);
    let mut widths = measure_column_widths(rows);
    shrink_prose(rows, &mut widths, layout, width_max);
    let mut text = String::new();
    for block in split_into_blocks(&widths, layout.name_column_count, width_max) {
        if !text.is_empty() {
            text.push('\n');
        }
        for row in rows {
            write_row(&mut text, row, &block, &widths, layout);
        }
    }
    text
}

/// The width of each column: characters of its longest cell.
fn measure_column_widths(rows: &[&Vec<String>]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(*row) {
            *width = cell.chars().count().max(*width);
        }
    }
    widths
}

/// Narrows the widest column of prose until the table fits, but not below the longest word.
fn shrink_prose(
    rows: &[&Vec<String>],
    widths: &mut [usize],
    layout: TableLayout<'_>,
    width_max: usize,
) {
    let total_width: usize = widths.iter().map(|width| width + COLUMN_GAP).sum::<usize>();
    let excess = total_width.saturating_sub(COLUMN_GAP).saturating_sub(width_max);
    let is_prose = |column: &usize| layout.is_right_aligned.get(*column) != Some(&true);
    let widest_column = (0..widths.len()).filter(is_prose).max_by_key(|&column| widths[column]);
    let Some(column) = widest_column.filter(|_| excess > 0) else {
        return;
    };
    let words =
        rows.iter().filter_map(|row| row.get(column)).flat_map(|cell| cell.split_whitespace());
    let longest_word = words.map(|word| word.chars().count()).max().unwrap_or(0);
    let width_min = longest_word.max(PROSE_WIDTH_MIN);
    widths[column] = widths[column].saturating_sub(excess).max(width_min).min(widths[column]);
}

/// The columns of each block; a column wider than the terminal has a block of its own.
fn split_into_blocks(
    widths: &[usize],
    name_column_count: usize,
    width_max: usize,
) -> Vec<Vec<usize>> {
    let name_indexes: Vec<usize> = (0..name_column_count.min(widths.len())).collect();
    let names_width: usize = name_indexes.iter().map(|&column| widths[column] + COLUMN_GAP).sum();
    let mut blocks = Vec::new();
    let (mut block, mut block_width) = (name_indexes.clone(), names_width);
    for (column, &column_width) in widths.iter().enumerate().skip(name_indexes.len()) {
        if block_width + column_width > width_max && block.len() > name_indexes.len() {
            blocks.push(std::mem::replace(&mut block, name_indexes.clone()));
            block_width = names_width;
        }
        block.push(column);
        block_width += column_width + COLUMN_GAP;
    }
    blocks.push(block);
    blocks
}

fn write_row(
    text: &mut String,
    row: &[String],
    block: &[usize],
    widths: &[usize],
    layout: TableLayout<'_>,
) {
    let lines_by_cell: Vec<Vec<String>> = block
        .iter()
        .map(|&column| wrap_cell(row.get(column).map_or("", String::as_str), widths[column]))
        .collect();
    let height = lines_by_cell.iter().map(Vec::len).max().unwrap_or(1);
    for line_index in 0..height {
        let mut line = " ".repeat(layout.indent);
        for (cell_index, (&column, cell_lines)) in block.iter().zip(&lines_by_cell).enumerate() {
            if cell_index > 0 {
                line.push_str(&" ".repeat(COLUMN_GAP));
            }
            let (cell_line, width) =
                (cell_lines.get(line_index).map_or("", String::as_str), widths[column]);
            // Writing to a string cannot fail.
            let _ = match layout.is_right_aligned.get(column) {
                Some(true) => write!(line, "{cell_line:>width$}"),
                _ => write!(line, "{cell_line:<width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn wrap_cell(cell: &str, width: usize) -> Vec<String> {
    if cell.chars().count() <= width {
        return vec![cell.to_owned()];
    }
    let options = textwrap::Options::new(width.max(1))
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let lines = textwrap::wrap(cell, options);
    lines.into_iter().map(std::borrow::Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_owned_rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    fn format_rows(rows: &[&[&str]], is_right_aligned: &[bool], terminal_width: usize) -> String {
        let rows = to_owned_rows(rows);
        let rows: Vec<&Vec<String>> = rows.iter().collect();
        let layout = TableLayout { indent: 0, name_column_count: 1, is_right_aligned };
        fit_to_width(&rows, layout, terminal_width)
    }

    #[test]
    fn a_table_with_room_is_one_block() {
        let text = format_rows(&[&["", "p50"], &["get", "1.5"]], &[false, true], 80);
        assert_eq!(text, "     p50\nget  1.5\n");
    }

    #[test]
    fn columns_without_room_follow_under_the_same_names() {
        let rows: [&[&str]; 2] = [&["size", "p50", "p90", "p99"], &["100", "11", "22", "33"]];
        let text = format_rows(&rows, &[true; 4], 14);
        assert_eq!(text, "size  p50  p90\n 100   11   22\n\nsize  p99\n 100   33\n");
    }

    #[test]
    fn prose_is_wrapped_between_words_before_columns_move() {
        let rows: [&[&str]; 2] =
            [&["name", "meaning"], &["-m", "memory limit in megabytes of the whole server"]];
        let text = format_rows(&rows, &[false, false], 30);
        let expected =
            "name  meaning\n-m    memory limit in\n      megabytes of the whole\n      server\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_word_with_hyphens_is_not_cut() {
        let rows: [&[&str]; 1] = [&["part", "the file items-0-000001.parquet is cut"]];
        let text = format_rows(&rows, &[false, false], 30);
        assert!(text.contains("items-0-000001.parquet"), "{text}");
    }

    #[test]
    fn a_word_longer_than_the_terminal_is_not_cut() {
        let text = format_rows(&[&["key", "a-very-long-name-of-a-key"]], &[false, false], 10);
        assert!(text.contains("a-very-long-name-of-a-key"), "{text}");
    }
}
