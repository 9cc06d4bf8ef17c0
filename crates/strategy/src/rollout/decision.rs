//! Decides whether a strategy misses its forecast or slows requests down, and recommends what to do with a roll-out.
//!
//! A forecast has an interval for 2,000 requests of one process; of fewer requests figures vary more, by the square
//! root of their number. Only more calls, keys or time than forecast count: less does no harm. The time of calls varies
//! with the load of the day, too: a strategy whose requests wait longer than forecast, and still clearly shorter than
//! those of the control group, has not missed.

use std::fmt;

use super::counts::GroupCounts;
use super::metrics::{Estimate, METRICS, Metric};
use crate::file::Forecast;

/// Requests of one process that the interval of a forecast is for, and after which a process has decided.
pub const REQUESTS_COMPARED: u64 = 2000;

/// Requests of the strategy without which counts are not compared.
const REQUESTS_MIN: u64 = 20;
/// Requests without which the 95th percentile is not compared: five are above it.
const REQUESTS_OF_P95_MIN: u64 = 100;

/// The fraction of the forecast, and the number of calls or keys, by which counts may exceed it.
const COUNT_TOLERANCE: (f64, f64) = (0.05, 0.1);
/// The same for times, in milliseconds; the fraction is that within which a replay counts a forecast as met.
const TIME_TOLERANCE: (f64, f64) = (0.2, 0.1);

/// If the strategy disabled itself in more than this fraction of the processes, it is not chance.
const DISABLED_FRACTION_MAX: f64 = 0.05;

/// Why a strategy should not run.
#[derive(Debug, Clone, PartialEq)]
pub enum Regression {
    /// A metric is above the interval of its forecast.
    AboveForecast {
        /// The metric.
        metric: Metric,
        /// Its measured value.
        measured: f64,
        /// The end of the interval for this many requests.
        bound: f64,
        /// Requests of the strategy.
        requests: u64,
    },
    /// Requests of the strategy wait longer than those of the control group.
    SlowerThanControl {
        /// By how many milliseconds.
        difference: Estimate,
    },
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AboveForecast { metric, measured, bound, requests } => write!(
                f,
                "{} is {measured:.3}, and the forecast's interval for {requests} requests ends at {bound:.3}",
                metric.name()
            ),
            Self::SlowerThanControl { difference } => write!(
                f,
                "its requests wait {:.3} ms longer than the control group's ({:.3} to {:.3})",
                difference.value, difference.low, difference.high
            ),
        }
    }
}

/// Why the strategy should not run, if its requests show that.
pub fn find_regression(
    forecasts: &[Forecast],
    strategy: &GroupCounts,
    control: &GroupCounts,
) -> Option<Regression> {
    let check = |forecast: &Forecast| check_forecast(forecast, strategy, control);
    let above_forecast = forecasts.iter().find_map(check);
    above_forecast.or_else(|| check_against_control(strategy, control))
}

/// The upper end of a forecast's interval for this many requests, tolerance included.
pub fn forecast_bound(forecast: &Forecast, metric: Metric, requests: u64) -> f64 {
    let sampling_factor = (REQUESTS_COMPARED as f64 / requests.max(1) as f64).max(1.0);
    let (relative_tolerance, tolerance_min) =
        if metric.is_time() { TIME_TOLERANCE } else { COUNT_TOLERANCE };
    let margin = (forecast.high - forecast.value) * sampling_factor.sqrt();
    forecast.value + margin.max(forecast.value * relative_tolerance).max(tolerance_min)
}

fn check_forecast(
    forecast: &Forecast,
    strategy: &GroupCounts,
    control: &GroupCounts,
) -> Option<Regression> {
    // Figures of later versions are for clients that know them.
    let metric = Metric::from_name(&forecast.figure)?;
    let requests = strategy.sum.requests;
    let requests_min = match metric {
        Metric::AddedP95 => REQUESTS_OF_P95_MIN,
        _ => REQUESTS_MIN,
    };
    if requests < requests_min {
        return None;
    }
    let (measured, bound) = (metric.value(strategy)?, forecast_bound(forecast, metric, requests));
    let control_is_slower = metric.is_time() && is_below_zero(metric.difference(strategy, control));
    (measured > bound && !control_is_slower).then_some(Regression::AboveForecast {
        metric,
        measured,
        bound,
        requests,
    })
}

fn check_against_control(strategy: &GroupCounts, control: &GroupCounts) -> Option<Regression> {
    let difference = Metric::AddedMean.difference(strategy, control)?;
    let (relative_tolerance, tolerance_min_ms) = TIME_TOLERANCE;
    let tolerance = (Metric::AddedMean.value(control)? * relative_tolerance).max(tolerance_min_ms);
    let is_slower = difference.low > 0.0 && difference.value > tolerance;
    is_slower.then_some(Regression::SlowerThanControl { difference })
}

fn is_below_zero(difference: Option<Estimate>) -> bool {
    difference.is_some_and(|estimate| estimate.high < 0.0)
}

