//! The options of a recorder, and the errors for options that have no meaning.

use std::path::PathBuf;
use std::time::Duration;

use crate::parents::ParentPatterns;

/// The files that a recorder writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileFormat {
    /// `.parquet`, compressed.
    #[default]
    Parquet,
    /// `.jsonl`, one object a line.
    JsonLines,
}

impl FileFormat {
    /// The extension of the files' names.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::JsonLines => "jsonl",
        }
    }
}

/// How and where a recorder writes.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder of the log; it is created. Several processes may write into one folder.
    pub folder: PathBuf,
    /// The share of the requests that is recorded, from 0 to 1.
    pub sample: f64,
    /// The files' format.
    pub format: FileFormat,
    /// If given, keys are replaced by the first 16 bytes of the SHA-256 of salt and key, in hexadecimal digits.
    pub salt: Option<Vec<u8>>,
    /// Keys with these prefixes are credentials, as those of sessions are: the rest of them is replaced by a hash.
    pub salt_prefixes: Vec<String>,
    /// How a key names its parent.
    pub parents: ParentPatterns,
    /// A part of the log is written when it is this old.
    pub rotate_after: Duration,
    /// A part of the log is written when its requests take about this many bytes of memory, or half of `memory_bytes`.
    pub rotate_bytes: usize,
    /// Bytes of memory for requests that are not written yet; what does not fit is dropped and counted.
    pub memory_bytes: usize,
    /// Whether it is known how long a request took apart from its calls; if not, `base_us` is 0.
    pub has_base: bool,
}

impl Options {
    /// Every request, as Parquet, a part every ten minutes or 16 MiB, in at most 64 MiB of memory.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            sample: 1.0,
            format: FileFormat::default(),
            salt: None,
            salt_prefixes: Vec::new(),
            parents: ParentPatterns::default(),
            rotate_after: Duration::from_mins(10),
            rotate_bytes: 16 << 20,
            memory_bytes: 64 << 20,
            has_base: true,
        }
    }
}

/// Why a recorder cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The share is not a number from 0 to 1.
    #[error("sample must be a number from 0 to 1, not {0}")]
    Sample(f64),
    /// Parts of no bytes, no age, or larger than the memory.
    #[error("{0}")]
    Bound(&'static str),
}

impl Options {
    /// The size in bytes at which a part is written. Half of the memory is for requests that finish meanwhile: a part
    /// that needed all of it would keep further ones out, and never become larger.
    pub(crate) fn part_bytes(&self) -> usize {
        self.rotate_bytes.min(self.memory_bytes / 2)
    }

    /// Refuses options that have no meaning.
    ///
    /// # Errors
    /// A share that is none, or bounds of parts that no log can keep.
    pub fn check(&self) -> Result<(), RecordError> {
        if !(0.0..=1.0).contains(&self.sample) {
            return Err(RecordError::Sample(self.sample));
        }
        if self.salt_prefixes.iter().any(String::is_empty) {
            let reason =
                "salt_prefixes has an empty prefix, which is that of every key: write salt instead";
            return Err(RecordError::Bound(reason));
        }
        if self.rotate_after.is_zero() || self.rotate_bytes == 0 {
            let reason = "a part of the log needs an age above 0 and a size above 0";
            return Err(RecordError::Bound(reason));
        }
        if self.rotate_bytes > self.memory_bytes {
            let reason =
                "a part of the log must fit into the memory for requests that are not written yet";
            return Err(RecordError::Bound(reason));
        }
        Ok(())
    }
}
