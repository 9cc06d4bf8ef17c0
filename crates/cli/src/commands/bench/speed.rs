//! `glasscache bench`: CPU per request and latency compared with memcached, in interleaved rounds.

use std::path::PathBuf;

use crate::files::read_text;
use crate::layout::format_two_columns;
use glasscache_lab::bench::record::Record;
use glasscache_lab::bench::speed::{
    OTHER_CORES_MAX, ScenarioResult, SideMeasurement, SpeedBenchmark,
};
use glasscache_lab::bench::{Scenario, Spread, interference};
use serde_json::json;

use super::{CommonOptions, failure};
use crate::output::{Exit, Failure, Output};
use crate::table::{Table, format_count, format_decimal};
use crate::word_wrap::wrap;

/// Options of the speed benchmark.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    common: CommonOptions,
    /// Only the scenario of this name; may be repeated.
    #[arg(id = "scenario", long = "scenario", value_name = "NAME")]
    scenario_names: Vec<String>,
    /// Paired rounds of each scenario [default: set by the scenario].
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Scenarios from this file instead of the built-in ones.
    #[arg(id = "scenarios", long = "scenarios", value_name = "FILE")]
    scenarios_file: Option<PathBuf>,
    /// List the scenarios and end.
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Runs the chosen scenarios.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let scenarios = self.select_scenarios()?;
        if self.list {
            out.begin_list();
            if out.is_json() {
                for scenario in &scenarios {
                    let (name, title) = (&scenario.name, &scenario.title);
                    out.print_row(&json!({ "scenario": name, "title": title }))?;
                }
                return Ok(Exit::Success);
            }
            let rows = scenarios.into_iter().map(|scenario| (scenario.name, scenario.title));
            out.print_bytes(format_two_columns(rows).as_bytes())?;
            return Ok(Exit::Success);
        }
        let servers = self.common.find_servers()?;
        let layout = servers.layout.describe();
        let mut progress = |line: &str| eprintln!("  {line}");
        let mut benchmark = SpeedBenchmark::start(servers.clone()).map_err(failure)?;
        let versions = benchmark.versions();
        let mut scenario_results = Vec::new();
        let outcome: Result<(), Failure> = scenarios.iter().try_for_each(|scenario| {
            let round_count = self.rounds.unwrap_or(scenario.rounds).max(1);
            let scenario_result = match scenario.interference {
                Some(interference) => {
                    interference::run(&servers, scenario, interference, round_count, &mut progress)
                }
                None => benchmark.run(scenario, 0..round_count, &mut progress),
            };
            scenario_results.push(scenario_result.map_err(failure)?);
            Ok(())
        });
        let settings =
            json!({ "layout": layout, "rounds": self.rounds, "seed": "the number of the round" });
        let names_and_versions =
            versions.each_ref().map(|(name, version)| (*name, version.as_str()));
        let name = super::format_record_name("speed", self.scenario_names.iter().cloned());
        let record = Record::new(&name, &names_and_versions, settings, json!(scenario_results));
        if !scenario_results.is_empty() && out.is_json() {
            out.set_result(&json!(record));
        } else if !scenario_results.is_empty() {
            print(out, &scenario_results, &names_and_versions, &layout)?;
        }
        // What was measured before an end or an error has been printed, and is not kept.
        outcome?;
        self.common.write_record(&record)?;
        Ok(Exit::Success)
    }

    fn select_scenarios(&self) -> Result<Vec<Scenario>, Failure> {
        let scenarios = match &self.scenarios_file {
            None => Scenario::built_in().map_err(|error| Failure::usage(error.to_string()))?,
            Some(path) => {
                let text = read_text(path).map_err(|error| {
                    Failure::new(Exit::Unreachable, format!("{}: {error}", path.display()))
                })?;
                Scenario::parse(&text)
                    .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?
            }
        };
        super::select_scenarios(scenarios, &self.scenario_names)
    }
}

const COLUMN_TITLES: [&str; 8] =
    ["", "requests/s", "CPU us", "user", "kernel", "p50 us", "p99 us", "p99.9 us"];

/// The conclusion, what was demanded, then each scenario.
fn print(
    out: &Output,
    scenario_results: &[ScenarioResult],
    [(_, our_version), (_, their_version)]: &[(&str, &str); 2],
    layout: &str,
) -> Result<(), Failure> {
    let demands = list_demands(scenario_results);
    out.print_line(wrap(&format_sentence(scenario_results, &demands)))?;
    if !demands.is_empty() {
        out.print_line(format!("\n{}", build_demands_table(&demands)))?;
    }
    for scenario_result in scenario_results {
        print_scenario(out, scenario_result)?;
    }
    out.print_line("")?;
    out.print_line(wrap(&format!(
        "glasscache {our_version} beside memcached {their_version}; {layout}. CPU is the server's, user and kernel, per request; ratio is \
         glasscache / memcached in the same round, the median with its range; * marks a demand that is missed."
    )))
}

fn print_scenario(out: &Output, scenario_result: &ScenarioResult) -> Result<(), Failure> {
    let is_meta_against_text =
        scenario_result.scenario.versus == glasscache_lab::bench::Versus::ClassicText;
    let names = if is_meta_against_text { ["meta", "text"] } else { ["glasscache", "memcached"] };
    let sides: [Vec<&SideMeasurement>; 2] = [
        scenario_result.rounds.iter().map(|(ours, _)| ours).collect(),
        scenario_result.rounds.iter().map(|(_, theirs)| theirs).collect(),
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
    out.print_line(format!("\n{}", wrap(&scenario_result.scenario.title)))?;
    out.print_line(table.to_string().trim_end())?;
    out.print_line(wrap(&format_ratios(scenario_result)))?;
    match format_notes(scenario_result) {
        notes if notes.is_empty() => Ok(()),
        notes => out.print_line(wrap(&notes)),
    }
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
