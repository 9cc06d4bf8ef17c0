//! Looks for the best combination of fixed set, local cache and prefetch within a memory budget.
//!
//! A search can overfit the past, so the past is split: fixed sets are chosen on its first half,
//! combinations on its second half, and only then the winners, with fixed sets chosen on the whole
//! past, are evaluated on requests that no choice has used. For comparison there is a bound from
//! hindsight: the best combination for the same memory when fixed sets and combinations are chosen on
//! the same requests that evaluate them.
//!
//! The *front* is the candidates that no other one beats with as little memory.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use crate::strategy::cost::CostModel;
use crate::strategy::fixed::choose_fixed_on;
use crate::strategy::forecast::compute_refresh_ns;
use crate::strategy::learn::{LearnedItems, learn};
use crate::strategy::prepare::PreparedLog;
use crate::strategy::run::{Choices, CostMode, run_each};
use crate::strategy::{ChildrenRule, FixedRule, LocalRule, Strategy};

/// The largest budget divided by each of these is tried.
const BUDGET_DIVISORS: [u64; 5] = [16, 8, 4, 2, 1];
/// Shares of learned rules tried, in percent, with each of [`PREFETCHES_WITH_LEARNED`].
const LEARNED_SHARES_PERCENT: [u8; 2] = [60, 80];
/// Rules for children that learned ones are tried with.
const PREFETCHES_WITH_LEARNED: [ChildrenRule; 2] = [ChildrenRule::Never, ChildrenRule::WhenMissing];
/// Rules for children, with the depth of the subtree, that are tried.
const PREFETCHES: [(ChildrenRule, Option<u32>); 7] = [
    (ChildrenRule::Never, None),
    (ChildrenRule::WhenMissing, None),
    (ChildrenRule::Always, None),
    (ChildrenRule::Never, Some(1)),
    (ChildrenRule::Never, Some(2)),
    (ChildrenRule::WhenMissing, Some(1)),
    (ChildrenRule::WhenMissing, Some(2)),
];

/// A combination within a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The combination of fixed set, local cache and prefetch.
    pub strategy: Strategy,
    /// The memory that it was given, in bytes a process.
    pub memory_bytes: u64,
}

/// Which requests a candidate is chosen on, and which evaluate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    /// On the second quarter of the requests, with the fixed set chosen on the first quarter: the data that a choice
    /// may use.
    OutOfSample,
    /// On the second half, with the fixed set chosen on the same half.
    Hindsight,
}

/// The least added time found so far, by memory.
///
/// A candidate whose running sum exceeds the best result with the same or less memory can neither be on the front nor
/// lower the bound, so its replay stops there (branch and bound); the results equal those of a full search. (The sum
/// of a stopped replay is above the limit too, so recording it changes nothing.)
#[derive(Debug, Clone, Default)]
pub struct BestSoFar {
    least_added_ns_by_memory: BTreeMap<u64, u64>,
}

impl BestSoFar {
    /// Records the added time of a candidate with this much memory.
    pub fn record(&mut self, memory_bytes: u64, added_ns: u64) {
        let least_added_ns = self.least_added_ns_by_memory.entry(memory_bytes).or_insert(u64::MAX);
        *least_added_ns = added_ns.min(*least_added_ns);
    }

    /// The least added nanoseconds recorded with at most this much memory.
    pub fn least_added_ns_within(&self, memory_bytes: u64) -> Option<u64> {
        self.least_added_ns_by_memory.range(..=memory_bytes).map(|(_, &ns)| ns).min()
    }
}

/// What was learned for each share that a search tries.
#[derive(Debug, Default)]
pub struct LearnedByShare(Vec<(u8, LearnedItems)>);

impl LearnedByShare {
    /// Learns on the requests that an evaluation may use. Shares that no rule reaches are left out.
    pub fn learn(prepared: &PreparedLog<'_>, evaluation: Evaluation) -> Self {
        let learn_with_share = |percent| {
            let learned_rules =
                learn(Some(percent), prepared, evaluation.choice_requests(prepared));
            let rules = &learned_rules.rules;
            let is_empty = rules.with_items.is_empty() && rules.with_pages.is_empty();
            (!is_empty).then_some((percent, learned_rules.items))
        };
        Self(LEARNED_SHARES_PERCENT.into_iter().filter_map(learn_with_share).collect())
    }

    fn for_share(&self, share_percent: Option<u8>) -> Option<&LearnedItems> {
        let learned = self.0.iter().find(|(percent, _)| Some(*percent) == share_percent);
        learned.map(|(_, items)| items)
    }
}

impl Evaluation {
    /// The requests on which a choice is made.
    fn choice_requests(self, prepared: &PreparedLog<'_>) -> Range<usize> {
        match self {
            Self::OutOfSample => 0..prepared.second_half_start() / 2,
            Self::Hindsight => prepared.second_half_start()..prepared.len(),
        }
    }

