//! Key streams as CSV: a header line with the columns' names, an empty field for null.

use super::lines::Lines;
use super::rows::{Cells, LineForm, LineRows};
use super::{Batch, Columns};
use crate::TraceError;
use std::io::BufRead;

/// Characters of a header that an error shows.
const HEADER_SHOWN: usize = 60;

/// A CSV key stream.
pub(super) type Reader<R> = LineRows<R, Places>;

impl<R: BufRead> Reader<R> {
    pub(super) fn new(name: &str, source: R, wanted: Columns) -> Result<Self, TraceError> {
        let mut lines = Lines::new(name, source);
        let header = lines
            .header()?
            .ok_or_else(|| TraceError::file(name, "is empty"))?;
        Ok(Self {
            form: places(name, &header)?,
            lines,
            wanted,
        })
    }
}

/// Where each known column stands in a row.
#[derive(Default)]
pub(super) struct Places {
    key: usize,
    time: Option<usize>,
    size: Option<usize>,
    op: Option<usize>,
    ttl: Option<usize>,
    count: usize,
}

impl LineForm for Places {
    fn append(
        &self,
        file: &str,
        line: &[u8],
        row: u64,
        wanted: Columns,
        batch: &mut Batch,
    ) -> Result<(), TraceError> {
        Row::split(file, line, row, self.count)?
            .cells(self)?
            .push(wanted, batch);
        Ok(())
    }
}

/// Finds the known columns in the header; others are ignored.
fn places(file: &str, header: &str) -> Result<Places, TraceError> {
    let names: Vec<&str> = header
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
        .collect();
    let place = |name: &str| names.iter().position(|&other| other == name);
    let missing = || {
        let found: String = header.chars().take(HEADER_SHOWN).collect();
        let fault = format!("the header line names no column \"key\": {found:?}");
        TraceError::file(file, fault)
    };
    Ok(Places {
        key: place("key").ok_or_else(missing)?,
        time: place("time"),
        size: place("size"),
        op: place("op"),
        ttl: place("ttl"),
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

    fn text(&self, place: Option<usize>) -> Option<&'a [u8]> {
        place
            .map(|place| self.fields[place])
            .filter(|field| !field.is_empty())
    }

    fn whole(
        &self,
        column: &'static str,
        place: Option<usize>,
        max: u64,
    ) -> Result<Option<u64>, TraceError> {
        let Some(field) = self.text(place) else {
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

    fn cells(&self, places: &Places) -> Result<Cells<'a>, TraceError> {
        let null =
            || TraceError::row(self.file, self.number, "a key may not be null").in_column("key");
        Ok(Cells {
            row: self.number,
            key: self
                .whole("key", Some(places.key), u64::MAX)?
                .ok_or_else(null)?,
            time: self.whole("time", places.time, u64::MAX)?,
            size: self.whole("size", places.size, u64::from(u32::MAX))?,
            ttl: self.whole("ttl", places.ttl, u64::from(u32::MAX))?,
            op: self.text(places.op),
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
