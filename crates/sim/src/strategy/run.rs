//! Replays one strategy over a prepared log: the loop whose speed bounds every search.

use std::ops::{ControlFlow, Range};

use glasscache_strategy::file::{LocalRule, Strategy};
use glasscache_strategy::policy::{AnyPolicy, Lru, LruBytes, Policy, S3Fifo};
use glasscache_strategy::rules::{PrefetchRules, RequestContext, store_fetched};

use super::cost::{CostModel, round_half_up};
use super::fixed::FixedSet;
use super::item_lifetimes::Keeping;
use super::latency_sample::{Dependence, draw_uniform};
use super::learn::LearnedItems;
use super::prepare::PreparedLog;
use super::simulated_policy::SimulatedPolicy;
use crate::policy::{Goal, S4Fifo, Tuned, TunedOptions, UnitWeights};
use crate::trace::log::NONE;

/// The counts and the waiting time of one request under a strategy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestStats {
    /// Time spent waiting for calls, in nanoseconds.
    pub added_ns: u64,
    /// Bytes fetched.
    pub bytes: u64,
    /// Calls made.
    pub calls: u32,
    /// Keys fetched.
    pub keys: u32,
    /// Fetched keys that were used.
    pub used_keys: u32,
}

/// How the cost of a call is determined.
#[derive(Debug, Clone, Copy)]
pub enum CostMode {
    /// Each call costs the median.
    Median,
    /// Each call draws from the measured distribution, where there is one.
    Drawn {
        /// Seed of the draws.
        seed: u64,
        /// How the draws of a request's calls depend on each other.
        dependence: Dependence,
    },
}

/// What a strategy keeps and fetches together, as chosen on the past.
#[derive(Debug, Clone, Copy)]
pub struct Choices<'a> {
    /// The fixed set.
    pub fixed: &'a FixedSet,
    /// What learned rules fetch, for strategies with `together`.
    pub learned: &'a LearnedItems,
}

/// Replays the requests before `request_end` (file order) and returns the stats of each.
pub fn run(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    strategy: &Strategy,
    choices: Choices<'_>,
    cost_mode: CostMode,
    request_end: usize,
) -> Vec<RequestStats> {
    let mut request_stats = vec![RequestStats::default(); request_end];
    run_each(prepared, cost, strategy, choices, cost_mode, 0..request_end, |request, stats| {
        request_stats[request] = stats;
        ControlFlow::Continue(())
    });
    request_stats
}

/// The same without storing them: calls `visit` with each request of `measured_requests` and its stats, process by process,
/// until `visit` returns `Break`.
///
/// Requests before `measured_requests` are replayed only to fill the local cache, if there is one.
pub fn run_each(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    strategy: &Strategy,
    choices: Choices<'_>,
    cost_mode: CostMode,
    measured_requests: Range<usize>,
    visit: impl FnMut(usize, RequestStats) -> ControlFlow<()>,
) {
    let call_costs = CallCosts::new(prepared, cost, cost_mode);
    let replay = Replay {
        prepared,
        call_costs: &call_costs,
        rules: strategy.prefetch_rules(),
        choices,
        measured_requests,
    };
    let item_count = prepared.items.len();
    // Ends early only if `visit` returned `Break`.
    let _ = match strategy.local {
        LocalRule::Nothing => replay.run_all(&mut AnyPolicy::Nothing, false, visit),
        LocalRule::Lru(items_max) => replay.run_all(&mut Lru::new(items_max), true, visit),
        LocalRule::LruBytes(bytes_max) => {
            replay.run_all(&mut LruBytes::new(bytes_max), true, visit)
        }
        LocalRule::S3Fifo(items_max) => replay.run_all(&mut S3Fifo::new(items_max), true, visit),
        LocalRule::S4Fifo(items_max, settings) => {
            let new_policy = || S4Fifo::new(item_count, UnitWeights, items_max as u64, settings);
            replay.run_all(&mut SimulatedPolicy::new(items_max, new_policy), true, visit)
        }
        LocalRule::Tuned(items_max) => {
            let options = TunedOptions { goal: Goal::Objects, seed: 1 };
            let new_policy = || Tuned::new(item_count, UnitWeights, items_max as u64, options, &[]);
            replay.run_all(&mut SimulatedPolicy::new(items_max, new_policy), true, visit)
        }
    };
}

