//! What a measurement of values found.

use serde::Serialize;

use super::call::CallTimes;
use super::calls::{Comparison, MeasuredCalls};
use super::choice::{Candidate, Choice};
use super::storage::StorageRow;

/// The values whose keys begin alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PrefixRow {
    /// The prefix with its end; empty for keys without one.
    pub prefix: String,
    /// Its values.
    pub values: usize,
    /// Their bytes as they were given.
    pub bytes: u64,
    /// Compressed bytes over those before, with the recommended compressor and threshold.
    pub ratio: f64,
}

/// What was found, as far as the measurement came.
#[derive(Debug, Default)]
pub(super) struct CodecResult {
    /// All values and their bytes.
    pub value_count: usize,
    /// Bytes of all values.
    pub total_bytes: usize,
    /// Values that were too long or empty.
    pub skipped_values: u64,
    /// Whether there were more values than are read.
    pub is_truncated: bool,
    /// Values that every form was measured with.
    pub measured_values: usize,
    /// The server, by name and version.
    pub server_name: String,
    /// The client that made the calls.
    pub client_name: &'static str,
    /// As in the settings.
    pub network_mbit: Option<f64>,
    /// As in the settings.
    pub reads_per_write: f64,
    /// The forms, best first.
    pub candidates: Vec<Candidate>,
    /// The codec in use, as it was given.
    pub expression_in_use: String,
    /// The codec in use.
    pub in_use: Option<Choice>,
    /// The form to use: another one only if real calls with it are better.
    pub recommended: Option<Choice>,
    /// Calls with it.
    pub measured_calls: Option<MeasuredCalls>,
    /// What real calls with the best other form took; `None` if the codec in use has the best forecast.
    pub comparison: Option<Comparison>,
    /// Forms that are as fast as the best, fewest bytes first.
    pub rivals: Vec<Choice>,
    /// What it saves by key prefix.
    pub prefix_rows: Vec<PrefixRow>,
    /// The storage table.
    pub storage_rows: Vec<StorageRow>,
    /// Calls by size.
    pub call_times: CallTimes,
    /// What could not be measured, with the reason.
    pub left_out: Vec<String>,
    /// Values that came back as others from a compressor.
    pub(super) compressor_mismatches: u64,
}

impl CodecResult {
    /// Values that came back as others.
    pub(super) fn wrong_values(&self) -> u64 {
        let storage_mismatches: u64 = self.storage_rows.iter().map(|row| row.wrong_values).sum();
        self.compressor_mismatches
            + storage_mismatches
            + self.measured_calls.map_or(0, |measured| measured.wrong_values)
    }
}
