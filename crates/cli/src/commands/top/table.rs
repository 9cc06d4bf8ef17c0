//! The table: its columns, as many as fit, and its rows as lines of text.

use std::fmt::Write as _;
use std::time::Duration;

use glasscache_findings::counters::Counters;
use glasscache_lab::text::{
    format_bytes, format_count, format_decimal, format_duration, format_percent,
};

use super::sampler::{Figures, Row};

/// The width if stdout is not a terminal: all columns fit.
pub(super) const TABLE_WIDTH_MAX: usize = 1000;

/// What is not known.
const UNKNOWN: &str = "-";
/// Spaces between two columns.
const COLUMN_GAP: usize = 2;
/// The widest name of a server; a longer one keeps its end, which differs most between servers.
const SERVER_WIDTH_MAX: usize = 24;
/// The least width of the first column.
const SERVER_WIDTH_MIN: usize = 6;

/// The columns of damemtop after the name: a name is shortened before one of them is left out.
const DAMEMTOP_COLUMNS: usize = 6;
/// The width of a version.
const VERSION_WIDTH: usize = 8;

/// A column after the server's name.
pub(super) struct Column {
    title: &'static str,
    width: usize,
    /// The cell, and what rows are sorted by.
    cell: fn(&Figures) -> (String, Option<f64>),
}

/// First the columns of damemtop in its order, then ours; those that do not fit are left out from the end.
pub(super) const COLUMNS: [Column; 13] = [
    Column {
        title: "version",
        width: VERSION_WIDTH,
        cell: |figures| (shorten_version(&figures.now.version), None),
    },
    Column { title: "fill", width: 7, cell: |figures| percent_cell(figures.now.fill()) },
    Column { title: "hit ratio", width: 9, cell: |figures| percent_cell(figures.hit_ratio()) },
    Column {
        title: "evict/s",
        width: 7,
        cell: |figures| rate_cell(figures.rate(|counted| counted.evictions)),
    },
    Column {
        title: "written/s",
        width: 9,
        cell: |figures| bytes_cell(figures.rate(|counted| counted.written_bytes)),
    },
    Column {
        title: "hits/s",
        width: 9,
        cell: |figures| rate_cell(figures.rate(|counted| counted.hits)),
    },
    Column {
        title: "ops/s",
        width: 9,
        cell: |figures| rate_cell(figures.rate(Counters::operations)),
    },
    Column { title: "conns", width: 7, cell: |figures| count_cell(figures.now.connections) },
    Column {
        title: "refused/s",
        width: 9,
        cell: |figures| rate_cell(figures.rate(|counted| counted.connections_refused)),
    },
    Column { title: "items", width: 11, cell: |figures| count_cell(figures.now.items) },
    Column {
        title: "limit",
        width: 8,
        cell: |figures| bytes_cell(Some(figures.now.limit_bytes as f64)),
    },
    Column {
        title: "sets/s",
        width: 9,
        cell: |figures| rate_cell(figures.rate(|counted| counted.sets)),
    },
    Column { title: "uptime", width: 12, cell: |figures| uptime_cell(figures.now.uptime_s) },
];

fn percent_cell(share: Option<f64>) -> (String, Option<f64>) {
    (format_percent(share), share)
}

fn rate_cell(rate: Option<f64>) -> (String, Option<f64>) {
    (rate.map_or_else(|| UNKNOWN.to_owned(), format_decimal), rate)
}

fn bytes_cell(bytes: Option<f64>) -> (String, Option<f64>) {
    (bytes.map_or_else(|| UNKNOWN.to_owned(), |bytes| format_bytes(bytes as u64)), bytes)
}

fn count_cell(count: u64) -> (String, Option<f64>) {
    (format_count(count), Some(count as f64))
}

fn uptime_cell(seconds: u64) -> (String, Option<f64>) {
    (format_duration(Duration::from_secs(seconds)), Some(seconds as f64))
}