/// What the processes of an application have measured.
#[derive(Debug, Clone, Default)]
pub struct RolloutMeasurements {
    /// Processes that run the strategy in some of their requests.
    pub processes: usize,
    /// Those in which it has disabled itself.
    pub disabled_processes: usize,
    /// The requests of the strategy.
    pub strategy: GroupCounts,
    /// The requests of the control group.
    pub control: GroupCounts,
}

/// What to do with a roll-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Raise the share.
    Continue,
    /// Leave the share as it is, until there is more to compare.
    Wait,
    /// Stop running the strategy.
    RollBack,
}

impl Action {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Wait => "wait",
            Self::RollBack => "roll back",
        }
    }
}

/// What to do, and why in a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: String,
}

/// Recommends what to do with a roll-out.
pub fn recommend(forecasts: &[Forecast], measurements: &RolloutMeasurements) -> Recommendation {
    let (action, reason) = choose_action(forecasts, measurements);
    Recommendation { action, reason }
}

fn choose_action(forecasts: &[Forecast], measurements: &RolloutMeasurements) -> (Action, String) {
    let (strategy, control) = (&measurements.strategy, &measurements.control);
    if let Some(regression) = find_regression(forecasts, strategy, control) {
        return (Action::RollBack, regression.to_string());
    }
    let RolloutMeasurements { processes, disabled_processes, .. } = *measurements;
    if disabled_processes as f64 > processes as f64 * DISABLED_FRACTION_MAX {
        let reason = format!(
            "the strategy disabled itself in {disabled_processes} of {processes} processes"
        );
        return (Action::RollBack, reason);
    }
    let requests = strategy.sum.requests;
    if requests < REQUESTS_COMPARED {
        let reason =
            format!("{requests} requests ran the strategy; a forecast is for {REQUESTS_COMPARED}");
        return (Action::Wait, reason);
    }
    let forecast_result = if forecasts.is_empty() {
        "the strategy file has no forecast"
    } else {
        "the forecast held"
    };
    if control.sum.requests == 0 {
        let action = if forecasts.is_empty() { Action::Wait } else { Action::Continue };
        return (action, format!("{forecast_result}; there is no control group"));
    }
    let (action, time_comparison) = compare_times(strategy, control);
    let reason = match action {
        Action::Continue => format!("{forecast_result}, and {time_comparison}"),
        Action::Wait | Action::RollBack => time_comparison,
    };
    (action, reason)
}

