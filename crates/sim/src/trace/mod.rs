//! Key streams: the requests to a server or a cache, one row a request, read in batches from Parquet, CSV or JSON lines.
//!
//! The format is the project's own (docs/reference/formats.md, section 1). A reader works on the bytes that it
//! receives and never holds more than one batch of rows. `log` has the other kind of trace: complete requests of an
//! application.
//!
//! The *position* of a request is its number in the trace, from 0; the *distinct* objects are counted once each.

#[cfg(feature = "parquet")]
mod column;
mod csv;
pub mod generate;
pub mod intern;
mod jsonl;
mod layout;
mod lines;
pub mod log;
mod memory;
mod op;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
mod parquet_file;
#[cfg(feature = "parquet")]
mod parquet_writer;
mod pattern;
mod repeated;
mod rows;
mod text;
pub(crate) mod timeline;
pub mod watch;
pub mod writer;

use self::repeated::RepeatedRows;
use crate::TraceError;
use std::io::{BufReader, Read};

pub use layout::{ColumnNames, Layout, LinePattern, TimeUnit};
pub use memory::InMemoryFile;
pub use op::{Effect, Op};
pub use text::key_number;
pub use timeline::Timeline;

/// Maximum number of rows in a batch: small enough for the second-level cache, large enough to hide the cost of a
/// call.
pub const BATCH_ROWS: usize = 8192;

/// Bytes of a trace: a `File`, or [`InMemoryFile`].
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
    pub const ALL: Self = Self { time: true, size: true, op: true, ttl: true };
    /// The key alone.
    pub const KEY: Self = Self { time: false, size: false, op: false, ttl: false };
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

    /// Appends a row of a batch with the same columns.
    fn push_row_of(&mut self, other: &Self, row: usize) {
        fn push<T: Copy>(column: &mut Vec<T>, other_column: &[T], row: usize) {
            column.extend(other_column.get(row));
        }
        push(&mut self.key, &other.key, row);
        push(&mut self.time, &other.time, row);
        push(&mut self.size, &other.size, row);
        push(&mut self.op, &other.op, row);
        push(&mut self.ttl, &other.ttl, row);
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

    /// What the rows read so far say about the file. Complete at the end of the stream.
    fn facts(&self) -> StreamFacts;
}

/// What is known of a stream besides its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamFacts {
    /// Whether the rows have times of the source's clock; if not, `time` is the row number.
    pub has_time: bool,
    /// Whether some of these times are numbers whose unit the file does not state.
    pub has_unitless_time: bool,
    /// Distinct 64-bit hashes of the keys that are text.
    pub hashed_keys: u64,
    /// Rows whose key has the hash of another text.
    pub key_collisions: u64,
    /// Lines without a row: those that a pattern does not match, and those of `watch` that report no get or write.
    pub skipped_lines: u64,
    /// Rows that are left out because their size or TTL is greater than a column of 32 bits holds.
    pub oversized_rows: u64,
}

/// The file formats, chosen by the file name extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet: `.parquet`.
    Parquet,
    /// Comma-separated values with a header line: `.csv`, `.tsv`.
    Csv,
    /// One JSON object a line: `.jsonl`, `.ndjson`.
    JsonLines,
    /// The lines that memcached's `watch fetchers mutations` prints. Never chosen by the file name.
    Watch,
}

impl Format {
    /// The format for a file name extension.
    pub fn of(name: &str) -> Result<Self, TraceError> {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        match extension.as_deref() {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv" | "tsv") => Ok(Self::Csv),
            Some("jsonl" | "ndjson") => Ok(Self::JsonLines),
            _ => Err(TraceError::file(
                name,
                "the name must end in .parquet, .csv, .jsonl or .ndjson",
            )),
        }
    }
}

/// Opens the key stream in `source`, in the project's own form; `name` determines the format and appears in errors.
///
/// # Errors
/// An unknown file name extension, an unsupported file, a missing `key` column, a column of the wrong type.
pub fn open<S: Source + Send>(
    name: &str,
    source: S,
    columns: Columns,
) -> Result<Box<dyn KeyStream>, TraceError> {
    open_with(name, source, columns, &Layout::default())
}

/// Opens the key stream in a file of another form; `name` appears in errors.
///
/// # Errors
/// As those of [`open`], and a column that the layout names and the file does not have.
pub fn open_with<S: Source + Send>(
    name: &str,
    source: S,
    columns: Columns,
    layout: &Layout,
) -> Result<Box<dyn KeyStream>, TraceError> {
    if let Some(pattern) = &layout.pattern {
        let source = BufReader::new(source);
        let rows = pattern::open(name, source, columns, layout, pattern);
        return Ok(Box::new(RepeatedRows::new(rows)));
    }
    let format = layout.format.map_or_else(|| Format::of(name), Ok)?;
    match format {
        Format::Csv => {
            let rows = csv::open(name, BufReader::new(source), columns, layout)?;
            Ok(Box::new(RepeatedRows::new(rows)))
        }
        Format::JsonLines => {
            let rows = jsonl::open(name, BufReader::new(source), columns, layout);
            Ok(Box::new(RepeatedRows::new(rows)))
        }
        Format::Watch => Ok(Box::new(watch::open(name, BufReader::new(source), columns))),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            let rows = parquet::KeyReader::new(name, source, columns, layout)?;
            Ok(Box::new(RepeatedRows::new(rows)))
        }
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(TraceError::file(name, "this build reads no Parquet")),
    }
}
