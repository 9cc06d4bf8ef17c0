//! The roll-out of a strategy in one process: which requests run it, the costs of both groups, and whether the values that
//! the process serves are the servers'.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use glasscache_strategy::rollout::counts::RequestCost;
use glasscache_strategy::rollout::process_rollout::ProcessRollout;
use glasscache_strategy::rollout::rollout_share::Group;
use glasscache_strategy::rollout::warm_up::NearContent;

use super::entry::{NearKey, NearValue};
use super::freshness::Freshness;
use super::options::StrategyOptions;
use super::value_comparison::ValueComparison;

/// The groups of requests, their figures and the comparisons of values.
#[derive(Debug)]
pub(super) struct RolloutState {
    process_rollout: ProcessRollout,
    value_comparison: ValueComparison,
}

/// How a read is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadMode {
    /// By the strategy.
    Strategy,
    /// By the servers, as in a process without a strategy; the near cache takes note of it for other requests.
    Control,
    /// By the servers, without strategy and near cache.
    Bypass,
}

impl RolloutState {
    /// The roll-out of a strategy as these options have it, which began just now.
    pub(super) fn new(options: &StrategyOptions) -> Self {
        Self {
            value_comparison: ValueComparison::new(options.near_check),
            process_rollout: ProcessRollout::new(
                options.file.forecast.clone(),
                options.share,
                RandomState::new().hash_one(std::process::id()),
            ),
        }
    }

    /// The figures.
    pub(super) fn process_rollout(&self) -> &ProcessRollout {
        &self.process_rollout
    }

    /// The group of a request that begins.
    pub(super) fn assign_request_group(&mut self) -> Group {
        self.process_rollout.begin_request()
    }

    /// How a read is served, by the group of its request.
    pub(super) fn read_mode(&self, group: Option<Group>) -> ReadMode {
        let is_control_process = self.process_rollout.is_control_process();
        match group.or_else(|| self.process_rollout.group_outside_requests()) {
            _ if is_control_process => ReadMode::Bypass,
            Some(Group::Strategy) => ReadMode::Strategy,
            Some(Group::Control) => ReadMode::Control,
            None => ReadMode::Bypass,
        }
    }

    /// Counts a request that has ended; returns the reason if that disables the strategy.
    pub(super) fn end_request(
        &mut self,
        (group, route): (Group, Option<&str>),
        cost: &RequestCost,
        near_content: NearContent,
    ) -> Option<String> {
        self.process_rollout.count_value_checks(&self.value_comparison.take_checks());
        let regression = self.process_rollout.end_request(group, route, cost, near_content);
        regression.map(ToString::to_string)
    }

    /// Leaves out the requests of the current window, which the forecast does not describe.
    pub(super) fn reset_window(&mut self) {
        self.process_rollout.reset_window();
    }

    /// Notes that the process served a read itself.
    pub(super) fn note_hit(
        &mut self,
        key: impl Fn() -> NearKey,
        value: &NearValue,
        freshness: &Freshness,
        now: Instant,
    ) {
        if self.process_rollout.may_disable_itself()
            && let Some(age_bound) = freshness.age_bound()
        {
            self.value_comparison.note_hit(key, value, age_bound, now);
        }
    }

    /// Whether enough values are waiting for comparison with the servers' to make a call for them.
    pub(super) fn is_comparison_due(&self) -> bool {
        self.value_comparison.is_due()
    }

    /// The keys whose values are to be compared, each once.
    pub(super) fn take_keys_to_compare(&mut self) -> Vec<NearKey> {
        self.value_comparison.take_keys()
    }

    /// Compares what the process kept of a key when a fetch began with what the fetch brought.
    pub(super) fn compare_value(
        &mut self,
        key: &NearKey,
        kept_value: &NearValue,
        server_value: &NearValue,
        now: Instant,
    ) {
        if self.process_rollout.may_disable_itself() {
            self.value_comparison.compare(key, kept_value, server_value, now);
        }
    }
}
