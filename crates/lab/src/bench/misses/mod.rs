//! The cost of eviction: real key streams replayed look-aside against both servers at equal `-m`.
//!
//! An application gets a key and stores it after a miss; every miss of a key that was stored before could have been
//! avoided by a better server. A key with two sizes counts as two keys, so values are never resized. Small traces are
//! copied side by side into key spaces of their own, request by request, until memory limits are large enough that
//! memcached's page size does not matter.

mod lru;
mod replay;
mod trace;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use glasscache_sim::curve::ServerMemory;
use serde_json::json;

use super::record::Record;
use super::{Comparison, Error, Programs, ServerPair};
use crate::text::{Table, format_count, wrap};
use replay::{ReplayComparison, measure_point, with_forecasts};
use trace::{Trace, list_trace_files};

/// Longer values are cut: memcached's default item size must take them.
const VALUE_BYTES_MAX: u32 = 1_000_000;

/// The required ratios of avoidable misses: geometric mean, and worst point.
const MEAN_RATIO_MAX: f64 = 0.82;
const WORST_RATIO_MAX: f64 = 1.05;

/// How far a forecast may be from the measured miss ratio.
const OUR_ERROR_MAX: f64 = 0.01;
const THEIR_ERROR_MAX: f64 = 0.02;

/// What is replayed, and how.
#[derive(Debug)]
pub struct Settings {
    /// Both servers.
    pub programs: Programs,
    /// A folder of key streams (Parquet).
    pub traces_folder: PathBuf,
    /// Only traces of these names; all if empty.
    pub trace_names: Vec<String>,
    /// `-m` as shares of the footprint.
    pub fractions: Vec<f64>,
    /// Only this many requests from the start of each trace.
    pub requests_max: Option<usize>,
    /// Bytes of each value, whatever the trace says.
    pub value_bytes: Option<u32>,
    /// Compares the measured miss ratios with those that `curve --server` forecasts.
    pub has_forecasts: bool,
    /// Leaves memcached out.
    pub is_alone: bool,
    /// Ends the benchmark when set.
    pub stop: Arc<AtomicBool>,
}

/// Replays the chosen traces; `progress` is called with a line about each trace and each replay.
///
/// # Errors
/// A server cannot be started or fails, a trace cannot be read, or there is none.
pub fn run(settings: &Settings, mut progress: impl FnMut(&str)) -> Result<Comparison, Error> {
    let servers = settings.programs.find_servers(settings.stop.clone())?;
    let (mut points, mut found_names) = (Vec::new(), Vec::new());
    for path in list_trace_files(&settings.traces_folder)? {
        let trace_name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        found_names.push(trace_name.clone());
        if !settings.trace_names.is_empty() && !settings.trace_names.contains(&trace_name) {
            continue;
        }
        let trace = Trace::read(&path, settings.requests_max, settings.value_bytes)?;
        let trace = Arc::new(trace);
        progress(&format!(
            "{trace_name}: {} requests of {} keys in {} copies",
            format_count(trace.requests_of_all_copies()),
            format_count(trace.first_uses()),
            trace.copies
        ));
        points.extend(settings.measure_points(&servers, &trace, &mut progress)?);
    }
    if points.is_empty() {
        return Err(Error::NoTrace { folder: settings.traces_folder.clone(), found_names });
    }
    let ratios: Vec<f64> = points.iter().filter_map(ReplayComparison::ratio).collect();
    let record = servers.request_version().map(|version| {
        Record::new(
            "misses",
            settings.trace_names.iter().cloned(),
            &[("glasscache", version.as_str())],
            json!({ "fractions": settings.fractions, "requests_max": settings.requests_max, "seed": 1 }),
            json!({ "points": points, "geometric_mean": geometric_mean(&ratios), "worst": find_worst_ratio(&ratios) }),
        )
    });
    Ok(Comparison {
        text: format_text(&points, &ratios),
        record,
        is_met: points.iter().all(is_forecast_met),
    })
}

impl Settings {
    /// One point for each fraction.
    fn measure_points(
        &self,
        servers: &ServerPair,
        trace: &Arc<Trace>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<ReplayComparison>, Error> {
        let mut measure_all = |server_memory: Option<&ServerMemory<'_>>| -> Result<Vec<_>, Error> {
            let mut points = Vec::new();
            for &fraction in &self.fractions {
                let point = measure_point(servers, trace, fraction, self.is_alone, server_memory)?;
                progress(&describe_point(&point));
                points.push(point);
            }
            Ok(points)
        };
        if !self.has_forecasts {
            return measure_all(None);
        }
        with_forecasts(trace, |server_memory| measure_all(Some(server_memory)))
    }
}

/// Whether the forecasts of a point, if it has some, are near enough.
fn is_forecast_met(point: &ReplayComparison) -> bool {
    point.forecast_errors().is_none_or(|(our_error, their_error)| {
        our_error <= OUR_ERROR_MAX && their_error.is_none_or(|error| error <= THEIR_ERROR_MAX)
    })
}

