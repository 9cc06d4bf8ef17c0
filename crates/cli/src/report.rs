//! The text, the page and the JSON of a report.
//!
//! The lab or a command builds a [`Report`]; the command hands it to [`print_report`] and [`write_report_page`], what was
//! measured to [`print_outcome`].

use std::fmt::Write as _;
use std::path::Path;

use glasscache_lab::report::{Outcome, Report, ReportTable};
use glasscache_lab::text::wrap;
use glasscache_sim::page::{Chart, Page, Table};
use serde_json::{Value, json};

use crate::output::{Exit, Failure, Output};
use crate::page_file;
use crate::page_table::{format_first_rows, format_titled_table};

/// How much of a report a text has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Detail {
    /// Every row.
    pub(crate) prints_all: bool,
    /// Every column.
    pub(crate) is_wide: bool,
}

/// Prints the text, or sets the result in JSON.
pub(crate) fn print_report(report: &Report, out: &Output, detail: Detail) -> Result<(), Failure> {
    if out.is_json() {
        out.set_result(&to_document(report));
        return Ok(());
    }
    out.print_line(format_report(report, detail).trim_end())
}

/// Prints what was measured; the failure that ended it early, if one did. No file is written then.
pub(crate) fn print_outcome<E>(
    outcome: &Outcome<E>,
    out: &Output,
    detail: Detail,
    to_failure: impl Fn(&E) -> Failure,
) -> Result<Exit, Failure> {
    print_report(&outcome.report, out, detail)?;
    match &outcome.error {
        Some(error) => Err(to_failure(error)),
        None if outcome.is_stopped => Err(Failure::stopped()),
        None if outcome.wrong_values > 0 => Ok(Exit::Finding),
        None => Ok(Exit::Success),
    }
}

/// Writes the page, if a file for it is named; `inputs` are the files that its figures come from.
pub(crate) fn write_report_page(
    report: Report,
    path: Option<&Path>,
    inputs: &[&Path],
) -> Result<(), Failure> {
    let Some(path) = path else {
        return Ok(());
    };
    page_file::write(path, into_page(report), inputs)?;
    eprintln!("page written to {}", path.display());
    Ok(())
}

fn to_document(report: &Report) -> Value {
    let mut document = report.result.clone();
    document["sentence"] = json!(report.sentence);
    document
}

/// The text in lines that fit the terminal.
pub(crate) fn format_report(report: &Report, detail: Detail) -> String {
    let mut text = wrap(&report.sentence) + "\n";
    for command in &report.commands {
        // A copied line must not be broken.
        let _ = writeln!(text, "To copy: {command}");
    }
    for table in report.tables.iter().filter(|table| !table.table.rows.is_empty()) {
        let _ = write!(text, "\n{}", format_table(table, detail));
    }
    let remarks = report.findings.iter().chain(&report.notes);
    remarks.enumerate().fold(text, |text, (index, remark)| {
        let separator = if index == 0 { "\n" } else { "" };
        text + separator + &wrap(remark) + "\n"
    })
}

/// The page without what is needed to repeat it.
pub(crate) fn into_page(report: Report) -> Page {
    let has_points = |chart: &Chart| chart.series.iter().any(|series| !series.points.is_empty());
    let tables = report.tables.into_iter().map(|table| table.table);
    Page {
        title: report.title,
        sentence: report.sentence,
        tables: tables.filter(|table| !table.rows.is_empty()).collect(),
        commands: report.commands,
        bar_charts: report.bars,
        charts: report.series.into_iter().filter(has_points).collect(),
        notes: report.findings.into_iter().chain(report.notes).collect(),
        ..Page::default()
    }
}

/// The table without its wide columns.
fn to_narrow(table: &ReportTable) -> Table {
    let narrow = |cells: &Vec<String>| {
        let is_narrow = |(index, _): &(usize, &String)| !table.wide_columns.contains(index);
        cells.iter().enumerate().filter(is_narrow).map(|(_, cell)| cell.clone()).collect()
    };
    Table {
        title: table.table.title.clone(),
        header: narrow(&table.table.header),
        rows: table.table.rows.iter().map(narrow).collect(),
    }
}

fn format_table(report_table: &ReportTable, detail: Detail) -> String {
    let narrow_table = (!detail.is_wide).then(|| to_narrow(report_table));
    let table = narrow_table.as_ref().unwrap_or(&report_table.table);
    if report_table.drawing.is_empty() {
        let prints_all = detail.prints_all || !report_table.is_best_first;
        return format_first_rows(table, report_table.kept_name.as_deref(), prints_all);
    }
    let untitled = Table { title: String::new(), ..table.clone() };
    format!("{}\n{}{}", wrap(&table.title), report_table.drawing, format_titled_table(&untitled))
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
                ReportTable { is_best_first: true, wide_columns: vec![2], ..table },
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
        assert_eq!(to_document(&report), json!({ "rows": 8, "sentence": "Eight rows." }));
        let text = format_report(&report, Detail::default());
        assert!(text.starts_with("Eight rows.\nTo copy: run it\n\nRows\n"), "{text}");
        assert!(text.contains("--all prints 2 more rows.\n\nOne is wrong.\nA note.\n"), "{text}");
        assert!(!text.contains("wide") && !text.contains("Empty"), "{text}");
        let whole_text = format_report(&report, Detail { prints_all: true, is_wide: true });
        assert!(whole_text.contains("wide") && whole_text.contains("row-7"), "{whole_text}");
        let html = into_page(report).to_html();
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
        let table = ReportTable { drawing: "  ====\n".to_owned(), ..table };
        let text = format_table(&table, Detail::default());
        assert_eq!(text, "Title\n  ====\npart\ncell\n");
    }
}
