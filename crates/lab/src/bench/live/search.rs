//! The highest rate that holds an objective such as `p99.9<1ms`, by bisection.
//!
//! The rate of a closed loop bounds the search from above. Each step offers a rate for a part of the time and looks at
//! the latency from the intended time, which grows without bound above what the server can do.

use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use super::{LoadMeasurement, Settings, Target, Traffic, run_once};
use crate::load::{self, Pace, Report};

/// Steps of the bisection: the rate is known to 1 % of the closed loop's.
const BISECTION_STEPS: u32 = 7;

/// A latency that must not be exceeded at a percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Objective {
    /// 0 to 100.
    pub percent: f64,
    /// In microseconds.
    pub latency_us: f64,
}

impl FromStr for Objective {
    type Err = String;

    /// `p99.9<1ms`; units are us, ms and s.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid_objective = || format!("{text:?}: expected an objective such as p99.9<1ms");
        let compact: String = text.split_whitespace().collect();
        let (percent_text, limit_text) = compact
            .strip_prefix('p')
            .and_then(|rest| rest.split_once('<'))
            .ok_or_else(invalid_objective)?;
        let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
        let (number_text, us_per_unit) = units
            .iter()
            .find_map(|(unit, us_per_unit)| Some((limit_text.strip_suffix(unit)?, us_per_unit)))
            .ok_or_else(invalid_objective)?;
        let percent: f64 = percent_text.parse().map_err(|_| invalid_objective())?;
        let latency_us = number_text.parse::<f64>().map_err(|_| invalid_objective())? * us_per_unit;
        let is_valid =
            percent > 0.0 && percent < 100.0 && latency_us > 0.0 && latency_us.is_finite();
        is_valid.then_some(Self { percent, latency_us }).ok_or_else(invalid_objective)
    }
}

/// One rate that was offered.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TriedRate {
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
pub struct SearchResult {
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
pub fn search(
    settings: &Settings,
    target: &Target,
    traffic: &Traffic,
    objective: Objective,
    mut progress: impl FnMut(f64),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_objectives() {
        let objective = "p99.9 < 1ms".parse::<Objective>().unwrap();
        assert_eq!(objective, Objective { percent: 99.9, latency_us: 1000.0 });
        assert!("p50<200us".parse::<Objective>().is_ok());
        for invalid_objective in ["", "99<1ms", "p100<1ms", "p99<1", "p99>1ms", "p99<0ms"] {
            assert!(invalid_objective.parse::<Objective>().is_err(), "{invalid_objective}");
        }
    }
}
