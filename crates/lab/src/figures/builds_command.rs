//! `figures builds`: CPU per request of two builds of our own server, in interleaved pairs.

use std::path::PathBuf;

use serde_json::json;

use super::builds::{ComparedScenario, Comparison, PairPlan, compare};
use super::command::{Failure, Measured, new_stop_flag, select_scenarios};
use super::scenario::Scenario;
use super::speed::SideMeasurement;
use crate::bench::record::Record;
use crate::bench::{Peer, ServerPair};
use crate::paired::{ConfidenceInterval, Spread};
use crate::server_process::read_version;
use crate::text::{Table, format_decimal, wrap};

/// The maximum cost ratios of a change: geometric mean, and worst scenario.
const MEAN_RATIO_MAX: f64 = 1.02;
const WORST_RATIO_MAX: f64 = 1.05;

/// Options of the comparison.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The glasscache before the change.
    #[arg(long, value_name = "PROGRAM")]
    old: PathBuf,
    /// The glasscache after it [default: the one beside this program].
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
}

impl Args {
    /// Compares the builds.
    pub(super) fn run(self) -> Result<Measured, Failure> {
        let built_in = Scenario::built_in().map_err(|error| Failure::usage(error.to_string()))?;
        let scenarios = select_scenarios(built_in, &self.scenario)?;
        let new_build = self.new.map_or_else(super::find_own_glasscache, Ok)?;
        let peer = Peer::Build(self.old.clone());
        let servers = ServerPair::new(Some(new_build), peer, new_stop_flag()?)?;
        let pair_plan =
            PairPlan { pair_count: self.pairs.max(1), seconds: self.seconds.clamp(0.05, 60.0) };
        let mut progress = |line: &str| eprintln!("  {line}");
        let comparison = compare(&servers, &scenarios, pair_plan, &mut progress)?;
        let layout = servers.layout.describe();
        let record = Record::new(
            "builds",
            self.scenario,
            &[("new", &read_version(&servers.glasscache)), ("old", &read_version(&self.old))],
            json!({ "layout": layout, "effort": pair_plan, "seed": "the number of the pair" }),
            json!(comparison),
        );
        Ok(Measured::of_record(record, format_comparison(&comparison, &layout), None))
    }
}

fn format_comparison(comparison: &Comparison, layout: &str) -> String {
    let mean_cpu_ratio_of_pairs = &comparison.mean_cpu_ratio_of_pairs;
    let worst_text = comparison.worst().map_or_else(String::new, |worst| {
        format!(
            "; the worst scenario, {}, {:.3}, at most {WORST_RATIO_MAX}: {}",
            worst.scenario.name,
            worst.cpu_ratio.median,
            format_check(worst.cpu_ratio.median, WORST_RATIO_MAX),
        )
    });
    let sentence = wrap(&format!(
        "The new build uses {:.3} times the CPU of the old, the geometric mean of the medians, at most {MEAN_RATIO_MAX}: \
         {} (pair by pair {:.3} {}){worst_text}.",
        comparison.mean_cpu_ratio,
        format_check(comparison.mean_cpu_ratio, MEAN_RATIO_MAX),
        mean_cpu_ratio_of_pairs.median,
        format_interval(mean_cpu_ratio_of_pairs),
    ));
    let mut table =
        Table::new(&["", "new us", "old us", "ratio", "95 % interval", "", "pairs", "disturbed"]);
    for compared in &comparison.scenarios {
        table.push_row(format_row(compared));
    }
    let note = wrap(&format!(
        "{layout}. CPU is the server's, user and kernel, microseconds per request; ratio is new / old in the same pair, \
         the median with its 95 % interval; * marks a median above what a scenario may cost."
    ));
    format!("{sentence}\n\n{table}\n{note}")
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
