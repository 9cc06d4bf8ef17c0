//! Tables of reports on a terminal: aligned columns, numbers right-aligned.

use glasscache_lab::text::{TableLayout, format_count_of, format_table, wrap};
use glasscache_sim::page::Table;

/// Rows that a table has without --all.
pub(crate) const ROWS_WITHOUT_ALL: usize = 6;

/// Formats the first rows of a table that has the best first, and those with this name in the first column, with a line
/// about the others; all rows if `prints_all`.
pub(crate) fn format_first_rows(
    table: &Table,
    kept_name: Option<&str>,
    prints_all: bool,
) -> String {
    let is_printed = |(index, row): &(usize, &Vec<String>)| {
        *index < ROWS_WITHOUT_ALL
            || kept_name.is_some_and(|kept_name| row.first().is_some_and(|name| name == kept_name))
    };
    let printed_rows: Vec<Vec<String>> =
        table.rows.iter().enumerate().filter(is_printed).map(|(_, row)| row.clone()).collect();
    let hidden_rows = table.rows.len() - printed_rows.len();
    if prints_all || hidden_rows == 0 {
        return format_titled_table(table);
    }
    let best_rows =
        Table { title: table.title.clone(), header: table.header.clone(), rows: printed_rows };
    let note =
        format!("--all prints {}.", format_count_of(hidden_rows as u64, "more row", "more rows"));
    format_titled_table(&best_rows) + &wrap(&note) + "\n"
}

/// Formats a table with two spaces between the columns, below its title if it has one.
pub(crate) fn format_titled_table(table: &Table) -> String {
    let rows: Vec<&Vec<String>> = std::iter::once(&table.header).chain(&table.rows).collect();
    let is_right_aligned: Vec<bool> =
        (0..table.header.len()).map(|column| table.is_number_column(column)).collect();
    let layout =
        TableLayout { indent: 0, name_column_count: 1, is_right_aligned: &is_right_aligned };
    let mut text = String::new();
    if !table.title.is_empty() {
        text.push_str(&wrap(&table.title));
        text.push('\n');
    }
    text + &format_table(&rows, layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_rows_are_printed_and_the_others_are_counted() {
        let new_table = |row_count: usize| Table {
            title: String::new(),
            header: vec!["name".to_owned()],
            rows: (0..row_count).map(|row| vec![format!("row-{row}")]).collect(),
        };
        let text = format_first_rows(&new_table(8), None, false);
        assert!(text.contains("row-5") && !text.contains("row-6"), "{text}");
        assert!(text.ends_with("--all prints 2 more rows.\n"), "{text}");
        let text = format_first_rows(&new_table(8), Some("row-7"), false);
        assert!(text.ends_with("row-5\nrow-7\n--all prints 1 more row.\n"), "{text}");
        for (row_count, prints_all) in [(6, false), (8, true)] {
            let text = format_first_rows(&new_table(row_count), None, prints_all);
            assert_eq!(text.lines().count(), 1 + row_count, "{text}");
        }
    }
}
