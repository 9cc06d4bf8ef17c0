//! Finds the rules: counts which items requests read together, and keeps the pairs that chance does not explain.
//!
//! These are association rules: a trigger is an antecedent and a companion a consequent; the joint uses of a pair are its
//! support, and their share of the trigger's uses is its confidence.

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
/// The fewest joint uses of a pair that make a rule.
const JOINT_USES_MIN: u32 = 3;
/// The probability that any pair is taken for a rule by accident.
const ERROR_PROBABILITY: f64 = 0.01;

/// What triggers a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TriggerKind {
    /// The read of an item; the items that its request reads after it may be companions.
    Item,
    /// The start of a request about a page, which is an item, too; all items of the request may be companions.
    Page,
}

/// The family of an item's key: the number of its template, and its variable parts.
struct Family<'k> {
    template_number: u32,
    parts: Vec<&'k str>,
}

/// A family of companions, in terms of the trigger's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct CompanionFamily {
    /// For each variable part of the companion the index of the trigger's part that equals it, four bits each.
    trigger_part_indexes: u64,
    template_number: u32,
}

/// Finds the rules of a log.
pub(super) struct RuleFinder<'a> {
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
struct PairUses {
    trigger_uses: u32,
    joint_uses: u32,
    /// The share of the trigger's uses that would have the companion by chance.
    chance_share: f64,
}

/// A companion, an item or a family of them, with the number of uses that it shares with its trigger.
#[derive(Debug, Clone, Copy)]
struct CountedCompanion<C> {
    companion: C,
    joint_uses: u32,
}

/// The companions of one item.
#[derive(Debug, Default)]
struct CompanionsOfItem {
    has_significant: bool,
    counted_companions: Vec<CountedCompanion<u32>>,
}

impl PairUses {
    fn joint_share(self) -> f64 {
        f64::from(self.joint_uses) / f64::from(self.trigger_uses.max(1))
    }

    /// Whether this many joint uses are significant among this many pairs: the probability, by Chernoff's bound on the
    /// binomial tail, is below [`ERROR_PROBABILITY`] for all pairs together.
    fn are_significant(self, pair_count: usize) -> bool {
        let (observed_share, expected_share) =
            (self.joint_share(), self.chance_share.clamp(1e-9, 1.0));
        if observed_share <= expected_share {
            return false;
        }
        let term = |observed: f64, expected: f64| {
            if observed > 0.0 { observed * (observed / expected).ln() } else { 0.0 }
        };
        let divergence =
            term(observed_share, expected_share) + term(1.0 - observed_share, 1.0 - expected_share);
        f64::from(self.trigger_uses) * divergence
            >= (pair_count.max(1) as f64 / ERROR_PROBABILITY).ln()
    }
}

impl<'a> RuleFinder<'a> {
    /// Prepares the requests; companions must be read in this share of the trigger's uses.
    pub(super) fn new(
        prepared: &'a PreparedLog<'a>,
        requests: Range<usize>,
        joint_share_min: f64,
    ) -> Self {
        let request_count = requests.len().max(1) as f64;
        let uses_by_item = prepared.uses(requests.clone());
        let mut template_numbers: HashMap<String, u32> = HashMap::new();
        let mut templates = Vec::new();
        let keys_with_uses = prepared.items.keys.iter().zip(&uses_by_item);
        let families = keys_with_uses.map(|(key, &item_uses)| {
            let split_key = SplitKey::new(key)
                .filter(|split_key| item_uses > 0 && !split_key.parts.is_empty())?;
            let template_number =
                *template_numbers.entry(split_key.template).or_insert_with_key(|template| {
                    templates.push(template.clone());
                    templates.len() as u32 - 1
                });
            let parts = split_key.parts;
            Some(Family { template_number, parts })
        });
        let families = families.collect();
        Self {
            prepared,
            requests,
            joint_share_min,
            popularity: uses_by_item
                .iter()
                .map(|&item_uses| f64::from(item_uses) / request_count)
                .collect(),
            families,
            templates,
        }
    }

