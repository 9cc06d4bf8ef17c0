//! The strategies to compare, and the choice of the best.

use std::collections::HashSet;

use glasscache_sim::strategy::FixedRule;
use glasscache_sim::strategy::build_file::build_strategy_file as build_file_of_strategy;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::report::Report;

use super::load::LoadedLog;
use super::{NamedStrategy, Replays};
use crate::output::Failure;
use crate::setting_lists::join_settings;

/// What stands for a strategy in the row of what requests needed when they were recorded.
pub(super) const AS_RECORDED: &str = "as recorded";

/// The strategies named on the command line.
pub(super) fn parse_strategies(notations: &[String]) -> Result<Vec<NamedStrategy>, Failure> {
    let parse_named = |notation: &String| {
        let strategy =
            notation.parse().map_err(|error| Failure::usage(format!("{error} (--strategies)")))?;
        Ok(NamedStrategy { notation: notation.clone(), strategy })
    };
    join_settings(notations).iter().map(parse_named).collect()
}

/// Every kind of strategy at 1 % and 5 % of the items; those that fetch children only where items have parents.
pub(super) fn list_default_strategies(item_count: usize, has_parents: bool) -> Vec<NamedStrategy> {
    let mut notations: Vec<String> = [
        "remote",
        "children",
        "children-always",
        "subtree:1",
        "subtree:2",
        "subtree:3",
        "together:80",
    ]
    .map(String::from)
    .to_vec();
    for divisor in [100, 20] {
        let kept_items = (item_count / divisor).max(1);
        let kinds = ["lru", "s3fifo", "fixed", "fixed-time", "fixed-hindsight"];
        notations.extend(kinds.map(|kind| format!("{kind}:{kept_items}")));
        notations.extend(["lru", "fixed"].map(|kind| format!("{kind}:{kept_items}+children")));
    }
    let fetches_children =
        |notation: &str| notation.contains("children") || notation.contains("subtree");
    notations.retain(|notation| has_parents || !fetches_children(notation));
    // Of few items 1 % and 5 % are the same.
    let mut notations_seen = HashSet::new();
    notations.retain(|notation| notations_seen.insert(notation.clone()));
    notations
        .into_iter()
        .filter_map(|notation| Some(NamedStrategy { strategy: notation.parse().ok()?, notation }))
        .collect()
}

/// Refuses to save strategies of which no client can run any.
pub(super) fn check_savable(named_strategies: &[NamedStrategy]) -> Result<(), Failure> {
    let checks = || named_strategies.iter().map(|named| named.strategy.check_runnable());
    if checks().any(|check| check.is_ok()) {
        return Ok(());
    }
    checks().collect::<Result<(), _>>().map_err(|error| Failure::usage(format!("{error} (--save)")))
}

/// Whether strategies are left aside because only the simulator has them.
pub(super) fn has_simulator_only(replays: &Replays) -> bool {
    replays.strategy_reports.iter().any(|(named, _)| named.strategy.check_runnable().is_err())
}

/// The strategy with the least added time on the second half; hindsight, and what no client can run, is left aside.
pub(super) fn find_best_replay(replays: &Replays) -> &(NamedStrategy, Report) {
    let is_eligible = |(named, _): &&(NamedStrategy, Report)| {
        let is_hindsight = matches!(named.strategy.fixed, Some(FixedRule::Hindsight(_)));
        let is_runnable = named.strategy.check_runnable().is_ok();
        !is_hindsight && is_runnable && named.notation != AS_RECORDED
    };
    let eligible_replays = replays.strategy_reports.iter().filter(is_eligible);
    eligible_replays
        .min_by_key(|(_, report)| report.second_half.added_ns)
        .unwrap_or(&replays.strategy_reports[0])
}

/// The best strategy that has a fixed set, hindsight left aside.
pub(super) fn find_best_with_fixed_set(replays: &Replays) -> Option<&NamedStrategy> {
    let is_eligible = |rule: FixedRule| !matches!(rule, FixedRule::Hindsight(_));
    let with_fixed_set = replays
        .strategy_reports
        .iter()
        .filter(|(named, _)| named.strategy.fixed.is_some_and(is_eligible));
    with_fixed_set.min_by_key(|(_, report)| report.second_half.added_ns).map(|(named, _)| named)
}

/// The file that a client loads: the strategy and the keys of its fixed set.
pub(super) fn build_strategy_file(
    named: &NamedStrategy,
    loaded: &LoadedLog,
    prepared: &PreparedLog<'_>,
) -> String {
    build_file_of_strategy(prepared, &loaded.cost_model, &named.strategy).to_string()
}
