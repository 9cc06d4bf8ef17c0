//! Counts what requests read together, and decides what is a rule.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use glasscache_strategy::together::{Pattern, PatternPiece, SplitKey, TogetherRule, TogetherRules};

use super::super::prepare::PreparedLog;
use crate::trace::log::NONE;

/// The most items of a request that are counted: pairs grow with their square.
const ITEMS_MAX: usize = 64;
/// The most pairs that are counted at a time; beyond it, pairs seen once are forgotten.
const PAIRS_MAX: usize = 4 << 20;
/// The most companions of one trigger.
const COMPANIONS_MAX: usize = 64;
/// The most rules of each kind; those that serve most uses are kept.
const RULES_MAX: usize = 100_000;
/// The fewest uses of a pair that make a rule.
const USES_MIN: u32 = 3;
/// The probability that any pair is taken for a rule by accident.
const ERROR_PROBABILITY: f64 = 0.01;

/// What a rule begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// An item; its companions are read after it.
    Item,
    /// The page of a request; all items are its companions.
    Page,
}

/// The family of an item's key: the number of its template, and its variable parts.
struct Family<'k> {
    template_number: u32,
    parts: Vec<&'k str>,
}

/// A family of companions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Companion {
    /// Which part of the trigger each of its parts is, four bits each.
    trigger_part_indexes: u64,
    template_number: u32,
}

/// A log ready to be counted.
pub(super) struct RuleCounter<'a> {
    prepared: &'a PreparedLog<'a>,
    requests: Range<usize>,
    joint_share_min: f64,
    /// The share of the requests that read each item.
    popularity: Vec<f64>,
    families: Vec<Option<Family<'a>>>,
    templates: Vec<String>,
}

/// How often a companion is read with its trigger.
#[derive(Debug, Clone, Copy)]
struct TriggerUses {
    all_uses: u32,
    joint_uses: u32,
    /// The share of the trigger's uses that would have the companion by chance.
    chance_share: f64,
}

impl TriggerUses {
    fn joint_share(self) -> f64 {
        f64::from(self.joint_uses) / f64::from(self.all_uses.max(1))
    }

    /// Whether this many joint uses are significant among this many pairs: the probability, by Chernoff's bound on the
    /// binomial tail, is below [`ERROR_PROBABILITY`] for all pairs together.
    fn are_significant(self, pairs: usize) -> bool {
        let (observed_share, expected_share) =
            (self.joint_share(), self.chance_share.clamp(1e-9, 1.0));
        if observed_share <= expected_share {
            return false;
        }
        let term = |observed_share: f64, expected_share: f64| {
            if observed_share > 0.0 {
                observed_share * (observed_share / expected_share).ln()
            } else {
                0.0
            }
        };
        let divergence =
            term(observed_share, expected_share) + term(1.0 - observed_share, 1.0 - expected_share);
        f64::from(self.all_uses) * divergence >= (pairs.max(1) as f64 / ERROR_PROBABILITY).ln()
    }
}

impl<'a> RuleCounter<'a> {
    /// Prepares the requests; companions must be read in this share of the trigger's uses.
    pub(super) fn new(
        prepared: &'a PreparedLog<'a>,
        requests: Range<usize>,
        joint_share_min: f64,
    ) -> Self {
        let request_count = requests.len().max(1) as f64;
        let uses = prepared.uses(requests.clone());
        let mut template_numbers: HashMap<String, u32> = HashMap::new();
        let mut templates = Vec::new();
        let families = prepared.items.keys.iter().zip(&uses).map(|(key, &uses)| {
            let split_key =
                SplitKey::new(key).filter(|split_key| uses > 0 && !split_key.parts.is_empty())?;
            let template_number = *template_numbers
                .entry(split_key.template)
                .or_insert_with_key(|template| {
                    templates.push(template.clone());
                    templates.len() as u32 - 1
                });
            let parts = split_key.parts;
            Some(Family {
                template_number,
                parts,
            })
        });
        let families = families.collect();
        Self {
            prepared,
            requests,
            joint_share_min,
            popularity: uses
                .iter()
                .map(|&uses| f64::from(uses) / request_count)
                .collect(),
            families,
            templates,
        }
    }

    /// Visits each use of a trigger with the items that are read with it.
    fn for_each_use(&self, trigger: Trigger, mut visit: impl FnMut(u32, &[u32])) {
        for request in self.requests.clone() {
            let items = self.prepared.items_of(request);
            let items = &items[..items.len().min(ITEMS_MAX)];
            match trigger {
                Trigger::Item => {
                    (0..items.len()).for_each(|offset| visit(items[offset], &items[offset + 1..]));
                }
                Trigger::Page => {
                    let page = self.prepared.pages[request];
                    if page != NONE {
                        visit(page, items);
                    }
                }
            }
        }
    }

