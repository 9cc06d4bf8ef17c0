//! Parquet written as tables: a schema, then row groups of whole columns, compressed with zstd.

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::{Error, Write};
use std::sync::Arc;

/// Rows of a row group: a few megabytes of each column, so that a reader can skip and a writer need not hold all.
pub(super) const GROUP_ROWS: usize = 1 << 20;

/// One column of a row group. Definition levels tell which values of a nullable column are null.
pub(super) enum Column {
    Longs(Vec<i64>),
    Ints { values: Vec<i32>, definition_levels: Option<Vec<i16>> },
    Strings { values: Vec<ByteArray>, definition_levels: Option<Vec<i16>> },
    Lists { values: Vec<i32>, definition_levels: Vec<i16>, repetition_levels: Vec<i16> },
}

impl Column {
    /// A nullable column of numbers.
    pub(super) fn nullable_numbers(cells: impl Iterator<Item = Option<u32>>) -> Self {
        let (mut values, mut definition_levels) = (Vec::new(), Vec::new());
        for cell in cells {
            definition_levels.push(i16::from(cell.is_some()));
            values.extend(cell.map(|value| value as i32));
        }
        Self::Ints { values, definition_levels: Some(definition_levels) }
    }

    /// A nullable column of strings.
    pub(super) fn nullable_strings(cells: impl Iterator<Item = Option<ByteArray>>) -> Self {
        let (mut values, mut definition_levels) = (Vec::new(), Vec::new());
        for cell in cells {
            definition_levels.push(i16::from(cell.is_some()));
            values.extend(cell);
        }
        Self::Strings { values, definition_levels: Some(definition_levels) }
    }

    /// A column of lists of numbers.
    pub(super) fn lists<'a>(cells: impl Iterator<Item = &'a [u32]>) -> Self {
        let (mut values, mut definition_levels, mut repetition_levels) =
            (Vec::new(), Vec::new(), Vec::new());
        for list in cells {
            values.extend(list.iter().map(|&value| value as i32));
            definition_levels.extend(std::iter::repeat_n(1, list.len()));
            definition_levels.extend(list.is_empty().then_some(0));
            repetition_levels.push(0);
            repetition_levels.extend(std::iter::repeat_n(1, list.len().saturating_sub(1)));
        }
        Self::Lists { values, definition_levels, repetition_levels }
    }
}

/// How [`ParquetWriter::with_deltas`] writes a column that is not one of ordinary numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum ColumnForm {
    DistinctTexts,
    RepeatedTexts,
    /// Numbers in sequences that come again: of whole bytes, so that the compression finds them.
    RepeatedSequences,
}

/// A Parquet file that is being written.
pub(super) struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file; `schema` is in Parquet's own notation.
    pub(super) fn new(out: W, schema: &str) -> std::io::Result<Self> {
        Self::begin(out, schema, WriterProperties::builder(), 3)
    }

    /// Begins a file that is written beside an application, with little work: a number is its difference from the one
    /// before it, which is then compressed at the lowest level.
    pub(super) fn with_deltas(
        out: W,
        schema: &str,
        columns: &[(&str, ColumnForm)],
    ) -> std::io::Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BINARY_PACKED)
            .set_statistics_enabled(EnabledStatistics::Chunk);
        for &(name, form) in columns {
            let column = ColumnPath::new(name.split('.').map(str::to_owned).collect());
            properties = match form {
                ColumnForm::DistinctTexts => {
                    properties.set_column_encoding(column, Encoding::PLAIN)
                }
                ColumnForm::RepeatedTexts => properties
                    .set_column_encoding(column.clone(), Encoding::PLAIN)
                    .set_column_dictionary_enabled(column, true),
                ColumnForm::RepeatedSequences => properties
                    .set_column_encoding(column.clone(), Encoding::PLAIN)
                    .set_column_statistics_enabled(column, EnabledStatistics::None),
            };
        }
        Self::begin(out, schema, properties, 1)
    }

    fn begin(
        out: W,
        schema: &str,
        properties: WriterPropertiesBuilder,
        zstd_level: i32,
    ) -> std::io::Result<Self> {
        let open_writer = || {
            let schema = Arc::new(parse_message_type(schema)?);
            let compression = Compression::ZSTD(ZstdLevel::try_new(zstd_level)?);
            let properties = properties.set_compression(compression).build();
            SerializedFileWriter::new(out, schema, Arc::new(properties))
        };
        Ok(Self { writer: open_writer().map_err(Error::other)? })
    }

    /// Appends one row group.
    pub(super) fn write_group(&mut self, columns: &[Column]) -> std::io::Result<()> {
        self.append(columns).map_err(Error::other)
    }

    fn append(&mut self, columns: &[Column]) -> Result<()> {
        let mut row_group = self.writer.next_row_group()?;
        for column in columns {
            let extra_column =
                || ParquetError::General("more columns than the schema has".to_owned());
            let mut column_writer = row_group.next_column()?.ok_or_else(extra_column)?;
            match column {
                Column::Longs(values) => {
                    write_column::<Int64Type>(&mut column_writer, values, None, None)?;
                }
                Column::Ints { values, definition_levels } => {
                    write_column::<Int32Type>(
                        &mut column_writer,
                        values,
                        definition_levels.as_deref(),
                        None,
                    )?;
                }
                Column::Strings { values, definition_levels } => {
                    write_column::<ByteArrayType>(
                        &mut column_writer,
                        values,
                        definition_levels.as_deref(),
                        None,
                    )?;
                }
                Column::Lists { values, definition_levels, repetition_levels } => {
                    write_column::<Int32Type>(
                        &mut column_writer,
                        values,
                        Some(definition_levels),
                        Some(repetition_levels),
                    )?;
                }
            }
            column_writer.close()?;
        }
        row_group.close().map(|_| ())
    }

    /// Writes the footer and returns what the file was written to.
    pub(super) fn finish(self) -> std::io::Result<W> {
        self.writer.into_inner().map_err(Error::other)
    }
}

fn write_column<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
    definition_levels: Option<&[i16]>,
    repetition_levels: Option<&[i16]>,
) -> Result<()> {
    writer.typed::<T>().write_batch(values, definition_levels, repetition_levels).map(|_| ())
}
