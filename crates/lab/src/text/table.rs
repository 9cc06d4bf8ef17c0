//! Text tables with aligned columns.

use std::fmt;

use super::layout::{TableLayout, format_table};

/// Spaces before each line.
const INDENT: usize = 2;

/// A table of text: the first columns are left-aligned, the others right-aligned.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    left_column_count: usize,
}

impl Table {
    /// A table with this header; leading columns without a title, and at least the first column, are left-aligned.
    pub fn new(titles: &[&str]) -> Table {
        let left_column_count = titles.iter().take_while(|title| title.is_empty()).count().max(1);
        Table {
            rows: vec![titles.iter().map(|title| (*title).to_owned()).collect()],
            left_column_count,
        }
    }

    /// Adds a row.
    pub fn push_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column_count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let is_right_aligned: Vec<bool> =
            (0..column_count).map(|column| column >= self.left_column_count).collect();
        let layout = TableLayout {
            indent: INDENT,
            name_column_count: self.left_column_count,
            is_right_aligned: &is_right_aligned,
        };
        f.write_str(&format_table(&self.rows.iter().collect::<Vec<_>>(), layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns_without_trailing_spaces() {
        let mut table = Table::new(&["", "items", "CPU"]);
        table.push_row(["glasscache".into(), "1,842".into(), "0.5".into()]);
        table.push_row(["memcached".into(), "7".into(), String::new()]);
        let expected = "              items  CPU\n  glasscache  1,842  0.5\n  memcached       7\n";
        assert_eq!(table.to_string(), expected);
    }
}
