//! The roll-out in one process: requests get their group, are counted, and decide whether the strategy stays enabled.
//!
//! A process that starts is not what the forecast describes: its near cache fills first, and its fixed set is loaded.
//! These requests are not counted, but at most the first half of the 2,000 within which a bad strategy is disabled.
//! Later windows of 2,000 requests are evaluated as well. One of some hundred windows misses its forecast by chance,
//! and a process has thousands a day, so after the first window it takes several in succession.

use super::counts::{GroupCounts, RequestCost};
use super::decision::{REQUESTS_COMPARED, Regression, find_regression};
use super::rollout_share::{Group, RolloutShare};
use crate::file::Forecast;

/// The first window is evaluated each time this many requests have ended.
const REQUESTS_PER_CHECK: u64 = 500;

/// After this many requests a window counts all others, whether the process is warm or not.
const WARM_UP_REQUESTS_MAX: u64 = REQUESTS_COMPARED / 2;

/// A window ends with this many requests of the strategy at least, if it runs in a small share.
const STRATEGY_REQUESTS_MIN: u64 = 100;

/// Windows in succession that must miss the forecast, after the first one.
const MISSED_WINDOWS_TO_DISABLE: u32 = 3;

/// The requests of both groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Groups {
    /// Those that run the strategy.
    pub strategy: GroupCounts,
    /// Those that do not.
    pub control: GroupCounts,
}

impl Groups {
    fn add(&mut self, group: Group, cost: &RequestCost) {
        match group {
            Group::Strategy => self.strategy.add(cost),
            Group::Control => self.control.add(cost),
        }
    }
}

/// The roll-out of a strategy in one process.
#[derive(Debug, Clone)]
pub struct ProcessRollout {
    forecasts: Vec<Forecast>,
    share: RolloutShare,
    /// Whether the strategy may disable itself.
    may_disable_itself: bool,
    /// A random number of this process.
    process_seed: u64,
    next_request_number: u64,
    groups: Groups,
    warm_up_requests: u64,
    window: Window,
    /// Why the strategy has disabled itself.
    disable_reason: Option<Regression>,
}

/// Requests that are compared with the forecast together.
#[derive(Debug, Clone, Default)]
struct Window {
    is_after_first: bool,
    /// Requests that have ended in it, warm or not.
    requests: u64,
    groups: Groups,
    /// Windows before it in succession that missed the forecast.
    missed_windows: u32,
}

impl ProcessRollout {
    /// The roll-out of a strategy with this forecast; `process_seed` is a random number of this process. Without a
    /// share all requests run the strategy, and it stays enabled whatever they need.
    pub fn new(forecasts: Vec<Forecast>, share: Option<RolloutShare>, process_seed: u64) -> Self {
        Self {
            forecasts,
            share: share.unwrap_or_default(),
            may_disable_itself: share.is_some(),
            process_seed,
            next_request_number: 0,
            groups: Groups::default(),
            warm_up_requests: 0,
            window: Window::default(),
            disable_reason: None,
        }
    }

    /// The group of the next request.
    pub fn begin_request(&mut self) -> Group {
        let number = self.next_request_number;
        self.next_request_number += 1;
        match self.disable_reason {
            Some(_) => Group::Control,
            None => self.share.group_of(number, self.process_seed),
        }
    }

    /// The group of reads outside requests; `None`: they are in no group and do not run the strategy.
    pub fn group_outside_requests(&self) -> Option<Group> {
        match self.disable_reason {
            Some(_) => Some(Group::Control),
            None => self.share.group_outside_requests(self.process_seed),
        }
    }

    /// Whether no request of this process runs the strategy: it was disabled, or the process is one of the control
    /// group.
    pub fn is_control_process(&self) -> bool {
        self.group_outside_requests() == Some(Group::Control)
    }

    /// Counts a request that has ended. `is_warm`: the fixed set is loaded and the near cache full, or known to the
    /// caller to be as it stays. Returns why the strategy is disabled, if this request has decided that.
    pub fn end_request(
        &mut self,
        group: Group,
        cost: &RequestCost,
        is_warm: bool,
    ) -> Option<&Regression> {
        self.window.requests += 1;
        let is_counted = is_warm || self.window.requests > WARM_UP_REQUESTS_MAX;
        if is_counted {
            self.groups.add(group, cost);
            self.window.groups.add(group, cost);
        } else {
            self.warm_up_requests += 1;
        }
        let can_decide = self.may_disable_itself && self.disable_reason.is_none();
        if !can_decide || !self.window.requests.is_multiple_of(REQUESTS_PER_CHECK) {
            return None;
        }
        self.disable_reason = self.evaluate_window();
        self.disable_reason.as_ref()
    }

