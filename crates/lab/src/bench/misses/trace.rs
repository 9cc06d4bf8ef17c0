//! Key streams prepared for replay: numbered (key, size) pairs, copied until they fill a server.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use glasscache_sim::replay::PreparedTrace;
use glasscache_sim::trace::intern::InternedTrace;
use glasscache_sim::trace::{self, Batch as Rows, Columns};

use super::super::Error;
use super::VALUE_BYTES_MAX;
use crate::load::{KEY_BYTES, Size, mix};

/// Traces are copied until their footprint is at least this.
const FOOTPRINT_BYTES_MIN: u64 = 640 << 20;

/// A key stream, ready to be replayed.
#[derive(Debug)]
pub(super) struct Trace {
    /// The file's name without its ending.
    pub name: String,
    /// Requests in order, as numbers of distinct (key, size) pairs.
    pub(super) requested_sized_keys: Vec<u32>,
    pub(super) distinct_sized_keys: usize,
    /// How many copies run side by side.
    pub copies: u32,
    /// Length of each value: all pairs of the first copy, then of the second, and so on.
    pub(super) value_bytes: Vec<u32>,
}

impl Trace {
    /// Reads a trace, at most `requests_max` of its requests; `fixed_value_bytes` replaces the size of each value.
    pub(super) fn read(
        path: &Path,
        requests_max: Option<usize>,
        fixed_value_bytes: Option<u32>,
    ) -> Result<Self, Error> {
        let file_error = |message: String| Error::File(path.to_owned(), message);
        let file = File::open(path).map_err(|error| file_error(error.to_string()))?;
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut stream = trace::open(&file_name, file, Columns::ALL)
            .map_err(|error| file_error(error.to_string()))?;
        let (mut rows, mut sized_key_indices) = (Rows::default(), HashMap::new());
        let (mut requested_sized_keys, mut sizes) = (Vec::new(), Vec::new());
        let request_limit = requests_max.unwrap_or(usize::MAX);
        while requested_sized_keys.len() < request_limit
            && stream.read(&mut rows).map_err(|error| file_error(error.to_string()))? > 0
        {
            for (row_index, &key) in
                rows.key.iter().enumerate().take(request_limit - requested_sized_keys.len())
            {
                let size = fixed_value_bytes.or(rows.size.get(row_index).copied().flatten());
                let next_index = sizes.len() as u32;
                let sized_key_index = *sized_key_indices.entry((key, size)).or_insert(next_index);
                if sized_key_index == next_index {
                    sizes.push(size.map(|bytes| bytes.min(VALUE_BYTES_MAX)));
                }
                requested_sized_keys.push(sized_key_index);
            }
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self::new(name, requested_sized_keys, &sizes))
    }

    pub(super) fn new(name: String, requested_sized_keys: Vec<u32>, sizes: &[Option<u32>]) -> Self {
        let mut trace = Self {
            name,
            requested_sized_keys,
            distinct_sized_keys: sizes.len(),
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
        let copy_seed = u64::from(self.copies) << 32;
        let drawn_size =
            |sized_key_index: u64| Size::MIX.of(mix(copy_seed | sized_key_index)) as u32;
        let copy_value_bytes = (0..)
            .zip(sizes)
            .map(|(sized_key_index, size)| size.unwrap_or_else(|| drawn_size(sized_key_index)));
        self.value_bytes.extend(copy_value_bytes);
        self.copies += 1;
    }

    /// The number under which a pair of a copy is stored.
    pub(super) fn key_id(&self, copy_number: u32, sized_key_index: usize) -> u64 {
        (copy_number as usize * self.distinct_sized_keys + sized_key_index) as u64
    }

    pub(super) fn bytes_of(&self, key_id: u64) -> usize {
        self.value_bytes.get(key_id as usize).map_or(0, |&bytes| bytes as usize)
    }

    /// All copies, request by request, as a trace for a forecast: each key id is a key.
    pub(super) fn to_prepared_trace(&self) -> PreparedTrace {
        let key_ids = self.requested_sized_keys.iter().flat_map(|&sized_key_index| {
            (0..self.copies)
                .map(move |copy_number| self.key_id(copy_number, sized_key_index as usize) as u32)
        });
        PreparedTrace::new(InternedTrace {
            ids: key_ids.collect(),
            keys: (0..self.value_bytes.len() as u64).collect(),
            sizes: self.value_bytes.clone(),
            ..InternedTrace::default()
        })
    }

    /// Requests of all copies.
    pub(super) fn requests_of_all_copies(&self) -> u64 {
        self.requested_sized_keys.len() as u64 * u64::from(self.copies)
    }

    /// Misses that no cache avoids.
    pub(super) fn first_uses(&self) -> u64 {
        self.value_bytes.len() as u64
    }

    /// Key and value bytes of all distinct items of all copies.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        self.value_bytes.iter().map(|&bytes| u64::from(bytes) + KEY_BYTES as u64).sum()
    }
}

/// The traces of a folder, by name.
pub(super) fn list_trace_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| Error::File(folder.to_owned(), error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

/// A trace of small numbers, each value of 80 bytes.
#[cfg(test)]
pub(super) fn test_trace(requested_sized_keys: &[u32], copies: u32) -> Trace {
    let distinct_sized_keys = requested_sized_keys.iter().max().map_or(0, |max| max + 1) as usize;
    let value_bytes = vec![80; distinct_sized_keys * copies as usize];
    Trace {
        name: "t".into(),
        requested_sized_keys: requested_sized_keys.to_vec(),
        distinct_sized_keys,
        copies,
        value_bytes,
    }
}