/// Whether requests of the strategy wait shorter: by one metric at least, and by none longer.
fn compare_times(strategy: &GroupCounts, control: &GroupCounts) -> (Action, String) {
    let time_metrics = METRICS.into_iter().filter(|metric| metric.is_time());
    let with_difference = |metric: Metric| Some((metric, metric.difference(strategy, control)?));
    let differences: Vec<(Metric, Estimate)> = time_metrics.filter_map(with_difference).collect();
    let longer_wait = differences.iter().find(|(_, difference)| difference.low > 0.0);
    let shorter_wait = differences.iter().find(|(_, difference)| difference.high < 0.0);
    match (longer_wait, shorter_wait) {
        (Some((metric, difference)), _) => {
            let name = metric.name();
            let reason = format!(
                "{name} is {:.3} above the control group's ({:.3} to {:.3})",
                difference.value, difference.low, difference.high
            );
            (Action::Wait, reason)
        }
        (None, Some((metric, difference))) => {
            let name = metric.name();
            let reason = format!(
                "{name} is {:.3} below the control group's ({:.3} to {:.3})",
                -difference.value, -difference.high, -difference.low
            );
            (Action::Continue, reason)
        }
        (None, None) if differences.is_empty() => {
            let reason = "the control group has too few requests to compare with";
            (Action::Wait, reason.to_owned())
        }
        (None, None) => {
            let reason = "the times of the groups do not differ by more than chance";
            (Action::Wait, reason.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{Random, Traffic};
    use super::*;

    fn forecasts_of(traffic: Traffic, random: &mut Random) -> Vec<Forecast> {
        let group = traffic.draw_group(100_000, random);
        let metrics = [Metric::Calls, Metric::Keys, Metric::AddedP50, Metric::AddedP95];
        let forecast_for = |metric: Metric| {
            let value = metric.value(&group).unwrap();
            Forecast {
                figure: metric.name().to_owned(),
                value,
                low: value * 0.9,
                high: value * 1.1,
            }
        };
        metrics.map(forecast_for).to_vec()
    }

    fn measurements_of(strategy: GroupCounts, control: GroupCounts) -> RolloutMeasurements {
        RolloutMeasurements { processes: 1, disabled_processes: 0, strategy, control }
    }

    #[test]
    fn the_bound_widens_with_the_root_of_fewer_requests_and_has_a_tolerance() {
        let forecast_of_metric =
            Forecast { figure: "calls".into(), value: 4.0, low: 3.0, high: 5.0 };
        for (requests, expected) in [(2000, 5.0), (500, 6.0), (1_000_000, 5.0)] {
            assert!(
                (forecast_bound(&forecast_of_metric, Metric::Calls, requests) - expected).abs()
                    < 1e-9
            );
        }
        let forecast_without_margin = Forecast { high: 4.0, ..forecast_of_metric.clone() };
        assert!((forecast_bound(&forecast_without_margin, Metric::Calls, 2000) - 4.2).abs() < 1e-9);
        assert!(
            (forecast_bound(&forecast_without_margin, Metric::AddedP50, 2000) - 4.8).abs() < 1e-9
        );
    }

    #[test]
    fn more_calls_than_forecast_are_a_regression_and_fewer_are_not() {
        let mut random = Random(3);
        let forecasts = forecasts_of(Traffic::typical(), &mut random);
        let control = Traffic::typical().with_calls(3.0).draw_group(1800, &mut random);
        let regression_of =
            |strategy: &GroupCounts| find_regression(&forecasts, strategy, &control);
        let more_calls = Traffic::typical().with_calls(2.0).draw_group(200, &mut random);
        let regression = regression_of(&more_calls).unwrap();
        assert!(matches!(
            regression,
            Regression::AboveForecast { metric: Metric::Calls, requests: 200, .. }
        ));
        assert!(regression.to_string().starts_with("calls is "), "{regression}");
        let fewer_calls = Traffic::typical().with_calls(0.3).draw_group(200, &mut random);
        assert_eq!(regression_of(&fewer_calls), None);
        let too_few = Traffic::typical().with_calls(9.0).draw_group(19, &mut random);
        assert_eq!(regression_of(&too_few), None);
    }

    #[test]
    fn a_strategy_slower_than_forecast_is_excused_if_the_control_group_waits_longer() {
        let mut random = Random(4);
        let forecasts = forecasts_of(Traffic::typical(), &mut random);
        let slow = Traffic::typical().with_time(3.0);
        let strategy = slow.draw_group(1000, &mut random);
        let control = slow.with_calls(3.0).draw_group(1000, &mut random);
        assert_eq!(find_regression(&forecasts, &strategy, &control), None);
        assert!(matches!(
            find_regression(&forecasts, &strategy, &GroupCounts::default()),
            Some(Regression::AboveForecast { metric: Metric::AddedP50, .. })
        ));
    }

    #[test]
    fn a_strategy_without_forecast_that_is_slower_than_the_control_group_is_a_regression() {
        let mut random = Random(6);
        let control = Traffic::typical().draw_group(1000, &mut random);
        let slow = Traffic::typical().with_time(2.0).draw_group(1000, &mut random);
        let regression = find_regression(&[], &slow, &control).unwrap();
        assert!(matches!(regression, Regression::SlowerThanControl { .. }));
        assert!(regression.to_string().contains("longer than the control group's"));
        let equal_groups = Traffic::typical().draw_group(1000, &mut random);
        assert_eq!(find_regression(&[], &equal_groups, &control), None);
    }

    #[test]
    fn a_roll_out_that_meets_its_forecast_and_is_faster_continues() {
        let mut random = Random(7);
        let forecasts = forecasts_of(Traffic::typical(), &mut random);
        let strategy = Traffic::typical().draw_group(3000, &mut random);
        let control = Traffic::typical().with_calls(3.0).draw_group(3000, &mut random);
        let measurements = measurements_of(strategy.clone(), control.clone());
        assert_eq!(recommend(&forecasts, &measurements).action, Action::Continue);
        let reason = recommend(&forecasts, &measurements).reason;
        assert!(reason.contains("below the control group's"), "{reason}");
        let with_disabled_process = RolloutMeasurements { disabled_processes: 1, ..measurements };
        assert_eq!(recommend(&forecasts, &with_disabled_process).action, Action::RollBack);
        let without_control = measurements_of(strategy, GroupCounts::default());
        assert_eq!(recommend(&forecasts, &without_control).action, Action::Continue);
        assert_eq!(recommend(&[], &without_control).action, Action::Wait);
    }

    #[test]
    fn a_roll_out_with_few_requests_or_no_difference_waits_and_one_above_its_forecast_rolls_back() {
        let mut random = Random(8);
        let forecasts = forecasts_of(Traffic::typical(), &mut random);
        let draw_group =
            |requests, random: &mut Random| Traffic::typical().draw_group(requests, random);
        let few_requests =
            measurements_of(draw_group(500, &mut random), draw_group(4500, &mut random));
        assert_eq!(recommend(&forecasts, &few_requests).action, Action::Wait);
        let equal_groups =
            measurements_of(draw_group(5000, &mut random), draw_group(5000, &mut random));
        assert_eq!(recommend(&forecasts, &equal_groups).action, Action::Wait);
        let more_calls = Traffic::typical().with_calls(1.5).draw_group(3000, &mut random);
        let measurements = measurements_of(more_calls, draw_group(3000, &mut random));
        assert_eq!(recommend(&forecasts, &measurements).action, Action::RollBack);
    }
}