    /// Evaluates the window; begins a new one if this one is complete.
    fn evaluate_window(&mut self) -> Option<Regression> {
        let is_complete = self.window.requests >= REQUESTS_COMPARED
            && self.window.groups.strategy.sum.requests >= STRATEGY_REQUESTS_MIN;
        if self.window.is_after_first && !is_complete {
            return None;
        }
        let groups = &self.window.groups;
        let regression = find_regression(&self.forecasts, &groups.strategy, &groups.control);
        let missed_windows = self.window.missed_windows + u32::from(regression.is_some());
        if regression.is_some()
            && (!self.window.is_after_first || missed_windows == MISSED_WINDOWS_TO_DISABLE)
        {
            return regression;
        }
        if is_complete {
            self.window = Window {
                is_after_first: true,
                missed_windows: if regression.is_some() { missed_windows } else { 0 },
                ..Window::default()
            };
        }
        None
    }

    /// Discards the costs counted in this window, because the values that the process kept are gone and have to be
    /// fetched again; how many requests have ended in it stays.
    pub fn reset_window(&mut self) {
        self.window.groups = Groups::default();
    }

    /// Why the strategy has disabled itself.
    pub fn disable_reason(&self) -> Option<&Regression> {
        self.disable_reason.as_ref()
    }

    /// How much of the application runs the strategy.
    pub fn share(&self) -> RolloutShare {
        self.share
    }

    /// The random number of this process.
    pub fn process_seed(&self) -> u64 {
        self.process_seed
    }

    /// What the simulator expected.
    pub fn forecasts(&self) -> &[Forecast] {
        &self.forecasts
    }

