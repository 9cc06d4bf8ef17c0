//! Decides whether a strategy is worse than its control group.
//!
//! The control group had the same requests, servers and hours, so only it shows what the strategy does. Of five metrics
//! two decide: calls, which are the load of the servers, and the mean wait, which users notice; the 95th percentile and
//! the waits of single routes decide only where they are much worse. Values that are wrong decide whatever they save.

use std::fmt;

use super::counts::GroupCounts;
use super::metrics::{Estimate, Metric};
use super::numbers::short;
use super::routes::{RouteDifference, Routes};
use super::value_checks::ValueChecks;

/// Requests without which two groups are not compared.
pub const GROUP_REQUESTS_MIN: u64 = 128;

/// How much slower the 95th percentile or a route has to be, as a fraction of the control group's, and in milliseconds.
const SLOW_PART_TOLERANCE: (f64, f64) = (0.5, 0.02);

/// A route that is slower matters from this fraction of all requests on.
const ROUTE_SHARE_MIN: f64 = 0.01;

/// How much worse than the control group a strategy may be, by chance or because it does not matter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// As a fraction of the control group's calls or wait.
    pub fraction: f64,
    /// In milliseconds of wait.
    pub wait_ms: f64,
}

/// Of one process, which decides for itself and sees few requests.
pub const PROCESS_TOLERANCE: Tolerance = Tolerance { fraction: 0.2, wait_ms: 0.05 };

/// Of all processes together.
pub const OVERALL_TOLERANCE: Tolerance = Tolerance { fraction: 0.02, wait_ms: 0.0 };

/// Why a strategy should not run.
#[derive(Debug, Clone, PartialEq)]
pub enum Regression {
    /// It served values beyond the bound of their age.
    WrongValues(ValueChecks),
    /// A metric is above that of the control group.
    AboveControl {
        /// The metric.
        metric: Metric,
        /// That of the strategy's requests.
        strategy: f64,
        /// That of the control group's.
        control: f64,
        /// The first less the second.
        difference: Estimate,
    },
    /// Requests of these routes wait much longer than those of the control group.
    SlowRoutes(Vec<RouteDifference>),
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongValues(checks) => checks.fmt(f),
            Self::AboveControl { metric, strategy, control, difference } => write!(
                f,
                "{} {} -> {} from the control group to the strategy (+{} to +{})",
                metric.words(),
                short(*control),
                short(*strategy),
                short(difference.low),
                short(difference.high)
            ),
            Self::SlowRoutes(routes) => {
                let names = routes.iter().map(|route| {
                    let [before, after] =
                        [route.sums.control, route.sums.strategy].map(|sums| sums.mean_ms());
                    format!("{} ({} -> {} ms)", route.name, short(before), short(after))
                });
                let noun = if routes.len() == 1 { "the route" } else { "the routes" };
                let names = names.collect::<Vec<_>>().join(", ");
                write!(f, "requests of {noun} {names} wait much longer")
            }
        }
    }
}

/// Why the strategy should not run, if the two groups show that. Groups that are too small show nothing.
pub fn find_regression(
    strategy: &GroupCounts,
    control: &GroupCounts,
    tolerance: Tolerance,
) -> Option<Regression> {
    if !can_compare(strategy, control) {
        return None;
    }
    let is_worse = |metric: &Metric| {
        let allowed_ms = if metric.is_time() { tolerance.wait_ms } else { 0.0 };
        (*metric, (tolerance.fraction, allowed_ms))
    };
    let mut allowed: Vec<_> = [Metric::Calls, Metric::AddedMean].iter().map(is_worse).collect();
    allowed.push((Metric::AddedP95, SLOW_PART_TOLERANCE));
    allowed.into_iter().find_map(|(metric, (fraction, allowed_min))| {
        let difference = metric.difference(strategy, control)?;
        let (of_strategy, of_control) = (metric.value(strategy)?, metric.value(control)?);
        let allowed = (of_control * fraction).max(allowed_min);
        let is_above = difference.low > 0.0 && difference.value > allowed;
        is_above.then_some(Regression::AboveControl {
            metric,
            strategy: of_strategy,
            control: of_control,
            difference,
        })
    })
}

