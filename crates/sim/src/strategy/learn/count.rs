//! Counts what requests read together, and decides what is a rule.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use glasscache_strategy::together::{Pattern, PatternPiece, Rule, SplitKey, TogetherRules};

use super::super::prepare::Prepared;
use crate::trace::log::NONE;

/// Items of a request that are looked at: pairs grow with their square.
const ITEMS_MAX: usize = 64;
/// Pairs that are counted at a time; beyond it, pairs seen once are forgotten.
const PAIRS_MAX: usize = 4 << 20;
/// Companions of one trigger.
const COMPANIONS_MAX: usize = 64;
/// Rules of each kind, those that serve most uses first.
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
    template: u32,
    parts: Vec<&'k str>,
}

/// A family of companions: which part of the trigger each of its parts is, four bits each, and its template.
type Companion = (u64, u32);

/// A log ready to be counted.
pub(super) struct Counted<'a> {
    prepared: &'a Prepared<'a>,
    requests: Range<usize>,
    share: f64,
    /// The share of the requests that read each item.
    popularity: Vec<f64>,
    families: Vec<Option<Family<'a>>>,
    templates: Vec<String>,
}

/// How often a companion is read with its trigger.
#[derive(Debug, Clone, Copy)]
struct Uses {
    trigger: u32,
    together: u32,
    /// The share of the trigger's uses that would have the companion by chance.
    by_chance: f64,
}

impl Uses {
    fn share(self) -> f64 {
        f64::from(self.together) / f64::from(self.trigger.max(1))
    }

    /// Whether so many uses together are no accident among this many pairs: the probability, by Chernoff's bound on the
    /// binomial tail, is below [`ERROR_PROBABILITY`] for all pairs together.
    fn are_significant(self, pairs: usize) -> bool {
        let (p, q) = (self.share(), self.by_chance.clamp(1e-9, 1.0));
        if p <= q {
            return false;
        }
        let term = |p: f64, q: f64| if p > 0.0 { p * (p / q).ln() } else { 0.0 };
        let divergence = term(p, q) + term(1.0 - p, 1.0 - q);
        f64::from(self.trigger) * divergence >= (pairs.max(1) as f64 / ERROR_PROBABILITY).ln()
    }
}

