//! A profile: the latency of single gets by value size and of multi-gets by number of keys, of one or two servers.
//!
//! Random bytes are stored, read back with a clock around each call, compared and deleted. The run is cut into rounds
//! that visit every size and width; with two servers each round measures both, in the order A B, B A, so that a
//! change of the machine meets both alike, and over connections of its own: which thread of a server a connection
//! belongs to, and on which processor that runs, can change its latencies by half for as long as it lasts. A
//! `Caller` makes the calls, through our client or a Python client.
//!
//! A *cell* is one value size, or one number of keys (*width*), at which reads are measured; *ours* is glasscache,
//! *theirs* the server that it is compared with.

mod caller;
mod latency_file;
mod measured;
mod python_client;
mod report;
mod rust_client;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::paired::order_sides;
use crate::report::Outcome;
use crate::statistics::{Percentiles, RatioInterval, Steadiness};
use crate::target::{CallError, Target};
use caller::Caller;
use latency_file::build_latency_file;
use measured::ProfileMeasurement;
use report::build_report;

/// Rounds of a profile: enough for the interval of a median ratio.
const ROUNDS: usize = 80;

/// What is read: one value of some size, or several small ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Cell {
    /// One get of a value of this many bytes.
    Bytes(usize),
    /// One multi-get of this many keys with values of `WIDTH_VALUE_BYTES` bytes.
    Keys(usize),
}

/// Bytes of a value in a multi-get: tiny, so that a latency table does not count bytes twice.
pub(crate) const WIDTH_VALUE_BYTES: usize = 10;

/// The calls of one block.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallBlock {
    /// Time of each call, in nanoseconds, in order.
    pub(crate) latencies_ns: Vec<u64>,
    /// Values that were absent or differed from those stored.
    pub wrong_values: u64,
}

/// The mean time of a get by part, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct GetTimes {
    /// Size of the value.
    pub bytes: usize,
    /// The whole call.
    pub total_us: f64,
    /// The client's own code: all that is in no other part.
    pub client_us: f64,
    /// From bytes to the value.
    #[serde(rename = "serialise_us")]
    pub deserialise_us: f64,
    /// Decompression.
    #[serde(rename = "compress_us")]
    pub decompress_us: f64,
    /// Between client and server: both kernels, the network, waiting for a CPU.
    pub network_us: f64,
    /// CPU time of the server, its share of the kernel included; `None` where its process cannot be seen, which leaves
    /// it in `network_us`.
    pub server_us: Option<f64>,
}

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Calls for each size and width.
    pub calls: usize,
    /// Sizes of values, in bytes.
    pub sizes: Vec<usize>,
    /// Numbers of keys.
    pub widths: Vec<usize>,
    /// Threads that call at the same time.
    pub threads: usize,
    /// Calls a second over all threads; as fast as replies come without.
    pub rate: Option<f64>,
    /// Measure this Python client, such as `pylibmc`, instead of ours.
    pub via: Option<String>,
    /// Seed of the values.
    pub seed: u64,
    /// Repeat rounds for this long instead of until the calls are done.
    pub run_for: Option<Duration>,
    /// Ends the run when set; what was measured is returned.
    pub stop: Arc<AtomicBool>,
}

impl Settings {
    fn cells(&self) -> Vec<Cell> {
        let sizes = self.sizes.iter().map(|&bytes| Cell::Bytes(bytes));
        sizes.chain(self.widths.iter().map(|&keys| Cell::Keys(keys))).collect()
    }

    /// The size at which a get is split and the development of the run is shown: the one nearest to 1,000 bytes.
    fn typical_bytes(&self) -> Option<usize> {
        let log_distance = |bytes: &usize| ((*bytes).max(1) as f64 / 1000.0).ln().abs();
        let by_distance = |a: &usize, b: &usize| log_distance(a).total_cmp(&log_distance(b));
        self.sizes.iter().copied().min_by(by_distance)
    }
}

/// What a profile found, complete or up to its stop.
#[derive(Debug, Clone, Serialize)]
struct Profile {
    /// The first target.
    #[serde(flatten)]
    pub measured: ProfileMeasurement,
    /// The second target, where there is one.
    #[serde(rename = "vs", skip_serializing_if = "Option::is_none")]
    pub other_measured: Option<ProfileMeasurement>,
    /// The first target's percentiles over the second's: the median over the rounds, with its interval.
    #[serde(rename = "ratio", skip_serializing_if = "Option::is_none")]
    pub ratios: Option<TargetRatios>,
    /// Length of the run.
    pub seconds: f64,
    /// Whether it was stopped before its end.
    #[serde(rename = "stopped")]
    pub is_stopped: bool,
}

/// Ratios at two percentiles.
#[derive(Debug, Clone, Copy, Serialize)]
struct TargetRatios {
    /// Of the median.
    #[serde(rename = "50")]
    pub p50: RatioInterval,
    /// Of the 99th percentile.
    #[serde(rename = "99")]
    pub p99: RatioInterval,
}

/// Logarithms of the ratios of one round, the mean over its cells.
#[derive(Debug, Clone, Copy, Default)]
struct LogRatios {
    p50: f64,
    p99: f64,
}

/// Profiles one or two targets; the JSON is the latency table that `simulate` reads, if the sizes and widths make one.
///
/// # Errors
/// A failure before anything was measured.
pub fn run(
    settings: &Settings,
    targets: &[&Target],
    progress: impl FnMut(f64),
) -> Result<(Outcome<CallError>, Option<Value>), CallError> {
    let (profile, error) = measure_targets(settings, targets, progress);
    let is_empty = profile.measured.by_size.is_empty() && profile.measured.by_width.is_empty();
    match error {
        Some(error) if is_empty => Err(error),
        error => {
            let all_measured = std::iter::once(&profile.measured).chain(&profile.other_measured);
            let outcome = Outcome {
                report: build_report(settings, targets, &profile),
                wrong_values: all_measured.map(|measured| measured.wrong_values).sum(),
                is_stopped: profile.is_stopped,
                error,
            };
            Ok((outcome, build_latency_file(&profile.measured)))
        }
    }
}

