//! One Parquet column, decoded batch by batch: only this file handles levels, nulls and ranges.
//!
//! Every value is checked against the column's range, so that a file of another program causes an error message and
//! never a wrong number. Compression, encodings and pages are the `parquet` crate's.

use super::text::whole_number_of;
use crate::TraceError;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A column of one row group that is being read.
pub(super) struct ColumnDecoder {
    file: String,
    name: &'static str,
    next_row: u64,
    max_definition_level: i16,
    /// Whether the innermost values may be null.
    is_optional: bool,
    is_signed: bool,
    reader: ColumnReader,
    definition_levels: Vec<i16>,
    repetition_levels: Vec<i16>,
    numbers: Vec<i64>,
    /// Numbers of 32 bits, before they are widened.
    ints: Vec<i32>,
    floats: Vec<f64>,
    /// Floats of 32 bits, before they are widened.
    short_floats: Vec<f32>,
    strings: Vec<ByteArray>,
}

fn is_signed(logical: Option<&LogicalType>, converted: ConvertedType) -> bool {
    let is_unsigned_converted = matches!(
        converted,
        ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64
    );
    match logical {
        Some(LogicalType::Integer(integer)) => integer.is_signed,
        _ => !is_unsigned_converted,
    }
}

impl ColumnDecoder {
    /// Decodes the column behind `reader`; the tuple holds the file, the column and the number of rows before it.
    pub(super) fn new(
        (file, name, rows_before): (String, &'static str, u64),
        column: &ColumnDescriptor,
        reader: ColumnReader,
    ) -> Self {
        Self {
            file,
            name,
            next_row: rows_before,
            max_definition_level: column.max_def_level(),
            is_optional: column.self_type().is_optional(),
            is_signed: is_signed(column.logical_type_ref(), column.converted_type()),
            reader,
            definition_levels: Vec::new(),
            repetition_levels: Vec::new(),
            numbers: Vec::new(),
            ints: Vec::new(),
            floats: Vec::new(),
            short_floats: Vec::new(),
            strings: Vec::new(),
        }
    }

    /// Reads up to `row_count` numbers, null as `None`, each at most `number_max`.
    pub(super) fn read_numbers(
        &mut self,
        row_count: usize,
        number_max: u64,
        output: &mut Vec<Option<u64>>,
    ) -> Result<(), TraceError> {
        if self.has_floats() {
            let to_number = |number| whole_number_of(number).filter(|&whole| whole <= number_max);
            let expected = format!("a whole number from 0 to {number_max}");
            return self.read_floats(row_count, &expected, to_number, output);
        }
        self.decode_rows(row_count)?;
        output.reserve(row_count);
        let first_row = self.next_row;
        if self.definition_levels.is_empty() {
            for (offset, &number) in self.numbers.iter().enumerate() {
                output.push(Some(self.check_range(
                    number,
                    first_row + offset as u64,
                    number_max,
                )?));
            }
        } else {
            let mut values = self.numbers.iter();
            for (offset, &definition_level) in self.definition_levels.iter().enumerate() {
                let value = if definition_level == self.max_definition_level {
                    values.next()
                } else {
                    None
                };
                let checked = value
                    .map(|&number| self.check_range(number, first_row + offset as u64, number_max));
                output.push(checked.transpose()?);
            }
        }
        self.next_row += row_count as u64;
        Ok(())
    }

    fn has_floats(&self) -> bool {
        matches!(
            self.reader,
            ColumnReader::FloatColumnReader(_) | ColumnReader::DoubleColumnReader(_)
        )
    }

    /// Reads up to `row_count` floats as `convert` reads them, null and NaN as `None`.
    pub(super) fn read_floats(
        &mut self,
        row_count: usize,
        expected: &str,
        convert: impl Fn(f64) -> Option<u64>,
        output: &mut Vec<Option<u64>>,
    ) -> Result<(), TraceError> {
        self.decode_rows(row_count)?;
        let mut floats = self.floats.iter().copied();
        for offset in 0..row_count {
            let float = if self.is_present(offset) { floats.next() } else { None };
            let converted = float.filter(|float| !float.is_nan()).map(|float| {
                convert(float).ok_or_else(|| {
                    let fault = format!("expected {expected}, found {float}");
                    self.error_at_row(self.next_row + offset as u64, &fault)
                })
            });
            output.push(converted.transpose()?);
        }
        self.next_row += row_count as u64;
        Ok(())
    }

    /// Reads up to `row_count` texts as `convert` reads them, null and empty ones as `None`.
    pub(super) fn read_texts(
        &mut self,
        row_count: usize,
        expected: &str,
        output: &mut Vec<Option<u64>>,
        mut convert: impl FnMut(&[u8]) -> Option<u64>,
    ) -> Result<(), TraceError> {
        self.decode_rows(row_count)?;
        let mut texts = self.strings.iter().map(ByteArray::data);
        for offset in 0..row_count {
            let text = if self.is_present(offset) { texts.next() } else { None };
            let converted = text.filter(|text| !text.is_empty()).map(|text| {
                convert(text).ok_or_else(|| {
                    let text = String::from_utf8_lossy(text);
                    let fault = format!("expected {expected}, found \"{text}\"");
                    self.error_at_row(self.next_row + offset as u64, &fault)
                })
            });
            output.push(converted.transpose()?);
        }
        self.next_row += row_count as u64;
        Ok(())
    }

    /// Whether a row that was just read is not null.
    fn is_present(&self, offset: usize) -> bool {
        let level = self.definition_levels.get(offset);
        level.is_none_or(|&level| level == self.max_definition_level)
    }

    /// Reads up to `row_count` numbers of 64 bits, which must not be null; used for the key column.
    pub(super) fn read_keys(
        &mut self,
        row_count: usize,
        output: &mut Vec<u64>,
    ) -> Result<(), TraceError> {
        self.decode_rows(row_count)?;
        if self.numbers.len() != row_count {
            return Err(self.null_key_error());
        }
        if self.is_signed {
            for (offset, &number) in self.numbers.iter().enumerate() {
                self.check_range(number, self.next_row + offset as u64, u64::MAX)?;
            }
        }
        output.extend(self.numbers.iter().map(|&number| number as u64));
        self.next_row += row_count as u64;
        Ok(())
    }

    /// The error that one of the rows just read has no key.
    fn null_key_error(&self) -> TraceError {
        let null_offset =
            self.definition_levels.iter().position(|&level| level != self.max_definition_level);
        let row = self.next_row + null_offset.unwrap_or(0) as u64;
        self.error_at_row(row, "a key may not be null")
    }

    /// Reads up to `row_count` strings, which must not be null, and hands each to `consume`; used for the key column.
    pub(super) fn read_required_strings(
        &mut self,
        row_count: usize,
        mut consume: impl FnMut(&[u8]),
    ) -> Result<(), TraceError> {
        self.decode_rows(row_count)?;
        if self.strings.len() != row_count {
            return Err(self.null_key_error());
        }
        self.strings.iter().for_each(|text| consume(text.data()));
        self.next_row += row_count as u64;
        Ok(())
    }

    /// Reads up to `row_count` strings and hands each to `consume`, null as `None`.
    pub(super) fn read_strings(
        &mut self,
        row_count: usize,
        mut consume: impl FnMut(Option<&[u8]>),
    ) -> Result<(), TraceError> {
        self.decode_rows(row_count)?;
        let mut values = self.strings.iter();
        for offset in 0..row_count {
            consume(if self.is_present(offset) {
                values.next().map(ByteArray::data)
            } else {
                None
            });
        }
        self.next_row += row_count as u64;
        Ok(())
    }

    /// Reads up to `row_count` lists of numbers, each at most `number_max`, appending the numbers to `output` and, for each row,
    /// the length of `output` after it to `list_ends`. A null list is an empty one.
    pub(super) fn read_lists(
        &mut self,
        row_count: usize,
        number_max: u64,
        output: &mut Vec<u32>,
        list_ends: &mut Vec<usize>,
    ) -> Result<(), TraceError> {
        self.decode_rows(row_count)?;
        let lists_before = list_ends.len();
        let mut values = self.numbers.iter();
        for (level_index, &repetition_level) in self.repetition_levels.iter().enumerate() {
            if repetition_level == 0 {
                list_ends.push(output.len());
            }
            let row = self.next_row + (list_ends.len() - lists_before).saturating_sub(1) as u64;
            let definition_level = self.definition_levels.get(level_index).copied();
            if self.is_optional && definition_level == Some(self.max_definition_level - 1) {
                return Err(self.error_at_row(row, "an item may not be null"));
            }
            if definition_level.is_none_or(|level| level == self.max_definition_level) {
                let number = values.next().copied().unwrap_or(0);
                output.push(self.check_range(number, row, number_max)? as u32);
            }
        }
        // Each entry holds where its row begins; the row's end is where the next begins.
        list_ends.push(output.len());
        list_ends.remove(lists_before);
        if list_ends.len() - lists_before != row_count {
            return Err(self.error_at_row(self.next_row, "is not a list of numbers"));
        }
        self.next_row += row_count as u64;
        Ok(())
    }

    /// Decodes the next rows into the buffers.
    fn decode_rows(&mut self, row_count: usize) -> Result<(), TraceError> {
        self.definition_levels.clear();
        self.repetition_levels.clear();
        self.numbers.clear();
        self.floats.clear();
        self.strings.clear();
        let levels = (&mut self.definition_levels, &mut self.repetition_levels);
        let rows_read = match &mut self.reader {
            ColumnReader::Int64ColumnReader(reader) => {
                read_rows(reader, row_count, levels, &mut self.numbers)
            }
            ColumnReader::Int32ColumnReader(reader) => {
                self.ints.clear();
                let rows_read = read_rows(reader, row_count, levels, &mut self.ints);
                let is_signed = self.is_signed;
                let widen = |&int: &i32| {
                    if is_signed { int.into() } else { i64::from(int as u32) }
                };
                self.numbers.extend(self.ints.iter().map(widen));
                rows_read
            }
            ColumnReader::DoubleColumnReader(reader) => {
                read_rows(reader, row_count, levels, &mut self.floats)
            }
            ColumnReader::FloatColumnReader(reader) => {
                self.short_floats.clear();
                let rows_read = read_rows(reader, row_count, levels, &mut self.short_floats);
                self.floats.extend(self.short_floats.iter().copied().map(f64::from));
                rows_read
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                read_rows(reader, row_count, levels, &mut self.strings)
            }
            _ => {
                let fault = "has a type that is not read; write whole numbers or text";
                return Err(self.error_at_row(self.next_row, fault));
            }
        };
        match rows_read {
            Ok(rows_read) if rows_read == row_count => Ok(()),
            Ok(rows_read) => Err(self.error_at_row(
                self.next_row + rows_read as u64,
                "the column ends before its row group",
            )),
            Err(error) => {
                Err(self.error_at_row(self.next_row, &format!("cannot be read: {error}")))
            }
        }
    }

    fn check_range(&self, number: i64, row: u64, number_max: u64) -> Result<u64, TraceError> {
        if (self.is_signed && number < 0) || number as u64 > number_max {
            let fault = format!("expected a whole number from 0 to {number_max}, found {number}");
            return Err(self.error_at_row(row, &fault));
        }
        Ok(number as u64)
    }

    /// An error at a row counted from 0.
    pub(super) fn error_at_row(&self, row: u64, fault: &str) -> TraceError {
        TraceError::row(&self.file, row + 1, fault).in_column(self.name)
    }
}

/// Converts a panic of the `parquet` crate to an error. The crate checks most parts of a damaged file, but not all: a
/// wrong count of levels or a wrong bit width runs past its buffers. A reader that panicked is not used again.
pub(super) fn catch_panics<T>(
    operation: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    let contradiction = || ParquetError::General("its pages contradict each other".to_owned());
    catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|_| Err(contradiction()))
}

/// Reads complete rows of one column and returns their number.
fn read_rows<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    row_count: usize,
    (definition_levels, repetition_levels): (&mut Vec<i16>, &mut Vec<i16>),
    values: &mut Vec<T::T>,
) -> parquet::errors::Result<usize> {
    let read_records =
        || reader.read_records(row_count, Some(definition_levels), Some(repetition_levels), values);
    catch_panics(read_records).map(|(rows_read, ..)| rows_read)
}
