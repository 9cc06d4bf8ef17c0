//! `figures speed`: CPU per request and latency compared with memcached, in interleaved rounds.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::json;

use super::command::{Failure, Measured, new_stop_flag, select_scenarios};
use super::interference;
use super::scenario::{Scenario, Versus};
use super::speed::{OTHER_CORES_MAX, ScenarioResult, SideMeasurement, SpeedBenchmark};
use crate::bench::record::Record;
use crate::bench::{Error, Programs};
use crate::paired::Spread;
use crate::text::{Table, format_count, format_decimal, format_two_columns, wrap};

/// Options of the speed benchmark.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// Only the scenario of this name; may be repeated
    #[arg(id = "scenario", long = "scenario", value_name = "NAME")]
    scenario_names: Vec<String>,
    /// Paired rounds of each scenario [default: set by the scenario]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Scenarios from this file instead of the built-in ones
    #[arg(id = "scenarios", long = "scenarios", value_name = "FILE")]
    scenarios_file: Option<PathBuf>,
    /// List the scenarios and end
    #[arg(long, conflicts_with_all = ["rounds", "keep", "memcached", "glasscache"])]
    list: bool,
}

impl Args {
    /// Runs the chosen scenarios.
    pub(super) fn run(self) -> Result<Measured, Failure> {
        let scenarios = self.select_scenarios()?;
        if self.list {
            return Ok(list(&scenarios));
        }
        let servers =
            super::with_own_glasscache(self.programs)?.find_pinned_servers(new_stop_flag()?)?;
        let layout = servers.layout.describe();
        let mut progress = |line: &str| eprintln!("  {line}");
        let mut benchmark = SpeedBenchmark::start(servers.clone())?;
        let versions = benchmark.versions();
        let mut scenario_results = Vec::new();
        let outcome: Result<(), Error> = scenarios.iter().try_for_each(|scenario| {
            let round_count = self.rounds.unwrap_or(scenario.rounds).max(1);
            scenario_results.push(match scenario.interference {
                Some(interference) => {
                    interference::run(&servers, scenario, interference, round_count, &mut progress)
                }
                None => benchmark.run(scenario, 0..round_count, &mut progress),
            }?);
            Ok(())
        });
        let ended_by = outcome.err().map(Failure::from);
        if let (Some(failure), true) = (&ended_by, scenario_results.is_empty()) {
            return Err(failure.clone());
        }
        let settings =
            json!({ "layout": layout, "rounds": self.rounds, "seed": "the number of the round" });
        let names_and_versions =
            versions.each_ref().map(|(name, version)| (*name, version.as_str()));
        let record = Record::new(
            "speed",
            self.scenario_names,
            &names_and_versions,
            settings,
            json!(scenario_results),
        );
        let text = format_results(&scenario_results, &names_and_versions, &layout);
        Ok(Measured::of_record(record, text, ended_by))
    }

    fn select_scenarios(&self) -> Result<Vec<Scenario>, Failure> {
        let scenarios = match &self.scenarios_file {
            None => Scenario::built_in().map_err(|error| Failure::usage(error.to_string()))?,
            Some(path) => {
                let to_failure =
                    |error: String| Failure::usage(format!("{}: {error}", path.display()));
                let text =
                    std::fs::read_to_string(path).map_err(|error| to_failure(error.to_string()))?;
                Scenario::parse(&text).map_err(|error| to_failure(error.to_string()))?
            }
        };
        select_scenarios(scenarios, &self.scenario_names)
    }
}

/// The names of the scenarios with their titles.
fn list(scenarios: &[Scenario]) -> Measured {
    let to_row =
        |scenario: &Scenario| json!({ "scenario": scenario.name, "title": scenario.title });
    let text = format_two_columns(
        scenarios.iter().map(|scenario| (scenario.name.clone(), scenario.title.clone())),
    );
    Measured { result: scenarios.iter().map(to_row).collect(), text, record: None, ended_by: None }
}