struct Replay<'a> {
    prepared: &'a PreparedLog<'a>,
    call_costs: &'a CallCosts<'a>,
    rules: PrefetchRules,
    choices: Choices<'a>,
    measured_requests: Range<usize>,
}

impl Replay<'_> {
    fn run_all<P: Policy>(
        &self,
        local_policy: &mut P,
        fills_local_cache: bool,
        mut visit: impl FnMut(usize, RequestStats) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut process = SimulatedProcess {
            choices: self.choices,
            local_policy,
            prepared: self.prepared,
            sizes: &self.prepared.items.sizes,
            held_in_request: vec![
                NONE;
                self.prepared.items.len() + self.choices.learned.absent_keys()
            ],
            current_request: 0,
            kept_until_us: if self.prepared.near_ttl_us.is_some()
                || !self.prepared.lifetimes.are_unbounded()
            {
                vec![0; self.prepared.items.len()]
            } else {
                Vec::new()
            },
        };
        let mut fetch_list = Vec::new();
        let is_before = |end: usize| move |&request: &u32| (request as usize) < end;
        for requests in &self.prepared.requests_by_instance {
            process.local_policy.clear();
            process.kept_until_us.fill(0);
            let (start, end) = (
                requests.partition_point(is_before(self.measured_requests.start)),
                requests.partition_point(is_before(self.measured_requests.end)),
            );
            if fills_local_cache {
                for &request in &requests[..start] {
                    self.run_request(request, &mut process, &mut fetch_list);
                }
            }
            for &request in &requests[start..end] {
                visit(request as usize, self.run_request(request, &mut process, &mut fetch_list))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn run_request<P: Policy>(
        &self,
        request: u32,
        process: &mut SimulatedProcess<'_, P>,
        fetch_list: &mut Vec<u32>,
    ) -> RequestStats {
        process.current_request = request;
        let mut stats = RequestStats::default();
        let page = self.prepared.pages[request as usize];
        if page != NONE {
            self.rules.begin_request(process, &page, fetch_list);
            self.fetch(page, process, fetch_list, &mut stats);
        }
        let Some(calls) = self.prepared.calls_of(request as usize) else {
            for &item in self.prepared.items_of(request as usize) {
                self.read(item, process, fetch_list, &mut stats);
                self.fetch(item, process, fetch_list, &mut stats);
            }
            return stats;
        };
        let mut keys_of_call = Vec::new();
        for items in calls {
            keys_of_call.clear();
            for &item in items {
                self.read(item, process, fetch_list, &mut stats);
                let is_new = |key: &u32| !keys_of_call.contains(key);
                let new_keys: Vec<u32> = fetch_list.iter().copied().filter(is_new).collect();
                keys_of_call.extend(new_keys);
            }
            self.fetch(items[0], process, &keys_of_call, &mut stats);
        }
        stats
    }

    fn read<P: Policy>(
        &self,
        item: u32,
        process: &mut SimulatedProcess<'_, P>,
        fetch_list: &mut Vec<u32>,
        stats: &mut RequestStats,
    ) {
        let location = self.rules.look_up(process, &item, fetch_list);
        stats.used_keys += u32::from(location.uses_fetched_key());
    }

    fn fetch<P: Policy>(
        &self,
        cause: u32,
        process: &mut SimulatedProcess<'_, P>,
        fetch_list: &[u32],
        stats: &mut RequestStats,
    ) {
        if fetch_list.is_empty() {
            return;
        }
        let bytes = fetch_list.iter().map(|&item| u64::from(process.size(item))).sum();
        let is_first = stats.calls == 0;
        stats.calls += 1;
        stats.keys += fetch_list.len() as u32;
        stats.bytes += bytes;
        stats.added_ns +=
            self.call_costs.call_ns((process.current_request, is_first), cause, fetch_list, bytes);
        store_fetched(process, fetch_list);
    }
}

/// The replayed process: arrays by item number where a client has maps by key.
struct SimulatedProcess<'a, P> {
    choices: Choices<'a>,
    local_policy: &'a mut P,
    prepared: &'a PreparedLog<'a>,
    sizes: &'a [u32],
    /// The last request whose scope held each item.
    held_in_request: Vec<u32>,
    current_request: u32,
    /// Until when the process serves each item that it keeps; empty if it serves all for ever.
    kept_until_us: Vec<u64>,
}

impl<P> SimulatedProcess<'_, P> {
    /// The bytes of an item; 0 of one that a rule names and the log does not have.
    fn size(&self, item: u32) -> u32 {
        self.sizes.get(item as usize).copied().unwrap_or(0)
    }

    fn now_us(&self) -> u64 {
        self.prepared.times_us[self.current_request as usize]
    }

    /// Whether a kept item may not be served any more.
    fn is_too_old(&self, item: u32) -> bool {
        let kept_until_us = self.kept_until_us.get(item as usize);
        kept_until_us.is_some_and(|&kept_until_us| self.now_us() >= kept_until_us)
    }

    /// Until when the process serves an item that it fetches now; `None` if it does not keep it.
    fn expiry_us(&self, item: u32) -> Option<u64> {
        let now_us = self.now_us();
        let by_age =
            self.prepared.near_ttl_us.map_or(u64::MAX, |ttl_us| now_us.saturating_add(ttl_us));
        match self.prepared.lifetimes.keeping(item, now_us) {
            Keeping::Unbounded => Some(by_age),
            Keeping::Before(end_us) => Some(by_age.min(end_us)),
            Keeping::Not => None,
        }
    }

    fn is_absent(&self, item: u32) -> bool {
        item as usize >= self.sizes.len()
    }
}

