//! `glasscache bench builds`: CPU per request of two builds of our own server, in interleaved pairs.

use std::path::PathBuf;

use glasscache_lab::bench::builds::{ComparedScenario, Comparison, PairPlan, compare};
use glasscache_lab::bench::record::Record;
use glasscache_lab::bench::speed::SideMeasurement;
use glasscache_lab::bench::{ConfidenceInterval, Peer, Scenario, Spread};
use glasscache_lab::server_process::read_version;
use serde_json::json;

use super::failure;
use crate::output::{Exit, Failure, Output};
use crate::table::{Table, format_decimal};
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
        let scenarios = super::select_scenarios(built_in, &self.scenario)?;
        let servers =
            super::new_pinned_servers(self.new.as_deref(), Peer::Build(self.old.clone()))?;
        let pair_plan =
            PairPlan { pair_count: self.pairs.max(1), seconds: self.seconds.clamp(0.05, 60.0) };
        let mut progress = |line: &str| eprintln!("  {line}");
        let comparison =
            compare(&servers, &scenarios, pair_plan, &mut progress).map_err(failure)?;
        let record = Record::new(
            &super::format_record_name("builds", self.scenario.iter().cloned()),
            &[("new", &read_version(&servers.glasscache)), ("old", &read_version(&self.old))],
            json!({ "layout": servers.layout.describe(), "effort": pair_plan, "seed": "the number of the pair" }),
            json!(comparison),
        );
        if out.is_json() {
            out.set_result(&json!(record));
        } else {
            print(out, &comparison, &servers.layout.describe())?;
        }
        super::write_record(self.keep.as_deref(), &record)?;
        Ok(Exit::Success)
    }
}

fn print(out: &Output, comparison: &Comparison, layout: &str) -> Result<(), Failure> {
    let mean_cpu_ratio_of_pairs = &comparison.mean_cpu_ratio_of_pairs;
    let worst_text = comparison.worst().map_or_else(String::new, |worst| {
        format!(
            "; the worst scenario, {}, {:.3}, at most {WORST_RATIO_MAX}: {}",
            worst.scenario.name,
            worst.cpu_ratio.median,
            format_check(worst.cpu_ratio.median, WORST_RATIO_MAX),
        )
    });
    out.print_line(wrap(&format!(
        "The new build uses {:.3} times the CPU of the old, the geometric mean of the medians, at most {MEAN_RATIO_MAX}: \
         {} (pair by pair {:.3} {}){worst_text}.",
        comparison.mean_cpu_ratio,
        format_check(comparison.mean_cpu_ratio, MEAN_RATIO_MAX),
        mean_cpu_ratio_of_pairs.median,
        format_interval(mean_cpu_ratio_of_pairs),
    )))?;
    out.print_line("")?;
    let mut table =
        Table::new(&["", "new us", "old us", "ratio", "95 % interval", "", "pairs", "disturbed"]);
    for compared in &comparison.scenarios {
        table.push_row(format_row(compared));
    }
    out.print_line(table.to_string())?;
    out.print_line(wrap(&format!(
        "{layout}. CPU is the server's, user and kernel, microseconds per request; ratio is new / old in the same pair, \
         the median with its 95 % interval; * marks a median above what a scenario may cost."
    )))
}

fn format_row(compared: &ComparedScenario) -> [String; 8] {
    let median = |figure: fn(&(SideMeasurement, SideMeasurement)) -> f64| {
        Spread::of(compared.pairs.iter().map(figure)).median
    };
    let is_missed = compared.cpu_ratio.median > WORST_RATIO_MAX;
    [
        compared.scenario.name.clone(),
        format_decimal(median(|(new, _)| new.cpu_us)),
        format_decimal(median(|(_, old)| old.cpu_us)),
        format!("{:.3}", compared.cpu_ratio.median),
        format_interval(&compared.cpu_ratio),
        if is_missed { "*" } else { " " }.to_owned(),
        compared.pairs.len().to_string(),
        compared.disturbed_pairs.to_string(),
    ]
}

fn format_interval(interval: &ConfidenceInterval) -> String {
    format!("({:.3}-{:.3})", interval.low, interval.high)
}

fn format_check(measured: f64, bound: f64) -> &'static str {
    if measured <= bound { "met" } else { "missed" }
}
