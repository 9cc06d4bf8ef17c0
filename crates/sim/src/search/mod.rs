//! Looks for the best combination of fixed set, local cache and prefetch within a memory budget.
//!
//! The danger of a search is to praise what happened to fit the past. So the past is split: fixed sets
//! are chosen on its first half, combinations on its second half, and only then the winners, with fixed
//! sets chosen on the whole past, are judged on the requests that nobody has looked at. Beside them
//! stands what could be had in hindsight: the best combination for the same memory when fixed sets and
//! combinations are chosen on the very requests that judge them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

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

/// Where a candidate is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// On the second quarter of the requests, its fixed set chosen on the first: what a choice may look at.
    Past,
    /// On the second half, its fixed set chosen on that same half.
    Hindsight,
}

/// The least time that any candidate was found to add, by memory.
///
/// A candidate whose running sum is above what as little memory reached already can neither be on the
/// front nor lower the bound, so its replay may stop there: branch and bound, with the results of a full
/// search. (A sum cut short is above the limit too, so noting it changes nothing.)
#[derive(Debug, Clone, Default)]
pub struct Least {
    found: BTreeMap<u64, u64>,
}

impl Least {
    /// Notes what a candidate of so much memory added.
    pub fn note(&mut self, memory_bytes: u64, added_ns: u64) {
        let least = self.found.entry(memory_bytes).or_insert(u64::MAX);
        *least = added_ns.min(*least);
    }

    /// The least added nanoseconds noted with at most so much memory.
    pub fn within(&self, memory_bytes: u64) -> Option<u64> {
        self.found.range(..=memory_bytes).map(|(_, &ns)| ns).min()
    }
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

/// Added nanoseconds of a candidate in a view; a sum that exceeds `limit_ns` is cut short there.
pub fn added_ns(
    prepared: &Prepared<'_>,
    cost: &CostModel,
    candidate: &Candidate,
    view: View,
    limit_ns: Option<u64>,
) -> u64 {
    let (half, count) = (prepared.half(), prepared.len());
    let (chosen_on, judged) = match view {
        View::Past => (0..half / 2, half / 2..half),
        View::Hindsight => (half..count, half..count),
    };
    let strategy = &candidate.strategy;
    let fixed = choose_on(strategy.fixed, prepared, cost, chosen_on);
    let limit_ns = limit_ns.unwrap_or(u64::MAX);
    let mut sum = 0;
    run_each(
        prepared,
        cost,
        strategy,
        &fixed,
        Pricing::Median,
        judged,
        |_, deed| {
            sum += deed.added_ns;
            if sum > limit_ns {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    );
    sum
}

/// The front: candidates that no other one beats on the past with as little memory, by rising memory.
///
/// Takes each candidate with the nanoseconds that it added on the past.
pub fn front(tried: &[(Candidate, u64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tried.len()).collect();
    order.sort_by_key(|&index| (tried[index].0.memory_bytes, tried[index].1));
    let mut best = u64::MAX;
    order.retain(|&index| {
        let is_better = tried[index].1 < best;
        best = best.min(tried[index].1);
        is_better
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::generate::topic_tree::{LATENCY_JSON, TopicTree, topic_tree};
    use crate::trace::log::RequestLog;

    fn small_log() -> RequestLog {
        topic_tree(&TopicTree {
            requests: 2000,
            items: 600,
            ..TopicTree::default()
        })
    }

    /// Each candidate with what it added, replayed to its end or as far as the ones before it allow.
    fn tried(log: &RequestLog, view: View, is_cut: bool) -> (Vec<(Candidate, u64)>, Least) {
        let prepared = Prepared::new(log, |_| true);
        let cost = CostModel::parse(LATENCY_JSON).unwrap();
        let mut least = Least::default();
        let mut one = |candidate: Candidate| {
            let memory = candidate.memory_bytes;
            let limit = least.within(memory).filter(|_| is_cut);
            let ns = added_ns(&prepared, &cost, &candidate, view, limit);
            least.note(memory, ns);
            (candidate, ns)
        };
        let tried = candidates(&prepared, 500_000)
            .into_iter()
            .map(&mut one)
            .collect();
        (tried, least)
    }

    #[test]
    fn front_falls_as_memory_rises_and_nothing_beats_it() {
        let (tried, _) = tried(&small_log(), View::Past, false);
        let points: Vec<_> = front(&tried)
            .into_iter()
            .map(|i| (tried[i].0.memory_bytes, tried[i].1))
            .collect();
        assert!(
            points.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1),
            "{points:?}"
        );
        for (candidate, ns) in &tried {
            let affordable = points.iter().filter(|p| p.0 <= candidate.memory_bytes);
            assert!(affordable.map(|p| p.1).min().unwrap() <= *ns);
        }
    }

    #[test]
    fn replays_cut_short_change_no_result() {
        let log = small_log();
        for view in [View::Past, View::Hindsight] {
            let (whole, whole_least) = tried(&log, view, false);
            let (cut, cut_least) = tried(&log, view, true);
            assert!(whole.iter().zip(&cut).any(|(whole, cut)| whole.1 > cut.1));
            assert_eq!(front(&whole), front(&cut));
            for (candidate, _) in &whole {
                let memory = candidate.memory_bytes;
                assert_eq!(whole_least.within(memory), cut_least.within(memory));
            }
        }
    }

    #[test]
    fn hindsight_gains_from_memory() {
        let (_, least) = tried(&small_log(), View::Hindsight, false);
        let bounds = [0, 100_000, 500_000].map(|bytes| least.within(bytes).unwrap());
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