    /// The requests on which the choice is evaluated.
    fn evaluation_requests(self, prepared: &PreparedLog<'_>) -> Range<usize> {
        match self {
            Self::OutOfSample => prepared.second_half_start() / 2..prepared.second_half_start(),
            Self::Hindsight => prepared.second_half_start()..prepared.len(),
        }
    }
}

/// All combinations of a search: an empty cache and six ways to divide each budget, each with seven prefetch rules and
/// with those that were learned.
pub fn list_candidates(
    prepared: &PreparedLog<'_>,
    memory_bytes_max: u64,
    learned_by_share: &LearnedByShare,
) -> Vec<Candidate> {
    let all_items_bytes = prepared.items.all_near_bytes();
    // More memory than all items take is never needed.
    let budget_max = memory_bytes_max.min(all_items_bytes);
    let mean_item_bytes = (all_items_bytes / prepared.items.len().max(1) as u64).max(1);
    let mut candidates = Vec::new();
    let tree_prefetches =
        PREFETCHES.map(|(children, subtree_depth)| (children, subtree_depth, None));
    let learned_prefetches = learned_by_share.0.iter().flat_map(|&(percent, _)| {
        PREFETCHES_WITH_LEARNED.map(|children| (children, None, Some(percent)))
    });
    for (children, subtree_depth, companion_share_percent) in
        tree_prefetches.into_iter().chain(learned_prefetches)
    {
        let mut add_candidate = |fixed, local, memory_bytes| {
            let strategy =
                Strategy { fixed, local, children, subtree_depth, companion_share_percent };
            candidates.push(Candidate { strategy, memory_bytes });
        };
        add_candidate(None, LocalRule::Nothing, 0);
        for budget in BUDGET_DIVISORS.map(|divisor| budget_max / divisor) {
            let s3fifo_within = |bytes: u64| LocalRule::S3Fifo((bytes / mean_item_bytes) as usize);
            let fixed_within = |bytes| Some(FixedRule::Bytes(bytes));
            add_candidate(fixed_within(budget), LocalRule::Nothing, budget);
            add_candidate(None, LocalRule::LruBytes(budget), budget);
            add_candidate(None, s3fifo_within(budget), budget);
            add_candidate(fixed_within(budget / 2), LocalRule::LruBytes(budget / 2), budget);
            add_candidate(fixed_within(budget / 2), s3fifo_within(budget / 2), budget);
            add_candidate(fixed_within(budget / 4), s3fifo_within(budget / 4 * 3), budget);
        }
    }
    candidates
}

