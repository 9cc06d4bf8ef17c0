//! Key streams prepared for replay: numbered (key, size) pairs, copied until they fill a server.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use glasscache_sim::trace::{self, Batch as Rows, Columns};

use super::super::Error;
use super::VALUE_BYTES_MAX;
use crate::load::{KEY_BYTES, Size, mix};

/// Traces are copied until their footprint is at least this.
const FOOTPRINT_BYTES_MIN: u64 = 640 << 20;

/// A key stream, ready to be replayed.
#[derive(Debug)]
pub struct Trace {
    /// The file's name without its ending.
    pub name: String,
    /// Requests in order, as numbers of distinct (key, size) pairs.
    pub(super) requests: Vec<u32>,
    pub(super) distinct: usize,
    /// How many copies run side by side.
    pub copies: u32,
    /// Length of each value: all pairs of the first copy, then of the second, and so on.
    pub(super) value_bytes: Vec<u32>,
}

impl Trace {
    /// Reads a trace, at most `requests_max` of its requests.
    pub fn read(path: &Path, requests_max: Option<usize>) -> Result<Self, Error> {
        let failed = |message: String| Error::File(path.to_owned(), message);
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let file_name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut stream = trace::open(&file_name, file, Columns::ALL)
            .map_err(|error| failed(error.to_string()))?;
        let (mut rows, mut numbers) = (Rows::default(), HashMap::new());
        let (mut requests, mut sizes) = (Vec::new(), Vec::new());
        let wanted = requests_max.unwrap_or(usize::MAX);
        while requests.len() < wanted
            && stream
                .read(&mut rows)
                .map_err(|error| failed(error.to_string()))?
                > 0
        {
            for (at, &key) in rows.key.iter().enumerate().take(wanted - requests.len()) {
                let size: Option<u32> = rows.size.get(at).copied().flatten();
                let next = sizes.len() as u32;
                let number = *numbers.entry((key, size)).or_insert(next);
                if number == next {
                    sizes.push(size.map(|bytes| bytes.min(VALUE_BYTES_MAX)));
                }
                requests.push(number);
            }
        }
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Self::new(name, requests, &sizes))
    }

    pub(super) fn new(name: String, requests: Vec<u32>, sizes: &[Option<u32>]) -> Self {
        let mut trace = Self {
            name,
            requests,
            distinct: sizes.len(),
            copies: 0,
            value_bytes: Vec::new(),
        };
        while trace.copies == 0 || trace.footprint_bytes() < FOOTPRINT_BYTES_MIN {
            trace.add_copy(sizes);
        }
        trace
    }

    /// Sizes missing in the trace are drawn from the number of the key and of the copy.
    pub(super) fn add_copy(&mut self, sizes: &[Option<u32>]) {
        let first = u64::from(self.copies) << 32;
        let drawn = |number: u64| Size::MIX.of(mix(first | number)) as u32;
        let bytes = (0..)
            .zip(sizes)
            .map(|(number, size)| size.unwrap_or_else(|| drawn(number)));
        self.value_bytes.extend(bytes);
        self.copies += 1;
    }

    /// The number under which a pair of a copy is stored.
    pub(super) fn slot(&self, copy: u32, number: usize) -> u64 {
        (copy as usize * self.distinct + number) as u64
    }

    pub(super) fn bytes_of(&self, slot: u64) -> usize {
        self.value_bytes
            .get(slot as usize)
            .map_or(0, |&bytes| bytes as usize)
    }

    /// Requests of all copies.
    pub fn requests_all(&self) -> u64 {
        self.requests.len() as u64 * u64::from(self.copies)
    }

    /// Misses that no cache avoids.
    pub fn first_uses(&self) -> u64 {
        self.value_bytes.len() as u64
    }

    /// Key and value bytes of all distinct items of all copies.
    pub fn footprint_bytes(&self) -> u64 {
        self.value_bytes
            .iter()
            .map(|&bytes| u64::from(bytes) + KEY_BYTES as u64)
            .sum()
    }
}

/// The traces of a folder, by name.
pub fn traces_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| Error::File(folder.to_owned(), error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

/// A trace of small numbers, each value of 80 bytes.
#[cfg(test)]
pub(super) fn test_trace(requests: &[u32], copies: u32) -> Trace {
    let distinct = requests.iter().max().map_or(0, |max| max + 1) as usize;
    let value_bytes = vec![80; distinct * copies as usize];
    Trace {
        name: "t".into(),
        requests: requests.to_vec(),
        distinct,
        copies,
        value_bytes,
    }
}
