//! Key streams: what a server or a cache saw, one row a request, read in batches from Parquet, CSV or JSON lines.
//!
//! The format is the project's own (docs/reference/formats.md, section 1). A reader works over bytes that it is
//! handed and never holds more than one batch of rows. `log` has the other kind of trace, whole requests of an
//! application.

#[cfg(feature = "parquet")]
mod cells;
mod csv;
pub mod generate;
pub mod intern;
mod jsonl;
mod lines;
pub mod log;
mod memory;
mod op;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
#[cfg(feature = "parquet")]
mod table;
#[cfg(feature = "parquet")]
mod table_write;
pub mod writer;

use crate::TraceError;
use std::io::{BufReader, Read};

pub use memory::Memory;
pub use op::Op;

/// Rows that a batch holds at most: small enough for the second-level cache, large enough to hide the call.
pub const BATCH_ROWS: usize = 8192;

/// Bytes of a trace: a `File`, or [`Memory`].
#[cfg(feature = "parquet")]
pub trait Source: Read + ::parquet::file::reader::ChunkReader + 'static {}
#[cfg(feature = "parquet")]
impl<S: Read + ::parquet::file::reader::ChunkReader + 'static> Source for S {}

/// Bytes of a trace: any `Read`.
#[cfg(not(feature = "parquet"))]
pub trait Source: Read + 'static {}
#[cfg(not(feature = "parquet"))]
impl<S: Read + 'static> Source for S {}

/// The columns a caller wants beside the key. A column not asked for is not decoded and stays empty in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Columns {
    /// The source's clock, or the sequence number.
    pub time: bool,
    /// Bytes of the value.
    pub size: bool,
    /// The operation.
    pub op: bool,
    /// Time to live in seconds.
    pub ttl: bool,
}

impl Columns {
    /// Every column.
    pub const ALL: Self = Self {
        time: true,
        size: true,
        op: true,
        ttl: true,
    };
    /// The key alone.
    pub const KEY: Self = Self {
        time: false,
        size: false,
        op: false,
        ttl: false,
    };
}

/// Up to [`BATCH_ROWS`] rows of a key stream, column by column; columns asked for have as many entries as `key`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The key or its hash.
    pub key: Vec<u64>,
    /// The source's clock; the row number from 0 where the file has no such column.
    pub time: Vec<u64>,
    /// Bytes of the value, `None` where unknown.
    pub size: Vec<Option<u32>>,
    /// The operation, `None` where unknown.
    pub op: Vec<Option<Op>>,
    /// Seconds to live, 0 for no end, `None` where unknown.
    pub ttl: Vec<Option<u32>>,
}

impl Batch {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.key.len()
    }

    /// Whether the batch has no row.
    pub fn is_empty(&self) -> bool {
        self.key.is_empty()
    }

    /// Forgets the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.key.clear();
        self.time.clear();
        self.size.clear();
        self.op.clear();
        self.ttl.clear();
    }
}

/// A key stream that is read batch by batch.
pub trait KeyStream: Send {
    /// Replaces the rows of `batch` by the next ones and returns how many; 0 is the end of the stream.
    fn read(&mut self, batch: &mut Batch) -> Result<usize, TraceError>;

    /// Rows in the whole stream, where the file says so before it is read.
    fn rows(&self) -> Option<u64>;

    /// Whether the file ended in the middle of a row; that row is left out. Known at the end of the stream.
    fn is_cut(&self) -> bool;
}

/// The file kinds, told apart by the end of the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet: `.parquet`.
    Parquet,
    /// Comma-separated values under a line of names: `.csv`.
    Csv,
    /// One JSON object a line: `.jsonl`, `.ndjson`.
    JsonLines,
}

impl Format {
    /// The format that a file name ends in.
    pub fn of(name: &str) -> Result<Self, TraceError> {
        let ending = name
            .rsplit_once('.')
            .map(|(_, ending)| ending.to_ascii_lowercase());
        match ending.as_deref() {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            Some("jsonl" | "ndjson") => Ok(Self::JsonLines),
            _ => Err(TraceError::file(
                name,
                "the name must end in .parquet, .csv, .jsonl or .ndjson",
            )),
        }
    }
}

/// Opens the key stream in `source`; `name` decides the format and stands in errors.
///
/// # Errors
/// A name of no known ending, a file of another kind, a missing `key` column, a column of the wrong type.
pub fn open<S: Source + Send>(
    name: &str,
    source: S,
    columns: Columns,
) -> Result<Box<dyn KeyStream>, TraceError> {
    match Format::of(name)? {
        Format::Csv => Ok(Box::new(csv::Reader::new(
            name,
            BufReader::new(source),
            columns,
        )?)),
        Format::JsonLines => Ok(Box::new(jsonl::Reader::new(
            name,
            BufReader::new(source),
            columns,
        ))),
        #[cfg(feature = "parquet")]
        Format::Parquet => Ok(Box::new(parquet::Reader::new(name, source, columns)?)),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(TraceError::file(name, "this build reads no Parquet")),
    }
}
