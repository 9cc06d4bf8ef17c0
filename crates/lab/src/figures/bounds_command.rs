//! `figures bounds`: the bounds that a server always keeps, and its memory through fills of shifting sizes.

use std::fmt::Write as _;

use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::bounds::{self, Finding};
use super::command::{Failure, Measured, new_stop_flag};
use super::fill_sequence::{FillSequence, measure_fill_sequence};
use crate::bench::record::Record;
use crate::bench::{Programs, ServerPair};
use crate::text::{Table, wrap};

/// Options of the checks.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// `-m` of the fills, in MiB
    #[arg(short = 'm', long = "memory", value_name = "MIB", default_value_t = 256)]
    memory_mib: u64,
    /// Only this part; may be repeated
    #[arg(id = "part", long = "part", value_name = "PART", value_enum)]
    parts: Vec<Part>,
    /// Only this bound; may be repeated
    #[arg(id = "bound", long = "bound", value_name = "NAME", value_parser = list_bound_names())]
    bound_names: Vec<String>,
    /// Leave memcached out, for a quick check of a change
    #[arg(long)]
    alone: bool,
}

fn list_bound_names() -> PossibleValuesParser {
    bounds::ALL_CHECKS.map(|(name, _)| name).into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// One server through fills of shifting sizes
    Chain,
    /// The bounds
    Bounds,
}

/// The result of one part.
struct PartResult {
    /// Its name in JSON.
    name: &'static str,
    /// A clause of the sentence.
    conclusion: String,
    title: String,
    table: Table,
    figures: Value,
}

impl Args {
    /// Runs the chosen parts.
    pub(super) fn run(self) -> Result<Measured, Failure> {
        let programs = super::with_own_glasscache(self.programs.clone())?;
        let servers = programs.find_servers(new_stop_flag()?)?;
        let mut results = Vec::new();
        let outcome = [Part::Chain, Part::Bounds].into_iter().try_for_each(|part| {
            if self.parts.is_empty() || self.parts.contains(&part) {
                results.push(match part {
                    Part::Chain => self.run_fill_sequence(&servers),
                    Part::Bounds => self.check_bounds(&servers),
                }?);
            }
            Ok(())
        });
        let ended_by: Option<Failure> = outcome.err();
        if let (Some(failure), true) = (&ended_by, results.is_empty()) {
            return Err(failure.clone());
        }
        let text = format_results(&results);
        let our_version = servers.request_version()?;
        let part_names = results.iter().map(|result| result.name.to_owned());
        let record = Record::new(
            "memory",
            part_names.chain(self.bound_names),
            &[("glasscache", &our_version)],
            json!({ "memory_mib": [self.memory_mib], "seed": 1, "key_bytes": 20 }),
            results.iter().map(|result| (result.name.to_owned(), result.figures.clone())).collect(),
        );
        Ok(Measured::of_record(record, text, ended_by))
    }

    fn run_fill_sequence(&self, servers: &ServerPair) -> Result<PartResult, Failure> {
        let memory_mib = self.memory_mib;
        let ours = measure_fill_sequence(servers, &servers.ours(memory_mib))?;
        let theirs = if self.alone {
            None
        } else {
            Some(measure_fill_sequence(servers, &servers.theirs(memory_mib))?)
        };
        let share = ours.final_contents.share_of_limit();
        let resident_bytes_max = ours.fills.iter().map(|fill| fill.resident_bytes).max();
        Ok(PartResult {
            name: "chain",
            conclusion: format!(
                "after fills of shifting sizes {share:.3} of -m {memory_mib} are user bytes"
            ),
            title: format!(
                "One server at -m {memory_mib} through fills of shifting sizes, each once -m:"
            ),
            table: build_fill_sequence_table(&ours, theirs.as_ref(), memory_mib),
            figures: json!({ "glasscache": ours, "memcached": theirs, "user_share": share,
                "most_resident_mib": resident_bytes_max.unwrap_or(0) as f64 / f64::from(1 << 20) }),
        })
    }

    fn check_bounds(&self, servers: &ServerPair) -> Result<PartResult, Failure> {
        let mut findings: Vec<Finding> = Vec::new();
        for (name, check) in bounds::ALL_CHECKS {
            if self.bound_names.is_empty() || self.bound_names.iter().any(|wanted| wanted == name) {
                eprintln!("  checking {name}");
                findings.extend(check(servers)?);
            }
        }
        let mut table = Table::new(&["", "at most", "found", ""]);
        for finding in &findings {
            table.push_row([
                finding.name.clone(),
                format!("{:.1}", finding.bound),
                format!("{:.2}", finding.measured),
                format!("{} {}", if finding.is_met() { "met   " } else { "MISSED" }, finding.note),
            ]);
        }
        let met_count = findings.iter().filter(|finding| finding.is_met()).count();
        Ok(PartResult {
            name: "bounds",
            conclusion: format!("{met_count} of {} bounds are met", findings.len()),
            title: "Bounds that a server always keeps:".to_owned(),
            table,
            figures: json!(findings),
        })
    }
}

/// The conclusion of all parts, then their tables.
fn format_results(results: &[PartResult]) -> String {
    let conclusions: Vec<&str> = results.iter().map(|result| result.conclusion.as_str()).collect();
    let mut text = wrap(&format!("In memory: {}.", conclusions.join("; "))) + "\n";
    for PartResult { title, table, .. } in results {
        let _ = write!(text, "\n{}\n{table}", wrap(title));
    }
    text
}

fn build_fill_sequence_table(
    ours: &FillSequence,
    theirs: Option<&FillSequence>,
    memory_mib: u64,
) -> Table {
    let resident_limit_mib = bounds::compute_budget_mib(memory_mib);
    let mut table = Table::new(&[
        "fill",
        "resident MiB",
        "at most",
        "own user/-m",
        "left at the end",
        "refused",
        "memcached's MiB",
        "own user/-m",
    ]);
    let limit_bytes = (memory_mib << 20) as f64;
    let format_mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    for (fill_index, sequence_fill) in ours.fills.iter().enumerate() {
        let their_fill = theirs.and_then(|sequence| sequence.fills.get(fill_index));
        table.push_row([
            sequence_fill.name.to_owned(),
            format_mib(sequence_fill.resident_bytes),
            format!("{resident_limit_mib:.1}"),
            format!("{:.3}", sequence_fill.user_bytes_after_fill as f64 / limit_bytes),
            format!("{:.3}", sequence_fill.user_bytes_at_end as f64 / limit_bytes),
            sequence_fill.refused.to_string(),
            their_fill
                .map_or("-".to_owned(), |sequence_fill| format_mib(sequence_fill.resident_bytes)),
            their_fill.map_or("-".to_owned(), |sequence_fill| {
                format!("{:.3}", sequence_fill.user_bytes_after_fill as f64 / limit_bytes)
            }),
        ]);
    }
    table.push_row([
        "all at the end".to_owned(),
        format_mib(ours.final_contents.resident_bytes),
        String::new(),
        format!("{:.3}", ours.final_contents.share_of_limit()),
        "at least 0.85".to_owned(),
        ours.final_contents.refused.to_string(),
        theirs
            .map_or("-".to_owned(), |sequence| format_mib(sequence.final_contents.resident_bytes)),
        theirs.map_or("-".to_owned(), |sequence| {
            format!("{:.3}", sequence.final_contents.share_of_limit())
        }),
    ]);
    table
}
