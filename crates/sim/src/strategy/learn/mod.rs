//! Learns what requests read together: rules by which one call fetches what would have taken several.
//!
//! Two kinds of rules are counted on the requests that a choice may use. Rules between families of keys (`user:{1}`
//! with `profile:{1}`) hold for keys that the past has never seen; rules between single keys cover the rest. A companion
//! must be read in the wanted share of its trigger's uses, and so often that chance does not explain it: an item that
//! every request reads belongs into a fixed set.
//!
//! The *trigger* is the key whose read fetches others in the same call, its *companions*. A *template* is a key with
//! `{1}`, `{2}` for its numbers; the keys that share one are a *family*.

mod rule_finder;

use std::collections::HashMap;
use std::ops::Range;

use glasscache_strategy::file::LearnedTogetherRules;
use glasscache_strategy::together::TogetherRules;

use self::rule_finder::{RuleFinder, TriggerKind};
use super::prepare::PreparedLog;

/// What a log teaches: the rules, and what they fetch in terms of the log's items.
#[derive(Debug, Clone, Default)]
pub struct LearnedRules {
    /// For the strategy file.
    pub rules: LearnedTogetherRules,
    /// What the rules fetch, for the replay.
    pub items: LearnedItems,
}

/// What the rules fetch with each item and for each page. An item from [`super::super::trace::log::Items::len`] on is a
/// key that a rule names and the log does not have.
#[derive(Debug, Clone, Default)]
pub struct LearnedItems {
    with_item: ItemLists,
    with_page: ItemLists,
    absent_keys: usize,
}

impl LearnedItems {
    /// What these rules fetch.
    pub fn from_rules(rules: &LearnedTogetherRules, prepared: &PreparedLog<'_>) -> Self {
        collect_learned_items(rules, prepared)
    }

    /// What is fetched with an item that has to be fetched.
    pub fn fetched_with_item(&self, item: u32) -> &[u32] {
        self.with_item.members_of(item)
    }

    /// What is fetched at the start of a request about a page.
    pub fn fetched_with_page(&self, page: u32) -> &[u32] {
        self.with_page.members_of(page)
    }

    /// How many keys the rules name that the log does not have.
    pub fn absent_keys(&self) -> usize {
        self.absent_keys
    }
}

/// A list for each item, in one flat column; without any list it takes no memory.
#[derive(Debug, Clone, Default)]
struct ItemLists {
    starts: Vec<usize>,
    members: Vec<u32>,
}

impl ItemLists {
    fn members_of(&self, item: u32) -> &[u32] {
        let item = item as usize;
        match self.starts.get(item..item + 2) {
            Some(&[start, end]) => &self.members[start..end],
            _ => &[],
        }
    }
}

/// Learns from the given requests rules of at least this share; without a share there is nothing to learn.
pub fn learn(
    joint_percent_min: Option<u8>,
    prepared: &PreparedLog<'_>,
    requests: Range<usize>,
) -> LearnedRules {
    let Some(joint_percent_min) = joint_percent_min else {
        return LearnedRules::default();
    };
    let rule_finder = RuleFinder::new(prepared, requests, f64::from(joint_percent_min) / 100.0);
    let rules = LearnedTogetherRules {
        with_items: rule_finder.find_rules(TriggerKind::Item),
        with_pages: rule_finder.find_rules(TriggerKind::Page),
    };
    let items = LearnedItems::from_rules(&rules, prepared);
    LearnedRules { rules, items }
}

/// The rules in terms of the log's items.
fn collect_learned_items(rules: &LearnedTogetherRules, prepared: &PreparedLog<'_>) -> LearnedItems {
    let keys = &prepared.items.keys;
    if rules.with_items.is_empty() && rules.with_pages.is_empty() {
        return LearnedItems::default();
    }
    let mut item_by_key: HashMap<String, u32> = HashMap::with_capacity(keys.len());
    for (item, key) in keys.iter().enumerate() {
        item_by_key.insert(key.clone(), item as u32);
    }
    let mut collect_lists = |trigger_rules: &TogetherRules| {
        let mut lists = ItemLists::default();
        if trigger_rules.is_empty() {
            return lists;
        }
        let mut companions = Vec::new();
        for key in keys {
            lists.starts.push(lists.members.len());
            companions.clear();
            trigger_rules.companions(key, &mut companions);
            for companion in companions.drain(..) {
                let next_number = item_by_key.len() as u32;
                lists.members.push(*item_by_key.entry(companion).or_insert(next_number));
            }
        }
        lists.starts.push(lists.members.len());
        lists
    };
    let (with_item, with_page) =
        (collect_lists(&rules.with_items), collect_lists(&rules.with_pages));
    LearnedItems { with_item, with_page, absent_keys: item_by_key.len() - keys.len() }
}
