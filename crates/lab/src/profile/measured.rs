//! What a profile measured of one target.

use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::{CallBlock, Cell, GetTimes, Settings, find_steadiness};
use crate::load::ThinnedSamples;
use crate::statistics::{Estimate, Percentiles, Steadiness};

/// The percentiles of a profile.
pub(crate) const PERCENTS: [f64; 8] = [5.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

/// Latencies kept for each cell: all of a usual profile.
const SAMPLES_MAX: usize = 1 << 18;

/// Numbers of first calls whose percentiles are reported as a shorter run would have had them.
const SHORTER_RUN_CALLS: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Percentiles of one size or width.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CellPercentiles {
    /// Size of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Number of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<usize>,
    /// Calls measured.
    pub samples: u64,
    /// By percentile.
    #[serde(serialize_with = "serialize_by_percent")]
    pub percentiles: Vec<Percentile>,
}

/// One percentile in microseconds, with its interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Percentile {
    /// 0 to 100.
    pub percent: f64,
    /// The percentile of the samples, in microseconds.
    pub(crate) sample_us: f64,
    /// The estimate, in microseconds.
    pub estimate_us: Estimate,
}

/// `{"50": {"us", "low", "high"}}`, or `{"us": null, "at_least"}` with too few samples.
fn serialize_by_percent<S: Serializer>(
    percentiles: &[Percentile],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(percentiles.len()))?;
    for Percentile { percent, estimate_us, .. } in percentiles {
        let json = match (estimate_us.value, estimate_us.high) {
            (Some(value), Some(high)) => {
                serde_json::json!({ "us": value, "low": estimate_us.low, "high": high })
            }
            _ => serde_json::json!({ "us": null, "at_least": estimate_us.low }),
        };
        map.serialize_entry(&percent.to_string(), &json)?;
    }
    map.end()
}

/// The calls of one second.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Second {
    /// Second of the run, from 0.
    pub at_s: u64,
    /// Calls, of all sizes and widths.
    pub calls: u64,
    /// Median of their latencies, each relative to the median of its size or width over the run.
    pub relative_p50: f64,
    /// The 99th percentile of the same.
    pub relative_p99: f64,
}

/// What a run of this many calls would have reported.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct ShorterRun {
    /// How many calls, the first of the run, it would have measured.
    #[serde(rename = "operations")]
    pub call_count: usize,
    /// Their median, relative to that of the whole run.
    pub relative_p50: f64,
    /// Their 99th percentile, relative to the median of the whole run.
    pub relative_p99: f64,
}

/// What was measured of one target.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ProfileMeasurement {
    /// Single gets.
    pub by_size: Vec<CellPercentiles>,
    /// Multi-gets.
    pub by_width: Vec<CellPercentiles>,
    /// Where the time of a get of a typical size goes.
    #[serde(rename = "split")]
    pub get_times: Option<GetTimes>,
    /// Whether the run was steady.
    #[serde(rename = "verdict")]
    pub steadiness: Steadiness,
    /// What shorter runs would have reported.
    #[serde(rename = "reported")]
    pub shorter_runs: Vec<ShorterRun>,
    /// By second of the run.
    pub series: Vec<Second>,
    /// Values that were absent or wrong.
    pub wrong_values: u64,
    /// Sizes and widths that the server refused to store.
    pub refused: Vec<Cell>,
    #[serde(skip)]
    calls_by_cell: Vec<(Cell, ThinnedSamples<TimedCall>)>,
}

/// One call: when it was made, by its block, its position among all calls, and its latency.
#[derive(Debug, Clone, Copy)]
struct TimedCall {
    at_s: u64,
    position: u64,
    latency_us: f64,
}

/// A call whose latency is relative to the median of its cell.
#[derive(Debug, Clone, Copy)]
struct RelativeCall {
    at_s: u64,
    position: u64,
    relative_latency: f64,
}

