//! Keys that requests read together: rules that a search learned from a log and a client runs.
//!
//! A rule has a trigger and companions, each a pattern: literal text, in which `{1}` to `{9}` stand for variable parts of
//! the trigger. `together user:{1} profile:{1} rights:{1}` fetches `profile:17` and `rights:17` in the call that fetches
//! `user:17`. A variable part is a run of letters and digits that has a digit, between characters of other kinds; so a
//! key has one template, and matching is one look-up however many rules there are.

use std::collections::HashMap;
use std::fmt::{self, Write};

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

/// The rules of a strategy, ready to be looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TogetherRules {
    rules: Vec<TogetherRule>,
    rule_indexes_by_trigger: HashMap<String, Vec<usize>>,
    has_templates: bool,
}

impl TogetherRules {
    /// Prepares rules; those of the same trigger apply in the given order.
    pub fn new(rules: Vec<TogetherRule>) -> Self {
        let mut rule_indexes_by_trigger: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, rule) in rules.iter().enumerate() {
            rule_indexes_by_trigger.entry(rule.trigger.clone()).or_default().push(index);
        }
        let has_templates = rules.iter().any(|rule| rule.trigger.contains('{'));
        Self { rules, rule_indexes_by_trigger, has_templates }
    }

    /// The rules, in the given order.
    pub fn rules(&self) -> &[TogetherRule] {
        &self.rules
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Appends the keys that are fetched with `key`: those of rules for the key itself, then those of rules for its
    /// template, each once.
    pub fn companions(&self, key: &str, companion_list: &mut Vec<String>) {
        let list_start = companion_list.len();
        let mut add_companions = |rule_indexes: Option<&Vec<usize>>, parts: &[&str]| {
            for pattern in rule_indexes
                .into_iter()
                .flatten()
                .flat_map(|&rule_index| &self.rules[rule_index].companions)
            {
                let companion = pattern.fill(parts);
                if !companion_list[list_start..].contains(&companion) {
                    companion_list.push(companion);
                }
            }
        };
        add_companions(self.rule_indexes_by_trigger.get(key), &[]);
        if self.has_templates
            && let Some(split_key) =
                SplitKey::new(key).filter(|split_key| !split_key.parts.is_empty())
        {
            add_companions(self.rule_indexes_by_trigger.get(&split_key.template), &split_key.parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn companions(rule_texts: &[&str], key: &str) -> Vec<String> {
        let rules =
            rule_texts.iter().map(|rule_text| TogetherRule::parse(rule_text).unwrap()).collect();
        let mut companion_list = Vec::new();
        TogetherRules::new(rules).companions(key, &mut companion_list);
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
