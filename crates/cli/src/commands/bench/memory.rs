//! `glasscache bench memory`: user bytes per resident byte, compared with memcached, and the bounds that a server
//! always keeps.

use std::fmt::Write as _;

use clap::builder::PossibleValuesParser;
use glasscache_lab::bench::ServerPair;
use glasscache_lab::bench::bounds::{self, Finding};
use glasscache_lab::bench::memory::{
    FillResult, FillSequence, FillSize, measure_fill, measure_fill_sequence,
};
use glasscache_lab::bench::record::Record;
use serde_json::{Value, json};

use super::{CommonOptions, failure};
use crate::output::{Exit, Failure, Output};
use crate::table::{Table, format_count};
use crate::word_wrap::wrap;

/// Options of the memory benchmark.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: CommonOptions,
    /// `-m` of the fills, in MiB; may be repeated.
    #[arg(short = 'm', long = "memory", value_name = "MIB", default_values_t = [256, 64, 100, 400])]
    memory_mib: Vec<u64>,
    /// Only this value size; may be repeated.
    #[arg(id = "size", long = "size", value_name = "BYTES", value_parser = list_size_names())]
    size_names: Vec<String>,
    /// Only this part; may be repeated.
    #[arg(id = "section", long = "part", value_name = "PART", value_enum)]
    sections: Vec<Section>,
    /// Only this bound; may be repeated.
    #[arg(id = "bound", long = "bound", value_name = "NAME", value_parser = list_bound_names())]
    bound_names: Vec<String>,
    /// Leave memcached out, for a quick check of a change.
    #[arg(long)]
    alone: bool,
}

fn list_size_names() -> PossibleValuesParser {
    FillSize::all_sizes().map(|size| size.name).into()
}