    /// Visits each use of a trigger, which is the number of an item or page, with the items that are read with it.
    fn for_each_use(&self, trigger_kind: TriggerKind, mut visit: impl FnMut(u32, &[u32])) {
        let mut items = Vec::new();
        for request in self.requests.clone() {
            let request_items = self.prepared.items_of(request).iter().copied();
            items.clear();
            items
                .extend(request_items.filter(|&item| self.prepared.may_keep(item)).take(ITEMS_MAX));
            match trigger_kind {
                TriggerKind::Item => {
                    (0..items.len()).for_each(|index| visit(items[index], &items[index + 1..]));
                }
                TriggerKind::Page => {
                    let page = self.prepared.pages[request];
                    if page != NONE && self.prepared.may_keep(page) {
                        visit(page, &items);
                    }
                }
            }
        }
    }

    /// All rules with this kind of trigger.
    pub(super) fn find_rules(&self, trigger_kind: TriggerKind) -> TogetherRules {
        let companion_families_by_template = self.find_companion_families(trigger_kind);
        let mut rules = self.find_item_rules(trigger_kind, &companion_families_by_template);
        let family_rules = companion_families_by_template.into_iter().map(
            |(template_number, companion_families)| {
                let companion_patterns = companion_families
                    .into_iter()
                    .map(|companion_family| self.pattern_of(companion_family));
                TogetherRule {
                    trigger: self.templates[template_number as usize].clone(),
                    companions: companion_patterns.collect(),
                }
            },
        );
        rules.splice(0..0, family_rules);
        TogetherRules::new(&rules)
    }

    /// Companions of whole families, by the template of the trigger family.
    fn find_companion_families(
        &self,
        trigger_kind: TriggerKind,
    ) -> BTreeMap<u32, Vec<CompanionFamily>> {
        let mut joint_uses_by_pair: HashMap<(u32, CompanionFamily), u32> = HashMap::new();
        let mut uses_by_template: HashMap<u32, u32> = HashMap::new();
        self.for_each_use(trigger_kind, |trigger_item, items_read| {
            let Some(trigger_family) = &self.families[trigger_item as usize] else {
                return;
            };
            let trigger_template_number = trigger_family.template_number;
            *uses_by_template.entry(trigger_template_number).or_default() += 1;
            let mut families_seen: Vec<CompanionFamily> = Vec::new();
            for &item_read in items_read {
                if let Some(companion_family) = self.companion_family_of(trigger_family, item_read)
                    && !families_seen.contains(&companion_family)
                {
                    families_seen.push(companion_family);
                    count_pair(
                        &mut joint_uses_by_pair,
                        (trigger_template_number, companion_family),
                    );
                }
            }
        });
        let tested_pair_count = joint_uses_by_pair.len();
        let mut counted_by_template: BTreeMap<u32, Vec<CountedCompanion<CompanionFamily>>> =
            BTreeMap::new();
        for (&(trigger_template_number, companion_family), &joint_uses) in &joint_uses_by_pair {
            let pair_uses = PairUses {
                trigger_uses: uses_by_template[&trigger_template_number],
                joint_uses,
                chance_share: 0.0,
            };
            if pair_uses.joint_share() < self.joint_share_min || joint_uses < JOINT_USES_MIN {
                continue;
            }
            let chance_share = self.compute_chance_share(trigger_template_number, companion_family);
            if (PairUses { chance_share, ..pair_uses }).are_significant(tested_pair_count) {
                counted_by_template
                    .entry(trigger_template_number)
                    .or_default()
                    .push(CountedCompanion { companion: companion_family, joint_uses });
            }
        }
        counted_by_template
            .into_iter()
            .map(|(trigger_template_number, counted_companions)| {
                (trigger_template_number, select_most_used(counted_companions))
            })
            .collect()
    }