impl ProfileMeasurement {
    pub(super) fn new(settings: &Settings) -> Self {
        let calls_by_cell =
            settings.cells().into_iter().map(|cell| (cell, ThinnedSamples::new(SAMPLES_MAX)));
        Self {
            by_size: Vec::new(),
            by_width: Vec::new(),
            get_times: None,
            steadiness: find_steadiness(&[]),
            shorter_runs: Vec::new(),
            series: Vec::new(),
            wrong_values: 0,
            refused: Vec::new(),
            calls_by_cell: calls_by_cell.collect(),
        }
    }

    pub(super) fn add(&mut self, cell: Cell, block: &CallBlock, elapsed: Duration) {
        self.wrong_values += block.wrong_values;
        let first_position: u64 =
            self.calls_by_cell.iter().map(|(_, calls)| calls.elements_seen()).sum();
        let Some((_, calls)) =
            self.calls_by_cell.iter_mut().find(|(cell_of_calls, _)| *cell_of_calls == cell)
        else {
            return;
        };
        for (position, &ns) in (first_position..).zip(&block.latencies_ns) {
            calls.push(TimedCall {
                at_s: elapsed.as_secs(),
                position,
                latency_us: ns as f64 / 1e3,
            });
        }
    }

    /// Computes percentiles, steadiness and series from the calls.
    pub(super) fn finish(mut self) -> Self {
        let mut relative_calls = Vec::new();
        for (cell, calls) in &self.calls_by_cell {
            if calls.elements().is_empty() {
                continue;
            }
            let distribution =
                Percentiles::new(calls.elements().iter().map(|call| call.latency_us).collect());
            let median_us = distribution.value(50.0).max(1e-3);
            relative_calls.extend(calls.elements().iter().map(|call| RelativeCall {
                at_s: call.at_s,
                position: call.position,
                relative_latency: call.latency_us / median_us,
            }));
            let estimate = |percent| Percentile {
                percent,
                sample_us: distribution.value(percent),
                estimate_us: distribution.estimate(percent),
            };
            let (bytes, keys) = match *cell {
                Cell::Bytes(bytes) => (Some(bytes), None),
                Cell::Keys(keys) => (None, Some(keys)),
            };
            let cell_rows = if bytes.is_some() { &mut self.by_size } else { &mut self.by_width };
            cell_rows.push(CellPercentiles {
                bytes,
                keys,
                samples: calls.elements_seen(),
                percentiles: PERCENTS.map(estimate).to_vec(),
            });
        }
        relative_calls.sort_by_key(|call| call.position);
        let relative_latencies: Vec<f64> =
            relative_calls.iter().map(|call| call.relative_latency).collect();
        self.steadiness = find_steadiness(&relative_latencies);
        self.shorter_runs = compute_shorter_runs(&relative_latencies);
        self.series = group_calls_by_second(&relative_calls);
        self.calls_by_cell = Vec::new();
        self
    }
}

fn compute_shorter_runs(relative_latencies: &[f64]) -> Vec<ShorterRun> {
    let shorter_counts =
        SHORTER_RUN_CALLS.into_iter().filter(|&call_count| call_count < relative_latencies.len());
    shorter_counts
        .chain([relative_latencies.len()])
        .map(|call_count| {
            let first_latencies = relative_latencies.get(..call_count).unwrap_or_default();
            let distribution = Percentiles::new(first_latencies.to_vec());
            ShorterRun {
                call_count,
                relative_p50: distribution.value(50.0),
                relative_p99: distribution.value(99.0),
            }
        })
        .collect()
}

fn group_calls_by_second(relative_calls: &[RelativeCall]) -> Vec<Second> {
    relative_calls
        .chunk_by(|a, b| a.at_s == b.at_s)
        .map(|calls_of_second| {
            let distribution = Percentiles::new(
                calls_of_second.iter().map(|call| call.relative_latency).collect(),
            );
            Second {
                at_s: calls_of_second.first().map_or(0, |call| call.at_s),
                calls: calls_of_second.len() as u64,
                relative_p50: distribution.value(50.0),
                relative_p99: distribution.value(99.0),
            }
        })
        .collect()
}