impl<P: Policy> RequestContext for SimulatedProcess<'_, P> {
    type Key = u32;

    fn may_keep(&self, item: &u32) -> bool {
        self.prepared.may_keep(*item)
    }

    /// Repeats were dropped when the log was prepared, but for those of what may not be kept.
    fn mark_requested(&mut self, _item: &u32) -> bool {
        true
    }

    fn has_fixed_value(&self, item: &u32) -> bool {
        let lifetimes = &self.prepared.lifetimes;
        self.choices.fixed.contains(*item)
            && (lifetimes.are_unbounded()
                || !self.is_too_old(*item)
                || lifetimes.was_refreshed(*item, self.now_us(), self.prepared.near_ttl_us))
    }

    fn scope_contains(&self, item: &u32) -> bool {
        self.held_in_request[*item as usize] == self.current_request
    }

    fn scope_insert(&mut self, item: &u32) {
        self.held_in_request[*item as usize] = self.current_request;
    }

    fn use_local_value(&mut self, item: &u32) -> bool {
        if self.is_too_old(*item) {
            self.local_policy.remove_stale(*item);
        }
        self.local_policy.get(*item)
    }

    fn local_contains(&self, item: &u32) -> bool {
        !self.is_absent(*item) && self.local_policy.contains(*item) && !self.is_too_old(*item)
    }

    /// The remote cache has no value for an absent item, so there is nothing to keep.
    fn near_insert(&mut self, item: &u32) {
        if self.is_absent(*item) {
            return;
        }
        if !self.kept_until_us.is_empty() {
            let Some(expiry_us) = self.expiry_us(*item) else { return };
            self.kept_until_us[*item as usize] = expiry_us;
        }
        if self.choices.fixed.contains(*item) {
            return;
        }
        // Nobody has looked up a companion or a child that is too old.
        if self.local_policy.contains(*item) {
            self.local_policy.remove_stale(*item);
        }
        let memory_bytes = self.prepared.items.near_bytes(*item);
        self.local_policy.insert(*item, memory_bytes, &mut |_, _| {});
    }

    fn children(&self, item: &u32, fetch_list: &mut Vec<u32>) {
        fetch_list.extend_from_slice(self.prepared.tree.children(*item));
    }

    fn sort_level(&self, level: &mut [u32]) {
        level.sort_unstable();
    }

    fn companions(&self, item: &u32, fetch_list: &mut Vec<u32>) {
        fetch_list.extend_from_slice(self.choices.learned.fetched_with_item(*item));
    }

    fn page_companions(&self, page: &u32, fetch_list: &mut Vec<u32>) {
        fetch_list.extend_from_slice(self.choices.learned.fetched_with_page(*page));
    }
}

