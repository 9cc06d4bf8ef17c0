//! `glasscache bench misses`: real key streams replayed look-aside against both servers at equal `-m`.

use std::path::PathBuf;
use std::sync::Arc;

use glasscache_lab::bench::misses::{Point, Trace, point, traces_in};
use glasscache_lab::bench::record::Record;
use glasscache_lab::bench::{Sides, bounds};
use serde_json::json;

use super::{Common, failure};
use crate::output::{Exit, Failure, Output};
use crate::table::{Table, count};

/// The required ratios of avoidable misses: geometric mean, and worst point.
const MEAN_AT_MOST: f64 = 0.82;
const WORST_AT_MOST: f64 = 1.05;

/// Options of the replay.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// A folder of key streams (Parquet).
    traces: PathBuf,
    /// Only the trace of this name (the file name without its extension); may be repeated.
    #[arg(long, value_name = "NAME")]
    trace: Vec<String>,
    /// `-m` as a share of the footprint; may be repeated.
    #[arg(long, value_name = "SHARE", default_values_t = [0.1, 0.2, 0.35, 0.5])]
    fraction: Vec<f64>,
    /// Only this many requests from the start of each trace.
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Leave memcached out, for a quick check of a change.
    #[arg(long)]
    alone: bool,
}

impl Args {
    /// Replays the chosen traces.
    pub(super) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let sides = Sides {
            is_pinned: false,
            ..self.common.sides()?
        };
        let mut points = Vec::new();
        let mut names = Vec::new();
        for path in traces_in(&self.traces).map_err(failure)? {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            names.push(name.clone());
            if !self.trace.is_empty() && !self.trace.contains(&name) {
                continue;
            }
            let trace = Arc::new(Trace::read(&path, self.requests).map_err(failure)?);
            let (requests, keys) = (count(trace.requests_all()), count(trace.first_uses()));
            eprintln!(
                "  {name}: {requests} requests of {keys} keys in {} copies",
                trace.copies
            );
            for &fraction in &self.fraction {
                let point = point(&sides, &trace, fraction, self.alone).map_err(failure)?;
                eprintln!("  {}", describe(&point));
                points.push(point);
            }
        }
        if points.is_empty() {
            let folder = self.traces.display();
            let failure = Failure::usage(format!("no trace to replay in {folder}"));
            return Err(match names.join(", ") {
                names if names.is_empty() => failure,
                names => failure.hint(format!("traces there: {names}")),
            });
        }
        let ratios: Vec<f64> = points.iter().filter_map(Point::ratio).collect();
        if !out.is_json() {
            print(out, &points, &ratios)?;
        }
        let ours = bounds::version(&sides).map_err(failure)?;
        let settings =
            json!({ "fractions": self.fraction, "requests_max": self.requests, "seed": 1 });
        let figures =
            json!({ "points": points, "geometric_mean": mean(&ratios), "worst": worst(&ratios) });
        let name = super::name_of("misses", self.trace.iter().cloned());
        let record = Record::new(&name, &[("glasscache", &ours)], settings, figures);
        if out.is_json() {
            out.document(&json!(record));
        }
        self.common.keep(&record)?;
        Ok(Exit::Success)
    }
}

fn mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp()
}

fn worst(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(f64::NAN, f64::max)
}

fn describe(point: &Point) -> String {
    let theirs = match (&point.theirs, point.ratio()) {
        (Some(theirs), Some(ratio)) => {
            format!("memcached {}, ratio {ratio:.3}", count(theirs.avoidable))
        }
        _ => "memcached left out".to_owned(),
    };
    format!(
        "{} at {} of its footprint (-m {}): avoidable misses {}, {theirs}, exact LRU in our density {}; {} requests/s",
        point.trace,
        point.fraction,
        point.memory_mib,
        count(point.ours.avoidable),
        count(point.lru_avoidable),
        count(point.ours.requests_per_s as u64),
    )
}

fn print(out: &Output, points: &[Point], ratios: &[f64]) -> Result<(), Failure> {
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
    let mib = |bytes: u64| (bytes >> 20).to_string();
    for point in points {
        let theirs = point.theirs.as_ref();
        table.row([
            point.trace.clone(),
            format!("{}", point.fraction),
            point.memory_mib.to_string(),
            count(point.requests),
            count(point.first_uses),
            count(point.ours.misses),
            count(point.ours.avoidable),
            theirs.map_or("-".to_owned(), |theirs| count(theirs.avoidable)),
            point
                .ratio()
                .map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
            count(point.lru_avoidable),
            mib(point.ours.resident_bytes),
            theirs.map_or("-".to_owned(), |theirs| mib(theirs.resident_bytes)),
            point.ours.refused.to_string(),
        ]);
    }
    out.line(table.to_string())?;
    out.line("avoidable: misses less first uses; exact LRU: its avoidable misses with as many user bytes as we held")?;
    if !ratios.is_empty() {
        let check_text = |found: f64, bound: f64| if found <= bound { "met" } else { "missed" };
        let (mean, worst) = (mean(ratios), worst(ratios));
        out.line(format!(
            "geometric mean {mean:.3}, at most {MEAN_AT_MOST}: {}; worst point {worst:.3}, at most {WORST_AT_MOST}: {}",
            check_text(mean, MEAN_AT_MOST),
            check_text(worst, WORST_AT_MOST),
        ))?;
    }
    Ok(())
}
