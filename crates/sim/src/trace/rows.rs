//! Key streams that have one row a line, whatever the form of the line, read by the same loop.

use super::layout::{ColumnNames, TimeUnit};
use super::lines::Lines;
use super::repeated::CountedRows;
use super::text::{TextKeys, is_number, parse_time};
use super::{BATCH_ROWS, Batch, Columns, KeyStream, Op, StreamFacts};
use crate::TraceError;
use std::cell::Cell;
use std::io::BufRead;

/// How a line becomes rows.
pub(super) trait LineParser: Send {
    /// Appends the rows of a line to the sink, all or none; `file` and `row_number` are for errors.
    fn append(
        &mut self,
        file: &str,
        line: &[u8],
        row_number: u64,
        sink: &mut RowSink<'_>,
    ) -> Result<(), TraceError>;

    /// Appends what the lines so far held back, at the end of the stream.
    fn finish(&mut self, sink: &mut RowSink<'_>) {
        let _ = sink;
    }

    /// Whether the file has a column of times.
    fn has_time(&self) -> bool;
}

/// Where the rows of lines go, and what is counted of them.
pub(super) struct RowSink<'a> {
    pub(super) batch: &'a mut Batch,
    pub(super) keys: &'a mut TextKeys,
    pub(super) columns_wanted: Columns,
    pub(super) time_unit: Option<TimeUnit>,
    /// Set by a time that is a number.
    pub(super) has_unitless_time: &'a Cell<bool>,
    /// Lines that hold no row.
    pub(super) skipped_lines: &'a mut u64,
    /// Rows with a number that its column cannot hold.
    pub(super) oversized_rows: &'a mut u64,
    /// How many requests each row stands for; empty where each stands for one.
    pub(super) request_counts: &'a mut Vec<u64>,
}

impl RowSink<'_> {
    /// A time in microseconds if there is a unit, else in the file's own unit.
    pub(super) fn parse_time(&self, text: &[u8]) -> Option<u64> {
        if is_number(text) {
            self.has_unitless_time.set(true);
        }
        parse_time(text, self.time_unit)
    }
}

/// A key stream of one row a line.
pub(super) struct LineRows<R, P> {
    lines: Lines<R>,
    parser: P,
    columns_wanted: Columns,
    names: ColumnNames,
    time_unit: Option<TimeUnit>,
    has_unitless_time: Cell<bool>,
    keys: TextKeys,
    skipped_lines: u64,
    oversized_rows: u64,
    request_counts: Vec<u64>,
    is_finished: bool,
}

impl<R: BufRead + Send, P: LineParser> LineRows<R, P> {
    pub(super) fn new(
        lines: Lines<R>,
        parser: P,
        columns_wanted: Columns,
        names: ColumnNames,
        time_unit: Option<TimeUnit>,
    ) -> Self {
        Self {
            lines,
            parser,
            columns_wanted,
            names,
            time_unit,
            has_unitless_time: Cell::new(false),
            keys: TextKeys::default(),
            skipped_lines: 0,
            oversized_rows: 0,
            request_counts: Vec::new(),
            is_finished: false,
        }
    }
}

impl<R: BufRead + Send, P: LineParser> KeyStream for LineRows<R, P> {
    fn read(&mut self, batch: &mut Batch) -> Result<usize, TraceError> {
        batch.clear();
        self.request_counts.clear();
        let mut sink = RowSink {
            batch,
            keys: &mut self.keys,
            columns_wanted: self.columns_wanted,
            time_unit: self.time_unit,
            has_unitless_time: &self.has_unitless_time,
            skipped_lines: &mut self.skipped_lines,
            oversized_rows: &mut self.oversized_rows,
            request_counts: &mut self.request_counts,
        };
        while sink.batch.len() < BATCH_ROWS && !self.is_finished {
            if self.lines.is_truncated() || self.lines.next()?.is_none() {
                self.is_finished = true;
                self.parser.finish(&mut sink);
                break;
            }
            let (line, row_number) = self.lines.last_line();
            let file = self.lines.file();
            if let Err(error) = self.parser.append(file, line, row_number, &mut sink) {
                self.lines.tolerate_truncated_tail(self.names.with_name_in_file(error))?;
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

    fn facts(&self) -> StreamFacts {
        StreamFacts {
            has_time: self.parser.has_time(),
            has_unitless_time: self.has_unitless_time.get(),
            hashed_keys: self.keys.distinct_hashes(),
            key_collisions: self.keys.collisions(),
            skipped_lines: self.skipped_lines,
            oversized_rows: self.oversized_rows,
        }
    }
}

impl<R: BufRead + Send, P: LineParser> CountedRows for LineRows<R, P> {
    fn request_counts(&self) -> &[u64] {
        &self.request_counts
    }
}

/// A key as a file has it.
#[derive(Clone, Copy)]
pub(super) enum KeyCell<'a> {
    Number(u64),
    Text(&'a [u8]),
}

/// The values of one row, each within its column's range; `None` where a line has none.
pub(super) struct ParsedRow<'a> {
    /// Counted from 1; the time of the row where the line has none.
    pub(super) row_number: u64,
    pub(super) key: KeyCell<'a>,
    pub(super) time: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) op: Option<Op>,
    pub(super) ttl: Option<u64>,
    /// How many requests the row stands for.
    pub(super) request_count: Option<u64>,
}

impl ParsedRow<'_> {
    /// Appends the key and the values of the columns that are wanted, unless one of them is too large.
    pub(super) fn push(&self, sink: &mut RowSink<'_>) {
        if self.is_oversized(sink.columns_wanted) {
            *sink.oversized_rows += 1;
            return;
        }
        self.push_request_count(sink);
        let batch = &mut *sink.batch;
        batch.key.push(match self.key {
            KeyCell::Number(number) => number,
            KeyCell::Text(text) => sink.keys.key_of_text(text),
        });
        if sink.columns_wanted.time {
            batch.time.push(self.time.unwrap_or(self.row_number - 1));
        }
        if sink.columns_wanted.size {
            batch.size.push(self.size.map(|size| size as u32));
        }
        if sink.columns_wanted.op {
            batch.op.push(self.op);
        }
        if sink.columns_wanted.ttl {
            batch.ttl.push(self.ttl.map(|ttl| ttl as u32));
        }
    }

    fn is_oversized(&self, columns_wanted: Columns) -> bool {
        let is_too_large =
            |number: Option<u64>| number.is_some_and(|number| number > u64::from(u32::MAX));
        columns_wanted.size && is_too_large(self.size)
            || columns_wanted.ttl && is_too_large(self.ttl)
    }

    /// Appends how many requests the row stands for, from the first row on that states it.
    fn push_request_count(&self, sink: &mut RowSink<'_>) {
        if self.request_count.is_some() {
            sink.request_counts.resize(sink.batch.len(), 1);
        }
        if self.request_count.is_some() || !sink.request_counts.is_empty() {
            sink.request_counts.push(self.request_count.unwrap_or(1));
        }
    }
}
