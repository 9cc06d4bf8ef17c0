//! Key streams as Parquet files: the requested columns, batch by batch.

use super::column::ColumnDecoder;
use super::layout::{ColumnNames, Layout};
use super::table::{ColumnRef, RowRanges, Table};
use super::text::TextKeys;
use super::{BATCH_ROWS, Batch, Columns, KeyStream, Op, StreamFacts};
use crate::TraceError;
use parquet::file::reader::ChunkReader;

/// A Parquet key stream.
pub(super) struct Reader<S: ChunkReader + 'static> {
    table: Table<S>,
    columns: Columns,
    column_refs: PerColumn<ColumnRef>,
    decoders: Option<PerColumn<ColumnDecoder>>,
    row_ranges: RowRanges,
    scratch: Vec<Option<u64>>,
    names: ColumnNames,
    /// Nanoseconds of one unit of time; `None` if times stay as they are.
    time_ns: Option<u64>,
    has_text_keys: bool,
    keys: TextKeys,
}

/// One value for each column of the format.
struct PerColumn<T> {
    key: T,
    time: Option<T>,
    size: Option<T>,
    op: Option<T>,
    ttl: Option<T>,
}

impl<S: ChunkReader + 'static> Reader<S> {
    pub(super) fn new(
        file: &str,
        source: S,
        columns: Columns,
        layout: &Layout,
    ) -> Result<Self, TraceError> {
        let table = Table::open(file, source)?;
        let names = &layout.names;
        let (key, has_text_keys) = table
            .find_keys(names.name("key"))
            .and_then(|found| found.ok_or_else(|| table.missing(names.name("key"))))
            .map_err(|error| names.in_file(error))?;
        let numbers = |column: &'static str| {
            let found = table.find_numbers_as(column, names.name(column));
            given(&table, names, column, found)
        };
        // All known columns are looked up, even those that are not wanted, so that a wrong type is found early.
        let column_refs = PerColumn {
            key,
            time: numbers("time")?,
            size: numbers("size")?,
            op: given(
                &table,
                names,
                "op",
                table.find_strings_as("op", names.name("op")),
            )?,
            ttl: numbers("ttl")?,
        };
        let stated = column_refs.time.and_then(|time| table.time_unit_ns(time));
        let time_ns = layout
            .time_unit
            .map(|unit| stated.unwrap_or(unit.us() * 1000));
        let row_ranges = RowRanges::of(&table);
        Ok(Self {
            table,
            columns,
            column_refs,
            decoders: None,
            row_ranges,
            scratch: Vec::new(),
            names: names.clone(),
            time_ns,
            has_text_keys,
            keys: TextKeys::default(),
        })
    }

    /// Opens the wanted columns of a row group.
    fn open_columns(
        &self,
        group: usize,
        first_row: u64,
    ) -> Result<PerColumn<ColumnDecoder>, TraceError> {
        let open = |column_ref: ColumnRef| self.table.open_column(group, first_row, column_ref);
        let open_if = |is_wanted: bool, column_ref: Option<ColumnRef>| {
            column_ref.filter(|_| is_wanted).map(open).transpose()
        };
        Ok(PerColumn {
            key: open(self.column_refs.key)?,
            time: open_if(self.columns.time, self.column_refs.time)?,
            size: open_if(self.columns.size, self.column_refs.size)?,
            op: open_if(self.columns.op, self.column_refs.op)?,
            ttl: open_if(self.columns.ttl, self.column_refs.ttl)?,
        })
    }

    /// Appends `rows` rows; `first` is the number of the first row, counted from 0.
    fn append(&mut self, first: u64, rows: usize, batch: &mut Batch) -> Result<(), TraceError> {
        let Some(decoders) = &mut self.decoders else {
            return Ok(());
        };
        if self.has_text_keys {
            let keys = &mut self.keys;
            decoders
                .key
                .required_strings(rows, |text| batch.key.push(keys.key(text)))?;
        } else {
            decoders.key.keys(rows, &mut batch.key)?;
        }
        if self.columns.time {
            match &mut decoders.time {
                Some(time) => numbers(time, rows, u64::MAX, &mut self.scratch)?,
                None => self.scratch.clear(),
            }
            let time_at = |at: usize| self.scratch.get(at).copied().flatten();
            let unit = self.time_ns;
            let converted = |at: usize| match time_at(at) {
                Some(time) => unit.map_or(time, |unit| in_us(time, unit)),
                None => first + at as u64,
            };
            batch.time.extend((0..rows).map(converted));
        }
        if self.columns.size {
            narrow(
                decoders.size.as_mut(),
                rows,
                &mut self.scratch,
                &mut batch.size,
            )?;
        }
        if self.columns.ttl {
            narrow(
                decoders.ttl.as_mut(),
                rows,
                &mut self.scratch,
                &mut batch.ttl,
            )?;
        }
        if self.columns.op {
            match &mut decoders.op {
                Some(op) => op.strings(rows, |text| batch.op.push(text.map(Op::parse)))?,
                None => batch.op.resize(batch.op.len() + rows, None),
            }
        }
        Ok(())
    }
}

