//! Keys that requests read together: rules that a search learned from a log and a client runs.
//!
//! A rule has a trigger and companions, each a pattern: literal text, in which `{1}` to `{9}` stand for variable parts of
//! the trigger. `together user:{1} profile:{1} rights:{1}` fetches `profile:17` and `rights:17` in the call that fetches
//! `user:17`. A variable part is a run of letters and digits that has a digit, between characters of other kinds; so a
//! key has one template, and matching is one look-up however many rules there are.

use std::fmt::{self, Write};
use std::sync::Arc;

/// The most variable parts of a key; a key with more has no template.
pub const PARTS_MAX: usize = 9;

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PatternPiece {
    /// Text as it is.
    Text(String),
    /// The variable part of the trigger with this index, from 0.
    Variable(u8),
}

/// A key, or a family of keys, in terms of the trigger's variable parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern(Vec<PatternPiece>);

/// A key cut into its template and its variable parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitKey<'k> {
    /// The key with `{1}`, `{2}`, ... for its variable parts, in order.
    pub template: String,
    /// The variable parts.
    pub parts: Vec<&'k str>,
}

/// Why a rule cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TogetherError {
    /// A rule without companions.
    #[error("needs a trigger and at least one other key pattern")]
    TooShort,
    /// A brace that does not enclose a number from 1 to 9.
    #[error("`{0}`: a brace must enclose a number from 1 to 9, as in user:{{1}}")]
    Brace(String),
    /// The trigger's numbers are not 1, 2, 3 in order, or do not stand where variable parts of a key stand.
    #[error(
        "`{0}`: the first pattern must number its variable parts {{1}}, {{2}}, ... from left to right, each between characters that are no letters or digits"
    )]
    Trigger(String),
    /// A companion refers to a part that the trigger does not have.
    #[error("`{0}`: the first pattern has no part {{{1}}}")]
    Part(String, u8),
}

impl SplitKey<'_> {
    /// Cuts a key; `None` if it has braces or blanks, or more than [`PARTS_MAX`] variable parts.
    pub fn new(key: &str) -> Option<SplitKey<'_>> {
        let (mut template, mut parts) = (String::with_capacity(key.len()), Vec::new());
        let mut remaining = key;
        while let Some(first_char) = remaining.chars().next() {
            let is_word = first_char.is_alphanumeric();
            let end = remaining
                .find(|next_char: char| next_char.is_alphanumeric() != is_word)
                .unwrap_or(remaining.len());
            let (run, tail) = remaining.split_at(end);
            if run.contains(['{', '}', ' ']) {
                return None;
            }
            if is_word && run.contains(|digit: char| digit.is_ascii_digit()) {
                parts.push(run);
                let _ = write!(template, "{{{}}}", parts.len());
            } else {
                template.push_str(run);
            }
            remaining = tail;
        }
        (parts.len() <= PARTS_MAX).then_some(SplitKey { template, parts })
    }
}

impl Pattern {
    /// A pattern of the given pieces.
    pub fn new(pieces: Vec<PatternPiece>) -> Self {
        Self(pieces)
    }