    /// The requests since the process was warm.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The requests before, which are left out.
    pub fn warm_up_requests(&self) -> u64 {
        self.warm_up_requests
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Metric;
    use super::super::rollout_share::ShareBy;
    use super::super::simulated::{Random, Traffic};
    use super::*;

    /// How often the tests run each case.
    const RUNS: u64 = 100;

    fn forecast_of(figure: &str, value: f64, margin: f64) -> Forecast {
        Forecast { figure: figure.to_owned(), value, low: value - margin, high: value + margin }
    }

    /// A forecast of the usual traffic as the simulator makes it: 3.5 standard deviations of 2,000 requests.
    fn forecasts() -> Vec<Forecast> {
        let mut random = Random(99);
        let group = Traffic::typical().draw_group(200_000, &mut random);
        let samples: Vec<_> =
            (0..200).map(|_| Traffic::typical().draw_group(2000, &mut random)).collect();
        let forecast_of_metric = |metric: Metric| {
            let value = metric.value(&group).unwrap();
            let errors =
                samples.iter().map(|sample| (metric.value(sample).unwrap() - value).powi(2));
            let deviation = (errors.sum::<f64>() / samples.len() as f64).sqrt();
            forecast_of(metric.name(), value, 3.5 * deviation)
        };
        [Metric::Calls, Metric::Keys, Metric::AddedP50, Metric::AddedP95]
            .map(forecast_of_metric)
            .to_vec()
    }

    fn new_process_rollout(fraction: f64) -> ProcessRollout {
        let share = RolloutShare { fraction, by: ShareBy::Request };
        ProcessRollout::new(forecasts(), Some(share), 1)
    }

    /// The number of the request after which the strategy was disabled.
    fn disabled_after(
        process_rollout: &mut ProcessRollout,
        requests_max: u64,
        (mut strategy, mut control): (Traffic, Traffic),
        random: &mut Random,
    ) -> Option<u64> {
        (1..=requests_max).find(|_| {
            let group = process_rollout.begin_request();
            let cost = match group {
                Group::Strategy => strategy.draw_request(random),
                Group::Control => control.draw_request(random),
            };
            process_rollout.end_request(group, &cost, true).is_some()
        })
    }

    fn count_disabled_runs(fraction: f64, strategy: Traffic) -> usize {
        let control = Traffic::typical().with_calls(3.0);
        let initial_rollout = new_process_rollout(fraction);
        let is_disabled = |&seed: &u64| {
            let random = &mut Random(seed * 7919 + 1);
            disabled_after(&mut initial_rollout.clone(), 2000, (strategy, control), random)
                .is_some()
        };
        (0..RUNS).filter(is_disabled).count()
    }

    #[test]
    fn a_bad_strategy_is_disabled_within_2000_requests_in_95_of_100_runs() {
        for fraction in [0.1, 0.5, 1.0] {
            let more_calls = count_disabled_runs(fraction, Traffic::typical().with_calls(1.8));
            assert!(more_calls >= 95, "share {fraction}: {more_calls}");
        }
        let slow_calls = count_disabled_runs(1.0, Traffic::typical().with_time(2.0));
        assert!(slow_calls >= 95, "without a control group: {slow_calls}");
    }

    #[test]
    fn a_good_strategy_is_kept_in_95_of_100_runs() {
        for fraction in [0.1, 0.5, 1.0] {
            let as_forecast = count_disabled_runs(fraction, Traffic::typical());
            assert!(as_forecast <= 5, "share {fraction}: {as_forecast}");
            let fewer_calls = count_disabled_runs(fraction, Traffic::typical().with_calls(0.5));
            assert!(fewer_calls <= 5, "share {fraction}: {fewer_calls}");
        }
    }

    #[test]
    fn a_good_strategy_is_kept_over_a_hundred_windows_and_a_change_is_noticed() {
        let mut process_rollout = new_process_rollout(0.2);
        let (control, random) = (Traffic::typical().with_calls(3.0), &mut Random(21));
        let typical_traffic = (Traffic::typical(), control);
        assert_eq!(disabled_after(&mut process_rollout, 200_000, typical_traffic, random), None);
        let traffic_with_more_calls = (Traffic::typical().with_calls(1.8), control);
        let requests_until_disabled =
            disabled_after(&mut process_rollout, 20_000, traffic_with_more_calls, random).unwrap();
        assert_eq!(requests_until_disabled, 6000, "three windows");
    }

    #[test]
    fn a_disabled_strategy_runs_in_no_request_and_reports_once() {
        let mut process_rollout = new_process_rollout(1.0);
        let costly_traffic = Traffic::typical().with_calls(3.0);
        let random = &mut Random(1);
        assert_eq!(
            disabled_after(&mut process_rollout, 2000, (costly_traffic, costly_traffic), random),
            Some(500)
        );
        assert!(process_rollout.disable_reason().is_some() && process_rollout.is_control_process());
        assert_eq!(
            disabled_after(&mut process_rollout, 5000, (costly_traffic, costly_traffic), random),
            None
        );
        assert_eq!(process_rollout.groups().strategy.sum.requests, 500);
        assert_eq!(process_rollout.groups().control.sum.requests, 5000);
    }

    #[test]
    fn a_strategy_that_is_not_rolled_out_stays_enabled_whatever_its_requests_need() {
        let mut process_rollout = ProcessRollout::new(forecasts(), None, 1);
        let costly_traffic = Traffic::typical().with_calls(3.0);
        let random = &mut Random(1);
        assert_eq!(
            disabled_after(&mut process_rollout, 10_000, (costly_traffic, costly_traffic), random),
            None
        );
        assert_eq!(process_rollout.groups().strategy.sum.requests, 10_000);
    }

    #[test]
    fn requests_of_a_cold_process_are_left_out_up_to_half_a_window() {
        let mut process_rollout = new_process_rollout(1.0);
        let mut costly_traffic = Traffic::typical().with_calls(3.0);
        let mut random = Random(2);
        let requests_until_disabled = (1..=2000).find(|_| {
            let group = process_rollout.begin_request();
            let cost = costly_traffic.draw_request(&mut random);
            process_rollout.end_request(group, &cost, false).is_some()
        });
        assert_eq!(
            (requests_until_disabled, process_rollout.warm_up_requests()),
            (Some(1500), 1000)
        );
        assert_eq!(process_rollout.groups().strategy.sum.requests, 500);
    }

    #[test]
    fn a_window_whose_values_were_cleared_begins_its_counts_anew() {
        let mut process_rollout = new_process_rollout(1.0);
        let costly_traffic = Traffic::typical().with_calls(3.0);
        let mut random = Random(2);
        assert_eq!(
            disabled_after(
                &mut process_rollout,
                499,
                (costly_traffic, costly_traffic),
                &mut random
            ),
            None
        );
        process_rollout.reset_window();
        let typical_traffic = Traffic::typical();
        assert_eq!(
            disabled_after(
                &mut process_rollout,
                1501,
                (typical_traffic, typical_traffic),
                &mut random
            ),
            None
        );
    }

    #[test]
    fn a_small_share_decides_when_it_has_enough_requests() {
        let mut process_rollout = new_process_rollout(0.01);
        let costly_traffic =
            (Traffic::typical().with_calls(3.0), Traffic::typical().with_calls(3.0));
        let requests_until_disabled =
            disabled_after(&mut process_rollout, 20_000, costly_traffic, &mut Random(3)).unwrap();
        assert!(requests_until_disabled <= 5000, "{requests_until_disabled}");
    }
}
