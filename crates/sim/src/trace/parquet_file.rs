//! Parquet files as tables: columns by name and type, rows in ranges, without Arrow.
//!
//! `column` decodes the values.

use super::column::{ColumnDecoder, catch_panics};
use crate::TraceError;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use std::ops::Range;

/// A Parquet file, open.
pub(super) struct ParquetFile<S: ChunkReader + 'static> {
    pub(super) file: String,
    reader: SerializedFileReader<S>,
}

/// A column of the file: its index among the leaf columns and its name.
#[derive(Clone, Copy)]
pub(super) struct ColumnRef {
    index: usize,
    name: &'static str,
}

/// How a file stores the numbers of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberKind {
    Whole,
    Float,
    Text,
}

impl<S: ChunkReader + 'static> ParquetFile<S> {
    pub(super) fn open(file: &str, source: S) -> Result<Self, TraceError> {
        if lacks_end(&source) {
            let fault = "not a valid Parquet file: it is truncated, and without its footer none of its rows can be \
                         read";
            return Err(TraceError::file(file, fault).of_truncated_file());
        }
        let reader = catch_panics(|| SerializedFileReader::new(source)).map_err(|error| {
            TraceError::file(file, format!("not a valid Parquet file: {error}"))
        })?;
        Ok(Self { file: file.to_owned(), reader })
    }

    /// Total number of rows, from the footer.
    pub(super) fn rows(&self) -> u64 {
        (0..self.group_count()).map(|group| self.group_rows(group)).sum()
    }

    pub(super) fn group_count(&self) -> usize {
        self.reader.num_row_groups()
    }

    pub(super) fn group_rows(&self, group: usize) -> u64 {
        self.reader.metadata().row_group(group).num_rows().max(0) as u64
    }

    /// The column that the file calls `name_in_file` and the format `name`, with the physical types it may have, alone or
    /// in lists.
    fn find(
        &self,
        name: &'static str,
        name_in_file: &str,
        types: &[Type],
        is_list: bool,
    ) -> Result<Option<ColumnRef>, TraceError> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let named_column = schema.columns().iter().enumerate().find(|(_, column)| {
            column.path().parts().first().is_some_and(|part| part == name_in_file)
        });
        let Some((index, column)) = named_column else {
            return Ok(None);
        };
        if (column.max_rep_level() > 0) != is_list {
            let (expected, found) =
                if is_list { ("lists", "single values") } else { ("single values", "lists") };
            let fault = format!("expected {expected}, found {found}");
            return Err(TraceError::file(&self.file, fault).in_column(name));
        }
        if types.contains(&column.physical_type()) {
            return Ok(Some(ColumnRef { index, name }));
        }
        let expected = match types {
            [Type::BYTE_ARRAY] => "strings",
            [.., Type::BYTE_ARRAY] => "strings or whole numbers",
            _ => "whole numbers",
        };
        let fault = format!("expected {expected}, found the type {}", column.physical_type());
        Err(TraceError::file(&self.file, fault).in_column(name))
    }

    /// A column of whole numbers.
    pub(super) fn find_number_column(
        &self,
        name: &'static str,
    ) -> Result<Option<ColumnRef>, TraceError> {
        self.find_number_column_as(name, name)
    }

    /// A column of whole numbers, perhaps as floats, that has another name in the file.
    pub(super) fn find_number_column_as(
        &self,
        name: &'static str,
        name_in_file: &str,
    ) -> Result<Option<ColumnRef>, TraceError> {
        let types = [Type::INT32, Type::INT64, Type::FLOAT, Type::DOUBLE];
        self.find(name, name_in_file, &types, false)
    }

    /// A column of times: numbers, or text.
    pub(super) fn find_time_column_as(
        &self,
        name_in_file: &str,
    ) -> Result<Option<ColumnRef>, TraceError> {
        let types = [Type::INT32, Type::INT64, Type::FLOAT, Type::DOUBLE, Type::BYTE_ARRAY];
        self.find("time", name_in_file, &types, false)
    }

    /// How the file stores the numbers of a column.
    pub(super) fn number_kind(&self, column_ref: ColumnRef) -> NumberKind {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        match schema.column(column_ref.index).physical_type() {
            Type::FLOAT | Type::DOUBLE => NumberKind::Float,
            Type::BYTE_ARRAY => NumberKind::Text,
            _ => NumberKind::Whole,
        }
    }

    /// Nanoseconds of one unit of a column, if its type states a unit of time.
    pub(super) fn time_unit_ns(&self, column_ref: ColumnRef) -> Option<u64> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let column = schema.column(column_ref.index);
        match (column.logical_type_ref(), column.converted_type()) {
            (Some(LogicalType::Timestamp(timestamp)), _) => Some(match timestamp.unit {
                TimeUnit::MILLIS => 1_000_000,
                TimeUnit::MICROS => 1000,
                TimeUnit::NANOS => 1,
            }),
            (Some(LogicalType::Date), _) | (_, ConvertedType::DATE) => Some(86_400_000_000_000),
            (_, ConvertedType::TIMESTAMP_MILLIS) => Some(1_000_000),
            (_, ConvertedType::TIMESTAMP_MICROS) => Some(1000),
            _ => None,
        }
    }

    /// The column of keys, and whether they are strings.
    pub(super) fn find_key_column(
        &self,
        name_in_file: &str,
    ) -> Result<Option<(ColumnRef, bool)>, TraceError> {
        let types = [Type::INT32, Type::INT64, Type::BYTE_ARRAY];
        let key_column = self.find("key", name_in_file, &types, false)?;
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let is_text = |key: ColumnRef| schema.column(key.index).physical_type() == Type::BYTE_ARRAY;
        Ok(key_column.map(|key| (key, is_text(key))))
    }

    /// A column of lists of whole numbers.
    pub(super) fn find_list_column(
        &self,
        name: &'static str,
    ) -> Result<Option<ColumnRef>, TraceError> {
        self.find(name, name, &[Type::INT32, Type::INT64], true)
    }

    /// A column of strings.
    pub(super) fn find_string_column(
        &self,
        name: &'static str,
    ) -> Result<Option<ColumnRef>, TraceError> {
        self.find_string_column_as(name, name)
    }

    /// A column of strings that has another name in the file.
    pub(super) fn find_string_column_as(
        &self,
        name: &'static str,
        name_in_file: &str,
    ) -> Result<Option<ColumnRef>, TraceError> {
        self.find(name, name_in_file, &[Type::BYTE_ARRAY], false)
    }

    /// The error that a file lacks a column.
    pub(super) fn missing_column_error(&self, name: &str) -> TraceError {
        TraceError::file(&self.file, format!("has no column \"{name}\""))
    }

    /// A column that the format requires.
    pub(super) fn require(
        &self,
        name: &str,
        column_ref: Option<ColumnRef>,
    ) -> Result<ColumnRef, TraceError> {
        column_ref.ok_or_else(|| self.missing_column_error(name))
    }

    /// Opens a column of a row group; `first_row` is the number of rows before that group.
    pub(super) fn open_column(
        &self,
        group: usize,
        first_row: u64,
        column_ref: ColumnRef,
    ) -> Result<ColumnDecoder, TraceError> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let column = schema.column(column_ref.index);
        let to_error = |error| self.read_error(first_row, column_ref.name, &error);
        let open_reader = || self.reader.get_row_group(group)?.get_column_reader(column_ref.index);
        let reader = catch_panics(open_reader).map_err(to_error)?;
        let location = (self.file.clone(), column_ref.name, first_row);
        Ok(ColumnDecoder::new(location, &column, reader))
    }

    fn read_error(
        &self,
        row: u64,
        name: &'static str,
        error: &dyn std::fmt::Display,
    ) -> TraceError {
        TraceError::row(&self.file, row + 1, format!("cannot be read: {error}")).in_column(name)
    }
}

