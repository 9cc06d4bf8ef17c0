//! Key streams: what a server or a cache saw, one row a request, read in batches from Parquet, CSV or JSON lines.
//!
//! The format is the project's own (docs/reference/formats.md, section 1). A reader works on the bytes that it
//! receives and never holds more than one batch of rows. `log` has the other kind of trace: complete requests of an
//! application.

#[cfg(feature = "parquet")]
mod column;
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

/// Maximum number of rows in a batch: small enough for the second-level cache, large enough to hide the cost of a
/// call.
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

/// The columns that a caller needs in addition to the key. Other columns are not decoded and stay empty in the batch.
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

/// Up to [`BATCH_ROWS`] rows of a key stream, by column; requested columns have as many entries as `key`.
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

    /// Number of rows in the whole stream, if the file states it in advance.
    fn rows(&self) -> Option<u64>;

    /// Whether the file ended in the middle of a row, which is then left out. Known at the end of the stream.
    fn is_truncated(&self) -> bool;
}

/// The file formats, chosen by the file name extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet: `.parquet`.
    Parquet,
    /// Comma-separated values with a header line: `.csv`.
    Csv,
    /// One JSON object a line: `.jsonl`, `.ndjson`.
    JsonLines,
}

impl Format {
    /// The format for a file name extension.
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

/// Opens the key stream in `source`; `name` determines the format and appears in errors.
///
/// # Errors
/// An unknown file name extension, an unsupported file, a missing `key` column, a column of the wrong type.
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
