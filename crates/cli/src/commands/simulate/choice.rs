//! Which strategies are compared, and which of them was best.

use std::collections::HashSet;

use glasscache_sim::strategy::fixed::choose;
use glasscache_sim::strategy::prepare::Prepared;
use glasscache_sim::strategy::report::Report;
use glasscache_sim::strategy::{FixedRule, StrategyFile};

use super::load::Loaded;
use super::{Findings, Named};
use crate::output::Failure;

/// The strategies named on the command line.
pub(super) fn parse(words: &[String]) -> Result<Vec<Named>, Failure> {
    let named = |words: &String| {
        let strategy = words
            .parse()
            .map_err(|e| Failure::usage(format!("{e} (--strategies)")))?;
        Ok(Named {
            words: words.clone(),
            strategy,
        })
    };
    words.iter().map(named).collect()
}

/// Every kind of strategy at 1 % and 5 % of the items.
pub(super) fn usual(items: usize) -> Vec<Named> {
    let mut words: Vec<String> = [
        "remote",
        "children",
        "children-always",
        "subtree:1",
        "subtree:2",
        "subtree:3",
    ]
    .map(String::from)
    .to_vec();
    for share in [100, 20] {
        let n = (items / share).max(1);
        let kinds = ["lru", "s3fifo", "fixed", "fixed-time", "fixed-hindsight"];
        words.extend(kinds.map(|kind| format!("{kind}:{n}")));
        words.extend(["lru", "fixed"].map(|kind| format!("{kind}:{n}+children")));
    }
    // Of few items 1 % and 5 % are the same.
    let mut seen = HashSet::new();
    words.retain(|words| seen.insert(words.clone()));
    words
        .into_iter()
        .filter_map(|words| {
            Some(Named {
                strategy: words.parse().ok()?,
                words,
            })
        })
        .collect()
}

/// The strategy with the least added time on the second half, hindsight left aside.
pub(super) fn best(findings: &Findings) -> &(Named, Report) {
    let is_choice =
        |n: &&(Named, Report)| !matches!(n.0.strategy.fixed, Some(FixedRule::Hindsight(_)));
    let choices = findings.reports.iter().filter(is_choice);
    choices
        .min_by_key(|(_, report)| report.second_half.added_ns)
        .unwrap_or(&findings.reports[0])
}

/// The file that a client loads: the strategy's words and the keys of its fixed set.
pub(super) fn strategy_file(
    (named, _): &(Named, Report),
    loaded: &Loaded,
    prepared: &Prepared<'_>,
) -> String {
    let fixed = choose(named.strategy.fixed, prepared, &loaded.cost);
    let key = |&item: &u32| loaded.log.items.keys[item as usize].clone();
    let fixed_keys = fixed.items.iter().map(key).collect();
    StrategyFile {
        strategy: named.strategy,
        fixed_keys,
    }
    .to_string()
}