    /// The share of the uses of a trigger family that would have the companion by chance: the mean popularity of the
    /// keys that the companion's pattern gives, over the items of the trigger family.
    fn compute_chance_share(
        &self,
        trigger_template_number: u32,
        companion_family: CompanionFamily,
    ) -> f64 {
        let pattern = self.pattern_of(companion_family);
        let is_companion = |family: &Option<Family<'_>>| {
            family
                .as_ref()
                .is_some_and(|family| family.template_number == companion_family.template_number)
        };
        let keys_with_popularity = self.prepared.items.keys.iter().zip(&self.popularity);
        let popularity_by_key: HashMap<&str, f64> = keys_with_popularity
            .zip(&self.families)
            .filter(|(_, family)| is_companion(family))
            .map(|((key, &popularity), _)| (key.as_str(), popularity))
            .collect();
        let (mut weighted_sum, mut popularity_sum) = (0.0, 0.0);
        for (item, family) in self.families.iter().enumerate() {
            if let Some(family) =
                family.as_ref().filter(|family| family.template_number == trigger_template_number)
            {
                let companion_key = pattern.fill(&family.parts);
                let trigger_popularity = self.popularity[item];
                let companion_popularity =
                    popularity_by_key.get(companion_key.as_str()).copied().unwrap_or(0.0);
                weighted_sum += trigger_popularity * companion_popularity;
                popularity_sum += trigger_popularity;
            }
        }
        if popularity_sum > 0.0 { weighted_sum / popularity_sum } else { 0.0 }
    }

    /// Rules for single keys, without the companions that the rules of their families give.
    fn find_item_rules(
        &self,
        trigger_kind: TriggerKind,
        companion_families_by_template: &BTreeMap<u32, Vec<CompanionFamily>>,
    ) -> Vec<TogetherRule> {
        let mut joint_uses_by_pair: HashMap<(u32, u32), u32> = HashMap::new();
        let mut uses_by_item: HashMap<u32, u32> = HashMap::new();
        self.for_each_use(trigger_kind, |trigger_item, items_read| {
            *uses_by_item.entry(trigger_item).or_default() += 1;
            let trigger_family = self.families[trigger_item as usize].as_ref();
            let covered_families = trigger_family
                .and_then(|family| companion_families_by_template.get(&family.template_number));
            for &item_read in items_read {
                let is_covered = trigger_family.zip(covered_families).is_some_and(
                    |(trigger_family, covered_families)| {
                        self.companion_family_of(trigger_family, item_read)
                            .is_some_and(|family| covered_families.contains(&family))
                    },
                );
                if !is_covered {
                    count_pair(&mut joint_uses_by_pair, (trigger_item, item_read));
                }
            }
        });
        let tested_pair_count = joint_uses_by_pair.len();
        let mut companions_by_item: BTreeMap<u32, CompanionsOfItem> = BTreeMap::new();
        for (&(trigger_item, companion), &joint_uses) in &joint_uses_by_pair {
            let chance_share = self.popularity[companion as usize];
            let pair_uses =
                PairUses { trigger_uses: uses_by_item[&trigger_item], joint_uses, chance_share };
            if pair_uses.joint_share() < self.joint_share_min || joint_uses < JOINT_USES_MIN {
                continue;
            }
            let is_significant = pair_uses.are_significant(tested_pair_count);
            // What most requests read anyway is worth a key in a call that is made for another companion.
            if is_significant || chance_share >= self.joint_share_min {
                let companions_of_item = companions_by_item.entry(trigger_item).or_default();
                companions_of_item.has_significant |= is_significant;
                companions_of_item
                    .counted_companions
                    .push(CountedCompanion { companion, joint_uses });
            }
        }
        let mut rules_with_uses: Vec<(u32, TogetherRule)> = companions_by_item
            .into_iter()
            .filter(|(trigger_item, companions_of_item)| {
                let key = &self.prepared.items.keys[*trigger_item as usize];
                companions_of_item.has_significant && !key.contains(['{', '}', ' '])
            })
            .map(|(trigger_item, companions_of_item)| {
                let counted_companions = companions_of_item.counted_companions;
                let served_uses = counted_companions.iter().map(|counted| counted.joint_uses).sum();
                (
                    served_uses,
                    self.build_item_rule(trigger_item, select_most_used(counted_companions)),
                )
            })
            .collect();
        // A stable sort: rules that serve equally many uses stay in the order of their items.
        rules_with_uses.sort_by_key(|(served_uses, _)| std::cmp::Reverse(*served_uses));
        rules_with_uses.truncate(RULES_MAX);
        rules_with_uses
            .into_iter()
            .map(|(_, rule)| rule)
            .filter(|rule| !rule.companions.is_empty())
            .collect()
    }

    fn build_item_rule(&self, trigger_item: u32, companion_items: Vec<u32>) -> TogetherRule {
        let key_of = |item: u32| self.prepared.items.keys[item as usize].clone();
        let writable_keys =
            companion_items.into_iter().map(key_of).filter(|key| !key.contains(['{', '}', ' ']));
        TogetherRule {
            trigger: key_of(trigger_item),
            companions: writable_keys
                .map(|key| Pattern::new(vec![PatternPiece::Text(key)]))
                .collect(),
        }
    }

    /// The family of an item in terms of the trigger's parts; `None` if one of the item's parts is not among them.
    fn companion_family_of(
        &self,
        trigger_family: &Family<'_>,
        companion_item: u32,
    ) -> Option<CompanionFamily> {
        let item_family = self.families[companion_item as usize].as_ref()?;
        let mut trigger_part_indexes = 0;
        for (part_index, part) in item_family.parts.iter().enumerate() {
            let trigger_part_index =
                trigger_family.parts.iter().position(|trigger_part| trigger_part == part)?;
            trigger_part_indexes |= (trigger_part_index as u64) << (4 * part_index);
        }
        Some(CompanionFamily { trigger_part_indexes, template_number: item_family.template_number })
    }

    /// The pattern of a companion family: its template with the numbers of the trigger's parts.
    fn pattern_of(&self, companion_family: CompanionFamily) -> Pattern {
        let template = &self.templates[companion_family.template_number as usize];
        let mut pieces = Vec::new();
        let mut part_index = 0;
        for text in template.split_inclusive(['{', '}']) {
            match text.chars().last() {
                Some('{') if text.len() > 1 => {
                    pieces.push(PatternPiece::Text(text[..text.len() - 1].to_owned()));
                }
                Some('{') => {}
                Some('}') => {
                    pieces.push(PatternPiece::Variable(
                        (companion_family.trigger_part_indexes >> (4 * part_index) & 15) as u8,
                    ));
                    part_index += 1;
                }
                _ => pieces.push(PatternPiece::Text(text.to_owned())),
            }
        }
        Pattern::new(pieces)
    }
}

/// Counts a joint use of a pair; of too many pairs, those seen once are forgotten.
fn count_pair<P: std::hash::Hash + Eq>(joint_uses_by_pair: &mut HashMap<P, u32>, pair: P) {
    if joint_uses_by_pair.len() >= PAIRS_MAX {
        joint_uses_by_pair.retain(|_, joint_uses| *joint_uses > 1);
        if joint_uses_by_pair.len() >= PAIRS_MAX {
            return;
        }
    }
    *joint_uses_by_pair.entry(pair).or_default() += 1;
}

/// The companions that are read most often; equally frequent ones in their own order.
fn select_most_used<C: Ord>(mut counted_companions: Vec<CountedCompanion<C>>) -> Vec<C> {
    counted_companions.sort_by(|a, b| {
        let by_uses = b.joint_uses.cmp(&a.joint_uses);
        by_uses.then_with(|| a.companion.cmp(&b.companion))
    });
    counted_companions.truncate(COMPANIONS_MAX);
    counted_companions.into_iter().map(|counted| counted.companion).collect()
}
