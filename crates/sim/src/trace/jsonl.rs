//! Key streams as JSON lines: one object a row, with the columns' names as members.

use super::layout::{ColumnNames, Layout};
use super::lines::Lines;
use super::rows::{KeyCell, LineParser, LineRows, ParsedRow, RowSink};
use super::text::{TIME_FORMATS, WHOLE_NUMBER, whole_number_of};
use super::{Columns, Op};
use crate::TraceError;
use serde_json::Value;
use std::io::BufRead;

/// A key stream of one JSON object a line.
pub(super) fn open<R: BufRead + Send>(
    name: &str,
    source: R,
    columns_wanted: Columns,
    layout: &Layout,
) -> LineRows<R, JsonParser> {
    let parser = JsonParser { names: layout.names.clone(), has_time: false };
    let (lines, names) = (Lines::new(name, source), layout.names.clone());
    LineRows::new(lines, parser, columns_wanted, names, layout.time_unit)
}

/// Parses lines that are objects.
pub(super) struct JsonParser {
    names: ColumnNames,
    /// Whether a row had a time.
    has_time: bool,
}

impl LineParser for JsonParser {
    fn append(
        &mut self,
        file: &str,
        line: &[u8],
        row_number: u64,
        sink: &mut RowSink<'_>,
    ) -> Result<(), TraceError> {
        let json_row = JsonRow::parse(file, line, row_number)?;
        let parsed_row = json_row.parse_columns(&self.names, sink)?;
        self.has_time |= parsed_row.time.is_some();
        parsed_row.push(sink);
        Ok(())
    }

    fn has_time(&self) -> bool {
        self.has_time
    }
}

/// One parsed line; also used for the lines of a request log.
pub(super) struct JsonRow<'a> {
    file: &'a str,
    row_number: u64,
    object: serde_json::Map<String, Value>,
}

impl<'a> JsonRow<'a> {
    pub(super) fn parse(file: &'a str, line: &[u8], row_number: u64) -> Result<Self, TraceError> {
        match serde_json::from_slice(line) {
            Ok(Value::Object(object)) => Ok(Self { file, row_number, object }),
            Ok(_) => Err(TraceError::row(file, row_number, "expected a JSON object")),
            Err(error) => {
                Err(TraceError::row(file, row_number, format!("not a valid JSON object: {error}")))
            }
        }
    }

    /// The member, unless it is missing or null.
    pub(super) fn member(&self, column: &str) -> Option<&Value> {
        self.object.get(column).filter(|value| !value.is_null())
    }

    pub(super) fn number(&self, column: &'static str, max: u64) -> Result<Option<u64>, TraceError> {
        let member = self.member(column);
        member.map(|value| self.parse_whole_number(column, value, max)).transpose()
    }

    fn parse_whole_number(
        &self,
        column: &'static str,
        value: &Value,
        max: u64,
    ) -> Result<u64, TraceError> {
        let range_error =
            || self.member_error(column, &format!("a whole number from 0 to {max}"), value);
        to_whole_number(value).filter(|&number| number <= max).ok_or_else(range_error)
    }

    pub(super) fn text(&self, column: &'static str) -> Result<Option<&str>, TraceError> {
        let Some(value) = self.member(column) else {
            return Ok(None);
        };
        value.as_str().map(Some).ok_or_else(|| self.member_error(column, "a string", value))
    }

    pub(super) fn require_value<T>(
        &self,
        column: &'static str,
        value: Option<T>,
    ) -> Result<T, TraceError> {
        let missing_error =
            || TraceError::row(self.file, self.row_number, "is missing or null").in_column(column);
        value.ok_or_else(missing_error)
    }

    pub(super) fn member_error(
        &self,
        column: &'static str,
        expected: &str,
        value: &Value,
    ) -> TraceError {
        let mut value_text = value.to_string();
        value_text.truncate(
            value_text
                .char_indices()
                .nth(60)
                .map_or(value_text.len(), |(byte_index, _)| byte_index),
        );
        TraceError::row(
            self.file,
            self.row_number,
            format!("expected {expected}, found {value_text}"),
        )
        .in_column(column)
    }

    fn parse_columns(
        &self,
        names: &ColumnNames,
        sink: &RowSink<'_>,
    ) -> Result<ParsedRow<'_>, TraceError> {
        let parse_whole = |column: &'static str| {
            let to_number = |value| {
                to_whole_number(value).ok_or_else(|| self.member_error(column, WHOLE_NUMBER, value))
            };
            self.member(names.name(column)).map(to_number).transpose()
        };
        let key_value = self.require_value("key", self.member(names.name("key")))?;
        let key =
            match key_value {
                Value::String(text) => KeyCell::Text(text.as_bytes()),
                value => KeyCell::Number(value.as_u64().ok_or_else(|| {
                    self.member_error("key", "a string or a whole number", value)
                })?),
            };
        let time_us = self.member(names.name("time")).map(|value| {
            let text = match value {
                Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            sink.parse_time(text.as_bytes())
                .ok_or_else(|| self.member_error("time", TIME_FORMATS, value))
        });
        let op = self.member(names.name("op")).map(|value| {
            let text = value.as_str();
            text.ok_or_else(|| self.member_error("op", "a string", value))
        });
        Ok(ParsedRow {
            row_number: self.row_number,
            key,
            time: time_us.transpose()?,
            size: parse_whole("size")?,
            op: op.transpose()?.map(|name| Op::parse(name.as_bytes())),
            ttl: parse_whole("ttl")?,
            request_count: parse_whole("op_count")?,
        })
    }
}

/// A whole number, also one that is written as a float.
fn to_whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| whole_number_of(value.as_f64()?))
}
