//! Chooses fixed sets: the items that every process keeps from its start.

use std::cmp::Reverse;
use std::ops::Range;

use glasscache_strategy::file::FixedRule;

use super::cost::CostModel;
use super::prepare::PreparedLog;
use crate::trace::log::Items;

/// The items of a fixed set, with what it occupies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedSet {
    is_member: Vec<bool>,
    /// Item numbers, best first.
    pub items: Vec<u32>,
    /// The memory that they take together in a process, in bytes.
    pub bytes: u64,
}

impl FixedSet {
    /// A set of some items of a log.
    pub fn new(items: Vec<u32>, log_items: &Items) -> Self {
        let mut is_member = vec![false; log_items.len()];
        let mut bytes = 0;
        for &item in &items {
            is_member[item as usize] = true;
            bytes += u64::from(log_items.fixed_bytes(item));
        }
        Self { is_member, items, bytes }
    }

    /// Whether an item is in the set.
    pub fn contains(&self, item: u32) -> bool {
        self.is_member.get(item as usize) == Some(&true)
    }
}

/// For each item what the calls cost in which these requests read it, in nanoseconds: a call for several keys in equal
/// parts, so that the sum over items is what all calls cost.
pub fn compute_call_costs(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    requests: Range<usize>,
) -> Vec<f64> {
    let mut costs_ns = vec![0.0; prepared.items.len()];
    let mut add_call = |items: &[u32]| {
        let bytes = items.iter().map(|&item| u64::from(prepared.items.sizes[item as usize])).sum();
        let key_ns = cost.call_ns(items.len() as u64, bytes) as f64 / items.len().max(1) as f64;
        for &item in items {
            costs_ns[item as usize] += key_ns;
        }
    };
    for request in requests {
        match prepared.calls_of(request) {
            Some(calls) => calls.for_each(&mut add_call),
            None => prepared.items_of(request).chunks(1).for_each(&mut add_call),
        }
    }
    costs_ns
}

/// Chooses the set of a rule from the requests that the rule may use: the first half, or all of them in hindsight.
pub fn choose_fixed(
    rule: Option<FixedRule>,
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
) -> FixedSet {
    let requests = match rule {
        Some(FixedRule::Hindsight(_)) => 0..prepared.len(),
        _ => 0..prepared.second_half_start(),
    };
    choose_fixed_on(rule, prepared, cost, requests)
}

/// Chooses the set of a rule on the given requests.
pub fn choose_fixed_on(
    rule: Option<FixedRule>,
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    requests: Range<usize>,
) -> FixedSet {
    let sizes = &prepared.items.sizes;
    let Some(rule) = rule else {
        return FixedSet::new(Vec::new(), prepared.items);
    };
    let uses = prepared.uses(requests);
    // Of an item that none of these requests used, only later ones tell that it exists.
    let is_candidate = |item: u32| uses[item as usize] > 0 && prepared.may_keep(item);
    let candidates = || (0..sizes.len() as u32).filter(|&item| is_candidate(item)).collect();
    let saved_ns = |item: u32| {
        let item_uses = uses[item as usize];
        u64::from(item_uses) * cost.call_ns(1, u64::from(sizes[item as usize]))
    };
    let items = match rule {
        FixedRule::Requests(count) | FixedRule::Hindsight(count) => {
            select_highest_scoring(candidates(), count, &uses)
        }
        FixedRule::Time(count) => select_highest_scoring(
            candidates(),
            count,
            &(0..sizes.len() as u32).map(saved_ns).collect::<Vec<_>>(),
        ),
        FixedRule::Bytes(bytes_max) => fill_greedily(
            candidates(),
            bytes_max,
            &(0..sizes.len() as u32).map(saved_ns).collect::<Vec<_>>(),
            &(0..sizes.len() as u32)
                .map(|item| prepared.items.fixed_bytes(item))
                .collect::<Vec<_>>(),
        ),
    };
    FixedSet::new(items, prepared.items)
}

/// The `count` items of the highest score; ties go to the lower number.
fn select_highest_scoring<S: Ord + Copy>(
    mut items: Vec<u32>,
    count: usize,
    scores: &[S],
) -> Vec<u32> {
    items.sort_unstable_by_key(|&item| (Reverse(scores[item as usize]), item));
    items.truncate(count);
    items
}

/// From the highest score a byte of memory downwards, each item that still fits.
fn fill_greedily(
    mut items: Vec<u32>,
    mut remaining_bytes: u64,
    scores: &[u64],
    memory_bytes: &[u32],
) -> Vec<u32> {
    // Fractions are compared crosswise, for two quotients may round to one double.
    let cross_product = |item: u32, other: u32| {
        u128::from(scores[item as usize]) * u128::from(memory_bytes[other as usize])
    };
    items.sort_unstable_by(|&a, &b| cross_product(b, a).cmp(&cross_product(a, b)).then(a.cmp(&b)));
    items.retain(|&item| {
        let bytes = u64::from(memory_bytes[item as usize]);
        let has_room = bytes <= remaining_bytes;
        remaining_bytes -= if has_room { bytes } else { 0 };
        has_room
    });
    items
}