/// Microseconds of a time in units of so many nanoseconds.
fn in_us(time: u64, unit_ns: u64) -> u64 {
    let us = u128::from(time) * u128::from(unit_ns) / 1000;
    u64::try_from(us).unwrap_or(u64::MAX)
}

/// A column that was found, or an error if the caller named one that the file does not have.
fn given<S: ChunkReader + 'static>(
    table: &Table<S>,
    names: &ColumnNames,
    column: &'static str,
    found: Result<Option<ColumnRef>, TraceError>,
) -> Result<Option<ColumnRef>, TraceError> {
    let found = found.map_err(|error| names.in_file(error))?;
    if found.is_none() && names.is_given(column) {
        return Err(table.missing(names.name(column)));
    }
    Ok(found)
}

fn numbers(
    decoder: &mut ColumnDecoder,
    rows: usize,
    max: u64,
    scratch: &mut Vec<Option<u64>>,
) -> Result<(), TraceError> {
    scratch.clear();
    decoder.numbers(rows, max, scratch)
}

/// Appends a column of 32-bit numbers, nulls where the file has no such column.
fn narrow(
    decoder: Option<&mut ColumnDecoder>,
    rows: usize,
    scratch: &mut Vec<Option<u64>>,
    into: &mut Vec<Option<u32>>,
) -> Result<(), TraceError> {
    match decoder {
        Some(decoder) => {
            numbers(decoder, rows, u32::MAX.into(), scratch)?;
            into.extend(
                scratch
                    .iter()
                    .map(|number| number.map(|number| number as u32)),
            );
        }
        None => into.resize(into.len() + rows, None),
    }
    Ok(())
}

impl<S: ChunkReader + Send + 'static> KeyStream for Reader<S> {
    fn read(&mut self, batch: &mut Batch) -> Result<usize, TraceError> {
        batch.clear();
        if let Some((group, rows, is_first)) = self.row_ranges.next(BATCH_ROWS) {
            let mut append = || {
                if is_first {
                    self.decoders = Some(self.open_columns(group, rows.start)?);
                }
                self.append(rows.start, (rows.end - rows.start) as usize, batch)
            };
            append().map_err(|error| self.names.in_file(error))?;
        }
        Ok(batch.len())
    }

    fn rows(&self) -> Option<u64> {
        Some(self.table.rows())
    }

    fn is_truncated(&self) -> bool {
        false
    }

    fn facts(&self) -> StreamFacts {
        StreamFacts {
            has_time: self.column_refs.time.is_some(),
            hashed_keys: self.keys.hashed(),
            key_collisions: self.keys.collisions(),
            skipped_rows: 0,
        }
    }
}