/// `1.6.45-glasscache-0.1.0` as `gc 0.1.0`: the version of the program itself.
fn shorten_version(version: &str) -> String {
    let own_version = version.split_once("-glasscache").map(|(_, own_version)| own_version);
    let text = own_version.map_or_else(
        || version.to_owned(),
        |own_version| format!("gc {}", own_version.trim_start_matches('-')),
    );
    text.trim_end().chars().take(VERSION_WIDTH).collect()
}

/// By which column rows are sorted; without one they stand as they were named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) column: Option<usize>,
    pub(super) is_ascending: bool,
}

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableLine {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// The table of some rows for a terminal of some width.
pub(super) struct Table<'r> {
    rows: Vec<&'r Row>,
    server_width: usize,
    /// How many of [`COLUMNS`] fit.
    pub(super) column_count: usize,
    width: usize,
}

impl<'r> Table<'r> {
    /// The table with the columns that fit into `width` characters.
    pub(super) fn new(rows: &'r [Row], width: usize) -> Table<'r> {
        let longest_name = rows.iter().map(|row| row.server.chars().count()).max().unwrap_or(0);
        let server_width_max = width.saturating_sub(measure(DAMEMTOP_COLUMNS));
        let server_width_max = server_width_max.clamp(SERVER_WIDTH_MIN, SERVER_WIDTH_MAX);
        let server_width = longest_name.clamp(SERVER_WIDTH_MIN, server_width_max);
        let mut used_width = server_width;
        let fits = |column: &&Column| {
            used_width += COLUMN_GAP + column.width;
            used_width <= width
        };
        let column_count = COLUMNS.iter().take_while(fits).count();
        Table { rows: rows.iter().collect(), server_width, column_count, width }
    }

    /// The same table with its rows in this order; unknown cells and servers without response are last.
    pub(super) fn sorted(mut self, order: Order) -> Table<'r> {
        let Some(column) = order.column.and_then(|column| COLUMNS.get(column)) else {
            return self;
        };
        self.rows.sort_by(|first, second| {
            let key = |row: &Row| (column.cell)(row.figures.as_ref().ok()?).1;
            match (key(first), key(second)) {
                (Some(first), Some(second)) if order.is_ascending => first.total_cmp(&second),
                (Some(first), Some(second)) => second.total_cmp(&first),
                (first, second) => second.is_some().cmp(&first.is_some()),
            }
        });
        self
    }

    /// The titles of the columns.
    pub(super) fn header(&self) -> String {
        let titles = COLUMNS.iter().take(self.column_count).map(|column| column.title.to_owned());
        self.format_line("server", titles)
    }

    /// Where a column stands in a line: its first character and its length.
    pub(super) fn column_range(&self, column: usize) -> std::ops::Range<usize> {
        let start = self.server_width + measure(column) + COLUMN_GAP;
        start..start + COLUMNS.get(column).map_or(0, |column| column.width)
    }

    /// The rows as lines.
    pub(super) fn lines(&self) -> Vec<TableLine> {
        self.rows.iter().map(|row| self.to_line(row)).collect()
    }

    fn to_line(&self, row: &Row) -> TableLine {
        let name = shorten_name(&row.server, self.server_width);
        if let Ok(figures) = &row.figures {
            let columns = COLUMNS.iter().take(self.column_count);
            let cells = columns.map(|column| (column.cell)(figures).0);
            return TableLine { text: self.format_line(&name, cells), is_error: false };
        }
        let reason = row.reason().unwrap_or_default();
        let text = format!("{name:<width$}  {reason}", width = self.server_width);
        TableLine { text: text.chars().take(self.width).collect(), is_error: true }
    }

    fn format_line(&self, name: &str, cells: impl Iterator<Item = String>) -> String {
        let mut line = format!("{name:<width$}", width = self.server_width);
        for (cell, column) in cells.zip(&COLUMNS) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{:COLUMN_GAP$}{cell:>width$}", "", width = column.width);
        }
        line
    }
}

/// The width of the first columns with the gaps before them.
fn measure(column_count: usize) -> usize {
    COLUMNS.iter().take(column_count).map(|column| COLUMN_GAP + column.width).sum()
}

/// A name that is too long keeps its end.
fn shorten_name(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let end: String = name.chars().skip(length - width + 1).collect();
    format!("\u{2026}{end}")
}
