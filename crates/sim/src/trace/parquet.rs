//! Key streams as Parquet files: the requested columns, batch by batch.

use super::column::ColumnDecoder;
use super::table::{ColumnRef, RowRanges, Table};
use super::{BATCH_ROWS, Batch, Columns, KeyStream, Op};
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
    pub(super) fn new(file: &str, source: S, columns: Columns) -> Result<Self, TraceError> {
        let table = Table::open(file, source)?;
        // All known columns are looked up, even those that are not wanted, so that a wrong type is found early.
        let column_refs = PerColumn {
            key: table.require("key", table.find_numbers("key")?)?,
            time: table.find_numbers("time")?,
            size: table.find_numbers("size")?,
            op: table.find_strings("op")?,
            ttl: table.find_numbers("ttl")?,
        };
        let row_ranges = RowRanges::of(&table);
        Ok(Self {
            table,
            columns,
            column_refs,
            decoders: None,
            row_ranges,
            scratch: Vec::new(),
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
        decoders.key.keys(rows, &mut batch.key)?;
        if self.columns.time {
            match &mut decoders.time {
                Some(time) => numbers(time, rows, u64::MAX, &mut self.scratch)?,
                None => self.scratch.clear(),
            }
            let time_at = |at: usize| self.scratch.get(at).copied().flatten();
            batch
                .time
                .extend((0..rows).map(|at| time_at(at).unwrap_or(first + at as u64)));
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
            if is_first {
                self.decoders = Some(self.open_columns(group, rows.start)?);
            }
            self.append(rows.start, (rows.end - rows.start) as usize, batch)?;
        }
        Ok(batch.len())
    }

    fn rows(&self) -> Option<u64> {
        Some(self.table.rows())
    }

    fn is_truncated(&self) -> bool {
        false
    }
}
