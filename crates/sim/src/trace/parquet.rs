//! Key streams as Parquet files: the requested columns, batch by batch.

use super::column::ColumnDecoder;
use super::layout::{ColumnNames, Layout, TimeUnit};
use super::parquet_file::{ColumnRef, NumberKind, ParquetFile, RowRanges};
use super::repeated::CountedRows;
use super::text::{TIME_FORMATS, TextKeys, is_number, parse_time};
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
    /// The unit of times that are text, as that of other files.
    text_time_unit: Option<TimeUnit>,
    time_kind: NumberKind,
    has_unitless_time: bool,
    has_text_keys: bool,
    text_keys: TextKeys,
    request_counts: Vec<u64>,
    oversized_rows: u64,
}

/// One value for each column of the format.
struct PerColumn<T> {
    key: T,
    time: Option<T>,
    size: Option<T>,
    op: Option<T>,
    ttl: Option<T>,
    op_count: Option<T>,
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
        let time = parquet_file.find_time_column_as(names.name("time"));
        let time = column_if_present(&parquet_file, names, "time", time)?;
        let column_refs = PerColumn {
            key,
            time,
            size: find_number_column("size")?,
            op: column_if_present(
                &parquet_file,
                names,
                "op",
                parquet_file.find_string_column_as("op", names.name("op")),
            )?,
            ttl: find_number_column("ttl")?,
            op_count: find_number_column("op_count")?,
        };
        let time_kind = time.map_or(NumberKind::Whole, |time| parquet_file.number_kind(time));
        let unit_in_file = time.and_then(|time| parquet_file.time_unit_ns(time));
        let has_unitless_time =
            time.is_some() && unit_in_file.is_none() && time_kind != NumberKind::Text;
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
            text_time_unit: layout.time_unit,
            time_kind,
            has_unitless_time,
            has_text_keys,
            text_keys: TextKeys::default(),
            request_counts: Vec::new(),
            oversized_rows: 0,
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
            op_count: open_if(true, self.column_refs.op_count)?,
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
            let time_reader = TimeReader {
                kind: self.time_kind,
                unit_ns: self.unit_ns,
                text_unit: self.text_time_unit,
                has_unitless_time: &mut self.has_unitless_time,
            };
            time_reader.read(decoders.time.as_mut(), row_count, &mut self.scratch)?;
            let row_time =
                |(offset, time): (usize, &Option<u64>)| time.unwrap_or(first_row + offset as u64);
            batch.time.extend(self.scratch.iter().enumerate().map(row_time));
        }
        let mut oversized_offsets = Vec::new();
        if self.columns_wanted.size {
            append_u32s(
                decoders.size.as_mut(),
                row_count,
                &mut self.scratch,
                &mut batch.size,
                &mut oversized_offsets,
            )?;
        }
        if self.columns_wanted.ttl {
            append_u32s(
                decoders.ttl.as_mut(),
                row_count,
                &mut self.scratch,
                &mut batch.ttl,
                &mut oversized_offsets,
            )?;
        }
        if let Some(decoder) = &mut decoders.op_count {
            decode_numbers(decoder, row_count, u64::MAX, &mut self.scratch)?;
            self.request_counts.extend(self.scratch.iter().map(|count| count.unwrap_or(1)));
        }
        if self.columns_wanted.op {
            match &mut decoders.op {
                Some(decoder) => decoder.read_strings(row_count, |text| {
                    batch.op.push(text.map(Op::parse));
                })?,
                None => batch.op.resize(batch.op.len() + row_count, None),
            }
        }
        self.leave_out(&mut oversized_offsets, row_count);
        Ok(())
    }

    /// Gives no request to rows with a number that its column cannot hold.
    fn leave_out(&mut self, oversized_offsets: &mut Vec<usize>, row_count: usize) {
        if oversized_offsets.is_empty() {
            return;
        }
        oversized_offsets.sort_unstable();
        oversized_offsets.dedup();
        self.oversized_rows += oversized_offsets.len() as u64;
        self.request_counts.resize(row_count, 1);
        for &offset in &*oversized_offsets {
            self.request_counts[offset] = 0;
        }
    }
}

/// How the times of a file become numbers.
struct TimeReader<'a> {
    kind: NumberKind,
    unit_ns: Option<u64>,
    text_unit: Option<TimeUnit>,
    has_unitless_time: &'a mut bool,
}

impl TimeReader<'_> {
    /// Replaces `times` by those of the next rows, in microseconds if there is a unit, else in the file's own unit; null as
    /// `None`.
    fn read(
        self,
        decoder: Option<&mut ColumnDecoder>,
        row_count: usize,
        times: &mut Vec<Option<u64>>,
    ) -> Result<(), TraceError> {
        times.clear();
        let Some(decoder) = decoder else {
            times.resize(row_count, None);
            return Ok(());
        };
        let unit_ns = self.unit_ns;
        match self.kind {
            NumberKind::Whole => {
                decoder.read_numbers(row_count, u64::MAX, times)?;
                if let Some(unit_ns) = unit_ns {
                    times
                        .iter_mut()
                        .flatten()
                        .for_each(|time| *time = to_microseconds(*time, unit_ns));
                }
                Ok(())
            }
            NumberKind::Float => {
                let units_per_number = unit_ns.map_or(1.0, |unit_ns| unit_ns as f64 / 1000.0);
                let to_time =
                    |number: f64| (number >= 0.0).then_some((number * units_per_number) as u64);
                decoder.read_floats(row_count, "a time of 0 or later", to_time, times)
            }
            NumberKind::Text => decoder.read_texts(row_count, TIME_FORMATS, times, |text| {
                *self.has_unitless_time |= is_number(text);
                parse_time(text, self.text_unit)
            }),
        }
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

/// Appends a column of 32-bit numbers, nulls where the file has no such column, and the offsets of rows whose number is
/// greater.
fn append_u32s(
    decoder: Option<&mut ColumnDecoder>,
    row_count: usize,
    scratch: &mut Vec<Option<u64>>,
    output: &mut Vec<Option<u32>>,
    oversized_offsets: &mut Vec<usize>,
) -> Result<(), TraceError> {
    match decoder {
        Some(decoder) => {
            decode_numbers(decoder, row_count, u64::MAX, scratch)?;
            let is_oversized =
                |number: &Option<u64>| number.is_some_and(|number| number > u64::from(u32::MAX));
            let offsets = scratch.iter().enumerate().filter(|(_, number)| is_oversized(number));
            oversized_offsets.extend(offsets.map(|(offset, _)| offset));
            output.extend(scratch.iter().map(|number| number.map(|number| number as u32)));
        }
        None => output.resize(output.len() + row_count, None),
    }
    Ok(())
}

impl<S: ChunkReader + Send + 'static> KeyStream for KeyReader<S> {
    fn read(&mut self, batch: &mut Batch) -> Result<usize, TraceError> {
        batch.clear();
        self.request_counts.clear();
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
            oversized_rows: self.oversized_rows,
        }
    }
}

impl<S: ChunkReader + Send + 'static> CountedRows for KeyReader<S> {
    fn request_counts(&self) -> &[u64] {
        &self.request_counts
    }
}