/// Forecasts beside what was measured.
fn build_forecasts_table(points: &[ReplayComparison]) -> Table {
    let mut table =
        Table::new(&["trace", "-m", "glasscache", "forecast", "memcached", "forecast", ""]);
    for point in points {
        let Some(forecast) = point.forecast else {
            continue;
        };
        let format_miss_ratio = |miss_ratio: Option<f64>| {
            miss_ratio.map_or("-".to_owned(), |miss_ratio| format!("{miss_ratio:.4}"))
        };
        let compute_miss_ratio = |misses: u64| Some(misses as f64 / point.requests.max(1) as f64);
        table.push_row([
            point.trace_name.clone(),
            point.memory_mib.to_string(),
            format_miss_ratio(compute_miss_ratio(point.ours.misses)),
            format_miss_ratio(Some(forecast.ours)),
            format_miss_ratio(
                point.theirs.as_ref().and_then(|theirs| compute_miss_ratio(theirs.misses)),
            ),
            format_miss_ratio(Some(forecast.theirs)),
            if is_forecast_met(point) { "met" } else { "missed" }.to_owned(),
        ]);
    }
    table
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp()
}

fn find_worst_ratio(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(f64::NAN, f64::max)
}

fn describe_point(point: &ReplayComparison) -> String {
    let their_text = match (&point.theirs, point.ratio()) {
        (Some(theirs), Some(ratio)) => {
            format!("memcached {}, ratio {ratio:.3}", format_count(theirs.avoidable_misses))
        }
        _ => "memcached left out".to_owned(),
    };
    format!(
        "{} at {} of its footprint (-m {}): avoidable misses {}, {their_text}, exact LRU in our density {}; {} requests/s",
        point.trace_name,
        point.fraction,
        point.memory_mib,
        format_count(point.ours.avoidable_misses),
        format_count(point.lru_avoidable_misses),
        format_count(point.ours.requests_per_s as u64),
    )
}

fn format_text(points: &[ReplayComparison], ratios: &[f64]) -> String {
    let mut text = wrap(&format_sentence(points, ratios)) + "\n\n";
    let mut table = Table::new(&[
        "trace",
        "share",
        "-m",
        "requests",
        "first uses",
        "misses",
        "avoidable",
        "memcached's",
        "ratio",
        "exact LRU",
        "MiB",
        "memcached's",
        "refused",
    ]);
    let format_mib = |bytes: u64| (bytes >> 20).to_string();
    for point in points {
        let theirs = point.theirs.as_ref();
        table.push_row([
            point.trace_name.clone(),
            format!("{}", point.fraction),
            point.memory_mib.to_string(),
            format_count(point.requests),
            format_count(point.first_uses),
            format_count(point.ours.misses),
            format_count(point.ours.avoidable_misses),
            theirs.map_or("-".to_owned(), |theirs| format_count(theirs.avoidable_misses)),
            point.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
            format_count(point.lru_avoidable_misses),
            format_mib(point.ours.resident_bytes),
            theirs.map_or("-".to_owned(), |theirs| format_mib(theirs.resident_bytes)),
            point.ours.refused.to_string(),
        ]);
    }
    let _ = writeln!(text, "{table}");
    if points.iter().any(|point| point.forecast.is_some()) {
        let _ = writeln!(text, "{}", build_forecasts_table(points));
        text += &wrap(&format!(
            "Miss ratios; a forecast is met within {OUR_ERROR_MAX} for glasscache and {THEIR_ERROR_MAX} for memcached."
        ));
        text.push('\n');
    }
    text + &wrap(
        "avoidable: misses less first uses; exact LRU: its avoidable misses with as many user bytes as we held",
    )
}

/// The conclusion: avoidable misses over memcached's, or what was replayed alone.
fn format_sentence(points: &[ReplayComparison], ratios: &[f64]) -> String {
    if ratios.is_empty() {
        let avoidable_misses: u64 = points.iter().map(|point| point.ours.avoidable_misses).sum();
        let misses: u64 = points.iter().map(|point| point.ours.misses).sum();
        return format!(
            "{} of {} misses were avoidable; memcached was left out.",
            format_count(avoidable_misses),
            format_count(misses)
        );
    }
    let format_check = |measured_ratio: f64, bound: f64| {
        if measured_ratio <= bound { "met" } else { "missed" }
    };
    let (mean, worst) = (geometric_mean(ratios), find_worst_ratio(ratios));
    format!(
        "Avoidable misses over memcached's: geometric mean {mean:.3}, at most {MEAN_RATIO_MAX}: {}; worst point {worst:.3}, \
         at most {WORST_RATIO_MAX}: {}.",
        format_check(mean, MEAN_RATIO_MAX),
        format_check(worst, WORST_RATIO_MAX),
    )
}
