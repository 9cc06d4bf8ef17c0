//! Key streams that have one row a line, whatever the form of the line: CSV and JSON lines read by the same loop.

use super::lines::Lines;
use super::{BATCH_ROWS, Batch, Columns, KeyStream, Op};
use crate::TraceError;
use std::io::BufRead;

/// How a line becomes a row.
pub(super) trait LineForm: Send {
    /// Appends the row of a line to the columns of the batch, all or none; `file` and `row` are for errors.
    fn append(
        &self,
        file: &str,
        line: &[u8],
        row: u64,
        wanted: Columns,
        batch: &mut Batch,
    ) -> Result<(), TraceError>;
}

/// A key stream of one row a line.
pub(super) struct LineRows<R, F> {
    pub(super) lines: Lines<R>,
    pub(super) form: F,
    pub(super) wanted: Columns,
}

impl<R: BufRead + Send, F: LineForm> KeyStream for LineRows<R, F> {
    fn read(&mut self, batch: &mut Batch) -> Result<usize, TraceError> {
        batch.clear();
        while batch.len() < BATCH_ROWS && !self.lines.is_truncated() {
            if self.lines.next()?.is_none() {
                break;
            }
            let (line, row) = self.lines.last();
            let file = self.lines.file();
            if let Err(error) = self.form.append(file, line, row, self.wanted, batch) {
                self.lines.tolerate_truncated_tail(error)?;
            }
        }
        Ok(batch.len())
    }

    fn rows(&self) -> Option<u64> {
        None
    }

    fn is_truncated(&self) -> bool {
        self.lines.is_truncated()
    }
}

/// The cells of one row, each within its column's range; `None` where a line has none.
pub(super) struct RowFields<'a> {
    /// The row's number, counted from 1: its time where the line has none.
    pub(super) row: u64,
    pub(super) key: u64,
    pub(super) time: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) op: Option<&'a [u8]>,
    pub(super) ttl: Option<u64>,
}

impl RowFields<'_> {
    /// Appends the cells of the key and of the columns that are wanted.
    pub(super) fn push(&self, wanted: Columns, batch: &mut Batch) {
        batch.key.push(self.key);
        if wanted.time {
            batch.time.push(self.time.unwrap_or(self.row - 1));
        }
        if wanted.size {
            batch.size.push(self.size.map(|size| size as u32));
        }
        if wanted.op {
            batch.op.push(self.op.map(Op::parse));
        }
        if wanted.ttl {
            batch.ttl.push(self.ttl.map(|ttl| ttl as u32));
        }
    }
}