/// The costs of calls; median single gets are precomputed because they are most of the calls.
struct CallCosts<'a> {
    cost: &'a CostModel,
    single_ns: Vec<u64>,
    /// Seed of the draws, and how they depend on each other; `None`: there are none.
    drawn: Option<(u64, Dependence)>,
    log_indexes: &'a [u32],
}

impl<'a> CallCosts<'a> {
    fn new(prepared: &'a PreparedLog<'_>, cost: &'a CostModel, cost_mode: CostMode) -> Self {
        let sizes = &prepared.items.sizes;
        let drawn = match cost_mode {
            CostMode::Median => None,
            CostMode::Drawn { seed, dependence } => {
                cost.dependence_of_draws().map(|_| (seed, dependence))
            }
        };
        let single_ns = sizes.iter().map(|&size| cost.call_ns(1, u64::from(size))).collect();
        Self { cost, single_ns, drawn, log_indexes: &prepared.log_indexes }
    }

    fn call_ns(
        &self,
        (request, is_first): (u32, bool),
        cause: u32,
        fetch_list: &[u32],
        bytes: u64,
    ) -> u64 {
        let keys = fetch_list.len() as u64;
        let drawn_ns = self.drawn.and_then(|(seed, dependence)| {
            let log_index = u64::from(self.log_indexes[request as usize]);
            let quantile = draw_uniform(seed, log_index, cause, dependence);
            self.cost.drawn_call_ns((keys, bytes), is_first, quantile)
        });
        let first_call_ns = if is_first { self.cost.first_call_ns() } else { 0 };
        match (drawn_ns, fetch_list) {
            (Some(drawn_ns), _) => round_half_up(drawn_ns),
            (None, [item]) if (*item as usize) < self.single_ns.len() => {
                self.single_ns[*item as usize] + first_call_ns
            }
            (None, _) => self.cost.call_ns(keys, bytes) + first_call_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Report, ReportOptions, report, report_as_recorded};
    use super::*;
    use crate::trace::log::{CallTimes, Items, RequestLog, Requests};

    /// Two requests that each read items 0 to 2 by one call, item 3 alone, and item 0 again.
    fn log_with_calls(keys_of_calls: Option<&[u32]>) -> RequestLog {
        let mut requests = Requests {
            numbers: vec![0, 1],
            times_us: vec![1, 2],
            instances: vec![0, 0],
            base_times_us: vec![1000, 1000],
            pages: vec![NONE; 2],
            routes: vec![NONE; 2],
            starts: vec![0, 5, 10],
            items: vec![0, 1, 2, 3, 0, 0, 1, 2, 3, 0],
            ..Requests::default()
        };
        let times = CallTimes { wait_us: 300, decode_us: 100, writes: 1 };
        for request in 0..2 {
            requests.calls.push(request, keys_of_calls.map(|keys| (keys, times)));
        }
        let keys = (0..4).map(|item| item.to_string()).collect();
        let items = Items { keys, parents: vec![NONE; 4], sizes: vec![100; 4], ..Items::default() };
        RequestLog { items, requests, truncated_after: None }
    }

    const OPTIONS: ReportOptions<'_> =
        ReportOptions { draw_seed: None, route_of: &[], route_count: 0 };

    fn calls_and_keys(log: &RequestLog, notation: &str) -> (u64, u64) {
        let cost = CostModel::new(&[(1.0, 100.0)], &[(1.0, 100.0), (10.0, 190.0)]).unwrap();
        let prepared = PreparedLog::new(log, |_| true);
        let all = report(&prepared, &cost, &notation.parse().unwrap(), OPTIONS).all;
        (all.calls, all.keys)
    }

    #[test]
    fn the_keys_of_a_recorded_call_stay_one_call_under_every_strategy() {
        let with_calls = log_with_calls(Some(&[3, 1, 1]));
        assert_eq!(calls_and_keys(&with_calls, "remote"), (4, 8));
        // The last of the three is still kept when they are read again, and their call fetches the others.
        assert_eq!(calls_and_keys(&with_calls, "lru:2"), (4, 7));
        assert_eq!(calls_and_keys(&with_calls, "lru:4"), (2, 4));
        let without = log_with_calls(None);
        assert_eq!(calls_and_keys(&without, "remote"), (8, 8));
        assert_eq!(calls_and_keys(&without, "lru:4"), (4, 4));
    }

    #[test]
    fn what_is_never_kept_is_fetched_by_each_call_that_reads_it() {
        let log_of = |keys_of_calls| {
            let mut log = log_with_calls(keys_of_calls);
            log.items.keys[0] = ":1:django.contrib.sessions.cache1".to_owned();
            log
        };
        // The first and the last of the five reads of each request.
        let log = log_of(None);
        assert_eq!(
            (calls_and_keys(&log, "remote"), calls_and_keys(&log, "lru:4")),
            ((10, 10), (7, 7))
        );
        let log = log_of(Some(&[3, 1, 1]));
        assert_eq!(
            (calls_and_keys(&log, "remote"), calls_and_keys(&log, "lru:4")),
            ((6, 10), (5, 7))
        );
        // One call reads it twice.
        let log = log_of(Some(&[5]));
        assert_eq!(
            (calls_and_keys(&log, "remote"), calls_and_keys(&log, "lru:4")),
            ((2, 8), (2, 5))
        );
        let prepared = PreparedLog::new(&log, |_| true);
        assert_eq!(prepared.uses(0..2), [2; 4], "requests that use it");
    }

    #[test]
    fn a_value_is_fetched_again_when_its_near_ttl_is_over() {
        let log = log_with_calls(None);
        let cost = CostModel::new(&[(1.0, 100.0)], &[(1.0, 100.0)]).unwrap();
        let calls = |near_ttl_us| {
            let near_ttl = Some(std::time::Duration::from_micros(near_ttl_us));
            let prepared = PreparedLog::new(&log, |_| true).with_near_ttl(near_ttl);
            report(&prepared, &cost, &"lru:4".parse().unwrap(), OPTIONS).all.calls
        };
        // The second request comes a microsecond after the first.
        assert_eq!((calls(2), calls(1)), (4, 8));
    }

    #[test]
    fn a_companion_that_is_too_old_is_replaced() {
        let count = 200;
        let mut log = log_with_calls(None);
        let requests = &mut log.requests;
        requests.numbers = (0..count as u64).collect();
        // Longer than values are kept.
        requests.times_us = (0..count as u64).map(|second| second * 1_000_000).collect();
        requests.instances = vec![0; count];
        requests.base_times_us = vec![1000; count];
        (requests.pages, requests.routes) = (vec![NONE; count], vec![NONE; count]);
        requests.starts = (0..=count).map(|request| 2 * request).collect();
        requests.items = [0, 1, 2, 3].repeat(count / 2);
        let cost = CostModel::new(&[(1.0, 100.0)], &[(1.0, 100.0), (10.0, 190.0)]).unwrap();
        let near_ttl = Some(std::time::Duration::from_millis(10));
        let prepared = PreparedLog::new(&log, |_| true).with_near_ttl(near_ttl);
        for policy in ["s3fifo:2", "s3fifo:3", "s3fifo:9", "lru:3", "lru-bytes:300", "tuned:9"] {
            let notation = format!("{policy}+together:50");
            let second_half =
                report(&prepared, &cost, &notation.parse().unwrap(), OPTIONS).second_half;
            // Each request fetches its two items by one call.
            let expected = (count as u64 / 2, count as u64);
            assert_eq!((second_half.calls, second_half.keys), expected, "{notation}");
        }
    }

    #[test]
    fn the_cost_of_a_call_is_shared_by_its_keys() {
        use super::super::fixed::compute_call_costs;
        let log = log_with_calls(Some(&[3, 1, 1]));
        let prepared = PreparedLog::new(&log, |_| true);
        let cost = CostModel::new(&[(1.0, 100.0), (1e6, 100.0)], &[(1.0, 0.0), (3.0, 50.0)]);
        // 150 us for items 0 to 2, 100 us for item 3; item 0 is read again for nothing.
        let costs_ns = compute_call_costs(&prepared, &cost.unwrap(), 0..1);
        let costs_us: Vec<u64> = costs_ns.iter().map(|ns| round_half_up(ns / 1e3)).collect();
        assert_eq!(costs_us, [50, 50, 50, 100]);
    }

    #[test]
    fn a_kept_value_ends_with_its_item() {
        let mut log = log_with_calls(None);
        // Two requests more, of the same items; item 0 lives for 10 s, and what the first of them stores it does not keep.
        let seconds = [0, 1, 2, 12];
        log.requests.times_us = seconds.map(|second| second * 1_000_000).to_vec();
        log.requests.numbers = vec![0, 1, 2, 3];
        log.requests.instances = vec![0; 4];
        log.requests.base_times_us = vec![1000; 4];
        (log.requests.pages, log.requests.routes) = (vec![NONE; 4], vec![NONE; 4]);
        log.requests.starts = vec![0, 5, 10, 15, 20];
        log.requests.items = log.requests.items.repeat(2);
        let cost = CostModel::new(&[(1.0, 100.0)], &[(1.0, 100.0)]).unwrap();
        let calls = |log: &RequestLog, notation: &str| {
            let prepared = PreparedLog::new(log, |_| true);
            report(&prepared, &cost, &notation.parse().unwrap(), OPTIONS).all.calls
        };
        assert_eq!((calls(&log, "remote"), calls(&log, "lru:4")), (16, 4));
        log.items.set_ttl_s(0, 10);
        assert_eq!((calls(&log, "remote"), calls(&log, "lru:4")), (16, 6));
    }

    #[test]
    fn decoding_takes_as_long_under_every_strategy_and_is_unknown_for_logs_without_it() {
        let figures = |log: &RequestLog, notation: &str| {
            let cost = CostModel::new(&[(1.0, 100.0)], &[(1.0, 100.0)]).unwrap();
            let prepared = PreparedLog::new(log, |_| true);
            report(&prepared, &cost, &notation.parse().unwrap(), OPTIONS)
        };
        let log = log_with_calls(Some(&[3, 1, 1]));
        for notation in ["remote", "lru:4", "fixed:2+together:50"] {
            let Report { all, second_half, .. } = figures(&log, notation);
            assert_eq!((all.decode_ns, second_half.decode_ns), (Some(200_000), Some(100_000)));
            assert_eq!(all.cache_ns, all.added_ns + 200_000, "{notation}");
            assert_eq!(all.decode_ms(), Some(0.1));
        }
        let all = figures(&log_with_calls(None), "lru:4").all;
        assert_eq!((all.decode_ns, all.decode_ms(), all.cache_ns), (None, None, all.added_ns));
    }

    #[test]
    fn as_recorded_has_the_calls_and_the_measured_wait() {
        let log = log_with_calls(Some(&[3, 1, 1]));
        let prepared = PreparedLog::new(&log, |_| true);
        let recorded = report_as_recorded(&prepared, &log.requests, OPTIONS).unwrap().all;
        assert_eq!((recorded.calls, recorded.keys, recorded.bytes), (8, 10, 1000));
        assert_eq!(recorded.added_ns, 600_000, "the whole wait, in which values were decoded");
        assert_eq!((recorded.decode_ns, recorded.cache_ns), (Some(200_000), 600_000));
        assert!((recorded.wait_ms() - 0.2).abs() < 1e-9);
        let without = log_with_calls(None);
        let prepared = PreparedLog::new(&without, |_| true);
        assert!(report_as_recorded(&prepared, &without.requests, OPTIONS).is_none());
    }
}
