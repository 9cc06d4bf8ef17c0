//! The strategy file for a client: a strategy with what it keeps and fetches, chosen on the first half of the log.

use glasscache_strategy::file::{Strategy, StrategyFile};
use glasscache_strategy::rules::Prefetch;

use super::cost::CostModel;
use super::fixed::choose;
use super::learn::learn;
use super::prepare::Prepared;
use crate::trace::log::{Items, NONE};

/// The file of a strategy: its fixed set, the children that its rules need, and its learned rules.
pub fn strategy_file(
    prepared: &Prepared<'_>,
    cost: &CostModel,
    strategy: &Strategy,
) -> StrategyFile {
    let fixed = choose(strategy.fixed, prepared, cost);
    let key = |&item: &u32| prepared.items.keys[item as usize].clone();
    let needs_children = strategy.prefetch != Prefetch::Nothing || strategy.subtree_depth.is_some();
    StrategyFile {
        strategy: *strategy,
        forecast: Vec::new(),
        fixed_keys: fixed.items.iter().map(key).collect(),
        children: if needs_children {
            children(prepared.items)
        } else {
            Vec::new()
        },
        learned: learn(strategy.together, prepared, 0..prepared.half()).rules,
    }
}

/// Each child after its parent, in ascending order of the children. Keys with spaces cannot be written into a file.
fn children(items: &Items) -> Vec<(String, String)> {
    let pairs = items.parents.iter().zip(&items.keys);
    pairs
        .filter(|&(&parent, _)| parent != NONE)
        .map(|(&parent, key)| (items.keys[parent as usize].clone(), key.clone()))
        .filter(|(parent, key)| !parent.contains(' ') && !key.contains(' '))
        .collect()
}
