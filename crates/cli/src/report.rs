//! What a command found, as one value: its text, its page and its JSON derive from it, so that they say the same.
//!
//! A command builds a [`Report`] and hands it to [`Report::print`] and [`Report::write_page`]. The text has less than the
//! page where a table says so: only its first rows without `--all`, and its narrow columns without `--wide`.

use std::fmt::Write as _;
use std::path::Path;

use glasscache_sim::page::{BarChart, Chart, Page, Table};
use serde_json::{Value, json};

use crate::output::{Failure, Output};
use crate::page_file;
use crate::page_table::{format_first_rows, format_titled_table};
use glasscache_lab::text::wrap;

/// The result of a command.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What was examined: the heading of the page.
    pub(crate) title: String,
    /// The conclusion in some sentences.
    pub(crate) sentence: String,
    /// Command lines to copy.
    pub(crate) commands: Vec<String>,
    /// What was found, in order; a table without rows is left out.
    pub(crate) tables: Vec<ReportTable>,
    /// The charts of stacked bars of the page.
    pub(crate) bars: Vec<BarChart>,
    /// The line charts of the page; one without points is left out.
    pub(crate) series: Vec<Chart>,
    /// What is wrong with what was examined or measured.
    pub(crate) findings: Vec<String>,
    /// What a reader has to know to interpret the result.
    pub(crate) notes: Vec<String>,
    /// The result in JSON, to which the sentence is added.
    pub(crate) result: Value,
}

/// A table of a report.
#[derive(Debug, Default)]
pub(crate) struct ReportTable {
    table: Table,
    /// The text has only the first rows, unless all are asked for.
    is_best_first: bool,
    /// The row of this name is printed although it is not among the first.
    kept_name: Option<String>,
    /// The text has these columns only if it is wide.
    wide_columns: Vec<usize>,
    /// Lines above the table in the text; the page has a chart instead.
    drawing: String,
}

impl ReportTable {
    /// A table with these columns.
    pub(crate) fn new(
        title: impl Into<String>,
        header: impl IntoIterator<Item = impl Into<String>>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        let table = Table {
            title: title.into(),
            header: header.into_iter().map(Into::into).collect(),
            rows: rows.into_iter().collect(),
        };
        Self { table, ..Self::default() }
    }

    /// The same table, of which a text prints the first rows unless all are asked for.
    pub(crate) fn best_first(self) -> Self {
        Self { is_best_first: true, ..self }
    }

    /// The same table, in whose first rows the one of this name is printed too.
    pub(crate) fn with_kept_row(self, name: impl Into<String>) -> Self {
        Self { kept_name: Some(name.into()), ..self }
    }

    /// The same table with columns, by their index, that only a wide text and the page have.
    pub(crate) fn with_wide_columns(self, wide_columns: impl IntoIterator<Item = usize>) -> Self {
        Self { wide_columns: wide_columns.into_iter().collect(), ..self }
    }

    /// The same table below a drawing in the text.
    pub(crate) fn with_drawing(self, drawing: String) -> Self {
        Self { drawing, ..self }
    }

    /// The table without its wide columns.
    fn to_narrow(&self) -> Table {
        let narrow = |cells: &Vec<String>| {
            let is_narrow = |(index, _): &(usize, &String)| !self.wide_columns.contains(index);
            cells.iter().enumerate().filter(is_narrow).map(|(_, cell)| cell.clone()).collect()
        };
        Table {
            title: self.table.title.clone(),
            header: narrow(&self.table.header),
            rows: self.table.rows.iter().map(narrow).collect(),
        }
    }

    fn to_text(&self, detail: Detail) -> String {
        let narrow_table = (!detail.is_wide).then(|| self.to_narrow());
        let table = narrow_table.as_ref().unwrap_or(&self.table);
        if self.drawing.is_empty() {
            let prints_all = detail.prints_all || !self.is_best_first;
            return format_first_rows(table, self.kept_name.as_deref(), prints_all);
        }
        let untitled = Table { title: String::new(), ..table.clone() };
        format!("{}\n{}{}", wrap(&table.title), self.drawing, format_titled_table(&untitled))
    }
}

/// How much of a report a text has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Detail {
    /// Every row.
    pub(crate) prints_all: bool,
    /// Every column.
    pub(crate) is_wide: bool,
}

