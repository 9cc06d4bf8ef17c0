//! `glasscache bench builds`: CPU per request of two builds of our own server, in interleaved pairs.

use std::path::PathBuf;

use glasscache_lab::bench::builds::{ComparedScenario, Comparison, PairPlan, compare};
use glasscache_lab::bench::record::Record;
use glasscache_lab::bench::speed::SideMeasurement;
use glasscache_lab::bench::{Interval, Peer, Scenario, Spread};
use glasscache_lab::server_process::version_of;
use serde_json::json;

use super::failure;
use crate::output::{Exit, Failure, Output};
use crate::table::{Table, decimal};
use crate::word_wrap::wrap;

/// The maximum cost ratios of a change: geometric mean, and worst scenario.
const MEAN_RATIO_MAX: f64 = 1.02;
const WORST_RATIO_MAX: f64 = 1.05;

/// Options of the comparison.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The glasscache before the change.
    #[arg(long, value_name = "PROGRAM")]
    old: PathBuf,
    /// The glasscache after it [default: this binary].
    #[arg(long, value_name = "PROGRAM")]
    new: Option<PathBuf>,
    /// Only the scenario of this name; may be repeated.
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Pairs of each scenario.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pairs: usize,
    /// Seconds for which each side of a pair is measured.
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// Keep the result as DATE-builds.json in this folder.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

impl Args {
    /// Compares the builds.
    pub(super) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let built_in = Scenario::built_in().map_err(|error| Failure::usage(error.to_string()))?;
        let scenarios = super::selected_scenarios(built_in, &self.scenario)?;
        let servers = super::pinned_servers(self.new.as_deref(), Peer::Build(self.old.clone()))?;
        let pair_plan = PairPlan {
            pairs: self.pairs.max(1),
            seconds: self.seconds.clamp(0.05, 60.0),
        };
        let mut progress = |line: &str| eprintln!("  {line}");
        let comparison =
            compare(&servers, &scenarios, pair_plan, &mut progress).map_err(failure)?;
        let record = Record::new(
            &super::record_name("builds", self.scenario.iter().cloned()),
            &[
                ("new", &version_of(&servers.glasscache)),
                ("old", &version_of(&self.old)),
            ],
            json!({ "layout": servers.layout.describe(), "effort": pair_plan, "seed": "the number of the pair" }),
            json!(comparison),
        );
        if out.is_json() {
            out.document(&json!(record));
        } else {
            print(out, &comparison, &servers.layout.describe())?;
        }
        super::write_record(self.keep.as_deref(), &record)?;
        Ok(Exit::Success)
    }
}

fn print(out: &Output, comparison: &Comparison, layout: &str) -> Result<(), Failure> {
    let mean_of_pairs = &comparison.mean_of_pairs;
    let worst_text = comparison.worst().map_or_else(String::new, |worst| {
        format!(
            "; the worst scenario, {}, {:.3}, at most {WORST_RATIO_MAX}: {}",
            worst.scenario.name,
            worst.cpu.median,
            check_text(worst.cpu.median, WORST_RATIO_MAX),
        )
    });
    out.line(wrap(&format!(
        "The new build uses {:.3} times the CPU of the old, the geometric mean of the medians, at most {MEAN_RATIO_MAX}: \
         {} (pair by pair {:.3} {}){worst_text}.",
        comparison.mean,
        check_text(comparison.mean, MEAN_RATIO_MAX),
        mean_of_pairs.median,
        interval_text(mean_of_pairs),
    )))?;
    out.line("")?;
    let mut table = Table::new(&[
        "",
        "new us",
        "old us",
        "ratio",
        "95 % interval",
        "",
        "pairs",
        "disturbed",
    ]);
    for compared in &comparison.scenarios {
        table.row(row(compared));
    }
    out.line(table.to_string())?;
    out.line(wrap(&format!(
        "{layout}. CPU is the server's, user and kernel, microseconds per request; ratio is new / old in the same pair, \
         the median with its 95 % interval; * marks a median above what a scenario may cost."
    )))
}

fn row(compared: &ComparedScenario) -> [String; 8] {
    let median = |figure: fn(&(SideMeasurement, SideMeasurement)) -> f64| {
        Spread::of(compared.pairs.iter().map(figure)).median
    };
    let is_missed = compared.cpu.median > WORST_RATIO_MAX;
    [
        compared.scenario.name.clone(),
        decimal(median(|pair| pair.0.cpu_us)),
        decimal(median(|pair| pair.1.cpu_us)),
        format!("{:.3}", compared.cpu.median),
        interval_text(&compared.cpu),
        if is_missed { "*" } else { " " }.to_owned(),
        compared.pairs.len().to_string(),
        compared.disturbed.to_string(),
    ]
}

fn interval_text(interval: &Interval) -> String {
    format!("({:.3}-{:.3})", interval.low, interval.high)
}

fn check_text(measured: f64, bound: f64) -> &'static str {
    if measured <= bound { "met" } else { "missed" }
}
