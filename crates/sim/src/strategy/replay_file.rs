//! What a client needs that runs a strategy file on the requests of a log: the forecast of a replay.
//!
//! The file may come from another log, of another day. So nothing is chosen here: fixed set, tree and learned rules are
//! those of the file, and the items of the log are numbered in the file's order, which orders the levels of a subtree.

use std::collections::HashMap;

use glasscache_strategy::file::StrategyFile;

use super::build_file::drawn_cost_mode;
use super::cost::CostModel;
use super::fixed::FixedSet;
use super::learn::LearnedItems;
use super::prepare::PreparedLog;
use super::run::{Choices, RequestStats, run};
use crate::trace::log::{Items, NONE, RequestLog};

/// The log with the tree of a strategy file in place of its own: children are numbered in the order of the file. Keys
/// that only the file has become items of unknown size.
pub fn with_tree_of(log: &RequestLog, file: &StrategyFile) -> RequestLog {
    let mut numbering = KeyNumbering::default();
    for (_, child) in &file.children {
        numbering.assign_number(child);
    }
    let new_numbers: Vec<u32> =
        log.items.keys.iter().map(|key| numbering.assign_number(key)).collect();
    let parents = file.children.iter().map(|(parent, _)| parent);
    for key in parents.chain(&file.fixed_keys) {
        numbering.assign_number(key);
    }
    let item_count = numbering.keys.len();
    let mut items = Items {
        parents: vec![NONE; item_count],
        sizes: vec![0; item_count],
        ttls_s: Vec::new(),
        keys: numbering.keys.iter().map(|&key| key.to_owned()).collect(),
        changed: log.items.changed.clone(),
    };
    for (&new_number, &size) in new_numbers.iter().zip(&log.items.sizes) {
        items.sizes[new_number as usize] = size;
    }
    for (&new_number, &ttl_s) in new_numbers.iter().zip(&log.items.ttls_s) {
        items.set_ttl_s(new_number, ttl_s);
    }
    for (parent, child) in &file.children {
        let child_number = numbering.number_by_key[child.as_str()] as usize;
        let parent_number = numbering.number_by_key[parent.as_str()];
        items.parents[child_number] = parent_number;
    }
    let mut requests = log.requests.clone();
    let references = requests.items.iter_mut().chain(&mut requests.pages);
    for item in references.filter(|item| **item != NONE) {
        *item = new_numbers[*item as usize];
    }
    RequestLog { items, requests, truncated_after: log.truncated_after }
}

/// Numbers in the order in which keys are first named.
#[derive(Debug, Default)]
struct KeyNumbering<'k> {
    keys: Vec<&'k str>,
    number_by_key: HashMap<&'k str, u32>,
}

impl<'k> KeyNumbering<'k> {
    fn assign_number(&mut self, key: &'k str) -> u32 {
        let next_number = self.keys.len() as u32;
        let number = *self.number_by_key.entry(key).or_insert(next_number);
        if number == next_number {
            self.keys.push(key);
        }
        number
    }
}

/// Replays a log that has the tree of the file ([`with_tree_of`]) and returns what each request needs.
pub fn run_file(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    file: &StrategyFile,
) -> Vec<RequestStats> {
    let item_by_key: HashMap<&str, u32> =
        prepared.items.keys.iter().map(String::as_str).zip(0..).collect();
    let fixed_items =
        file.fixed_keys.iter().filter_map(|key| item_by_key.get(key.as_str()).copied());
    let fixed_items = fixed_items.filter(|&item| prepared.may_keep(item));
    let choices = Choices {
        fixed: &FixedSet::new(fixed_items.collect(), prepared.items),
        learned: &LearnedItems::from_rules(&file.learned, prepared),
    };
    let cost_mode = drawn_cost_mode(cost);
    run(prepared, cost, &file.strategy, choices, cost_mode, prepared.len())
}