const COLUMN_TITLES: [&str; 8] =
    ["", "requests/s", "CPU us", "user", "kernel", "p50 us", "p99 us", "p99.9 us"];

/// The conclusion, what was demanded, then each scenario.
fn format_results(
    scenario_results: &[ScenarioResult],
    [(_, our_version), (_, their_version)]: &[(&str, &str); 2],
    layout: &str,
) -> String {
    let demands = list_demands(scenario_results);
    let mut text = wrap(&format_sentence(scenario_results, &demands)) + "\n";
    if !demands.is_empty() {
        let _ = write!(text, "\n{}\n", build_demands_table(&demands));
    }
    for scenario_result in scenario_results {
        text.push_str(&format_scenario(scenario_result));
    }
    text + "\n"
        + &wrap(&format!(
            "glasscache {our_version} beside memcached {their_version}; {layout}. CPU is the server's, user and kernel, per request; ratio is \
             glasscache / memcached in the same round, the median with its range; * marks a demand that is missed."
        ))
}

fn format_scenario(scenario_result: &ScenarioResult) -> String {
    let names = match scenario_result.scenario.versus {
        Versus::ClassicText => ["meta", "text"],
        Versus::Peer => ["glasscache", "memcached"],
    };
    let rounds = &scenario_result.rounds;
    let sides: [Vec<&SideMeasurement>; 2] = [
        rounds.iter().map(|(ours, _)| ours).collect(),
        rounds.iter().map(|(_, theirs)| theirs).collect(),
    ];
    let mut table = Table::new(&COLUMN_TITLES);
    for (name, side) in names.iter().zip(&sides) {
        let median = |figure: fn(&SideMeasurement) -> f64| {
            Spread::of(side.iter().map(|measurement| figure(measurement))).median
        };
        table.push_row([
            (*name).to_owned(),
            format_count(median(|measurement| measurement.requests_per_s) as u64),
            format_decimal(median(|measurement| measurement.cpu_us)),
            format_decimal(median(|measurement| measurement.user_us)),
            format_decimal(median(|measurement| measurement.kernel_us)),
            format_count(median(|measurement| measurement.p50_us) as u64),
            format_count(median(|measurement| measurement.p99_us) as u64),
            format_count(median(|measurement| measurement.p999_us) as u64),
        ]);
    }
    let title = wrap(&scenario_result.scenario.title);
    let ratios = wrap(&format_ratios(scenario_result));
    let notes = match format_notes(scenario_result) {
        notes if notes.is_empty() => notes,
        notes => wrap(&notes) + "\n",
    };
    format!("\n{title}\n{table}{ratios}\n{notes}")
}

/// `CPU 0.31 (0.29-0.34), at most 0.30 *; p99 ...`
fn format_ratios(scenario_result: &ScenarioResult) -> String {
    let spread_text =
        |spread: &Spread| format!("{:.2} ({:.2}-{:.2})", spread.median, spread.min, spread.max);
    let checks = scenario_result.compare_with_required_ratios();
    let demand_text = |name: &str| match checks.iter().find(|(check_name, ..)| *check_name == name)
    {
        Some((_, bound, found)) => {
            format!(", at most {bound:.2}{}", if found <= bound { "" } else { " *" })
        }
        None => String::new(),
    };
    let mut ratio_texts = vec![
        format!("ratio: CPU {}{}", spread_text(&scenario_result.cpu_ratio), demand_text("cpu")),
        format!("p99 {}{}", spread_text(&scenario_result.p99_ratio), demand_text("p99")),
        format!("p99.9 {}{}", spread_text(&scenario_result.p999_ratio), demand_text("p99.9")),
    ];
    if let Some((ours, theirs)) = &scenario_result.p99_of_calm {
        ratio_texts.push(format!("p99 to calm {}{}", spread_text(ours), demand_text("p99/calm")));
        ratio_texts.push(format!("memcached's {}", spread_text(theirs)));
    }
    ratio_texts.join("; ")
}

