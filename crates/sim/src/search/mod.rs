//! Looks for the best combination of fixed set, local cache and prefetch within a memory budget.
//!
//! The danger of a search is to praise what happened to fit the past. So the past is split: fixed sets
//! are chosen on its first half, combinations on its second half, and only then the winners, with fixed
//! sets chosen on the whole past, are judged on the requests that nobody has looked at. Beside them
//! stands what could be had in hindsight: the best combination for the same memory when fixed sets and
//! combinations are chosen on the very requests that judge them.

use std::ops::Range;

use crate::strategy::cost::CostModel;
use crate::strategy::fixed::choose_on;
use crate::strategy::prepare::Prepared;
use crate::strategy::run::{Pricing, run_each};
use crate::strategy::{FixedRule, LocalRule, Prefetch, Strategy};

/// Budgets tried, as shares of the largest: each doubles the one before.
const SHARES: [u64; 5] = [16, 8, 4, 2, 1];
/// Prefetch rules and depths tried.
const PREFETCHES: [(Prefetch, Option<u32>); 7] = [
    (Prefetch::Nothing, None),
    (Prefetch::Children, None),
    (Prefetch::ChildrenAlways, None),
    (Prefetch::Nothing, Some(1)),
    (Prefetch::Nothing, Some(2)),
    (Prefetch::Children, Some(1)),
    (Prefetch::Children, Some(2)),
];

/// A combination within a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The combination.
    pub strategy: Strategy,
    /// The memory that it was given, in bytes a process.
    pub memory_bytes: u64,
}

/// How a candidate did where it may be looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Added nanoseconds on the second quarter of the requests, fixed set chosen on the first.
    pub past_ns: u64,
    /// Added nanoseconds on the second half, fixed set chosen on that same half.
    pub hindsight_ns: u64,
}

/// All combinations of a search: nothing kept, and six ways to share each budget, with seven rules of prefetch.
pub fn candidates(prepared: &Prepared<'_>, memory_bytes: u64) -> Vec<Candidate> {
    let sizes = &prepared.items.sizes;
    let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
    // More than everything is never needed.
    let memory_bytes = memory_bytes.min(total);
    let item_bytes = (total / sizes.len().max(1) as u64).max(1);
    let mut found = Vec::new();
    for (prefetch, subtree_depth) in PREFETCHES {
        let mut add = |fixed, local, memory_bytes| {
            let strategy = Strategy {
                fixed,
                local,
                prefetch,
                subtree_depth,
            };
            found.push(Candidate {
                strategy,
                memory_bytes,
            });
        };
        add(None, LocalRule::Nothing, 0);
        for budget in SHARES.map(|share| memory_bytes / share) {
            let s3fifo = |bytes: u64| LocalRule::S3Fifo((bytes / item_bytes) as usize);
            let fixed = |bytes| Some(FixedRule::Bytes(bytes));
            add(fixed(budget), LocalRule::Nothing, budget);
            add(None, LocalRule::LruBytes(budget), budget);
            add(None, s3fifo(budget), budget);
            add(fixed(budget / 2), LocalRule::LruBytes(budget / 2), budget);
            add(fixed(budget / 2), s3fifo(budget / 2), budget);
            add(fixed(budget / 4), s3fifo(budget / 4 * 3), budget);
        }
    }
    found
}

/// Tries one candidate on the past, and in hindsight.
pub fn trial(prepared: &Prepared<'_>, cost: &CostModel, candidate: &Candidate) -> Trial {
    let (half, count) = (prepared.half(), prepared.len());
    let added = |chosen_on: Range<usize>, judged_on: Range<usize>| {
        let strategy = &candidate.strategy;
        let fixed = choose_on(strategy.fixed, prepared, cost, chosen_on);
        let mut sum = 0;
        run_each(
            prepared,
            cost,
            strategy,
            &fixed,
            Pricing::Median,
            judged_on.end,
            |request, deed| {
                sum += if request >= judged_on.start {
                    deed.added_ns
                } else {
                    0
                };
            },
        );
        sum
    };
    Trial {
        past_ns: added(0..half / 2, half / 2..half),
        hindsight_ns: added(half..count, half..count),
    }
}

/// The front: candidates that no other one beats on the past with as little memory, by rising memory.
pub fn front(trials: &[(Candidate, Trial)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..trials.len()).collect();
    order.sort_by_key(|&index| (trials[index].0.memory_bytes, trials[index].1.past_ns));
    let mut best = u64::MAX;
    order.retain(|&index| {
        let is_better = trials[index].1.past_ns < best;
        best = best.min(trials[index].1.past_ns);
        is_better
    });
    order
}

/// The least added nanoseconds on the second half that any candidate reaches in hindsight with so much memory.
pub fn hindsight_ns(trials: &[(Candidate, Trial)], memory_bytes: u64) -> Option<u64> {
    let affordable = trials
        .iter()
        .filter(|(candidate, _)| candidate.memory_bytes <= memory_bytes);
    affordable.map(|(_, trial)| trial.hindsight_ns).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::generate::topic_tree::{LATENCY_JSON, TopicTree, topic_tree};

    fn trials_of_a_small_log() -> Vec<(Candidate, Trial)> {
        let log = topic_tree(&TopicTree {
            requests: 2000,
            items: 600,
            ..TopicTree::default()
        });
        let prepared = Prepared::new(&log, |_| true);
        let cost = CostModel::parse(LATENCY_JSON).unwrap();
        let candidates = candidates(&prepared, 500_000);
        candidates
            .into_iter()
            .map(|c| (c, trial(&prepared, &cost, &c)))
            .collect()
    }

    #[test]
    fn front_falls_as_memory_rises_and_nothing_beats_it() {
        let trials = trials_of_a_small_log();
        let front = front(&trials);
        let points: Vec<_> = front
            .iter()
            .map(|&i| (trials[i].0.memory_bytes, trials[i].1.past_ns))
            .collect();
        assert!(
            points.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1),
            "{points:?}"
        );
        for (candidate, trial) in &trials {
            let reached = points
                .iter()
                .filter(|p| p.0 <= candidate.memory_bytes)
                .map(|p| p.1)
                .min();
            assert!(reached.unwrap() <= trial.past_ns);
        }
    }

    #[test]
    fn hindsight_gains_from_memory() {
        let trials = trials_of_a_small_log();
        let bounds: Vec<_> = [0, 100_000, 500_000]
            .map(|bytes| hindsight_ns(&trials, bytes).unwrap())
            .into();
        assert!(bounds.is_sorted_by(|a, b| a >= b) && bounds[2] < bounds[0]);
    }

    #[test]
    fn search_has_about_two_hundred_combinations_within_the_budget() {
        let log = topic_tree(&TopicTree {
            requests: 100,
            items: 600,
            ..TopicTree::default()
        });
        let found = candidates(&Prepared::new(&log, |_| true), 300_000);
        assert_eq!(found.len(), 217);
        assert!(
            found
                .iter()
                .all(|candidate| candidate.memory_bytes <= 300_000)
        );
    }
}