    /// Reads text with `{1}` to `{9}`.
    pub fn parse(text: &str) -> Result<Self, TogetherError> {
        let brace_error = || TogetherError::Brace(text.to_owned());
        let mut pieces = Vec::new();
        let mut remaining = text;
        while let Some(brace_index) = remaining.find(['{', '}']) {
            if brace_index > 0 {
                pieces.push(PatternPiece::Text(remaining[..brace_index].to_owned()));
            }
            let mut after_brace =
                remaining[brace_index..].strip_prefix('{').ok_or_else(brace_error)?.chars();
            let digit = after_brace.next().and_then(|c| c.to_digit(10));
            let part_number =
                digit.filter(|&part_number| part_number > 0).ok_or_else(brace_error)?;
            remaining = after_brace.as_str().strip_prefix('}').ok_or_else(brace_error)?;
            pieces.push(PatternPiece::Variable(part_number as u8 - 1));
        }
        if !remaining.is_empty() {
            pieces.push(PatternPiece::Text(remaining.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// The key that the trigger's parts give.
    pub fn fill(&self, parts: &[&str]) -> String {
        let mut key = String::new();
        for piece in &self.0 {
            match piece {
                PatternPiece::Text(text) => key.push_str(text),
                PatternPiece::Variable(index) => {
                    key.push_str(parts.get(usize::from(*index)).unwrap_or(&""));
                }
            }
        }
        key
    }

    fn part_indexes(&self) -> impl Iterator<Item = u8> {
        self.0.iter().filter_map(|piece| match piece {
            PatternPiece::Variable(index) => Some(*index),
            PatternPiece::Text(_) => None,
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            PatternPiece::Text(text) => f.write_str(text),
            PatternPiece::Variable(index) => write!(f, "{{{}}}", index + 1),
        })
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TogetherRule {
    /// A whole key, or the template of keys ([`SplitKey::template`]).
    pub trigger: String,
    /// What is fetched with it, in this order.
    pub companions: Vec<Pattern>,
}

impl TogetherRule {
    /// Reads `<trigger> <pattern> <pattern> ...`.
    pub fn parse(text: &str) -> Result<Self, TogetherError> {
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        let trigger = words.next().ok_or(TogetherError::TooShort)?;
        let part_indexes: Vec<u8> = Pattern::parse(trigger)?.part_indexes().collect();
        // With numbers in place of the braces the trigger must cut into the same template again.
        let is_template = !part_indexes.is_empty();
        let sample_key: String = trigger.chars().filter(|c| !matches!(c, '{' | '}')).collect();
        let is_in_order = part_indexes
            .iter()
            .enumerate()
            .all(|(index, &part_index)| index == usize::from(part_index));
        let splits_into_itself =
            SplitKey::new(&sample_key).is_some_and(|split_key| split_key.template == trigger);
        if is_template && !(is_in_order && splits_into_itself) {
            return Err(TogetherError::Trigger(trigger.to_owned()));
        }
        let companions = words
            .map(|companion_text| {
                let pattern = Pattern::parse(companion_text)?;
                let unknown_index =
                    pattern.part_indexes().find(|part_index| !part_indexes.contains(part_index));
                unknown_index.map_or(Ok(pattern), |part_index| {
                    Err(TogetherError::Part(companion_text.to_owned(), part_index + 1))
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if companions.is_empty() {
            return Err(TogetherError::TooShort);
        }
        let trigger = trigger.to_owned();
        Ok(Self { trigger, companions })
    }
}

impl fmt::Display for TogetherRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.trigger)?;
        self.companions.iter().try_for_each(|pattern| write!(f, " {pattern}"))
    }
}

/// Between the words of a rule as it is kept: no key has it.
const WORD_END: char = '\u{1f}';

/// The rules of a strategy, ready to be looked up; copies share them.
///
/// They are kept as one text with an order of their triggers, about as large as in their file: parsed into patterns they
/// took sixty times as much in each process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TogetherRules(Arc<RuleTexts>);

#[derive(Debug, Default, PartialEq, Eq)]
struct RuleTexts {
    /// The words of all rules, each with its end.
    text: String,
    /// Where each rule begins in the text.
    starts: Vec<usize>,
    /// The indexes of the rules by trigger; those of one trigger in the given order.
    by_trigger: Vec<u32>,
    has_templates: bool,
}

impl RuleTexts {
    /// The trigger of a rule and its companions.
    fn words(&self, index: u32) -> (&str, impl Iterator<Item = &str>) {
        let index = index as usize;
        let start = self.starts.get(index).copied().unwrap_or(self.text.len());
        let end = self.starts.get(index + 1).copied().unwrap_or(self.text.len());
        let mut words = self.text.get(start..end).unwrap_or_default().split_terminator(WORD_END);
        (words.next().unwrap_or_default(), words)
    }

    fn companions_of<'t>(&'t self, trigger: &'t str) -> impl Iterator<Item = &'t str> {
        let first = self.by_trigger.partition_point(|&index| self.words(index).0 < trigger);
        let rules = self.by_trigger.get(first..).unwrap_or_default().iter();
        rules
            .map(|&index| self.words(index))
            .take_while(move |(rule_trigger, _)| *rule_trigger == trigger)
            .flat_map(|(_, companions)| companions)
    }
}

impl TogetherRules {
    /// Prepares rules; those of the same trigger apply in the given order.
    pub fn new(rules: &[TogetherRule]) -> Self {
        let mut builder = TogetherRulesBuilder::default();
        for rule in rules {
            builder.add(rule);
        }
        builder.build()
    }

    /// The rules, in the given order.
    pub fn rules(&self) -> Vec<TogetherRule> {
        let rule_at = |index| {
            let (trigger, companions) = self.0.words(index);
            let companions = companions.map(|text| {
                Pattern::parse(text)
                    .unwrap_or_else(|_| Pattern(vec![PatternPiece::Text(text.to_owned())]))
            });
            TogetherRule { trigger: trigger.to_owned(), companions: companions.collect() }
        };
        (0..self.0.starts.len() as u32).map(rule_at).collect()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.starts.is_empty()
    }

    /// The memory that they take in a process.
    pub fn bytes(&self) -> usize {
        let texts = &*self.0;
        texts.text.capacity() + texts.starts.capacity() * 8 + texts.by_trigger.capacity() * 4
    }

    /// Appends the keys that are fetched with `key`: those of rules for the key itself, then those of rules for its
    /// template, each once.
    pub fn companions(&self, key: &str, companion_list: &mut Vec<String>) {
        let list_start = companion_list.len();
        let mut add_companions = |trigger: &str, parts: &[&str]| {
            for pattern in self.0.companions_of(trigger) {
                let companion = fill_pattern(pattern, parts);
                if !companion_list[list_start..].contains(&companion) {
                    companion_list.push(companion);
                }
            }
        };
        add_companions(key, &[]);
        if self.0.has_templates
            && let Some(split_key) =
                SplitKey::new(key).filter(|split_key| !split_key.parts.is_empty())
        {
            add_companions(&split_key.template, &split_key.parts);
        }
    }
}

/// Rules that are added one by one, so that only their text is in memory.
#[derive(Debug, Default)]
pub struct TogetherRulesBuilder(RuleTexts);

impl TogetherRulesBuilder {
    /// Adds a rule.
    pub fn add(&mut self, rule: &TogetherRule) {
        let texts = &mut self.0;
        texts.has_templates |= rule.trigger.contains('{');
        texts.by_trigger.push(texts.starts.len() as u32);
        texts.starts.push(texts.text.len());
        let _ = write!(texts.text, "{}{WORD_END}", rule.trigger);
        for companion in &rule.companions {
            let _ = write!(texts.text, "{companion}{WORD_END}");
        }
    }

    /// The rules, ready to be looked up.
    pub fn build(self) -> TogetherRules {
        let mut texts = self.0;
        texts.text.shrink_to_fit();
        texts.starts.shrink_to_fit();
        let mut by_trigger = std::mem::take(&mut texts.by_trigger);
        by_trigger.shrink_to_fit();
        by_trigger.sort_by_key(|&index| texts.words(index).0);
        texts.by_trigger = by_trigger;
        TogetherRules(Arc::new(texts))
    }
}

/// The key that a pattern gives with the parts of its trigger.
fn fill_pattern(pattern: &str, parts: &[&str]) -> String {
    match Pattern::parse(pattern) {
        Ok(parsed) if pattern.contains('{') => parsed.fill(parts),
        _ => pattern.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn companions(rule_texts: &[&str], key: &str) -> Vec<String> {
        let rules: Vec<TogetherRule> =
            rule_texts.iter().map(|rule_text| TogetherRule::parse(rule_text).unwrap()).collect();
        let mut companion_list = Vec::new();
        let together_rules = TogetherRules::new(&rules);
        assert_eq!(together_rules.rules(), rules);
        together_rules.companions(key, &mut companion_list);
        companion_list
    }

    #[test]
    fn a_key_is_cut_at_its_runs_with_digits() {
        for (key, template, parts) in [
            ("user:17", "user:{1}", &["17"][..]),
            ("v2/user:17:name", "{1}/user:{2}:name", &["v2", "17"]),
            ("c:3:9f", "c:{1}:{2}", &["3", "9f"]),
            ("plain", "plain", &[]),
            ("ä:ö7", "ä:{1}", &["ö7"]),
            ("", "", &[]),
        ] {
            let split_key = SplitKey::new(key).unwrap();
            assert_eq!((split_key.template.as_str(), &split_key.parts[..]), (template, parts));
        }
        assert_eq!(SplitKey::new("a{1}"), None);
        assert_eq!(SplitKey::new("1:2:3:4:5:6:7:8:9:10"), None);
    }

    #[test]
    fn companions_take_the_parts_of_the_trigger() {
        let rules = [
            "user:{1} profile:{1} rights:{1} config",
            "user:17 extra profile:17",
            "a:{1}:{2} b:{2}:{1}",
        ];
        assert_eq!(companions(&rules, "user:5"), ["profile:5", "rights:5", "config"]);
        assert_eq!(companions(&rules, "user:17"), ["extra", "profile:17", "rights:17", "config"]);
        assert_eq!(companions(&rules, "a:1:x2"), ["b:x2:1"]);
        assert!(companions(&rules, "user:x").is_empty());
        assert_eq!(companions(&["k:{1} k:{1} k:{1}"], "k:1"), ["k:1"]);
    }

    #[test]
    fn rules_take_about_the_memory_of_their_text() {
        let texts = (0..5000).map(|number| {
            let keys: Vec<String> = (0..10).map(|key| format!("c:{number}:{key}f")).collect();
            keys.join(" ")
        });
        let rules: Vec<TogetherRule> =
            texts.map(|text| TogetherRule::parse(&text).unwrap()).collect();
        let text_bytes: usize = rules.iter().map(|rule| rule.to_string().len()).sum();
        let bytes = TogetherRules::new(&rules).bytes();
        assert!(bytes < text_bytes * 13 / 10, "{bytes} for {text_bytes}");
    }

    #[test]
    fn rules_are_printed_as_they_are_read() {
        for text in ["user:{1} profile:{1} config", "c:0:0 c:0:1", "{1}/a {1}/b"] {
            assert_eq!(TogetherRule::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_rule_that_cannot_apply_is_an_error() {
        for (text, expected_part) in [
            ("", "trigger"),
            ("user:{1}", "trigger"),
            ("user:{2} a", "from left to right"),
            ("user:{1}:{1} a", "from left to right"),
            ("user{1} a", "from left to right"),
            ("{1}{2} a", "from left to right"),
            ("user:{1}:7 a", "from left to right"),
            ("user:{1} a:{2}", "no part {2}"),
            ("user:{x} a", "number from 1 to 9"),
            ("user:{1 a", "number from 1 to 9"),
            ("user:1} a", "number from 1 to 9"),
            ("user:1 a:{1}", "no part {1}"),
        ] {
            let message = TogetherRule::parse(text).unwrap_err().to_string();
            assert!(message.contains(expected_part), "{text}: {message}");
        }
    }
}