/// Added nanoseconds of a candidate; the replay stops when the sum exceeds `limit_ns`.
pub fn evaluate(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    candidate: &Candidate,
    evaluation: Evaluation,
    learned_by_share: &LearnedByShare,
    limit_ns: Option<u64>,
) -> u64 {
    let strategy = &candidate.strategy;
    let fixed_set =
        choose_fixed_on(strategy.fixed, prepared, cost, evaluation.choice_requests(prepared));
    let nothing_learned = LearnedItems::default();
    let choices = Choices {
        fixed: &fixed_set,
        learned: learned_by_share
            .for_share(strategy.companion_share_percent)
            .unwrap_or(&nothing_learned),
    };
    let limit_ns = limit_ns.unwrap_or(u64::MAX);
    let evaluation_requests = evaluation.evaluation_requests(prepared);
    // The request that finds a refresh of the fixed set due waits for it.
    let mut added_ns = compute_refresh_ns(prepared, cost, &fixed_set, evaluation_requests.clone());
    if added_ns > limit_ns {
        return added_ns;
    }
    run_each(
        prepared,
        cost,
        strategy,
        choices,
        CostMode::Median,
        evaluation_requests,
        |_, stats| {
            added_ns += stats.added_ns;
            if added_ns > limit_ns { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    added_ns
}

/// The Pareto front, by rising memory: the indexes of the candidates that no other candidate beats on the past with
/// the same or less memory.
///
/// Each candidate comes with the nanoseconds that it added on the past.
pub fn find_pareto_front(tried_candidates: &[(Candidate, u64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tried_candidates.len()).collect();
    order.sort_by_key(|&index| {
        let (candidate, added_ns) = &tried_candidates[index];
        (candidate.memory_bytes, *added_ns)
    });
    let mut least_added_ns = u64::MAX;
    order.retain(|&index| {
        let (_, added_ns) = tried_candidates[index];
        let is_better = added_ns < least_added_ns;
        least_added_ns = least_added_ns.min(added_ns);
        is_better
    });
    order
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::generate::topic_tree::{LATENCY_JSON, TopicTreeConfig, topic_tree};
    use crate::trace::log::RequestLog;

    fn small_log() -> RequestLog {
        topic_tree(&TopicTreeConfig { requests: 2000, items: 600, ..TopicTreeConfig::default() })
    }

    /// Each candidate with its added time, replayed to the end or up to the limit of the earlier ones.
    fn evaluate_candidates(
        log: &RequestLog,
        evaluation: Evaluation,
        stops_early: bool,
    ) -> (Vec<(Candidate, u64)>, BestSoFar) {
        let prepared = PreparedLog::new(log, |_| true);
        let cost = CostModel::parse(LATENCY_JSON).unwrap();
        let learned_by_share = LearnedByShare::learn(&prepared, evaluation);
        let mut best_so_far = BestSoFar::default();
        let mut evaluate_candidate = |candidate: Candidate| {
            let memory_bytes = candidate.memory_bytes;
            let limit_ns = best_so_far.least_added_ns_within(memory_bytes).filter(|_| stops_early);
            let added_ns =
                evaluate(&prepared, &cost, &candidate, evaluation, &learned_by_share, limit_ns);
            best_so_far.record(memory_bytes, added_ns);
            (candidate, added_ns)
        };
        let tried_candidates = list_candidates(&prepared, 500_000, &learned_by_share)
            .into_iter()
            .map(&mut evaluate_candidate)
            .collect();
        (tried_candidates, best_so_far)
    }

    #[test]
    fn the_front_falls_with_memory_and_is_never_beaten() {
        let (tried_candidates, _) =
            evaluate_candidates(&small_log(), Evaluation::OutOfSample, false);
        let points: Vec<_> = find_pareto_front(&tried_candidates)
            .into_iter()
            .map(|index| {
                let (candidate, added_ns) = &tried_candidates[index];
                (candidate.memory_bytes, *added_ns)
            })
            .collect();
        assert!(
            points.is_sorted_by(|(memory_bytes, added_ns), (next_memory_bytes, next_added_ns)| {
                memory_bytes < next_memory_bytes && added_ns > next_added_ns
            }),
            "{points:?}"
        );
        for (candidate, added_ns) in &tried_candidates {
            let affordable_points =
                points.iter().filter(|(memory_bytes, _)| *memory_bytes <= candidate.memory_bytes);
            let least_added_ns = affordable_points.map(|(_, added_ns)| *added_ns).min();
            assert!(least_added_ns.unwrap() <= *added_ns);
        }
    }

    #[test]
    fn stopping_replays_early_changes_no_result() {
        let log = small_log();
        for evaluation in [Evaluation::OutOfSample, Evaluation::Hindsight] {
            let (whole, whole_best) = evaluate_candidates(&log, evaluation, false);
            let (limited, limited_best) = evaluate_candidates(&log, evaluation, true);
            assert!(
                whole
                    .iter()
                    .zip(&limited)
                    .any(|((_, whole_ns), (_, limited_ns))| whole_ns > limited_ns)
            );
            assert_eq!(find_pareto_front(&whole), find_pareto_front(&limited));
            for (candidate, _) in &whole {
                let memory_bytes = candidate.memory_bytes;
                assert_eq!(
                    whole_best.least_added_ns_within(memory_bytes),
                    limited_best.least_added_ns_within(memory_bytes)
                );
            }
        }
    }

    #[test]
    fn hindsight_improves_with_memory() {
        let (_, best_so_far) = evaluate_candidates(&small_log(), Evaluation::Hindsight, false);
        let bounds =
            [0, 100_000, 500_000].map(|bytes| best_so_far.least_added_ns_within(bytes).unwrap());
        assert!(bounds.is_sorted_by(|a, b| a >= b) && bounds[2] < bounds[0]);
    }

    #[test]
    fn a_fixed_set_whose_refreshes_cost_more_than_its_hits_save_is_not_recommended() {
        let mut log = small_log();
        // A request a second.
        log.requests.times_us = (0..log.requests.len() as u64).map(|n| n * 1_000_000).collect();
        let cost = CostModel::parse(LATENCY_JSON).unwrap();
        let added_ns = |near_ttl_s, fixed| {
            let near_ttl = Some(Duration::from_secs(near_ttl_s));
            let prepared = PreparedLog::new(&log, |_| true).with_near_ttl(near_ttl);
            let strategy = Strategy { fixed, ..Strategy::default() };
            let candidate = Candidate { strategy, memory_bytes: 500_000 };
            let nothing_learned = LearnedByShare::default();
            let evaluation = Evaluation::OutOfSample;
            evaluate(&prepared, &cost, &candidate, evaluation, &nothing_learned, None)
        };
        let fixed_set = Some(FixedRule::Bytes(500_000));
        assert!(added_ns(3600, fixed_set) < added_ns(3600, None));
        assert!(added_ns(1, fixed_set) > added_ns(1, None));
        assert_eq!(added_ns(1, None), added_ns(3600, None));
    }

    #[test]
    fn generates_about_200_candidates_within_the_budget() {
        let log = topic_tree(&TopicTreeConfig {
            requests: 100,
            items: 600,
            ..TopicTreeConfig::default()
        });
        let candidates =
            list_candidates(&PreparedLog::new(&log, |_| true), 300_000, &LearnedByShare::default());
        assert_eq!(candidates.len(), 217);
        assert!(candidates.iter().all(|candidate| candidate.memory_bytes <= 300_000));
    }
}
