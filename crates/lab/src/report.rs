//! What a measurement found, as one value: its text, its page and its JSON derive from it, so that they say the same.
//!
//! The text has less than the page where a table says so: only its first rows, unless all are asked for, and its narrow
//! columns, unless it is to be wide.

use glasscache_sim::page::{BarChart, Chart, Table};
use serde_json::Value;

/// The result of a measurement or of a command.
#[derive(Debug, Default)]
pub struct Report {
    /// What was examined: the heading of the page.
    pub title: String,
    /// The conclusion in some sentences.
    pub sentence: String,
    /// Command lines to copy.
    pub commands: Vec<String>,
    /// What was found, in order; a table without rows is left out.
    pub tables: Vec<ReportTable>,
    /// The charts of stacked bars of the page.
    pub bars: Vec<BarChart>,
    /// The line charts of the page; one without points is left out.
    pub series: Vec<Chart>,
    /// What is wrong with what was examined or measured.
    pub findings: Vec<String>,
    /// What a reader has to know to interpret the result.
    pub notes: Vec<String>,
    /// The result in JSON, to which the sentence is added.
    pub result: Value,
}

/// A table of a report.
#[derive(Debug, Default)]
pub struct ReportTable {
    /// Title, header and all rows.
    pub table: Table,
    /// The text has only the first rows, unless all are asked for.
    pub is_best_first: bool,
    /// The row of this name is printed although it is not among the first.
    pub kept_name: Option<String>,
    /// The text has these columns only if it is wide.
    pub wide_columns: Vec<usize>,
    /// Lines above the table in the text; the page has a chart instead.
    pub drawing: String,
}

/// What a measurement of running servers found, to its end or as far as it came.
#[derive(Debug)]
pub struct Outcome<E> {
    /// The result.
    pub report: Report,
    /// Values that were absent or differed from those stored.
    pub wrong_values: u64,
    /// Whether it was stopped on request.
    pub is_stopped: bool,
    /// What ended it early.
    pub error: Option<E>,
}

impl ReportTable {
    /// A table with these columns.
    pub fn new(
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
}
