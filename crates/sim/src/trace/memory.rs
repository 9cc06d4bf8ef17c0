//! A trace in memory: for tests, fuzzing and Python's buffers.

use std::io::{Cursor, Read};
use std::sync::Arc;

/// Bytes that are read like a file.
#[derive(Debug, Clone)]
pub struct InMemoryFile {
    cursor: Cursor<Arc<[u8]>>,
}

impl InMemoryFile {
    /// Takes the bytes of a whole trace.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self { cursor: Cursor::new(bytes.into()) }
    }
}

impl Read for InMemoryFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.cursor.read(buffer)
    }
}

#[cfg(feature = "parquet")]
mod chunks {
    use super::{Arc, Cursor, InMemoryFile};
    use bytes::Bytes;
    use parquet::errors::{ParquetError, Result};
    use parquet::file::reader::{ChunkReader, Length};

    impl Length for InMemoryFile {
        fn len(&self) -> u64 {
            self.cursor.get_ref().len() as u64
        }
    }

    impl ChunkReader for InMemoryFile {
        type T = Cursor<Arc<[u8]>>;

        fn get_read(&self, start: u64) -> Result<Self::T> {
            let mut cursor = Cursor::new(Arc::clone(self.cursor.get_ref()));
            cursor.set_position(start);
            Ok(cursor)
        }

        fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
            let start = start as usize;
            let end = start.checked_add(length);
            let bytes_in_range = end.and_then(|end| self.cursor.get_ref().get(start..end));
            let past_end = || ParquetError::EOF(format!("{length} bytes at {start} are not there"));
            bytes_in_range.map(Bytes::copy_from_slice).ok_or_else(past_end)
        }
    }
}
