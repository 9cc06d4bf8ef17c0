//! `glasscache bench misses`: real key streams replayed look-aside against both servers at equal `-m`.

use std::path::PathBuf;
use std::sync::Arc;

use glasscache_lab::bench::ServerPair;
use glasscache_lab::bench::misses::{
    ReplayComparison, Trace, list_trace_files, measure_point, with_forecasts,
};
use glasscache_lab::bench::record::Record;
use glasscache_lab::text::{Table, format_count, wrap};
use glasscache_sim::curve::ServerMemory;
use serde_json::json;

use super::{CommonOptions, failure};
use crate::output::{Exit, Failure, Output};

/// The required ratios of avoidable misses: geometric mean, and worst point.
const MEAN_RATIO_MAX: f64 = 0.82;
const WORST_RATIO_MAX: f64 = 1.05;

/// How far a forecast may be from the measured miss ratio.
const OUR_ERROR_MAX: f64 = 0.01;
const THEIR_ERROR_MAX: f64 = 0.02;

/// Options of the replay.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonOptions,
    /// A folder of key streams (Parquet).
    #[arg(id = "traces", value_name = "TRACES")]
    traces_folder: PathBuf,
    /// Only the trace of this name (the file name without its extension); may be repeated.
    #[arg(id = "trace", long = "trace", value_name = "NAME")]
    trace_names: Vec<String>,
    /// `-m` as a share of the footprint; may be repeated.
    #[arg(id = "fraction", long = "fraction", value_name = "SHARE", default_values_t = [0.1, 0.2, 0.35, 0.5])]
    fractions: Vec<f64>,
    /// Only this many requests from the start of each trace.
    #[arg(id = "requests", long = "requests", value_name = "N")]
    requests_max: Option<usize>,
    /// Give each value N bytes, whatever the trace says.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_bytes: Option<u32>,
    /// Compare the measured miss ratios with those that `curve --server` forecasts.
    #[arg(long)]
    forecast: bool,
    /// Leave memcached out, for a quick check of a change.
    #[arg(long)]
    alone: bool,
}

impl Args {
    /// Replays the chosen traces.
    pub(super) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let servers = super::find_servers(&self.common.programs)?;
        let mut points = Vec::new();
        let mut found_trace_names = Vec::new();
        for path in list_trace_files(&self.traces_folder).map_err(failure)? {
            let trace_name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            found_trace_names.push(trace_name.clone());
            if !self.trace_names.is_empty() && !self.trace_names.contains(&trace_name) {
                continue;
            }
            let trace = Trace::read(&path, self.requests_max, self.value_bytes).map_err(failure)?;
            let trace = Arc::new(trace);
            let (requests_text, keys_text) =
                (format_count(trace.requests_of_all_copies()), format_count(trace.first_uses()));
            eprintln!(
                "  {trace_name}: {requests_text} requests of {keys_text} keys in {} copies",
                trace.copies
            );
            points.extend(self.measure_points(&servers, &trace)?);
        }
        if points.is_empty() {
            let folder = self.traces_folder.display();
            let no_trace_failure = Failure::usage(format!("no trace to replay in {folder}"));
            return Err(if found_trace_names.is_empty() {
                no_trace_failure
            } else {
                no_trace_failure
                    .with_hint(format!("traces there: {}", found_trace_names.join(", ")))
            });
        }
        let ratios: Vec<f64> = points.iter().filter_map(ReplayComparison::ratio).collect();
        if !out.is_json() {
            print(out, &points, &ratios)?;
        }
        let our_version = servers.request_version().map_err(failure)?;
        let settings =
            json!({ "fractions": self.fractions, "requests_max": self.requests_max, "seed": 1 });
        let figures = json!({ "points": points, "geometric_mean": geometric_mean(&ratios), "worst": find_worst_ratio(&ratios) });
        let versions = [("glasscache", our_version.as_str())];
        let record = Record::new("misses", self.trace_names, &versions, settings, figures);
        self.common.finish(out, &record)?;
        let all_forecasts_met = points.iter().all(is_forecast_met);
        Ok(if all_forecasts_met { Exit::Success } else { Exit::Finding })
    }

    /// One point for each fraction.
    fn measure_points(
        &self,
        servers: &ServerPair,
        trace: &Arc<Trace>,
    ) -> Result<Vec<ReplayComparison>, Failure> {
        let measure_all = |server_memory: Option<&ServerMemory<'_>>| {
            let mut points = Vec::new();
            for &fraction in &self.fractions {
                let point = measure_point(servers, trace, fraction, self.alone, server_memory)
                    .map_err(failure)?;
                eprintln!("  {}", describe_point(&point));
                points.push(point);
            }
            Ok(points)
        };
        if !self.forecast {
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

fn print(out: &Output, points: &[ReplayComparison], ratios: &[f64]) -> Result<(), Failure> {
    out.print_line(wrap(&format_sentence(points, ratios)))?;
    out.print_line("")?;
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
    out.print_line(table.to_string())?;
    if points.iter().any(|point| point.forecast.is_some()) {
        out.print_line(build_forecasts_table(points).to_string())?;
        out.print_line(wrap(&format!(
            "Miss ratios; a forecast is met within {OUR_ERROR_MAX} for glasscache and {THEIR_ERROR_MAX} for memcached."
        )))?;
    }
    out.print_line(wrap(
        "avoidable: misses less first uses; exact LRU: its avoidable misses with as many user bytes as we held",
    ))
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
