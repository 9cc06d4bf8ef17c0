//! Tables of reports on a terminal: aligned columns, numbers right-aligned.

use glasscache_sim::page::Table;

use crate::layout::{Layout, format_table};

/// Formats a table with two spaces between the columns, below its title if it has one.
pub(crate) fn table_text(table: &Table) -> String {
    let rows: Vec<&Vec<String>> = std::iter::once(&table.header).chain(&table.rows).collect();
    let is_right_aligned: Vec<bool> = (0..table.header.len())
        .map(|column| table.is_number_column(column))
        .collect();
    let layout = Layout {
        indent: 0,
        name_columns: 1,
        is_right_aligned: &is_right_aligned,
    };
    let mut text = String::new();
    if !table.title.is_empty() {
        text.push_str(&crate::word_wrap::wrap(&table.title));
        text.push('\n');
    }
    text + &format_table(&rows, layout)
}