fn list_bound_names() -> PossibleValuesParser {
    bounds::ALL_CHECKS.map(|(name, _)| name).into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Section {
    /// The fills.
    Fills,
    /// One server through fills of shifting sizes.
    Chain,
    /// The bounds.
    Bounds,
}

impl Args {
    /// Runs the chosen sections.
    pub(super) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let servers = ServerPair { is_pinned: false, ..self.common.find_servers()? };
        let is_selected =
            |section: Section| self.sections.is_empty() || self.sections.contains(&section);
        let mut results = Vec::new();
        let outcome = self.run_sections(&servers, is_selected, &mut results);
        if !out.is_json() && !results.is_empty() {
            print(out, &results)?;
        }
        // What was measured before an end or an error has been printed, and is not kept.
        outcome?;
        let figures = results.into_iter().map(|result| (result.name.to_owned(), result.figures));
        let our_version = bounds::request_version(&servers).map_err(failure)?;
        let settings = json!({ "memory_mib": self.memory_mib, "seed": 1, "key_bytes": 20 });
        let section_names =
            self.sections.iter().map(|section| format!("{section:?}").to_lowercase());
        let name = super::format_record_name(
            "memory",
            section_names.chain(self.size_names.clone()).chain(self.bound_names.clone()),
        );
        let record = Record::new(
            &name,
            &[("glasscache", &our_version)],
            settings,
            Value::Object(figures.collect()),
        );
        if out.is_json() {
            out.set_result(&json!(record));
        }
        self.common.write_record(&record)?;
        Ok(Exit::Success)
    }

    fn run_sections(
        &self,
        servers: &ServerPair,
        is_selected: impl Fn(Section) -> bool,
        results: &mut Vec<SectionResult>,
    ) -> Result<(), Failure> {
        if is_selected(Section::Fills) {
            results.push(self.run_fills(servers)?);
        }
        if is_selected(Section::Chain) {
            results.push(self.run_fill_sequence(servers)?);
        }
        if is_selected(Section::Bounds) {
            results.push(self.check_bounds(servers)?);
        }
        Ok(())
    }

    fn run_fills(&self, servers: &ServerPair) -> Result<SectionResult, Failure> {
        let mut fill_documents = Vec::new();
        let mut fills = Vec::new();
        let mut table = Table::new(&[
            "value bytes",
            "-m",
            "items",
            "user/resident",
            "user/-m",
            "refused",
            "-f 1.25",
            "best -f",
            "ratio",
            "at least",
            "to best",
        ]);
        for &memory_mib in &self.memory_mib {
            for size in FillSize::all_sizes() {
                if !self.size_names.is_empty()
                    && self.size_names.iter().all(|name| name != size.name)
                {
                    continue;
                }
                let fill =
                    Fill::measure(servers, memory_mib, &size, self.alone).map_err(failure)?;
                eprintln!("  {}", fill.describe());
                table.push_row(fill.format_row());
                fill_documents.push(fill.to_json());
                fills.push(fill);
            }
        }
        Ok(SectionResult {
            name: "fills",
            conclusion: format_fills_conclusion(&fills),
            title: "User bytes per resident byte after a fill of at least twice the limit, all read back:".to_owned(),
            table,
            figures: Value::Array(fill_documents),
        })
    }

    fn run_fill_sequence(&self, servers: &ServerPair) -> Result<SectionResult, Failure> {
        let memory_mib = self.memory_mib.first().copied().unwrap_or(256);
        let ours = measure_fill_sequence(servers, &servers.ours(memory_mib)).map_err(failure)?;
        let theirs = if self.alone {
            None
        } else {
            Some(measure_fill_sequence(servers, &servers.theirs(memory_mib)).map_err(failure)?)
        };
        let resident_bytes_max =
            ours.fills.iter().map(|sequence_fill| sequence_fill.resident_bytes).max().unwrap_or(0);
        Ok(SectionResult {
            name: "chain",
            conclusion: format!(
                "after fills of shifting sizes {:.3} of -m {memory_mib} are user bytes",
                ours.final_contents.share_of_limit()
            ),
            title: format!(
                "One server at -m {memory_mib} through fills of shifting sizes, each once -m:"
            ),
            table: build_fill_sequence_table(&ours, theirs.as_ref(), memory_mib),
            figures: json!({ "glasscache": ours, "memcached": theirs, "user_share": ours.final_contents.share_of_limit(),
                "most_resident_mib": resident_bytes_max as f64 / f64::from(1 << 20) }),
        })
    }

    fn check_bounds(&self, servers: &ServerPair) -> Result<SectionResult, Failure> {
        let mut findings: Vec<Finding> = Vec::new();
        for (name, check) in bounds::ALL_CHECKS {
            if self.bound_names.is_empty() || self.bound_names.iter().any(|wanted| wanted == name) {
                eprintln!("  checking {name}");
                findings.extend(check(servers).map_err(failure)?);
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
        Ok(SectionResult {
            name: "bounds",
            conclusion: format!("{met_count} of {} bounds are met", findings.len()),
            title: "Bounds that a server always keeps:".to_owned(),
            table,
            figures: json!(findings),
        })
    }
}

/// The result of one section of the benchmark.
struct SectionResult {
    /// Its name in JSON.
    name: &'static str,
    /// A clause of the sentence.
    conclusion: String,
    title: String,
    table: Table,
    figures: Value,
}

/// The conclusion of all sections, then their tables.
fn print(out: &Output, results: &[SectionResult]) -> Result<(), Failure> {
    let conclusions: Vec<&str> = results.iter().map(|result| result.conclusion.as_str()).collect();
    out.print_line(wrap(&format!("In memory: {}.", conclusions.join("; "))))?;
    for result in results {
        out.print_line(format!("\n{}", wrap(&result.title)))?;
        out.print_line(result.table.to_string().trim_end())?;
    }
    Ok(())
}

fn format_fills_conclusion(fills: &[Fill]) -> String {
    let format_range = |figures: &mut dyn Iterator<Item = f64>| {
        let (low, high) = figures
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), figure| {
                (figure.min(low), figure.max(high))
            });
        format!("{low:.2} to {high:.2}")
    };
    let mut conclusion = format!(
        "{} user bytes per resident byte",
        format_range(&mut fills.iter().map(|fill| fill.ours.density()))
    );
    let compared: Vec<&Fill> = fills.iter().filter(|fill| fill.theirs.is_some()).collect();
    if !compared.is_empty() {
        let missed_count = compared.iter().filter(|fill| fill.is_missed()).count();
        let _ = write!(
            conclusion,
            ", {} times memcached's, {missed_count} of {} fills below what is demanded",
            format_range(&mut compared.iter().map(|fill| fill.ratio())),
            compared.len()
        );
    }
    conclusion
}

