//! Key streams as CSV: a header line with the columns' names, an empty cell for null.
//!
//! The separator is a comma, or the tab of a header without a comma. A cell in double quotes may hold
//! separators and doubled quotes; a line end within quotes is not supported.

use super::layout::Layout;
use super::lines::Lines;
use super::rows::{KeyCell, LineParser, LineRows, ParsedRow, RowSink};
use super::text::{TIME_FORMATS, WHOLE_NUMBER, parse_whole};
use super::{Columns, Op};
use crate::TraceError;
use std::borrow::Cow;
use std::io::BufRead;

/// The most characters of a header that an error shows.
const HEADER_CHARS_MAX: usize = 60;

/// A CSV key stream.
pub(super) fn open<R: BufRead + Send>(
    name: &str,
    source: R,
    columns_wanted: Columns,
    layout: &Layout,
) -> Result<LineRows<R, CsvParser>, TraceError> {
    let mut lines = Lines::new(name, source);
    let header = lines.read_header()?.ok_or_else(|| TraceError::file(name, "is empty"))?;
    let parser = find_columns(name, &header, layout)?;
    let names = layout.names.clone();
    Ok(LineRows::new(lines, parser, columns_wanted, names, layout.time_unit))
}

/// Parses lines with the columns that the header names: the index of the cell of each known column.
pub(super) struct CsvParser {
    separator: u8,
    key: usize,
    time: Option<usize>,
    size: Option<usize>,
    op: Option<usize>,
    ttl: Option<usize>,
    op_count: Option<usize>,
    column_count: usize,
}

impl LineParser for CsvParser {
    fn append(
        &mut self,
        file: &str,
        line: &[u8],
        row_number: u64,
        sink: &mut RowSink<'_>,
    ) -> Result<(), TraceError> {
        let cells = split_cells(line, self.separator);
        if cells.len() != self.column_count {
            let fault = format!("expected {} fields, found {}", self.column_count, cells.len());
            return Err(TraceError::row(file, row_number, fault));
        }
        let csv_row = CsvRow { file, row_number, cells };
        csv_row.parse_columns(self, sink)?.push(sink);
        Ok(())
    }

    fn has_time(&self) -> bool {
        self.time.is_some()
    }
}

/// Finds the known columns in the header; others are ignored.
fn find_columns(file: &str, header: &str, layout: &Layout) -> Result<CsvParser, TraceError> {
    let is_in_header = |separator: &&u8| header.as_bytes().contains(separator);
    let separator = *b",\t".iter().find(is_in_header).unwrap_or(&b',');
    let cells = split_cells(header.as_bytes(), separator);
    let names: Vec<String> =
        cells.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect();
    let missing_column = |name: &str| {
        let header_excerpt: String = header.chars().take(HEADER_CHARS_MAX).collect();
        let fault = format!("the header line names no column \"{name}\": {header_excerpt:?}");
        TraceError::file(file, fault)
    };
    let find_index = |column: &str| {
        let name = layout.names.name(column);
        let column_index = names.iter().position(|listed_name| listed_name == name);
        if column_index.is_none() && (column == "key" || layout.names.has_custom_name(column)) {
            return Err(missing_column(name));
        }
        Ok(column_index)
    };
    Ok(CsvParser {
        separator,
        key: find_index("key")?.unwrap_or_default(),
        time: find_index("time")?,
        size: find_index("size")?,
        op: find_index("op")?,
        ttl: find_index("ttl")?,
        op_count: find_index("op_count")?,
        column_count: names.len(),
    })
}

/// The cells of a line, without the quotes around them.
fn split_cells(line: &[u8], separator: u8) -> Vec<Cow<'_, [u8]>> {
    if !line.contains(&b'"') {
        return line
            .split(|&byte| byte == separator)
            .map(|cell| Cow::Borrowed(cell.trim_ascii()))
            .collect();
    }
    let mut cells = Vec::new();
    let (mut start, mut is_quoted) = (0, false);
    for (byte_index, &byte) in line.iter().enumerate() {
        if byte == b'"' {
            is_quoted = !is_quoted;
        } else if byte == separator && !is_quoted {
            cells.push(strip_quotes(&line[start..byte_index]));
            start = byte_index + 1;
        }
    }
    cells.push(strip_quotes(&line[start..]));
    cells
}

/// A cell without the quotes around it, doubled quotes within made single.
fn strip_quotes(cell: &[u8]) -> Cow<'_, [u8]> {
    let cell = cell.trim_ascii();
    let [b'"', between_quotes @ .., b'"'] = cell else {
        return Cow::Borrowed(cell);
    };
    if !between_quotes.contains(&b'"') {
        return Cow::Borrowed(between_quotes);
    }
    let mut text = Vec::with_capacity(between_quotes.len());
    let mut was_quote = false;
    for &byte in between_quotes {
        was_quote = byte == b'"' && !was_quote;
        if !was_quote {
            text.push(byte);
        }
    }
    Cow::Owned(text)
}

/// One row, its cells not yet numbers.
struct CsvRow<'a> {
    file: &'a str,
    row_number: u64,
    cells: Vec<Cow<'a, [u8]>>,
}

impl CsvRow<'_> {
    fn non_empty_cell(&self, index: Option<usize>) -> Option<&[u8]> {
        index.map(|index| self.cells[index].as_ref()).filter(|cell| !cell.is_empty())
    }

    fn cell_error(&self, column: &'static str, expected: &str, cell: &[u8]) -> TraceError {
        let cell_text = String::from_utf8_lossy(cell);
        let fault = format!("expected {expected}, found \"{cell_text}\"");
        TraceError::row(self.file, self.row_number, fault).in_column(column)
    }

    fn parse_number(
        &self,
        column: &'static str,
        index: Option<usize>,
    ) -> Result<Option<u64>, TraceError> {
        let Some(cell) = self.non_empty_cell(index) else {
            return Ok(None);
        };
        parse_whole(cell).map(Some).ok_or_else(|| self.cell_error(column, WHOLE_NUMBER, cell))
    }

    fn parse_columns<'r>(
        &'r self,
        parser: &CsvParser,
        sink: &RowSink<'_>,
    ) -> Result<ParsedRow<'r>, TraceError> {
        let null_key_error = || {
            TraceError::row(self.file, self.row_number, "a key may not be null").in_column("key")
        };
        let time_us = self.non_empty_cell(parser.time).map(|cell| {
            sink.parse_time(cell).ok_or_else(|| self.cell_error("time", TIME_FORMATS, cell))
        });
        Ok(ParsedRow {
            row_number: self.row_number,
            key: KeyCell::Text(self.non_empty_cell(Some(parser.key)).ok_or_else(null_key_error)?),
            time: time_us.transpose()?,
            size: self.parse_number("size", parser.size)?,
            ttl: self.parse_number("ttl", parser.ttl)?,
            op: self.non_empty_cell(parser.op).map(Op::parse),
            request_count: self.parse_number("op_count", parser.op_count)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_split_outside_quotes() {
        let cell_texts = |line: &str| -> Vec<String> {
            let cells = split_cells(line.as_bytes(), b',');
            cells.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()
        };
        assert_eq!(cell_texts("a, b ,"), ["a", "b", ""]);
        assert_eq!(cell_texts(r#""a,b", "c ""d""" ,e"#), ["a,b", r#"c "d""#, "e"]);
        assert_eq!(cell_texts(r#"a"b,c"#), [r#"a"b,c"#]);
    }
}
