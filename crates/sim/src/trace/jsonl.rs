//! Key streams as JSON lines: one object a row, with the columns' names as members.

use super::lines::Lines;
use super::rows::{LineForm, LineRows, RowFields};
use super::{Batch, Columns};
use crate::TraceError;
use serde_json::Value;
use std::io::BufRead;

/// A key stream of one JSON object a line.
pub(super) type Reader<R> = LineRows<R, Objects>;

impl<R: BufRead> Reader<R> {
    pub(super) fn new(name: &str, source: R, wanted: Columns) -> Self {
        Self {
            lines: Lines::new(name, source),
            form: Objects,
            wanted,
        }
    }
}

/// Lines that are objects.
pub(super) struct Objects;

impl LineForm for Objects {
    fn append(
        &self,
        file: &str,
        line: &[u8],
        row: u64,
        wanted: Columns,
        batch: &mut Batch,
    ) -> Result<(), TraceError> {
        Row::parse(file, line, row)?.fields()?.push(wanted, batch);
        Ok(())
    }
}

/// One parsed line; also used for the lines of a request log.
pub(super) struct Row<'a> {
    file: &'a str,
    at: u64,
    object: serde_json::Map<String, Value>,
}

impl<'a> Row<'a> {
    pub(super) fn parse(file: &'a str, line: &[u8], row: u64) -> Result<Self, TraceError> {
        match serde_json::from_slice(line) {
            Ok(Value::Object(object)) => Ok(Self {
                file,
                at: row,
                object,
            }),
            Ok(_) => Err(TraceError::row(file, row, "expected a JSON object")),
            Err(error) => Err(TraceError::row(
                file,
                row,
                format!("not a valid JSON object: {error}"),
            )),
        }
    }

    /// The member, unless it is missing or null.
    pub(super) fn member(&self, column: &str) -> Option<&Value> {
        self.object.get(column).filter(|value| !value.is_null())
    }

    pub(super) fn number(&self, column: &'static str, max: u64) -> Result<Option<u64>, TraceError> {
        let Some(value) = self.member(column) else {
            return Ok(None);
        };
        let fault = || self.fault(column, &format!("a whole number from 0 to {max}"), value);
        value
            .as_u64()
            .filter(|&number| number <= max)
            .map(Some)
            .ok_or_else(fault)
    }

    pub(super) fn text(&self, column: &'static str) -> Result<Option<&str>, TraceError> {
        let Some(value) = self.member(column) else {
            return Ok(None);
        };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.fault(column, "a string", value))
    }

    pub(super) fn required<T>(
        &self,
        column: &'static str,
        value: Option<T>,
    ) -> Result<T, TraceError> {
        let fault = || TraceError::row(self.file, self.at, "is missing or null").in_column(column);
        value.ok_or_else(fault)
    }

    pub(super) fn fault(&self, column: &'static str, wanted: &str, found: &Value) -> TraceError {
        let mut found = found.to_string();
        found.truncate(
            found
                .char_indices()
                .nth(60)
                .map_or(found.len(), |(at, _)| at),
        );
        TraceError::row(
            self.file,
            self.at,
            format!("expected {wanted}, found {found}"),
        )
        .in_column(column)
    }

    fn fields(&self) -> Result<RowFields<'_>, TraceError> {
        Ok(RowFields {
            row: self.at,
            key: self.required("key", self.number("key", u64::MAX)?)?,
            time: self.number("time", u64::MAX)?,
            size: self.number("size", u64::from(u32::MAX))?,
            op: self.text("op")?.map(str::as_bytes),
            ttl: self.number("ttl", u64::from(u32::MAX))?,
        })
    }
}
