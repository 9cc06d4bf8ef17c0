//! One self-contained web page for a result: a summary sentence, tables, charts.
//!
//! One file without a font or a request, so the page works offline, for example from a mail attachment. Charts are SVG
//! whose colours follow the reader's light or dark setting. A small script adds what a reader can do: values under the
//! pointer, lines switched off, tables sorted, data saved, commands copied; without it, and in print, everything is
//! there to be read (docs/decisions/lab.md, 0087).

mod bars;
mod chart;
mod end_labels;
mod scale;
mod series;

use std::fmt::Write as _;

pub use bars::{Bar, BarChart, Panel};
pub use chart::{Chart, Mark};
pub use scale::{format_short_bytes, format_short_number};
pub use series::Series;

/// Styles of the page, light and dark.
pub const STYLE: &str = include_str!("style.css");

/// What the page can do besides being read.
const SCRIPT: &str = include_str!("page.js");

/// A cell of at least this many characters is prose, which is wrapped.
const PROSE_CHARS_MIN: usize = 48;

/// A page to be written.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Heading and window title.
    pub title: String,
    /// The result in one sentence.
    pub sentence: String,
    /// Tables, in order.
    pub tables: Vec<Table>,
    /// Line charts, in order, between the sentence and the tables.
    pub charts: Vec<Chart>,
    /// Charts of stacked bars, before the line charts.
    pub bar_charts: Vec<BarChart>,
    /// Command lines to copy, below the sentence.
    pub commands: Vec<String>,
    /// What a reader has to know to interpret the result. Below the tables.
    pub notes: Vec<String>,
    /// What is needed to repeat the result, as names and values: command, version, date, digests of the inputs.
    pub origin: Vec<(String, String)>,
}

/// A table of text; number columns are right-aligned.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Title above the table.
    pub title: String,
    /// Names of the columns, with units.
    pub header: Vec<String>,
    /// Rows with as many cells as the header.
    pub rows: Vec<Vec<String>>,
}

impl Page {
    /// Writes the page as one HTML document.
    pub fn to_html(&self) -> String {
        let mut html =
            String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        html.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
        // An empty icon stops browsers from requesting one.
        html.push_str("<link rel=\"icon\" href=\"data:,\">");
        let _ = write!(
            html,
            "<title>{}</title><style>{STYLE}</style></head><body><main>",
            escape(&self.title)
        );
        let _ = write!(
            html,
            "<h1>{}</h1><p class=\"answer\">{}</p>",
            escape(&self.title),
            format_inline_code(&self.sentence)
        );
        for command in &self.commands {
            let command = escape(command);
            let _ = write!(html, "<p><code class=\"copy\">{command}</code></p>");
        }
        for bar_chart in &self.bar_charts {
            bar_chart.write(&mut html);
        }
        for chart in &self.charts {
            chart.write(&mut html);
        }
        for table in &self.tables {
            table.write(&mut html);
        }
        for note in &self.notes {
            let _ = write!(html, "<p class=\"note\">{}</p>", format_inline_code(note));
        }
        self.write_origin(&mut html);
        let _ = write!(html, "</main><script>{SCRIPT}</script></body></html>");
        html.push('\n');
        html
    }

    fn write_origin(&self, html: &mut String) {
        if self.origin.is_empty() {
            return;
        }
        html.push_str("<footer><dl>");
        for (name, value) in &self.origin {
            let (opening_tag, closing_tag) = match name.as_str() {
                "command" => ("<code class=\"copy\">", "</code>"),
                _ => ("", ""),
            };
            let _ = write!(
                html,
                "<dt>{}</dt><dd>{opening_tag}{}{closing_tag}</dd>",
                escape(name),
                escape(value)
            );
        }
        html.push_str("</dl></footer>");
    }
}

/// Writes data for the page's script; no text in it can end the element.
fn write_data(html: &mut String, data: &serde_json::Value) {
    let text = data.to_string().replace('<', "\\u003c");
    let _ = write!(html, "<script type=\"application/json\">{text}</script>");
}

impl Table {
    fn write(&self, html: &mut String) {
        let numeric_columns: Vec<bool> =
            (0..self.header.len()).map(|column| self.is_number_column(column)).collect();
        let class_attribute_of = |column: usize| {
            if numeric_columns.get(column) == Some(&true) { " class=\"n\"" } else { "" }
        };
        html.push_str("<section>");
        if !self.title.is_empty() {
            let _ = write!(html, "<h2>{}</h2>", escape(&self.title));
        }
        html.push_str("<div class=\"wide\"><table><thead><tr>");
        for (column, name) in self.header.iter().enumerate() {
            let _ = write!(html, "<th{}>{}</th>", class_attribute_of(column), escape(name));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let class_attribute = match cell.chars().count() {
                    PROSE_CHARS_MIN.. => " class=\"prose\"",
                    _ => class_attribute_of(column),
                };
                let _ = write!(html, "<td{class_attribute}>{}</td>", escape(cell));
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div></section>");
    }

    /// Whether every cell of a column begins with a number; such columns are right-aligned.
    pub fn is_number_column(&self, column: usize) -> bool {
        let mut cells =
            self.rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
        let starts_as_number = |cell: &String| {
            let without_sign = cell.trim_start_matches(['+', '-', '<', '>', '=', ' ']);
            without_sign.starts_with(|c: char| c.is_ascii_digit()) || cell == "-"
        };
        !self.rows.is_empty() && cells.all(starts_as_number)
    }
}

/// Converts text between backticks to HTML `<code>` elements.
fn format_inline_code(text: &str) -> String {
    let mut html = String::new();
    for (index, segment) in text.split('`').enumerate() {
        if index > 0 {
            html.push_str(if index % 2 == 1 { "<code>" } else { "</code>" });
        }
        html.push_str(&escape(segment));
    }
    if text.matches('`').count() % 2 == 1 {
        html.push_str("</code>");
    }
    html
}

/// Escapes text for use between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_names_from_a_trace() {
        let table = Table {
            title: "<b>".into(),
            header: vec!["a\"&".into()],
            rows: vec![vec!["</td>".into()]],
        };
        let html =
            Page { title: "</title>".into(), tables: vec![table], ..Page::default() }.to_html();
        assert!(html.contains("<td>&lt;/td&gt;</td>") && html.contains("<th>a&quot;&amp;</th>"));
        assert_eq!(html.matches("</title>").count(), 1);
    }

    #[test]
    fn formats_backticks_as_code() {
        assert_eq!(format_inline_code("use `lru:<n>`."), "use <code>lru:&lt;n&gt;</code>.");
        assert_eq!(format_inline_code("half `open"), "half <code>open</code>");
    }

    #[test]
    fn a_page_of_many_points_stays_small() {
        let points = (1..200_000).map(|x| (f64::from(x), 1.0 / f64::from(x))).collect();
        let series = Series { label: "lru".into(), points, ..Series::default() };
        let charts =
            vec![Chart { series: vec![series; 12], is_x_log: true, ..Chart::default() }; 3];
        assert!(Page { charts, ..Page::default() }.to_html().len() < 700_000);
    }
}
