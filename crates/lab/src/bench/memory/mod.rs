//! Memory efficiency, for `glasscache bench memory`: how many bytes of keys and values a server holds for each byte of its
//! resident memory. Fills it beyond its limit, reads everything back, and divides.
//!
//! The sizes of the values and the ratios to memcached that each requires are `FillSize::all_sizes`.

mod fill;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};

use super::record::Record;
use super::{Comparison, Error, Programs, ServerPair};
use crate::text::{Table, format_count, wrap};
use fill::measure_fill;
pub(crate) use fill::{FillResult, FillSize, fill, read_back};

/// What is filled, and how.
#[derive(Debug)]
pub struct Settings {
    /// Both servers.
    pub programs: Programs,
    /// `-m` of the fills, in MiB.
    pub memory_mib: Vec<u64>,
    /// The sizes of the values, of [`size_names`]; all if empty.
    pub size_names: Vec<String>,
    /// Leaves memcached out.
    pub is_alone: bool,
    /// Ends the benchmark when set.
    pub stop: Arc<AtomicBool>,
}

/// The names of the value sizes.
pub fn size_names() -> [&'static str; 9] {
    FillSize::all_sizes().map(|size| size.name)
}

/// Fills both servers; `progress` is called with a line about each fill.
///
/// # Errors
/// A server cannot be started, or fails before the first fill was read back.
pub fn run(settings: &Settings, mut progress: impl FnMut(&str)) -> Result<Comparison, Error> {
    let servers = settings.programs.find_servers(settings.stop.clone())?;
    let mut fills = Vec::new();
    let ended = match settings.measure_fills(&servers, &mut fills, &mut progress) {
        Err(error) if fills.is_empty() => return Err(error),
        ended => ended,
    };
    let record = ended.and_then(|()| {
        let version = servers.request_version()?;
        Ok(Record::new(
            "memory",
            settings.size_names.iter().cloned(),
            &[("glasscache", &version)],
            json!({ "memory_mib": settings.memory_mib, "seed": 1, "key_bytes": 20 }),
            json!({ "fills": fills.iter().map(Fill::to_json).collect::<Vec<Value>>() }),
        ))
    });
    Ok(Comparison { text: format_text(&fills), record, is_met: true })
}

impl Settings {
    fn measure_fills(
        &self,
        servers: &ServerPair,
        fills: &mut Vec<Fill>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let is_selected = |size: &FillSize| {
            self.size_names.is_empty() || self.size_names.iter().any(|name| name == size.name)
        };
        for &memory_mib in &self.memory_mib {
            for size in FillSize::all_sizes().iter().filter(|size| is_selected(size)) {
                let fill = Fill::measure(servers, memory_mib, size, self.is_alone)?;
                progress(&fill.describe());
                fills.push(fill);
            }
        }
        Ok(())
    }
}

fn format_text(fills: &[Fill]) -> String {
    let title =
        "User bytes per resident byte after a fill of at least twice the limit, all read back:";
    format!(
        "{}\n\n{}\n{}",
        wrap(&format!("In memory: {}.", format_fills_conclusion(fills))),
        wrap(title),
        build_table(fills)
    )
}

fn build_table(fills: &[Fill]) -> Table {
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
    for fill in fills {
        table.push_row(fill.format_row());
    }
    table
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
    ) -> Result<Fill, Error> {
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
