//! The roll-out in one process: requests get their group, are counted, and decide whether the strategy stays enabled.
//!
//! A process that starts is not representative: its near cache fills first, and its fixed set is loaded. These
//! requests are not counted, but at most the first half of the 2,000 within which a bad strategy is disabled. Later
//! windows of 2,000 requests are evaluated as well. One of some hundred windows is worse than its control group by
//! chance, and a process has thousands a day, so after the first window it takes several in succession.

use super::counts::{GroupCounts, RequestCost};
use super::decision::{GROUP_REQUESTS_MIN, PROCESS_TOLERANCE, Regression, find_regression};
use super::rollout_share::{Group, RolloutShare};
use super::routes::Routes;
use super::value_checks::ValueChecks;
use super::warm_up::{NearContent, WarmUp};
use crate::file::Forecast;

/// Requests of one process after which it has decided.
const REQUESTS_COMPARED: u64 = 2000;

/// The first window is evaluated each time this many requests have ended.
const REQUESTS_PER_CHECK: u64 = 500;

/// After this many requests a window counts all others, whether the process is warm or not.
const WARM_UP_REQUESTS_MAX: u64 = REQUESTS_COMPARED / 2;

/// Windows in succession that must be worse than the control group, after the first one.
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
    routes: Routes,
    value_checks: ValueChecks,
    warm_up: WarmUp,
    warm_up_requests: u64,
    window: Window,
    /// Why the strategy has disabled itself.
    disable_reason: Option<Regression>,
}

/// Requests that are compared with those of the control group together.
#[derive(Debug, Clone, Default)]
struct Window {
    is_after_first: bool,
    /// Requests that have ended in it, warm or not.
    requests: u64,
    groups: Groups,
    /// Windows before it in succession that were worse than the control group.
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
            routes: Routes::default(),
            value_checks: ValueChecks::default(),
            warm_up: WarmUp::default(),
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

    /// Counts a request that has ended, of a route if it is known. Returns why the strategy is disabled, if this request
    /// has decided that.
    pub fn end_request(
        &mut self,
        group: Group,
        route: Option<&str>,
        cost: &RequestCost,
        near_content: NearContent,
    ) -> Option<&Regression> {
        self.window.requests += 1;
        // A process of the control group keeps nothing, so nothing of it has to grow.
        let is_warm = self.warm_up.note_request(near_content) || self.is_control_process();
        if is_warm || self.window.requests > WARM_UP_REQUESTS_MAX {
            self.groups.add(group, cost);
            self.window.groups.add(group, cost);
            if let Some(route) = route.filter(|_| !cost.has_failed) {
                self.routes.add(group, route, cost.added_ns);
            }
        } else {
            self.warm_up_requests += 1;
        }
        if !self.may_disable_itself || self.disable_reason.is_some() {
            return None;
        }
        self.disable_reason = if self.value_checks.wrong > 0 {
            Some(Regression::WrongValues(self.value_checks))
        } else if self.window.requests.is_multiple_of(REQUESTS_PER_CHECK) {
            self.evaluate_window()
        } else {
            None
        };
        self.disable_reason.as_ref()
    }

    /// Adds comparisons of what the process kept with what servers have.
    pub fn count_value_checks(&mut self, checks: &ValueChecks) {
        self.value_checks.add(checks);
    }

    /// Evaluates the window; begins a new one if this one is complete.
    fn evaluate_window(&mut self) -> Option<Regression> {
        let is_complete = self.window.requests >= REQUESTS_COMPARED
            && self.window.groups.strategy.sum.requests >= GROUP_REQUESTS_MIN;
        if self.window.is_after_first && !is_complete {
            return None;
        }
        let groups = &self.window.groups;
        let regression = find_regression(&groups.strategy, &groups.control, PROCESS_TOLERANCE);
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
        self.warm_up = WarmUp::default();
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

    /// These requests by route.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Values that were compared with those of the servers.
    pub fn value_checks(&self) -> ValueChecks {
        self.value_checks
    }

    /// Whether the strategy may disable itself, for which values are compared with the servers'.
    pub fn may_disable_itself(&self) -> bool {
        self.may_disable_itself && self.disable_reason.is_none()
    }

    /// Whether what the process keeps has stopped growing.
    pub fn is_warm(&self) -> bool {
        self.warm_up.is_warm()
    }

    /// The requests before, which are left out.
    pub fn warm_up_requests(&self) -> u64 {
        self.warm_up_requests
    }
}

#[cfg(test)]
#[path = "process_rollout_tests.rs"]
mod tests;
