//! Key streams as Parquet files: the requested columns, batch by batch.

use super::column::ColumnDecoder;
use super::layout::{ColumnNames, Layout};
use super::parquet_file::{ColumnRef, ParquetFile, RowRanges};
use super::text::TextKeys;
use super::{BATCH_ROWS, Batch, Columns, KeyStream, Op, StreamFacts};
use crate::TraceError;
use parquet::file::reader::ChunkReader;

/// A Parquet key stream.
pub(super) struct KeyReader<S: ChunkReader + 'static> {
    parquet_file: ParquetFile<S>,
    columns_wanted: Columns,
    column_refs: PerColumn<ColumnRef>,
    decoders: Option<PerColumn<ColumnDecoder>>,
    row_ranges: RowRanges,
    /// Numbers of the column that is being decoded.
    scratch: Vec<Option<u64>>,
    names: ColumnNames,
    /// Nanoseconds of one unit of time; `None` if times stay as they are.
    unit_ns: Option<u64>,
    has_unitless_time: bool,
    has_text_keys: bool,
    text_keys: TextKeys,
}

/// One value for each column of the format.
struct PerColumn<T> {
    key: T,
    time: Option<T>,
    size: Option<T>,
    op: Option<T>,
    ttl: Option<T>,
}

impl<S: ChunkReader + 'static> KeyReader<S> {
    pub(super) fn new(
        file: &str,
        source: S,
        columns_wanted: Columns,
        layout: &Layout,
    ) -> Result<Self, TraceError> {
        let parquet_file = ParquetFile::open(file, source)?;
        let names = &layout.names;
        let (key, has_text_keys) = parquet_file
            .find_key_column(names.name("key"))
            .and_then(|column| {
                column.ok_or_else(|| parquet_file.missing_column_error(names.name("key")))
            })
            .map_err(|error| names.with_name_in_file(error))?;
        let find_number_column = |column: &'static str| {
            let found_column = parquet_file.find_number_column_as(column, names.name(column));
            column_if_present(&parquet_file, names, column, found_column)
        };
        // All known columns are looked up, even those that are not wanted, so that a wrong type is found early.
        let column_refs = PerColumn {
            key,
            time: find_number_column("time")?,
            size: find_number_column("size")?,
            op: column_if_present(
                &parquet_file,
                names,
                "op",
                parquet_file.find_string_column_as("op", names.name("op")),
            )?,
            ttl: find_number_column("ttl")?,
        };
        let unit_in_file = column_refs.time.and_then(|time| parquet_file.time_unit_ns(time));
        let has_unitless_time = column_refs.time.is_some() && unit_in_file.is_none();
        let unit_ns =
            layout.time_unit.map(|unit| unit_in_file.unwrap_or(unit.microseconds() * 1000));
        let row_ranges = RowRanges::of(&parquet_file);
        Ok(Self {
            parquet_file,
            columns_wanted,
            column_refs,
            decoders: None,
            row_ranges,
            scratch: Vec::new(),
            names: names.clone(),
            unit_ns,
            has_unitless_time,
            has_text_keys,
            text_keys: TextKeys::default(),
        })
    }

    /// Opens the wanted columns of a row group.
    fn open_columns(
        &self,
        group: usize,
        first_row: u64,
    ) -> Result<PerColumn<ColumnDecoder>, TraceError> {
        let open =
            |column_ref: ColumnRef| self.parquet_file.open_column(group, first_row, column_ref);
        let open_if = |is_wanted: bool, column_ref: Option<ColumnRef>| {
            column_ref.filter(|_| is_wanted).map(open).transpose()
        };
        Ok(PerColumn {
            key: open(self.column_refs.key)?,
            time: open_if(self.columns_wanted.time, self.column_refs.time)?,
            size: open_if(self.columns_wanted.size, self.column_refs.size)?,
            op: open_if(self.columns_wanted.op, self.column_refs.op)?,
            ttl: open_if(self.columns_wanted.ttl, self.column_refs.ttl)?,
        })
    }

    /// Appends `row_count` rows; `first_row` is the number of the first row, counted from 0.
    fn append(
        &mut self,
        first_row: u64,
        row_count: usize,
        batch: &mut Batch,
    ) -> Result<(), TraceError> {
        let Some(decoders) = &mut self.decoders else {
            return Ok(());
        };
        if self.has_text_keys {
            let text_keys = &mut self.text_keys;
            decoders.key.read_required_strings(row_count, |text| {
                batch.key.push(text_keys.key_of_text(text));
            })?;
        } else {
            decoders.key.read_keys(row_count, &mut batch.key)?;
        }
        if self.columns_wanted.time {
            match &mut decoders.time {
                Some(decoder) => decode_numbers(decoder, row_count, u64::MAX, &mut self.scratch)?,
                None => self.scratch.clear(),
            }
            let time_in_file = |offset: usize| self.scratch.get(offset).copied().flatten();
            let unit_ns = self.unit_ns;
            let row_time = |offset: usize| match time_in_file(offset) {
                Some(time) => unit_ns.map_or(time, |unit_ns| to_microseconds(time, unit_ns)),
                None => first_row + offset as u64,
            };
            batch.time.extend((0..row_count).map(row_time));
        }
        if self.columns_wanted.size {
            append_u32s(decoders.size.as_mut(), row_count, &mut self.scratch, &mut batch.size)?;
        }
        if self.columns_wanted.ttl {
            append_u32s(decoders.ttl.as_mut(), row_count, &mut self.scratch, &mut batch.ttl)?;
        }
        if self.columns_wanted.op {
            match &mut decoders.op {
                Some(decoder) => decoder.read_strings(row_count, |text| {
                    batch.op.push(text.map(Op::parse));
                })?,
                None => batch.op.resize(batch.op.len() + row_count, None),
            }
        }
        Ok(())
    }
}