fn format_notes(scenario_result: &ScenarioResult) -> String {
    let mut notes = Vec::new();
    if scenario_result.disturbed_rounds > 0 {
        let round_count = scenario_result.rounds.len();
        notes.push(format!(
            "{} of {round_count} rounds disturbed (others over {OTHER_CORES_MAX} core)",
            scenario_result.disturbed_rounds
        ));
    }
    let count_generator_bound =
        |select_side: fn(&(SideMeasurement, SideMeasurement)) -> &SideMeasurement| {
            scenario_result
                .rounds
                .iter()
                .filter(|round| select_side(round).is_generator_bound)
                .count()
        };
    let (our_count, their_count) =
        (count_generator_bound(|(ours, _)| ours), count_generator_bound(|(_, theirs)| theirs));
    if our_count + their_count > 0 {
        notes.push(format!("generator-bound: {our_count} of ours, {their_count} of theirs"));
    }
    let misses: u64 =
        scenario_result.rounds.iter().map(|(ours, theirs)| ours.misses + theirs.misses).sum();
    if misses > 0 {
        notes.push(format!("{} misses", format_count(misses)));
    }
    notes.join("; ")
}

/// A ratio that a scenario may have at most, and what was found.
struct Demand<'f> {
    scenario: &'f Scenario,
    name: &'static str,
    bound: f64,
    found: f64,
}

impl Demand<'_> {
    fn is_met(&self) -> bool {
        self.found <= self.bound
    }
}

/// All demands, the one furthest from being met first.
fn list_demands(scenario_results: &[ScenarioResult]) -> Vec<Demand<'_>> {
    let mut demands = Vec::new();
    for scenario_result in scenario_results {
        for (name, bound, found) in scenario_result.compare_with_required_ratios() {
            demands.push(Demand { scenario: &scenario_result.scenario, name, bound, found });
        }
    }
    demands.sort_by(|a, b| (b.found / b.bound).total_cmp(&(a.found / a.bound)));
    demands
}

fn format_sentence(scenario_results: &[ScenarioResult], demands: &[Demand<'_>]) -> String {
    let mut by_ratio: Vec<&ScenarioResult> = scenario_results.iter().collect();
    by_ratio.sort_by(|a, b| a.cpu_ratio.median.total_cmp(&b.cpu_ratio.median));
    let format_ratio = |scenario_result: &ScenarioResult| {
        format!("{:.2} ({})", scenario_result.cpu_ratio.median, scenario_result.scenario.name)
    };
    let ratios = match by_ratio.as_slice() {
        [] => return "Nothing was measured.".to_owned(),
        [only] => format_ratio(only),
        [lowest, .., highest] => format!("{} to {}", format_ratio(lowest), format_ratio(highest)),
    };
    let met_count = demands.iter().filter(|demand| demand.is_met()).count();
    let demands_text = match demands.first() {
        None => String::new(),
        Some(_) if met_count == demands.len() => format!("; all {met_count} demands are met"),
        Some(worst) => format!(
            "; {met_count} of {} demands are met, and the {} of {} is {:.2} instead of at most {:.2}",
            demands.len(),
            worst.name,
            worst.scenario.name,
            worst.found,
            worst.bound
        ),
    };
    format!("CPU per request over the other side's: {ratios}{demands_text}.")
}

fn build_demands_table(demands: &[Demand<'_>]) -> Table {
    let mut table = Table::new(&["", "what", "at most", "found", ""]);
    for demand in demands {
        table.push_row([
            demand.scenario.title.clone(),
            demand.name.to_owned(),
            format!("{:.2}", demand.bound),
            format!("{:.2}", demand.found),
            if demand.is_met() { "met" } else { "missed" }.to_owned(),
        ]);
    }
    table
}
