//! Load on any server: a closed loop, an open loop at a rate, or a search for the highest rate that holds an objective.
//!
//! Keys are stored first, then requests of a mix are sent and every value is compared. With two targets the run is
//! cut into short rounds that measure both, in the order A B, B A.

mod histogram_log;
mod key_trace;
mod objective;
mod report;
mod result;
mod rounds;
mod search;
mod settings;
mod workload;

use std::io;

use crate::load;
use crate::report::Outcome;
use crate::target::Target;
use histogram_log::{format_interval_log, format_percentile_table};
pub use key_trace::KeyTrace;
pub use objective::Objective;
use report::{LoadFigures, build_report, list_warnings};
use result::LoadMeasurement;
use rounds::{Comparison, clear, compare, fill, measure_one};
use search::{SearchResult, no_rate_error, search};
use settings::Traffic;
pub use settings::{Keys, Mix, Settings};

/// Why nothing was measured, or what ended the measurement early.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A target failed.
    #[error("{name}: {error}")]
    Target {
        /// Its name.
        name: String,
        /// What failed.
        error: load::Error,
    },
    /// No rate holds the objective of a search; the lowest that was tried.
    #[error("no rate holds the objective{0}")]
    NoRate(String),
    /// It was stopped too early.
    #[error("stopped {0}")]
    Stopped(&'static str),
}

impl LoadError {
    fn of(target: &Target) -> impl Fn(load::Error) -> Self {
        move |error| Self::Target { name: target.name.clone(), error }
    }
}

/// What a load test measured.
#[derive(Debug)]
pub struct LoadResult {
    /// Its report and how it ended.
    pub outcome: Outcome<LoadError>,
    /// That the figures do not measure what was meant.
    pub warnings: Vec<String>,
    /// Of the first target.
    measured: LoadMeasurement,
}

impl LoadResult {
    /// The distribution of the latency from the intended time: one line for each percentile, in microseconds, as the
    /// plotters of `HdrHistogram` read it.
    pub fn percentile_table(&self) -> String {
        format_percentile_table(&self.measured)
    }

    /// Latencies of each second in nanoseconds, as a log of `HdrHistogram` in version 1.3: compressed V2 histograms.
    ///
    /// # Errors
    /// A histogram that cannot be compressed.
    pub fn interval_log(&self) -> io::Result<Vec<u8>> {
        format_interval_log(self.measured.started_at, &self.measured.by_second)
    }
}

/// Stores all keys at one or two targets, sends the traffic, measures it, and removes the keys.
///
/// # Errors
/// A failure before any request was counted, or a search that finds no rate.
pub fn run(
    settings: &Settings,
    targets: &[&Target],
    mut progress: impl FnMut(f64),
) -> Result<LoadResult, LoadError> {
    let traffic = Traffic::of(settings);
    for target in targets {
        fill(settings, target, &traffic).map_err(LoadError::of(target))?;
    }
    let (mut other_and_ratio, mut objective_and_rates) = (None, None);
    let (measured, mut early_end) = match (targets, settings.objective) {
        (&[first, second, ..], _) => {
            let Comparison { measured: [measured, other_measured], ratios, early_end } =
                compare(settings, [first, second], &traffic, &mut progress)?;
            other_and_ratio = Some((other_measured, ratios));
            (Some(measured), early_end)
        }
        (&[first], Some(objective)) => {
            let SearchResult { tried_rates, best, error } =
                search(settings, first, &traffic, objective, &mut progress)
                    .map_err(LoadError::of(first))?;
            objective_and_rates = Some((objective, tried_rates));
            (best, error.map(LoadError::of(first)))
        }
        (&[first], None) => {
            let (measured, error) = measure_one(settings, first, &traffic)?;
            (Some(measured), error)
        }
        (&[], _) => (None, None),
    };
    // The keys of a server that failed cannot be removed.
    if early_end.is_none() {
        early_end = targets
            .iter()
            .find_map(|target| clear(settings, target, &traffic).err().map(LoadError::of(target)));
    }
    let is_stopped = settings.is_stopped();
    let Some(measured) = measured else {
        return Err(early_end.unwrap_or_else(|| match &objective_and_rates {
            Some((objective, rates)) if !is_stopped => no_rate_error(*objective, rates),
            _ => LoadError::Stopped("before a rate was found that holds the objective"),
        }));
    };
    if is_stopped && measured.requests == 0 {
        return Err(LoadError::Stopped("in the warm-up, before any request was counted"));
    }
    let figures = LoadFigures { measured, other_and_ratio, objective_and_rates };
    let outcome = Outcome {
        report: build_report(settings, targets, &figures),
        wrong_values: figures.all_measured().map(|measured| measured.wrong_values).sum(),
        is_stopped,
        error: early_end,
    };
    Ok(LoadResult { outcome, warnings: list_warnings(&figures), measured: figures.measured })
}
