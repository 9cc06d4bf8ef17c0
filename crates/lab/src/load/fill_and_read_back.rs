//! Filling and reading back: every key of a range once, in order.
//!
//! [`Fill`] stores a range; [`ReadBack`] reads all of it and counts the values that are still present and correct.

use std::ops::Range;
use std::sync::Arc;

use super::keys::format_key;
use super::values::{Size, ValueSource};
use super::workload::{Batch, KeyResult, NextStep, Workload};

/// Keys and values of a benchmark: the source of their bytes, the sizes, and the expected version of each value.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    /// The source of the value bytes.
    pub value_source: Arc<ValueSource>,
    /// Length of each value.
    pub size: Size,
    /// The expected version of each value.
    pub version: u32,
}

impl Values {
    /// First versions of `size`, from a source of its own.
    pub(crate) fn new(size: Size, seed: u64) -> Self {
        Self { value_source: Arc::new(ValueSource::new(size.max(), seed)), size, version: 0 }
    }

    /// The value under `id`.
    pub(crate) fn of(&self, id: u64) -> &[u8] {
        self.value_source.value(id, self.version, self.size.of(id))
    }
}

/// Takes the first `count` of the remaining keys, so that neighbouring connections write neighbouring keys.
fn take_first(remaining_ids: &mut Range<u64>, count: usize) -> Range<u64> {
    let start = remaining_ids.start;
    remaining_ids.start = (start + count as u64).min(remaining_ids.end);
    start..remaining_ids.start
}

/// Splits `range` among `threads`.
pub(crate) fn split_range(range: &Range<u64>, threads: usize) -> Vec<Range<u64>> {
    let (key_count, threads) = (range.end.saturating_sub(range.start), threads.max(1) as u64);
    let range_edge = |chunk: u64| range.start + key_count * chunk / threads;
    (0..threads).map(|chunk| range_edge(chunk)..range_edge(chunk + 1)).collect()
}

/// Stores every key of a range once.
pub(crate) struct Fill {
    remaining_ids: Range<u64>,
    values: Values,
    ttl_s: u32,
    /// Writes that were not stored.
    pub refused: u64,
    /// Keys stored so far.
    pub stored: u64,
    /// Key and value bytes stored.
    pub user_bytes: u64,
}

impl Fill {
    /// One workload for each of `threads` threads.
    pub(crate) fn over(range: &Range<u64>, values: &Values, threads: usize) -> Vec<Self> {
        split_range(range, threads)
            .into_iter()
            .map(|remaining_ids| Self {
                remaining_ids,
                values: values.clone(),
                ttl_s: 0,
                refused: 0,
                stored: 0,
                user_bytes: 0,
            })
            .collect()
    }
}

impl Workload for Fill {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> NextStep {
        let Some(id) = take_first(&mut self.remaining_ids, 1).next() else {
            return NextStep::Finished;
        };
        batch.set(self, id, self.ttl_s);
        NextStep::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&format_key(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.values.of(id)
    }

    fn on_result(&mut self, _connection: usize, id: u64, result: KeyResult) {
        if result == KeyResult::Stored {
            self.stored += 1;
            self.user_bytes += (format_key(id).len() + self.values.size.of(id)) as u64;
        } else {
            self.refused += 1;
        }
    }
}

/// Reads every key of a range once and sums up what is resident.
pub(crate) struct ReadBack {
    remaining_ids: Range<u64>,
    values: Values,
    keys_per_get: usize,
    scratch_ids: Vec<u64>,
    /// Keys that came back with the correct value.
    pub resident: u64,
    /// Their key and value bytes.
    pub user_bytes: u64,
    /// Keys that came back with a wrong value.
    pub wrong: u64,
}

impl ReadBack {
    /// One workload for each of `threads` threads, with `keys_per_get` keys per get.
    pub(crate) fn over(
        range: &Range<u64>,
        values: &Values,
        threads: usize,
        keys_per_get: usize,
    ) -> Vec<Self> {
        split_range(range, threads)
            .into_iter()
            .map(|remaining_ids| Self {
                remaining_ids,
                values: values.clone(),
                keys_per_get: keys_per_get.max(1),
                scratch_ids: Vec::new(),
                resident: 0,
                user_bytes: 0,
                wrong: 0,
            })
            .collect()
    }
}

impl Workload for ReadBack {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> NextStep {
        let mut ids = std::mem::take(&mut self.scratch_ids);
        ids.clear();
        ids.extend(take_first(&mut self.remaining_ids, self.keys_per_get));
        let is_range_finished = ids.is_empty();
        if !is_range_finished {
            batch.get(self, &ids);
        }
        self.scratch_ids = ids;
        if is_range_finished { NextStep::Finished } else { NextStep::Sent }
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&format_key(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.values.of(id)
    }

    fn on_result(&mut self, _connection: usize, id: u64, result: KeyResult) {
        match result {
            KeyResult::Hit => {
                self.resident += 1;
                self.user_bytes += (format_key(id).len() + self.values.size.of(id)) as u64;
            }
            KeyResult::Wrong => self.wrong += 1,
            _ => {}
        }
    }
}
