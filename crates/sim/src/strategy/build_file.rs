//! The strategy file for a client: a strategy with what it keeps and fetches, chosen on the first half of the log.

use glasscache_strategy::file::{Strategy, StrategyFile};
use glasscache_strategy::rules::ChildrenRule;

use super::cost::CostModel;
use super::fixed::choose_fixed;
use super::forecast::{add_comparisons, compute_forecasts, compute_refresh_forecast};
use super::learn::learn;
use super::prepare::PreparedLog;
use super::run::{Choices, CostMode, run};
use crate::trace::log::NONE;

/// Seed of the draws behind a forecast; any would do.
const FORECAST_SEED: u64 = 1;

/// The file of a strategy: its fixed set, the children that its rules need, its learned rules, and what the requests of
/// the second half need under it.
pub fn build_strategy_file(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    strategy: &Strategy,
) -> StrategyFile {
    let fixed = choose_fixed(strategy.fixed, prepared, cost);
    let learned =
        learn(strategy.companion_share_percent, prepared, 0..prepared.second_half_start());
    let choices = Choices { fixed: &fixed, learned: &learned.items };
    let request_count = prepared.len();
    let mut request_stats =
        run(prepared, cost, strategy, choices, drawn_cost_mode(cost), request_count);
    add_comparisons(prepared, cost, &mut request_stats);
    let second_half = prepared.second_half_start()..request_count;
    let mut forecast = compute_forecasts(prepared, &request_stats, second_half.clone());
    if !forecast.is_empty() {
        forecast.extend(compute_refresh_forecast(prepared, &fixed.items, second_half));
    }
    let key_of = |&item: &u32| prepared.items.keys[item as usize].clone();
    let needs_children =
        strategy.children != ChildrenRule::Never || strategy.subtree_depth.is_some();
    StrategyFile {
        strategy: *strategy,
        forecast,
        fixed_keys: fixed.items.iter().map(key_of).collect(),
        children: if needs_children { list_children(prepared) } else { Vec::new() },
        learned: learned.rules,
        never: prepared.never.clone(),
    }
}

/// Calls cost what the measured distribution says, or the median where only that was measured.
pub fn drawn_cost_mode(cost: &CostModel) -> CostMode {
    let draw = |dependence| CostMode::Drawn { seed: FORECAST_SEED, dependence };
    cost.dependence_of_draws().map_or(CostMode::Median, draw)
}

/// Each child after its parent, in ascending order of the children, without sessions. Keys with spaces cannot be written
/// into a file.
fn list_children(prepared: &PreparedLog<'_>) -> Vec<(String, String)> {
    let items = prepared.items;
    let pairs = items.parents.iter().zip(0_u32..);
    pairs
        .filter(|&(&parent, child)| {
            parent != NONE && prepared.may_keep(parent) && prepared.may_keep(child)
        })
        .map(|(&parent, child)| {
            (items.keys[parent as usize].clone(), items.keys[child as usize].clone())
        })
        .filter(|(parent, key)| !parent.contains(' ') && !key.contains(' '))
        .collect()
}