/// What a Parquet file begins and ends with.
const MAGIC: &[u8] = b"PAR1";

/// Whether a file begins as Parquet and does not end so, as a part of a file does.
fn lacks_end<S: ChunkReader>(source: &S) -> bool {
    let (file_bytes, magic_bytes) = (source.len(), MAGIC.len() as u64);
    let bytes_at = |start: u64, count: u64| {
        let bytes_read = catch_panics(|| source.get_bytes(start, count as usize));
        bytes_read.unwrap_or_default()
    };
    if file_bytes < magic_bytes {
        return file_bytes == 0 || MAGIC.starts_with(&bytes_at(0, file_bytes));
    }
    let has_magic_at = |start: u64| bytes_at(start, magic_bytes) == MAGIC;
    has_magic_at(0) && (file_bytes < 2 * magic_bytes || !has_magic_at(file_bytes - magic_bytes))
}

/// The rows of a file in ranges that stay within one row group.
pub(super) struct RowRanges {
    row_counts: Vec<u64>,
    group: usize,
    row_in_group: u64,
    rows_before: u64,
}

impl RowRanges {
    pub(super) fn of<S: ChunkReader + 'static>(parquet_file: &ParquetFile<S>) -> Self {
        let row_counts =
            (0..parquet_file.group_count()).map(|group| parquet_file.group_rows(group)).collect();
        Self { row_counts, group: 0, row_in_group: 0, rows_before: 0 }
    }

    /// The next range of at most `rows_max` rows: its row group, its rows, and whether it is the first of its row
    /// group.
    pub(super) fn next(&mut self, rows_max: usize) -> Option<(usize, Range<u64>, bool)> {
        while self.row_in_group == *self.row_counts.get(self.group)? {
            self.group += 1;
            self.row_in_group = 0;
        }
        let rows_left = self.row_counts[self.group] - self.row_in_group;
        let row_count = rows_left.min(rows_max as u64);
        let range_in_group =
            (self.group, self.rows_before..self.rows_before + row_count, self.row_in_group == 0);
        self.row_in_group += row_count;
        self.rows_before += row_count;
        Some(range_in_group)
    }
}