/// One size at one limit, on both sides.
struct Fill {
    memory_mib: u64,
    size: FillSize,
    ours: FillResult,
    /// memcached's with its default growth factor, and with the best one for this size.
    theirs: Option<(FillResult, FillResult)>,
}

impl Fill {
    fn measure(
        servers: &ServerPair,
        memory_mib: u64,
        size: &FillSize,
        skips_memcached: bool,
    ) -> Result<Fill, glasscache_lab::bench::Error> {
        let ours = measure_fill(servers, &servers.ours(memory_mib), size)?;
        let theirs = if skips_memcached {
            None
        } else {
            let default_fill = measure_fill(servers, &servers.theirs(memory_mib), size)?;
            let best_fill = match size.best_factor {
                "1.25" => default_fill.clone(),
                factor => measure_fill(
                    servers,
                    &servers.theirs(memory_mib).with_arguments(&["-f", factor]),
                    size,
                )?,
            };
            Some((default_fill, best_fill))
        };
        Ok(Fill { memory_mib, size: size.clone(), ours, theirs })
    }

    fn ratio(&self) -> f64 {
        self.theirs
            .as_ref()
            .map_or(f64::NAN, |(default_fill, _)| self.ours.density() / default_fill.density())
    }

    /// Whether the ratio is below what is demanded of it.
    fn is_missed(&self) -> bool {
        let required_ratio = self.size.required_ratio.filter(|_| self.theirs.is_some());
        required_ratio.is_some_and(|required| self.ratio() < required)
    }

    fn describe(&self) -> String {
        let (name, density) = (self.size.name, self.ours.density());
        format!(
            "{name} B at -m {}: {density:.3} user bytes per resident byte, ratio {:.2}",
            self.memory_mib,
            self.ratio()
        )
    }

    fn format_row(&self) -> [String; 11] {
        let format_their_density = |select_side: fn(&(FillResult, FillResult)) -> &FillResult| {
            self.theirs.as_ref().map_or("-".to_owned(), |default_and_best| {
                format!("{:.3}", select_side(default_and_best).density())
            })
        };
        let ratio_to_best =
            self.theirs.as_ref().map(|(_, best_fill)| self.ours.density() / best_fill.density());
        let required_ratio_text =
            self.size.required_ratio.map_or(String::new(), |required_ratio| {
                format!("{required_ratio:.2}{}", if self.is_missed() { " *" } else { "  " })
            });
        [
            self.size.name.to_owned(),
            self.memory_mib.to_string(),
            format_count(self.ours.items),
            format!("{:.3}", self.ours.density()),
            format!("{:.3}", self.ours.share_of_limit()),
            self.ours.refused.to_string(),
            format_their_density(|(default_fill, _)| default_fill),
            format_their_density(|(_, best_fill)| best_fill),
            if self.theirs.is_some() { format!("{:.2}", self.ratio()) } else { "-".to_owned() },
            required_ratio_text,
            ratio_to_best.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        ]
    }

    fn to_json(&self) -> Value {
        json!({ "value": self.size.name, "memory_mib": self.memory_mib, "demand": self.size.required_ratio,
            "ratio": self.theirs.as_ref().map(|_| self.ratio()), "density": self.ours.density(),
            "of_limit": self.ours.share_of_limit(), "glasscache": self.ours,
            "memcached": self.theirs.as_ref().map(|(default_fill, _)| default_fill), "best_factor": self.size.best_factor,
            "memcached_best": self.theirs.as_ref().map(|(_, best_fill)| best_fill) })
    }
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
