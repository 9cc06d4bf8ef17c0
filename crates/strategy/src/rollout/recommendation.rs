//! Recommends what to do with a roll-out, by what all processes of an application have measured.
//!
//! The control group decides. The forecast is a second sentence, by which nothing is decided.

use super::counts::GroupCounts;
use super::decision::{
    GROUP_REQUESTS_MIN, OVERALL_TOLERANCE, Regression, can_compare, find_regression,
    find_slow_routes,
};
use super::forecast_check::{ForecastCheck, NearFill, check_forecast};
use super::metrics::Metric;
use super::numbers::short;
use super::routes::Routes;
use super::value_checks::ValueChecks;
use crate::file::Forecast;
use crate::fixed_set::FixedSetLoads;

/// If the strategy disabled itself in more than this fraction of the processes, and in several, it is not chance.
const DISABLED_FRACTION_MAX: f64 = 0.05;
/// Fewer disabled processes are chance, unless they are more than this fraction of a few processes.
const DISABLED_PROCESSES_MIN: usize = 3;
const DISABLED_FRACTION_OF_FEW_MAX: f64 = 0.25;

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
    /// Both by route.
    pub routes: Routes,
    /// Values of the near caches that were compared with the servers'.
    pub value_checks: ValueChecks,
    /// How full the near caches are.
    pub near_fill: NearFill,
    /// What their fixed sets cost.
    pub fixed_set_loads: FixedSetLoads,
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

/// What to do, why, and what became of the forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// What to do.
    pub action: Action,
    /// Why, in a sentence.
    pub reason: String,
    /// Whether the forecast came true, by which nothing is decided.
    pub forecast_check: ForecastCheck,
}

/// Recommends what to do with a roll-out.
pub fn recommend(forecasts: &[Forecast], measurements: &RolloutMeasurements) -> Recommendation {
    let RolloutMeasurements { strategy, near_fill, .. } = measurements;
    let (action, reason) = choose_action(measurements);
    let forecast_check = check_forecast(forecasts, strategy, *near_fill);
    Recommendation { action, reason, forecast_check }
}

fn choose_action(measurements: &RolloutMeasurements) -> (Action, String) {
    let RolloutMeasurements { strategy, control, .. } = measurements;
    if let Some(regression) = find_any_regression(measurements) {
        return (Action::RollBack, regression.to_string());
    }
    let RolloutMeasurements { processes, disabled_processes, .. } = *measurements;
    let fraction_max = if disabled_processes < DISABLED_PROCESSES_MIN {
        DISABLED_FRACTION_OF_FEW_MAX
    } else {
        DISABLED_FRACTION_MAX
    };
    if disabled_processes as f64 > processes as f64 * fraction_max {
        let reason = format!(
            "the strategy disabled itself in {disabled_processes} of {processes} processes"
        );
        return (Action::RollBack, reason);
    }
    if !can_compare(strategy, control) {
        return (Action::Wait, describe_too_few(strategy, control));
    }
    compare(strategy, control)
}

fn find_any_regression(measurements: &RolloutMeasurements) -> Option<Regression> {
    let RolloutMeasurements { strategy, control, routes, value_checks, .. } = measurements;
    if value_checks.wrong > 0 {
        return Some(Regression::WrongValues(*value_checks));
    }
    let regression = find_regression(strategy, control, OVERALL_TOLERANCE);
    regression.or_else(|| find_slow_routes(routes, strategy, control))
}

fn describe_too_few(strategy: &GroupCounts, control: &GroupCounts) -> String {
    let [of_strategy, of_control] = [strategy, control].map(|group| group.sum.requests);
    if of_control == 0 && of_strategy >= GROUP_REQUESTS_MIN {
        return "there is no control group to compare with: give the clients a share below 1"
            .to_owned();
    }
    format!(
        "too few requests to compare: {of_strategy} ran the strategy and {of_control} did not, and each group needs \
         {GROUP_REQUESTS_MIN}"
    )
}

/// Whether requests of the strategy need fewer calls or wait less, where they are known not to be worse.
fn compare(strategy: &GroupCounts, control: &GroupCounts) -> (Action, String) {
    let is_less = |metric: &Metric| {
        let difference = metric.difference(strategy, control);
        difference.is_some_and(|difference| difference.high < 0.0)
    };
    let figures = describe_change(strategy, control);
    let metrics = [Metric::Calls, Metric::AddedMean, Metric::AddedP50, Metric::AddedP95];
    let has_improved = metrics.iter().any(is_less);
    let is_longer = |metric: &&Metric| {
        let difference = metric.difference(strategy, control);
        metric.is_time() && difference.is_some_and(|difference| difference.low > 0.0)
    };
    match metrics.iter().find(is_longer) {
        Some(metric) => {
            (Action::Wait, format!("{} is above the control group's. {figures}", metric.name()))
        }
        None if has_improved => (Action::Continue, figures),
        None => (Action::Wait, format!("the groups do not differ by more than chance. {figures}")),
    }
}

fn describe_change(strategy: &GroupCounts, control: &GroupCounts) -> String {
    let change = |metric: Metric| {
        let [before, after] =
            [control, strategy].map(|group| short(metric.value(group).unwrap_or(0.0)));
        format!("{before} -> {after}")
    };
    format!(
        "Calls {}; ms that a request waits {}",
        change(Metric::Calls),
        change(Metric::AddedMean)
    )
}

#[cfg(test)]
#[path = "recommendation_tests.rs"]
mod tests;