    /// All rules with this kind of trigger.
    pub(super) fn find_rules(&self, trigger: Trigger) -> TogetherRules {
        let companions_by_template = self.find_family_companions(trigger);
        let mut rules = self.find_item_rules(trigger, &companions_by_template);
        let family_rules =
            companions_by_template
                .into_iter()
                .map(|(template_number, companions)| {
                    let companions = companions
                        .into_iter()
                        .map(|companion| self.pattern_of(companion));
                    TogetherRule {
                        trigger: self.templates[template_number as usize].clone(),
                        companions: companions.collect(),
                    }
                });
        rules.splice(0..0, family_rules);
        TogetherRules::new(rules)
    }

    /// Companions of whole families, by the trigger's template.
    fn find_family_companions(&self, trigger: Trigger) -> BTreeMap<u32, Vec<Companion>> {
        let mut pairs: HashMap<(u32, Companion), u32> = HashMap::new();
        let mut uses_by_trigger: HashMap<u32, u32> = HashMap::new();
        self.for_each_use(trigger, |item, items_read| {
            let Some(family) = &self.families[item as usize] else {
                return;
            };
            *uses_by_trigger.entry(family.template_number).or_default() += 1;
            let mut companions_seen: Vec<Companion> = Vec::new();
            for &other_item in items_read {
                if let Some(companion) = self.companion_of(family, other_item)
                    && !companions_seen.contains(&companion)
                {
                    companions_seen.push(companion);
                    count_pair(&mut pairs, (family.template_number, companion));
                }
            }
        });
        let tested_pairs = pairs.len();
        let mut rules_by_trigger: BTreeMap<u32, Vec<(u32, Companion)>> = BTreeMap::new();
        for (&(template_number, companion), &joint_uses) in &pairs {
            let pair_uses = TriggerUses {
                all_uses: uses_by_trigger[&template_number],
                joint_uses,
                chance_share: 0.0,
            };
            if pair_uses.joint_share() < self.joint_share_min || joint_uses < USES_MIN {
                continue;
            }
            let chance_share = self.chance_popularity(template_number, companion);
            if (TriggerUses {
                chance_share,
                ..pair_uses
            })
            .are_significant(tested_pairs)
            {
                rules_by_trigger
                    .entry(template_number)
                    .or_default()
                    .push((joint_uses, companion));
            }
        }
        rules_by_trigger
            .into_iter()
            .map(|(template_number, companions_with_uses)| {
                (template_number, sort_companions(companions_with_uses))
            })
            .collect()
    }