impl Report {
    /// Prints the text, or sets the result in JSON.
    pub(crate) fn print(&self, out: &Output, detail: Detail) -> Result<(), Failure> {
        if out.is_json() {
            out.set_result(&self.to_document());
            return Ok(());
        }
        out.print_line(self.to_text(detail).trim_end())
    }

    /// Writes the page, if a file for it is named; `inputs` are the files that its figures come from.
    pub(crate) fn write_page(self, path: Option<&Path>, inputs: &[&Path]) -> Result<(), Failure> {
        let Some(path) = path else {
            return Ok(());
        };
        page_file::write(path, self.into_page(), inputs)?;
        eprintln!("page written to {}", path.display());
        Ok(())
    }

    fn to_document(&self) -> Value {
        let mut document = self.result.clone();
        document["sentence"] = json!(self.sentence);
        document
    }

    /// The text in lines that fit the terminal.
    pub(crate) fn to_text(&self, detail: Detail) -> String {
        let mut text = wrap(&self.sentence) + "\n";
        for command in &self.commands {
            // A copied line must not be broken.
            let _ = writeln!(text, "To copy: {command}");
        }
        for table in self.tables.iter().filter(|table| !table.table.rows.is_empty()) {
            let _ = write!(text, "\n{}", table.to_text(detail));
        }
        let remarks = self.findings.iter().chain(&self.notes);
        remarks.enumerate().fold(text, |text, (index, remark)| {
            let separator = if index == 0 { "\n" } else { "" };
            text + separator + &wrap(remark) + "\n"
        })
    }

    fn into_page(self) -> Page {
        let has_points =
            |chart: &Chart| chart.series.iter().any(|series| !series.points.is_empty());
        let tables = self.tables.into_iter().map(|table| table.table);
        Page {
            title: self.title,
            sentence: self.sentence,
            tables: tables.filter(|table| !table.rows.is_empty()).collect(),
            commands: self.commands,
            bar_charts: self.bars,
            charts: self.series.into_iter().filter(has_points).collect(),
            notes: self.findings.into_iter().chain(self.notes).collect(),
            ..Page::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use glasscache_sim::page::Series;

    use super::*;

    fn new_report() -> Report {
        let rows = (0..8).map(|row| vec![format!("row-{row}"), "1".to_owned(), "2".to_owned()]);
        let table = ReportTable::new("Rows", ["name", "narrow", "wide"], rows);
        let points = vec![(1.0, 2.0)];
        Report {
            title: "Heading".into(),
            sentence: "Eight rows.".into(),
            commands: vec!["run it".into()],
            tables: vec![
                table.best_first().with_wide_columns([2]),
                ReportTable::new("Empty", ["name"], []),
            ],
            series: vec![
                Chart {
                    title: "Drawn".into(),
                    series: vec![Series { points, ..Series::default() }],
                    ..Chart::default()
                },
                Chart { title: "No points".into(), ..Chart::default() },
            ],
            findings: vec!["One is wrong.".into()],
            notes: vec!["A note.".into()],
            result: json!({ "rows": 8 }),
            ..Report::default()
        }
    }

    #[test]
    fn text_page_and_json_derive_from_one_value() {
        let report = new_report();
        assert_eq!(report.to_document(), json!({ "rows": 8, "sentence": "Eight rows." }));
        let text = report.to_text(Detail::default());
        assert!(text.starts_with("Eight rows.\nTo copy: run it\n\nRows\n"), "{text}");
        assert!(text.contains("--all prints 2 more rows.\n\nOne is wrong.\nA note.\n"), "{text}");
        assert!(!text.contains("wide") && !text.contains("Empty"), "{text}");
        let whole_text = report.to_text(Detail { prints_all: true, is_wide: true });
        assert!(whole_text.contains("wide") && whole_text.contains("row-7"), "{whole_text}");
        let html = report.into_page().to_html();
        for expected in
            ["<h1>Heading</h1>", "row-7", "<th class=\"n\">wide</th>", "Drawn", "One is wrong."]
        {
            assert!(html.contains(expected), "{expected}: {html}");
        }
        assert!(!html.contains("Empty") && !html.contains("No points"), "{html}");
    }

    #[test]
    fn a_drawing_stands_between_the_title_and_its_table() {
        let table = ReportTable::new("Title", ["part"], [vec!["cell".to_owned()]]);
        let text = table.with_drawing("  ====\n".to_owned()).to_text(Detail::default());
        assert_eq!(text, "Title\n  ====\npart\ncell\n");
    }
}
