//! `glasscache bench`: CPU per request and latency compared with memcached, in interleaved rounds.

use std::fmt::Write;
use std::path::PathBuf;

use glasscache_lab::bench::record::Record;
use glasscache_lab::bench::speed::{Figures, Measured, OTHER_CORES_MAX, Speed};
use glasscache_lab::bench::{Scenario, Spread, interference};
use serde_json::json;

use super::{Common, failure};
use crate::output::{Exit, Failure, Output};
use crate::table::{Table, count, decimal};

/// Options of the speed benchmark.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Only the scenario of this name; may be repeated.
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Paired rounds of each scenario [default: set by the scenario].
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Scenarios from this file instead of the built-in ones.
    #[arg(long, value_name = "FILE")]
    scenarios: Option<PathBuf>,
    /// List the scenarios and end.
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Runs the chosen scenarios.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let scenarios = self.selected()?;
        if self.list {
            out.list();
            for scenario in &scenarios {
                if out.is_json() {
                    let (name, title) = (&scenario.name, &scenario.title);
                    out.row(&json!({ "scenario": name, "title": title }))?;
                    continue;
                }
                out.line(format!("{:16}{}", scenario.name, scenario.title))?;
            }
            return Ok(Exit::Success);
        }
        let sides = self.common.sides()?;
        let layout = sides.layout.describe();
        let mut progress = |line: &str| eprintln!("  {line}");
        let mut speed = Speed::start(sides.clone()).map_err(failure)?;
        let versions = speed.versions();
        if !out.is_json() {
            out.line(format!(
                "glasscache {} beside memcached {}; {layout}.",
                versions[0].1, versions[1].1
            ))?;
            out.line("CPU is the server's, user and kernel, per request; ratio is glasscache / memcached in")?;
            out.line(
                "the same round, the median with its range; * marks a demand that is missed.\n",
            )?;
            out.line(line_of(&HEAD.map(str::to_owned)))?;
        }
        let mut all = Vec::new();
        for scenario in &scenarios {
            let rounds = self.rounds.unwrap_or(scenario.rounds).max(1);
            let figures = match scenario.interference {
                Some(interference) => {
                    interference::run(&sides, scenario, interference, rounds, &mut progress)
                }
                None => speed.run(scenario, 0..rounds, &mut progress),
            }
            .map_err(failure)?;
            if !out.is_json() {
                print(out, &figures)?;
            }
            all.push(figures);
        }
        let settings =
            json!({ "layout": layout, "rounds": self.rounds, "seed": "the number of the round" });
        let known = versions
            .each_ref()
            .map(|(name, version)| (*name, version.as_str()));
        let name = super::name_of("speed", self.scenario.iter().cloned());
        let record = Record::new(&name, &known, settings, json!(all));
        if out.is_json() {
            out.document(&json!(record));
        } else {
            print_demands(out, &all)?;
        }
        self.common.keep(&record)?;
        Ok(Exit::Success)
    }

    fn selected(&self) -> Result<Vec<Scenario>, Failure> {
        let all = match &self.scenarios {
            None => Scenario::built_in().map_err(|error| Failure::usage(error.to_string()))?,
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Failure::new(Exit::Unreachable, format!("{}: {error}", path.display()))
                })?;
                Scenario::parse(&text)
                    .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?
            }
        };
        super::selected(all, &self.scenario)
    }
}

const HEAD: [&str; 9] = [
    "",
    "",
    "requests/s",
    "CPU us",
    "user",
    "kernel",
    "p50 us",
    "p99 us",
    "p99.9 us",
];

const WIDTHS: [usize; 9] = [34, 11, 11, 8, 8, 8, 8, 8, 9];

/// One line of a table that grows while its rows are measured.
fn line_of(cells: &[String; 9]) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        let _ = if index < 2 {
            write!(line, "{cell:<width$} ")
        } else {
            write!(line, "{cell:>width$} ")
        };
    }
    line.trim_end().to_owned()
}

