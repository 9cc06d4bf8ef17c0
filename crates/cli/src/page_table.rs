//! Tables of reports on a terminal: aligned columns, numbers right-aligned.

use glasscache_sim::page::Table;

use crate::table::widths;

/// Formats a table with two spaces between the columns, below its title if it has one.
pub(crate) fn text(table: &Table) -> String {
    let rows = || std::iter::once(&table.header).chain(&table.rows);
    let widths = widths(rows());
    let to_right: Vec<bool> = (0..widths.len())
        .map(|column| table.is_number(column))
        .collect();
    let mut text = String::new();
    if !table.title.is_empty() {
        text.push_str(&table.title);
        text.push('\n');
    }
    for row in rows() {
        let cells = row
            .iter()
            .zip(widths.iter().zip(&to_right))
            .map(|(cell, (&width, &right))| {
                if right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