    /// The mean popularity of the keys that a companion's pattern gives, over the trigger's items.
    fn chance_popularity(&self, template_number: u32, companion: Companion) -> f64 {
        let pattern = self.pattern_of(companion);
        let is_of_companion = |family: &Option<Family<'_>>| {
            family
                .as_ref()
                .is_some_and(|family| family.template_number == companion.template_number)
        };
        let keys = self.prepared.items.keys.iter().zip(&self.popularity);
        let popularity_of: HashMap<&str, f64> = keys
            .zip(&self.families)
            .filter(|(_, family)| is_of_companion(family))
            .map(|((key, &popularity), _)| (key.as_str(), popularity))
            .collect();
        let (mut weighted_sum, mut popularity_sum) = (0.0, 0.0);
        for (item, family) in self.families.iter().enumerate() {
            if let Some(family) = family
                .as_ref()
                .filter(|family| family.template_number == template_number)
            {
                let key = pattern.fill(&family.parts);
                let trigger_popularity = self.popularity[item];
                weighted_sum +=
                    trigger_popularity * popularity_of.get(key.as_str()).copied().unwrap_or(0.0);
                popularity_sum += trigger_popularity;
            }
        }
        if popularity_sum > 0.0 {
            weighted_sum / popularity_sum
        } else {
            0.0
        }
    }

    /// Companions of single keys, without those that the rules of their families give.
    fn find_item_rules(
        &self,
        trigger: Trigger,
        companions_by_template: &BTreeMap<u32, Vec<Companion>>,
    ) -> Vec<TogetherRule> {
        let mut pairs: HashMap<(u32, u32), u32> = HashMap::new();
        let mut uses_by_trigger: HashMap<u32, u32> = HashMap::new();
        self.for_each_use(trigger, |item, items_read| {
            *uses_by_trigger.entry(item).or_default() += 1;
            let family = self.families[item as usize].as_ref();
            let covered_companions =
                family.and_then(|family| companions_by_template.get(&family.template_number));
            for &other_item in items_read {
                let is_covered =
                    family
                        .zip(covered_companions)
                        .is_some_and(|(family, covered_companions)| {
                            let companion = self.companion_of(family, other_item);
                            companion
                                .is_some_and(|companion| covered_companions.contains(&companion))
                        });
                if !is_covered {
                    count_pair(&mut pairs, (item, other_item));
                }
            }
        });
        let tested_pairs = pairs.len();
        let mut rules_by_trigger: BTreeMap<u32, (bool, Vec<(u32, u32)>)> = BTreeMap::new();
        for (&(item, other_item), &joint_uses) in &pairs {
            let chance_share = self.popularity[other_item as usize];
            let pair_uses = TriggerUses {
                all_uses: uses_by_trigger[&item],
                joint_uses,
                chance_share,
            };
            if pair_uses.joint_share() < self.joint_share_min || joint_uses < USES_MIN {
                continue;
            }
            let is_significant = pair_uses.are_significant(tested_pairs);
            // What most requests read anyway is worth a key in a call that is made for another companion.
            if is_significant || chance_share >= self.joint_share_min {
                let (has_significant, companions_with_uses) =
                    rules_by_trigger.entry(item).or_default();
                *has_significant |= is_significant;
                companions_with_uses.push((joint_uses, other_item));
            }
        }
        let mut rules: Vec<(u32, TogetherRule)> = rules_by_trigger
            .into_iter()
            .filter(|(item, (has_significant, _))| {
                let key = &self.prepared.items.keys[*item as usize];
                *has_significant && !key.contains(['{', '}', ' '])
            })
            .map(|(item, (_, companions_with_uses))| {
                let served_uses = companions_with_uses
                    .iter()
                    .map(|(joint_uses, _)| joint_uses)
                    .sum();
                (
                    served_uses,
                    self.build_item_rule(item, sort_companions(companions_with_uses)),
                )
            })
            .collect();
        // A stable sort: rules that serve equally many uses stay in the order of their items.
        rules.sort_by_key(|(served_uses, _)| std::cmp::Reverse(*served_uses));
        rules.truncate(RULES_MAX);
        rules
            .into_iter()
            .map(|(_, rule)| rule)
            .filter(|rule| !rule.companions.is_empty())
            .collect()
    }

    fn build_item_rule(&self, item: u32, companions: Vec<u32>) -> TogetherRule {
        let key_of = |item: u32| self.prepared.items.keys[item as usize].clone();
        let writable = companions
            .into_iter()
            .map(key_of)
            .filter(|key| !key.contains(['{', '}', ' ']));
        TogetherRule {
            trigger: key_of(item),
            companions: writable
                .map(|key| Pattern::new(vec![PatternPiece::Text(key)]))
                .collect(),
        }
    }

    /// An item in terms of a trigger's parts; `None` if one of its parts is not among them.
    fn companion_of(&self, trigger: &Family<'_>, other_item: u32) -> Option<Companion> {
        let family = self.families[other_item as usize].as_ref()?;
        let mut trigger_part_indexes = 0;
        for (offset, part) in family.parts.iter().enumerate() {
            let trigger_part_index = trigger
                .parts
                .iter()
                .position(|trigger_part| trigger_part == part)?;
            trigger_part_indexes |= (trigger_part_index as u64) << (4 * offset);
        }
        Some(Companion {
            trigger_part_indexes,
            template_number: family.template_number,
        })
    }

    /// The pattern of a companion: its template with the trigger's numbers.
    fn pattern_of(&self, companion: Companion) -> Pattern {
        let template = &self.templates[companion.template_number as usize];
        let mut pieces = Vec::new();
        let mut offset = 0;
        for text in template.split_inclusive(['{', '}']) {
            match text.chars().last() {
                Some('{') if text.len() > 1 => {
                    pieces.push(PatternPiece::Text(text[..text.len() - 1].to_owned()));
                }
                Some('{') => {}
                Some('}') => {
                    pieces.push(PatternPiece::Variable(
                        (companion.trigger_part_indexes >> (4 * offset) & 15) as u8,
                    ));
                    offset += 1;
                }
                _ => pieces.push(PatternPiece::Text(text.to_owned())),
            }
        }
        Pattern::new(pieces)
    }
}

/// Counts a pair; of too many, those seen once are forgotten.
fn count_pair<K: std::hash::Hash + Eq>(pairs: &mut HashMap<K, u32>, pair: K) {
    if pairs.len() >= PAIRS_MAX {
        pairs.retain(|_, count| *count > 1);
        if pairs.len() >= PAIRS_MAX {
            return;
        }
    }
    *pairs.entry(pair).or_default() += 1;
}

/// The companions that are read most often; equally frequent ones in their own order.
fn sort_companions<C: Ord>(mut companions_with_uses: Vec<(u32, C)>) -> Vec<C> {
    companions_with_uses.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    companions_with_uses.truncate(COMPANIONS_MAX);
    companions_with_uses
        .into_iter()
        .map(|(_, companion)| companion)
        .collect()
}