fn print(out: &Output, figures: &Figures) -> Result<(), Failure> {
    let is_own = figures.scenario.versus == glasscache_lab::bench::Versus::OwnText;
    let names = if is_own {
        ["meta", "text"]
    } else {
        ["glasscache", "memcached"]
    };
    let sides: [Vec<&Measured>; 2] = [
        figures.rounds.iter().map(|round| &round.0).collect(),
        figures.rounds.iter().map(|round| &round.1).collect(),
    ];
    for (index, (name, side)) in names.iter().zip(&sides).enumerate() {
        let median =
            |figure: fn(&Measured) -> f64| Spread::of(side.iter().map(|m| figure(m))).median;
        let title = if index == 0 {
            figures.scenario.title.as_str()
        } else {
            ""
        };
        out.line(line_of(&[
            title.chars().take(33).collect(),
            (*name).to_owned(),
            count(median(|m| m.requests_per_s) as u64),
            decimal(median(|m| m.cpu_us)),
            decimal(median(|m| m.user_us)),
            decimal(median(|m| m.kernel_us)),
            count(median(|m| m.p50_us) as u64),
            count(median(|m| m.p99_us) as u64),
            count(median(|m| m.p999_us) as u64),
        ]))?;
    }
    out.line(format!("{:35}{}", "", ratios(figures)))?;
    let notes = notes(figures);
    if notes.is_empty() {
        Ok(())
    } else {
        out.line(format!("{:35}{notes}", ""))
    }
}

/// `CPU 0.31 (0.29-0.34), at most 0.30 *; p99 ...`
fn ratios(figures: &Figures) -> String {
    let spread = |s: &Spread| format!("{:.2} ({:.2}-{:.2})", s.median, s.min, s.max);
    let checks = figures.checked_demands();
    let demand = |name: &str| match checks.iter().find(|check| check.0 == name) {
        Some((_, bound, found)) => {
            format!(
                ", at most {bound:.2}{}",
                if found <= bound { "" } else { " *" }
            )
        }
        None => String::new(),
    };
    let mut texts = vec![
        format!("ratio: CPU {}{}", spread(&figures.cpu), demand("cpu")),
        format!("p99 {}{}", spread(&figures.p99), demand("p99")),
        format!("p99.9 {}{}", spread(&figures.p999), demand("p99.9")),
    ];
    if let Some((ours, theirs)) = &figures.p99_of_calm {
        texts.push(format!(
            "p99 to calm {}{}",
            spread(ours),
            demand("p99/calm")
        ));
        texts.push(format!("memcached's {}", spread(theirs)));
    }
    texts.join("; ")
}

fn notes(figures: &Figures) -> String {
    let mut notes = Vec::new();
    if figures.disturbed > 0 {
        let all = figures.rounds.len();
        notes.push(format!(
            "{} of {all} rounds disturbed (others over {OTHER_CORES_MAX} core)",
            figures.disturbed
        ));
    }
    let bound = |side: fn(&(Measured, Measured)) -> &Measured| {
        figures
            .rounds
            .iter()
            .filter(|round| side(round).is_generator_bound)
            .count()
    };
    let (ours, theirs) = (bound(|round| &round.0), bound(|round| &round.1));
    if ours + theirs > 0 {
        notes.push(format!(
            "generator-bound: {ours} of ours, {theirs} of theirs"
        ));
    }
    let misses: u64 = figures
        .rounds
        .iter()
        .map(|round| round.0.misses + round.1.misses)
        .sum();
    if misses > 0 {
        notes.push(format!("{} misses", count(misses)));
    }
    notes.join("; ")
}

fn print_demands(out: &Output, all: &[Figures]) -> Result<(), Failure> {
    let mut table = Table::new(&["", "what", "at most", "found", ""]);
    for figures in all {
        for (name, bound, found) in figures.checked_demands() {
            table.row([
                figures.scenario.title.clone(),
                name.to_owned(),
                format!("{bound:.2}"),
                format!("{found:.2}"),
                if found <= bound { "met" } else { "missed" }.to_owned(),
            ]);
        }
    }
    out.line("")?;
    out.line(table.to_string())
}