/// Microseconds of a time in units of this many nanoseconds.
fn to_microseconds(time: u64, unit_ns: u64) -> u64 {
    let us = u128::from(time) * u128::from(unit_ns) / 1000;
    u64::try_from(us).unwrap_or(u64::MAX)
}

/// A column that was found, or an error if the caller named one that the file does not have.
fn column_if_present<S: ChunkReader + 'static>(
    parquet_file: &ParquetFile<S>,
    names: &ColumnNames,
    column: &'static str,
    found_column: Result<Option<ColumnRef>, TraceError>,
) -> Result<Option<ColumnRef>, TraceError> {
    let found_column = found_column.map_err(|error| names.with_name_in_file(error))?;
    if found_column.is_none() && names.has_custom_name(column) {
        return Err(parquet_file.missing_column_error(names.name(column)));
    }
    Ok(found_column)
}

fn decode_numbers(
    decoder: &mut ColumnDecoder,
    row_count: usize,
    max: u64,
    scratch: &mut Vec<Option<u64>>,
) -> Result<(), TraceError> {
    scratch.clear();
    decoder.read_numbers(row_count, max, scratch)
}

/// Appends a column of 32-bit numbers, nulls where the file has no such column.
fn append_u32s(
    decoder: Option<&mut ColumnDecoder>,
    row_count: usize,
    scratch: &mut Vec<Option<u64>>,
    output: &mut Vec<Option<u32>>,
) -> Result<(), TraceError> {
    match decoder {
        Some(decoder) => {
            decode_numbers(decoder, row_count, u32::MAX.into(), scratch)?;
            output.extend(scratch.iter().map(|number| number.map(|number| number as u32)));
        }
        None => output.resize(output.len() + row_count, None),
    }
    Ok(())
}

impl<S: ChunkReader + Send + 'static> KeyStream for KeyReader<S> {
    fn read(&mut self, batch: &mut Batch) -> Result<usize, TraceError> {
        batch.clear();
        if let Some((group, row_range, is_first)) = self.row_ranges.next(BATCH_ROWS) {
            let mut append_range = || {
                if is_first {
                    self.decoders = Some(self.open_columns(group, row_range.start)?);
                }
                let row_count = (row_range.end - row_range.start) as usize;
                self.append(row_range.start, row_count, batch)
            };
            append_range().map_err(|error| self.names.with_name_in_file(error))?;
        }
        Ok(batch.len())
    }

    fn rows(&self) -> Option<u64> {
        Some(self.parquet_file.rows())
    }

    fn is_truncated(&self) -> bool {
        false
    }

    fn facts(&self) -> StreamFacts {
        StreamFacts {
            has_time: self.column_refs.time.is_some(),
            has_unitless_time: self.has_unitless_time,
            hashed_keys: self.text_keys.distinct_hashes(),
            key_collisions: self.text_keys.collisions(),
            skipped_lines: 0,
        }
    }
}