/// What was measured, and what ended that early.
fn measure_targets(
    settings: &Settings,
    targets: &[&Target],
    mut progress: impl FnMut(f64),
) -> (Profile, Option<CallError>) {
    let started = Instant::now();
    let mut results: Vec<ProfileMeasurement> =
        targets.iter().map(|_| ProfileMeasurement::new(settings)).collect();
    let mut log_ratios = Vec::new();
    let callers: Result<Vec<_>, _> =
        targets.iter().map(|target| Caller::new(target, settings)).collect();
    let outcome = callers.and_then(|mut callers| {
        measure(settings, &mut callers, &mut results, &mut log_ratios, &mut progress)
    });
    let profile = Profile {
        ratios: (targets.len() == 2 && !log_ratios.is_empty()).then(|| TargetRatios {
            p50: RatioInterval::of(log_ratios.iter().map(|ratios: &LogRatios| ratios.p50.exp())),
            p99: RatioInterval::of(log_ratios.iter().map(|ratios| ratios.p99.exp())),
        }),
        seconds: started.elapsed().as_secs_f64(),
        is_stopped: settings.stop.load(Ordering::Relaxed),
        other_measured: (results.len() == 2).then(|| results.remove(1)),
        measured: results.swap_remove(0),
    };
    let finished = Profile {
        measured: profile.measured.finish(),
        other_measured: profile.other_measured.map(ProfileMeasurement::finish),
        ..profile
    };
    (finished, outcome.err())
}

fn measure(
    settings: &Settings,
    callers: &mut [Caller<'_>],
    results: &mut [ProfileMeasurement],
    log_ratios: &mut Vec<LogRatios>,
    progress: &mut impl FnMut(f64),
) -> Result<(), CallError> {
    let mut stored_cells = Vec::new();
    for cell in settings.cells() {
        let mut is_stored = true;
        for caller in &mut *callers {
            is_stored &= caller.fill(cell)?;
        }
        if is_stored {
            stored_cells.push(cell);
        } else {
            for result in &mut *results {
                result.refused.push(cell);
            }
        }
    }
    let started = Instant::now();
    let calls_per_round = settings.calls.div_ceil(ROUNDS).max(1);
    for round in 0.. {
        let progress_share = match settings.run_for {
            None => round as f64 * calls_per_round as f64 / settings.calls as f64,
            Some(run_for) => started.elapsed().as_secs_f64() / run_for.as_secs_f64(),
        };
        progress(progress_share.min(1.0));
        if progress_share >= 1.0 || settings.stop.load(Ordering::Relaxed) {
            break;
        }
        log_ratios.extend(measure_round(
            (round, calls_per_round),
            &stored_cells,
            callers,
            (results, &started),
        )?);
    }
    if let Some(bytes) =
        settings.typical_bytes().filter(|&bytes| stored_cells.contains(&Cell::Bytes(bytes)))
    {
        for (caller, result) in callers.iter_mut().zip(results) {
            result.get_times = Some(caller.measure_parts(bytes, settings.calls.min(2000))?);
        }
    }
    for caller in callers {
        stored_cells.iter().try_for_each(|&cell| caller.clear(cell))?;
    }
    Ok(())
}

/// One block of each cell and target; returns the mean ratios over the cells, with two targets.
fn measure_round(
    (round, calls_per_round): (usize, usize),
    cells: &[Cell],
    callers: &mut [Caller<'_>],
    (results, started): (&mut [ProfileMeasurement], &Instant),
) -> Result<Option<LogRatios>, CallError> {
    let mut log_ratio_sums = LogRatios::default();
    let target_order = order_sides(round);
    if let (&[cell, ..], true) = (cells, callers.len() == 2) {
        for target_index in target_order {
            if let Some(caller) = callers.get_mut(target_index) {
                caller.reconnect(cell)?;
            }
        }
    }
    for &cell in cells {
        let mut medians_and_p99s = [(1.0_f64, 1.0_f64); 2];
        for target_index in target_order {
            let (Some(caller), Some(result)) =
                (callers.get_mut(target_index), results.get_mut(target_index))
            else {
                continue;
            };
            let block = caller.read(cell, calls_per_round)?;
            let block_percentiles =
                Percentiles::new(block.latencies_ns.iter().map(|&ns| ns as f64).collect());
            if let Some(median_and_p99) = medians_and_p99s.get_mut(target_index) {
                *median_and_p99 = (block_percentiles.value(50.0), block_percentiles.value(99.0));
            }
            result.add(cell, &block, started.elapsed());
        }
        let [(first_p50, first_p99), (second_p50, second_p99)] = medians_and_p99s;
        log_ratio_sums.p50 += (first_p50 / second_p50).ln();
        log_ratio_sums.p99 += (first_p99 / second_p99).ln();
    }
    let cell_count = cells.len().max(1) as f64;
    Ok((callers.len() == 2).then_some(LogRatios {
        p50: log_ratio_sums.p50 / cell_count,
        p99: log_ratio_sums.p99 / cell_count,
    }))
}

/// The development of calls in the order in which they were made.
fn find_steadiness(relative_latencies: &[f64]) -> Steadiness {
    Steadiness::of(relative_latencies, 1)
}
