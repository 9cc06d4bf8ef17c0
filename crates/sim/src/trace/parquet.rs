//! Key streams as Parquet files: the columns asked for, batch by batch.

use super::cells::Cells;
use super::table::{Pieces, Place, Table};
use super::{BATCH_ROWS, Batch, Columns, KeyStream, Op};
use crate::TraceError;
use parquet::file::reader::ChunkReader;

/// A Parquet key stream.
pub(super) struct Reader<S: ChunkReader + 'static> {
    table: Table<S>,
    columns: Columns,
    places: Group<Place>,
    cells: Option<Group<Cells>>,
    pieces: Pieces,
    scratch: Vec<Option<u64>>,
}

/// One thing for each column of the format.
struct Group<T> {
    key: T,
    time: Option<T>,
    size: Option<T>,
    op: Option<T>,
    ttl: Option<T>,
}

impl<S: ChunkReader + 'static> Reader<S> {
    pub(super) fn new(file: &str, source: S, columns: Columns) -> Result<Self, TraceError> {
        let table = Table::open(file, source)?;
        // Every known column is looked up, wanted or not, so that a wrong type is found at once.
        let places = Group {
            key: table.require("key", table.find_numbers("key")?)?,
            time: table.find_numbers("time")?,
            size: table.find_numbers("size")?,
            op: table.find_words("op")?,
            ttl: table.find_numbers("ttl")?,
        };
        let pieces = Pieces::of(&table);
        Ok(Self {
            table,
            columns,
            places,
            cells: None,
            pieces,
            scratch: Vec::new(),
        })
    }

    /// Opens the wanted columns of a row group.
    fn group(&self, group: usize, first_row: u64) -> Result<Group<Cells>, TraceError> {
        let open = |place: Place| self.table.cells(group, first_row, place);
        let wanted =
            |wanted: bool, place: Option<Place>| place.filter(|_| wanted).map(open).transpose();
        Ok(Group {
            key: open(self.places.key)?,
            time: wanted(self.columns.time, self.places.time)?,
            size: wanted(self.columns.size, self.places.size)?,
            op: wanted(self.columns.op, self.places.op)?,
            ttl: wanted(self.columns.ttl, self.places.ttl)?,
        })
    }

    /// Appends `rows` rows, the first of which is number `first` from 0.
    fn append(&mut self, first: u64, rows: usize, batch: &mut Batch) -> Result<(), TraceError> {
        let Some(cells) = &mut self.cells else {
            return Ok(());
        };
        cells.key.keys(rows, &mut batch.key)?;
        if self.columns.time {
            match &mut cells.time {
                Some(time) => numbers(time, rows, u64::MAX, &mut self.scratch)?,
                None => self.scratch.clear(),
            }
            let given = |at: usize| self.scratch.get(at).copied().flatten();
            batch
                .time
                .extend((0..rows).map(|at| given(at).unwrap_or(first + at as u64)));
        }
        if self.columns.size {
            narrow(
                cells.size.as_mut(),
                rows,
                &mut self.scratch,
                &mut batch.size,
            )?;
        }
        if self.columns.ttl {
            narrow(cells.ttl.as_mut(), rows, &mut self.scratch, &mut batch.ttl)?;
        }
        if self.columns.op {
            match &mut cells.op {
                Some(op) => op.words(rows, |word| batch.op.push(word.map(Op::parse)))?,
                None => batch.op.resize(batch.op.len() + rows, None),
            }
        }
        Ok(())
    }
}

fn numbers(
    cells: &mut Cells,
    rows: usize,
    max: u64,
    scratch: &mut Vec<Option<u64>>,
) -> Result<(), TraceError> {
    scratch.clear();
    cells.numbers(rows, max, scratch)
}

/// Appends a column of 32-bit numbers, nulls where the file has no such column.
fn narrow(
    cells: Option<&mut Cells>,
    rows: usize,
    scratch: &mut Vec<Option<u64>>,
    into: &mut Vec<Option<u32>>,
) -> Result<(), TraceError> {
    match cells {
        Some(cells) => {
            numbers(cells, rows, u32::MAX.into(), scratch)?;
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
        if let Some((group, rows, is_first)) = self.pieces.next(BATCH_ROWS) {
            if is_first {
                self.cells = Some(self.group(group, rows.start)?);
            }
            self.append(rows.start, (rows.end - rows.start) as usize, batch)?;
        }
        Ok(batch.len())
    }

    fn rows(&self) -> Option<u64> {
        Some(self.table.rows())
    }

    fn is_cut(&self) -> bool {
        false
    }
}