/// The routes whose requests wait much longer than in the control group, if they are more than a few of all requests.
pub fn find_slow_routes(
    routes: &Routes,
    strategy: &GroupCounts,
    control: &GroupCounts,
) -> Option<Regression> {
    let mut slow_routes = routes.differences(strategy, control);
    slow_routes.retain(is_much_slower);
    let requests = |route: &RouteDifference| {
        let (of_strategy, of_control) = (route.sums.strategy, route.sums.control);
        of_strategy.requests + of_control.requests
    };
    let slow_requests: u64 = slow_routes.iter().map(requests).sum();
    let all_requests = strategy.sum.requests + control.sum.requests;
    let is_much = slow_requests as f64 > all_requests as f64 * ROUTE_SHARE_MIN;
    is_much.then_some(Regression::SlowRoutes(slow_routes))
}

/// Whether requests of a route wait much longer than in the control group, by more than chance.
pub fn is_much_slower(route: &RouteDifference) -> bool {
    let (fraction, tolerance_ms) = SLOW_PART_TOLERANCE;
    let tolerance = (route.sums.control.mean_ms() * fraction).max(tolerance_ms);
    route.difference.low > 0.0 && route.difference.value > tolerance
}

/// Whether both groups have enough requests.
pub fn can_compare(strategy: &GroupCounts, control: &GroupCounts) -> bool {
    strategy.sum.requests.min(control.sum.requests) >= GROUP_REQUESTS_MIN
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{Random, Traffic};
    use super::*;

    #[test]
    fn more_calls_than_the_control_group_are_a_regression_and_fewer_are_not() {
        let mut random = Random(3);
        let control = Traffic::typical().draw_group(1800, &mut random);
        let regression_of =
            |strategy: &GroupCounts| find_regression(strategy, &control, PROCESS_TOLERANCE);
        let more_calls = Traffic::typical().with_calls(2.0).draw_group(200, &mut random);
        let regression = regression_of(&more_calls).unwrap();
        assert!(matches!(regression, Regression::AboveControl { metric: Metric::Calls, .. }));
        assert!(regression.to_string().starts_with("calls "), "{regression}");
        let fewer_calls = Traffic::typical().with_calls(0.3).draw_group(200, &mut random);
        assert_eq!(regression_of(&fewer_calls), None);
        let equal = Traffic::typical().draw_group(200, &mut random);
        assert_eq!(regression_of(&equal), None);
    }

    #[test]
    fn groups_of_few_requests_are_not_compared() {
        let mut random = Random(5);
        let costly = Traffic::typical().with_calls(9.0).draw_group(2000, &mut random);
        for requests in [0, 3, 127] {
            let control = Traffic::typical().draw_group(requests, &mut random);
            assert_eq!(find_regression(&costly, &control, OVERALL_TOLERANCE), None);
            assert_eq!(find_regression(&control, &costly, OVERALL_TOLERANCE), None);
        }
    }

    #[test]
    fn as_many_calls_that_take_longer_are_a_regression() {
        let mut random = Random(6);
        let control = Traffic::typical().draw_group(1000, &mut random);
        let slow = Traffic::typical().with_time(2.0).draw_group(1000, &mut random);
        let regression = find_regression(&slow, &control, PROCESS_TOLERANCE).unwrap();
        assert!(matches!(regression, Regression::AboveControl { metric: Metric::AddedMean, .. }));
        assert!(regression.to_string().starts_with("ms that a request waits "), "{regression}");
    }

    #[test]
    fn one_wait_of_an_hour_decides_nothing() {
        let mut random = Random(6);
        let mut strategy = Traffic::typical().draw_group(1000, &mut random);
        let control = Traffic::typical().draw_group(1000, &mut random);
        let mut hour = Traffic::typical().draw_request(&mut random);
        hour.added_ns = 3_600_000_000_000;
        strategy.add(&hour);
        assert_eq!(find_regression(&strategy, &control, PROCESS_TOLERANCE), None);
        assert_eq!(find_regression(&strategy, &control, OVERALL_TOLERANCE), None);
    }
}
