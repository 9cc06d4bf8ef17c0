//! Key streams as CSV: a header line with the columns' names, an empty field for null.

use super::lines::Lines;
use super::rows::{LineForm, LineRows, RowFields};
use super::{Batch, Columns};
use crate::TraceError;
use std::io::BufRead;

/// Characters of a header that an error shows.
const HEADER_CHARS_MAX: usize = 60;

/// A CSV key stream.
pub(super) type Reader<R> = LineRows<R, FieldIndexes>;

impl<R: BufRead> Reader<R> {
    pub(super) fn new(name: &str, source: R, wanted: Columns) -> Result<Self, TraceError> {
        let mut lines = Lines::new(name, source);
        let header = lines
            .header()?
            .ok_or_else(|| TraceError::file(name, "is empty"))?;
        Ok(Self {
            form: find_fields(name, &header)?,
            lines,
            wanted,
        })
    }
}

/// The field index of each known column.
#[derive(Default)]
pub(super) struct FieldIndexes {
    key: usize,
    time: Option<usize>,
    size: Option<usize>,
    op: Option<usize>,
    ttl: Option<usize>,
    count: usize,
}

impl LineForm for FieldIndexes {
    fn append(
        &self,
        file: &str,
        line: &[u8],
        row: u64,
        wanted: Columns,
        batch: &mut Batch,
    ) -> Result<(), TraceError> {
        Row::split(file, line, row, self.count)?
            .fields(self)?
            .push(wanted, batch);
        Ok(())
    }
}

/// Finds the known columns in the header; others are ignored.
fn find_fields(file: &str, header: &str) -> Result<FieldIndexes, TraceError> {
    let names: Vec<&str> = header
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
        .collect();
    let index = |name: &str| names.iter().position(|&other| other == name);
    let missing = || {
        let found: String = header.chars().take(HEADER_CHARS_MAX).collect();
        let fault = format!("the header line names no column \"key\": {found:?}");
        TraceError::file(file, fault)
    };
    Ok(FieldIndexes {
        key: index("key").ok_or_else(missing)?,
        time: index("time"),
        size: index("size"),
        op: index("op"),
        ttl: index("ttl"),
        count: names.len(),
    })
}

/// One row, its fields not yet numbers.
struct Row<'a> {
    file: &'a str,
    number: u64,
    fields: Vec<&'a [u8]>,
}

impl<'a> Row<'a> {
    fn split(file: &'a str, line: &'a [u8], row: u64, count: usize) -> Result<Self, TraceError> {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b',').map(unquoted).collect();
        if fields.len() != count {
            let fault = format!("expected {count} fields, found {}", fields.len());
            return Err(TraceError::row(file, row, fault));
        }
        Ok(Self {
            file,
            number: row,
            fields,
        })
    }

    fn text(&self, index: Option<usize>) -> Option<&'a [u8]> {
        index
            .map(|index| self.fields[index])
            .filter(|field| !field.is_empty())
    }

    fn number(
        &self,
        column: &'static str,
        index: Option<usize>,
        max: u64,
    ) -> Result<Option<u64>, TraceError> {
        let Some(field) = self.text(index) else {
            return Ok(None);
        };
        let parsed = std::str::from_utf8(field)
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        let fault = || {
            let found = String::from_utf8_lossy(field);
            let fault = format!("expected a whole number from 0 to {max}, found \"{found}\"");
            TraceError::row(self.file, self.number, fault).in_column(column)
        };
        parsed
            .filter(|&number| number <= max)
            .map(Some)
            .ok_or_else(fault)
    }

    fn fields(&self, indexes: &FieldIndexes) -> Result<RowFields<'a>, TraceError> {
        let null =
            || TraceError::row(self.file, self.number, "a key may not be null").in_column("key");
        Ok(RowFields {
            row: self.number,
            key: self
                .number("key", Some(indexes.key), u64::MAX)?
                .ok_or_else(null)?,
            time: self.number("time", indexes.time, u64::MAX)?,
            size: self.number("size", indexes.size, u64::from(u32::MAX))?,
            ttl: self.number("ttl", indexes.ttl, u64::from(u32::MAX))?,
            op: self.text(indexes.op),
        })
    }
}

fn unquoted(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    match field {
        [b'"', inner @ .., b'"'] => inner,
        _ => field,
    }
}