impl<'a> Counted<'a> {
    /// Prepares the requests; companions must be read in this share of the trigger's uses.
    pub(super) fn new(prepared: &'a Prepared<'a>, requests: Range<usize>, share: f64) -> Self {
        let count = requests.len().max(1) as f64;
        let uses = prepared.uses(requests.clone());
        let mut number_of: HashMap<String, u32> = HashMap::new();
        let mut templates = Vec::new();
        let families = prepared.items.keys.iter().zip(&uses).map(|(key, &uses)| {
            let cut = SplitKey::new(key).filter(|cut| uses > 0 && !cut.parts.is_empty())?;
            let template = *number_of
                .entry(cut.template)
                .or_insert_with_key(|template| {
                    templates.push(template.clone());
                    templates.len() as u32 - 1
                });
            let parts = cut.parts;
            Some(Family { template, parts })
        });
        let families = families.collect();
        Self {
            prepared,
            requests,
            share,
            popularity: uses.iter().map(|&uses| f64::from(uses) / count).collect(),
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
                Trigger::Item => (0..items.len()).for_each(|at| visit(items[at], &items[at + 1..])),
                Trigger::Page => {
                    let page = self.prepared.page[request];
                    if page != NONE {
                        visit(page, items);
                    }
                }
            }
        }
    }

    /// All rules with this kind of trigger.
    pub(super) fn rules(&self, trigger: Trigger) -> TogetherRules {
        let families = self.family_rules(trigger);
        let mut rules = self.item_rules(trigger, &families);
        let by_template = families.into_iter().map(|(template, companions)| {
            let companions = companions
                .into_iter()
                .map(|companion| self.pattern(companion));
            Rule {
                trigger: self.templates[template as usize].clone(),
                companions: companions.collect(),
            }
        });
        rules.splice(0..0, by_template);
        TogetherRules::new(rules)
    }

    /// Companions of whole families, by the trigger's template.
    fn family_rules(&self, trigger: Trigger) -> BTreeMap<u32, Vec<Companion>> {
        let mut pairs: HashMap<(u32, Companion), u32> = HashMap::new();
        let mut uses_of: HashMap<u32, u32> = HashMap::new();
        self.for_each_use(trigger, |item, read| {
            let Some(family) = &self.families[item as usize] else {
                return;
            };
            *uses_of.entry(family.template).or_default() += 1;
            let mut seen: Vec<Companion> = Vec::new();
            for &other in read {
                if let Some(companion) = self.companion(family, other)
                    && !seen.contains(&companion)
                {
                    seen.push(companion);
                    count(&mut pairs, (family.template, companion));
                }
            }
        });
        let tests = pairs.len();
        let mut found: BTreeMap<u32, Vec<(u32, Companion)>> = BTreeMap::new();
        for (&(template, companion), &together) in &pairs {
            let uses = Uses {
                trigger: uses_of[&template],
                together,
                by_chance: 0.0,
            };
            if uses.share() < self.share || together < USES_MIN {
                continue;
            }
            let by_chance = self.family_by_chance(template, companion);
            if (Uses { by_chance, ..uses }).are_significant(tests) {
                found
                    .entry(template)
                    .or_default()
                    .push((together, companion));
            }
        }
        found
            .into_iter()
            .map(|(template, list)| (template, best(list)))
            .collect()
    }

    /// The mean popularity of the keys that a companion's pattern gives, over the trigger's items.
    fn family_by_chance(&self, template: u32, companion: Companion) -> f64 {
        let pattern = self.pattern(companion);
        let is_of = |family: &Option<Family<'_>>, template: u32| {
            family
                .as_ref()
                .is_some_and(|family| family.template == template)
        };
        let keys = self.prepared.items.keys.iter().zip(&self.popularity);
        let popularity_of: HashMap<&str, f64> = keys
            .zip(&self.families)
            .filter(|(_, family)| is_of(family, companion.1))
            .map(|((key, &popularity), _)| (key.as_str(), popularity))
            .collect();
        let (mut sum, mut weight) = (0.0, 0.0);
        for (item, family) in self.families.iter().enumerate() {
            if let Some(family) = family.as_ref().filter(|family| family.template == template) {
                let key = pattern.fill(&family.parts);
                let uses = self.popularity[item];
                sum += uses * popularity_of.get(key.as_str()).copied().unwrap_or(0.0);
                weight += uses;
            }
        }
        if weight > 0.0 { sum / weight } else { 0.0 }
    }

    /// Companions of single keys, without those that the rules of their families give.
    fn item_rules(&self, trigger: Trigger, families: &BTreeMap<u32, Vec<Companion>>) -> Vec<Rule> {
        let mut pairs: HashMap<(u32, u32), u32> = HashMap::new();
        let mut uses_of: HashMap<u32, u32> = HashMap::new();
        self.for_each_use(trigger, |item, read| {
            *uses_of.entry(item).or_default() += 1;
            let family = self.families[item as usize].as_ref();
            let covered = family.and_then(|family| families.get(&family.template));
            for &other in read {
                let is_covered = family.zip(covered).is_some_and(|(family, covered)| {
                    let companion = self.companion(family, other);
                    companion.is_some_and(|companion| covered.contains(&companion))
                });
                if !is_covered {
                    count(&mut pairs, (item, other));
                }
            }
        });
        let tests = pairs.len();
        let mut found: BTreeMap<u32, (bool, Vec<(u32, u32)>)> = BTreeMap::new();
        for (&(item, other), &together) in &pairs {
            let by_chance = self.popularity[other as usize];
            let uses = Uses {
                trigger: uses_of[&item],
                together,
                by_chance,
            };
            if uses.share() < self.share || together < USES_MIN {
                continue;
            }
            let is_significant = uses.are_significant(tests);
            // What most requests read anyway is worth a key in a call that is made for another companion.
            if is_significant || by_chance >= self.share {
                let (has_significant, list) = found.entry(item).or_default();
                *has_significant |= is_significant;
                list.push((together, other));
            }
        }
        let mut rules: Vec<(u32, Rule)> = found
            .into_iter()
            .filter(|(item, (has_significant, _))| {
                let key = &self.prepared.items.keys[*item as usize];
                *has_significant && !key.contains(['{', '}', ' '])
            })
            .map(|(item, (_, list))| {
                let served = list.iter().map(|(together, _)| together).sum();
                (served, self.item_rule(item, best(list)))
            })
            .collect();
        // A stable sort: rules that serve equally many uses stay in the order of their items.
        rules.sort_by_key(|(served, _)| std::cmp::Reverse(*served));
        rules.truncate(RULES_MAX);
        rules
            .into_iter()
            .map(|(_, rule)| rule)
            .filter(|rule| !rule.companions.is_empty())
            .collect()
    }

    fn item_rule(&self, item: u32, companions: Vec<u32>) -> Rule {
        let key = |item: u32| self.prepared.items.keys[item as usize].clone();
        let writable = companions
            .into_iter()
            .map(key)
            .filter(|key| !key.contains(['{', '}', ' ']));
        Rule {
            trigger: key(item),
            companions: writable
                .map(|key| Pattern::new(vec![PatternPiece::Text(key)]))
                .collect(),
        }
    }

    /// An item in terms of a trigger's parts; `None` if one of its parts is not among them.
    fn companion(&self, trigger: &Family<'_>, other: u32) -> Option<Companion> {
        let family = self.families[other as usize].as_ref()?;
        let mut references = 0;
        for (at, part) in family.parts.iter().enumerate() {
            let index = trigger.parts.iter().position(|own| own == part)?;
            references |= (index as u64) << (4 * at);
        }
        Some((references, family.template))
    }

    /// The pattern of a companion: its template with the trigger's numbers.
    fn pattern(&self, (references, template): Companion) -> Pattern {
        let template = &self.templates[template as usize];
        let mut pieces = Vec::new();
        let mut part = 0;
        for text in template.split_inclusive(['{', '}']) {
            match text.chars().last() {
                Some('{') if text.len() > 1 => {
                    pieces.push(PatternPiece::Text(text[..text.len() - 1].to_owned()));
                }
                Some('{') => {}
                Some('}') => {
                    pieces.push(PatternPiece::Variable(
                        (references >> (4 * part) & 15) as u8,
                    ));
                    part += 1;
                }
                _ => pieces.push(PatternPiece::Text(text.to_owned())),
            }
        }
        Pattern::new(pieces)
    }
}

/// Counts a pair; of too many, those seen once are forgotten.
fn count<K: std::hash::Hash + Eq>(pairs: &mut HashMap<K, u32>, pair: K) {
    if pairs.len() >= PAIRS_MAX {
        pairs.retain(|_, count| *count > 1);
        if pairs.len() >= PAIRS_MAX {
            return;
        }
    }
    *pairs.entry(pair).or_default() += 1;
}

/// The companions that are read most often, ties in their own order.
fn best<C: Ord>(mut list: Vec<(u32, C)>) -> Vec<C> {
    list.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    list.truncate(COMPANIONS_MAX);
    list.into_iter().map(|(_, companion)| companion).collect()
}
