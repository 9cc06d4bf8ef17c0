//! The highest rate that holds an objective such as `p99.9<1ms`, by bisection.
//!
//! The rate of a closed loop bounds the search from above. Each step offers a rate for a part of the time and looks at
//! the latency from the intended time, which grows without bound above what the server can do.

use std::time::Duration;

use serde::Serialize;

use super::LoadError;
use super::objective::Objective;
use super::result::LoadMeasurement;
use super::rounds::run_once;
use super::settings::{Settings, Traffic};
use crate::load::{self, Pace, Report};
use crate::target::Target;
use crate::text::{format_count, format_decimal};

/// Steps of the bisection: the rate is known to 1 % of the closed loop's.
const BISECTION_STEPS: u32 = 7;

/// One rate that was offered.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct TriedRate {
    /// Requests per second.
    pub rate: f64,
    /// Latency from the intended time at the objective's percentile, in microseconds.
    pub latency_us: f64,
    /// Whether the rate meets the objective.
    #[serde(rename = "holds")]
    pub meets_objective: bool,
}

/// What a search found.
#[derive(Debug)]
pub(super) struct SearchResult {
    /// The rates that were tried, in order.
    pub tried_rates: Vec<TriedRate>,
    /// The measurement of the highest rate that meets the objective, if one does.
    pub best: Option<LoadMeasurement>,
    /// What ended the search early.
    pub error: Option<load::Error>,
}

/// Finds the highest rate that meets the objective.
///
/// # Errors
/// A failure before a rate was tried.
pub(super) fn search(
    settings: &Settings,
    target: &Target,
    traffic: &Traffic,
    objective: Objective,
    progress: &mut dyn FnMut(f64),
) -> Result<SearchResult, load::Error> {
    let step_count = BISECTION_STEPS + 1;
    let step_duration = (settings.run_for / step_count).max(Duration::from_millis(200));
    let warm_up = settings.warm_up.min(step_duration / 2);
    let closed_report = run_once(
        settings,
        target,
        traffic,
        (Pace::Closed, step_duration, warm_up),
        (0, step_count),
    )?
    .complete()?;
    let (mut low_rate, mut high_rate) = (0.0, closed_report.rate());
    let mut search_result = SearchResult { tried_rates: Vec::new(), best: None, error: None };
    for step in 1..=BISECTION_STEPS {
        progress(f64::from(step) / f64::from(step_count));
        if settings.is_stopped() {
            break;
        }
        let rate = f64::midpoint(low_rate, high_rate).max(1.0);
        let pace_and_times = (Pace::Open(rate), step_duration, warm_up);
        let report = run_once(settings, target, traffic, pace_and_times, (step, step_count));
        let report = match report.and_then(Report::complete) {
            Ok(report) => report,
            Err(error) => {
                search_result.error = Some(error);
                break;
            }
        };
        let latency_us = report.tally.latency_us(objective.percent);
        // A schedule that cannot be kept leaves requests unsent.
        let meets_objective = latency_us < objective.latency_us && report.rate() > 0.98 * rate;
        search_result.tried_rates.push(TriedRate { rate, latency_us, meets_objective });
        if meets_objective {
            low_rate = rate;
            let open_settings = Settings { pace: Pace::Open(rate), ..settings.clone() };
            search_result.best =
                Some(LoadMeasurement::of(&[report], &open_settings, &target.meter));
        } else {
            high_rate = rate;
        }
    }
    Ok(search_result)
}

/// That no rate holds the objective.
pub(super) fn no_rate_error(objective: Objective, tried_rates: &[TriedRate]) -> LoadError {
    let lowest_rate_text = tried_rates.last().map(|lowest| {
        format!(
            ": at {} requests/s, the lowest that was tried, p{} is {} us",
            format_count(lowest.rate as u64),
            objective.percent,
            format_decimal(lowest.latency_us)
        )
    });
    LoadError::NoRate(lowest_rate_text.unwrap_or_default())
}
