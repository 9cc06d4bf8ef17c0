//! Which keys a process must not keep: sessions, keys under named prefixes, and what the application reads, changes and
//! writes back.
//!
//! A key that is ever written by `add`, `cas`, `incr`, `append` and the like, or read with its CAS unique, is a counter, a
//! lock or a value that is changed in place: a kept value of it is one that another process may have changed already.
//! Such keys are in the log (and as `never` lines in the strategy file), and each client learns those that it changes
//! itself. What is allowed by name is kept all the same.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use crate::key_prefixes::longest_prefix;
use crate::session_keys::is_session_key;

/// Stands in a pattern for a part of a key that has digits.
const VARIABLE_PART: u8 = b'*';

/// So many keys of one pattern stand for all of that pattern: `views:*` for `views:1`, `views:2`, ...
const KEYS_OF_A_PATTERN: u8 = 8;

/// Bits of the table of changed keys, 64 KiB however many keys there are. Each key sets one bit; of the other keys,
/// those with the same bit are not kept either, n in 524,288 after n keys.
const TABLE_BITS: usize = 1 << 19;

/// The most patterns whose keys are counted; keys of further patterns are known one by one.
const PATTERNS_MAX: usize = 4096;

/// The rules that are known when a client or a simulation begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeverRules {
    /// Keys with these prefixes are not kept.
    pub prefixes: Vec<String>,
    /// Keys with these prefixes are kept, whatever they are, unless a longer prefix forbids it.
    pub allowed_prefixes: Vec<String>,
    /// Keys and patterns that a log contained as changed.
    pub keys_and_patterns: BTreeSet<String>,
}

impl NeverRules {
    /// Whether nothing is named: sessions alone are not kept.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// About the memory that they take.
    pub fn bytes(&self) -> usize {
        let texts =
            self.prefixes.iter().chain(&self.allowed_prefixes).chain(&self.keys_and_patterns);
        texts.map(|text| text.capacity() + 2 * size_of::<String>()).sum()
    }

    /// Adds the rules of another source, such as a strategy file.
    #[must_use]
    pub fn with(mut self, others: &Self) -> Self {
        self.prefixes.extend_from_slice(&others.prefixes);
        self.allowed_prefixes.extend_from_slice(&others.allowed_prefixes);
        self.keys_and_patterns.extend(others.keys_and_patterns.iter().cloned());
        self
    }

    /// Whether a key (without namespace) may be kept, by its name; `is_changed` is asked about other keys, whether they
    /// are changed in place.
    pub fn may_keep(&self, key: &[u8], is_changed: impl FnOnce() -> bool) -> bool {
        let allowed_length = longest_prefix(&self.allowed_prefixes, key);
        let forbidden_length = longest_prefix(&self.prefixes, key);
        if allowed_length.is_some() {
            return allowed_length >= forbidden_length;
        }
        forbidden_length.is_none()
            && !is_session_key(key)
            && !self.has_changed_key(key)
            && !is_changed()
    }

    fn has_changed_key(&self, key: &[u8]) -> bool {
        let contains = |key: &[u8]| {
            std::str::from_utf8(key).is_ok_and(|text| self.keys_and_patterns.contains(text))
        };
        !self.keys_and_patterns.is_empty()
            && (contains(key) || pattern_of(key).is_some_and(|pattern| contains(&pattern)))
    }
}

/// The pattern of a key: each part with digits replaced by `*`, with the letters that precede a number (`views17` is
/// `views*`). `None` for a key without digits, and if no letter would be left, for that would be any key.
pub fn pattern_of(key: &[u8]) -> Option<Vec<u8>> {
    let mut pattern = Vec::with_capacity(key.len());
    let is_part_byte = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
    for part in key.chunk_by(|a, b| is_part_byte(a) == is_part_byte(b)) {
        let Some(first_digit) = part.iter().position(u8::is_ascii_digit) else {
            pattern.extend_from_slice(part);
            continue;
        };
        let (letters, number) = part.split_at(first_digit);
        if number.iter().all(u8::is_ascii_digit) {
            pattern.extend_from_slice(letters);
        }
        pattern.push(VARIABLE_PART);
    }
    let has_letter = pattern.iter().any(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii());
    (has_letter && pattern != key).then_some(pattern)
}

/// What a changed key added to what was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// It was known.
    Nothing,
    /// The key.
    Key,
    /// All keys of its pattern.
    Pattern,
}

/// The keys that a client has changed in place, in a bounded memory.
#[derive(Debug)]
pub struct ChangedKeyTable {
    /// A bit for each hash of a key; empty until the first key.
    bits: Vec<u64>,
    /// How many keys of each pattern were changed, by its hash; at [`KEYS_OF_A_PATTERN`] it stands for all.
    keys_by_pattern: HashMap<u64, u8>,
    hasher: RandomState,
}

impl Default for ChangedKeyTable {
    fn default() -> Self {
        Self { bits: Vec::new(), keys_by_pattern: HashMap::new(), hasher: RandomState::new() }
    }
}

impl ChangedKeyTable {
    /// Notes that a key is changed in place.
    pub fn learn(&mut self, key: &[u8]) -> Learned {
        if self.contains(key) {
            return Learned::Nothing;
        }
        if self.bits.is_empty() {
            self.bits = vec![0; TABLE_BITS / 64];
        }
        let (index, bit) = self.bit_of(key);
        if let Some(word) = self.bits.get_mut(index) {
            *word |= bit;
        }
        let Some(pattern_hash) = pattern_of(key).map(|pattern| self.hasher.hash_one(pattern))
        else {
            return Learned::Key;
        };
        let is_counted = self.keys_by_pattern.contains_key(&pattern_hash);
        if !is_counted && self.keys_by_pattern.len() >= PATTERNS_MAX {
            return Learned::Key;
        }
        let count = self.keys_by_pattern.entry(pattern_hash).or_default();
        *count += 1;
        if *count == KEYS_OF_A_PATTERN { Learned::Pattern } else { Learned::Key }
    }

    /// Whether a key was changed, or may have been.
    pub fn contains(&self, key: &[u8]) -> bool {
        if self.bits.is_empty() {
            return false;
        }
        let (index, bit) = self.bit_of(key);
        self.bits.get(index).is_some_and(|word| word & bit != 0)
            || pattern_of(key).is_some_and(|pattern| {
                let count = self.keys_by_pattern.get(&self.hasher.hash_one(pattern));
                count.is_some_and(|&count| count >= KEYS_OF_A_PATTERN)
            })
    }

    fn bit_of(&self, key: &[u8]) -> (usize, u64) {
        let bit_index = self.hasher.hash_one(key) as usize % TABLE_BITS;
        (bit_index / 64, 1 << (bit_index % 64))
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bits.len() * 8 + self.keys_by_pattern.capacity() * (8 + 1 + 1)
    }
}

/// The keys and patterns that stand for these changed keys in a strategy file, in order. Sessions are known by their form.
pub fn keys_and_patterns_of<'k>(changed_keys: impl Iterator<Item = &'k str>) -> BTreeSet<String> {
    let mut keys_by_pattern: HashMap<String, BTreeSet<&str>> = HashMap::new();
    let mut found = BTreeSet::new();
    for key in changed_keys.filter(|key| !is_session_key(key.as_bytes())) {
        match pattern_of(key.as_bytes()).and_then(|pattern| String::from_utf8(pattern).ok()) {
            Some(pattern) => keys_by_pattern.entry(pattern).or_default().insert(key),
            None => found.insert(key.to_owned()),
        };
    }
    for (pattern, keys) in keys_by_pattern {
        if keys.len() >= usize::from(KEYS_OF_A_PATTERN) {
            found.insert(pattern);
        } else {
            found.extend(keys.into_iter().map(str::to_owned));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(key: &str) -> Option<String> {
        pattern_of(key.as_bytes()).map(|pattern| String::from_utf8(pattern).unwrap())
    }

    #[test]
    fn a_pattern_replaces_parts_with_digits_and_leaves_a_letter() {
        for (key, expected) in [
            ("views:17", Some("views:*")),
            ("views17", Some("views*")),
            (":1:rate:10.0.0.7:3f2a", Some(":*:rate:*.*.*.*:*")),
            ("lock:alice", None),
            ("17", None),
            ("shop:1:page", Some("shop:*:page")),
            ("3f2a9c", None),
            ("ü:7", Some("ü:*")),
            ("", None),
        ] {
            assert_eq!(pattern(key).as_deref(), expected, "{key}");
        }
    }

    #[test]
    fn the_longest_prefix_decides_and_what_is_allowed_by_name_is_kept() {
        let texts = |prefixes: &[&str]| prefixes.iter().map(ToString::to_string).collect();
        let rules = NeverRules {
            prefixes: texts(&["cart:", "user:"]),
            allowed_prefixes: texts(&["user:public:", "session:demo", "views:"]),
            keys_and_patterns: ["views:*", "stock"].map(str::to_owned).into(),
        };
        for (key, may_keep) in [
            ("cart:7", false),
            (":1:cart:7", false),
            ("shop:12:cart:7", false),
            ("shop:x:cart:7", true),
            ("user:7", false),
            ("user:public:7", true),
            ("session:demo1", true),
            ("session:other", false),
            ("views:7", true),
            ("stock", false),
            ("page:7", true),
        ] {
            assert_eq!(rules.may_keep(key.as_bytes(), || false), may_keep, "{key}");
        }
        assert!(!rules.may_keep(b"page:7", || true));
        assert!(rules.may_keep(b"views:7", || true));
    }

    #[test]
    fn eight_keys_stand_for_their_pattern() {
        let mut table = ChangedKeyTable::default();
        assert_eq!(table.bytes(), 0);
        for number in 0..7 {
            assert_eq!(table.learn(format!("views:{number}").as_bytes()), Learned::Key);
            assert_eq!(table.learn(format!("views:{number}").as_bytes()), Learned::Nothing);
        }
        assert!(!table.contains(b"views:99") && !table.contains(b"page:1"));
        assert_eq!(table.learn(b"views:7"), Learned::Pattern);
        assert!(table.contains(b"views:99") && !table.contains(b"page:99"));
        let keys = (0..8).map(|number| format!("n{number}")).chain(["lock".into(), "a1".into()]);
        let keys: Vec<String> = keys.collect();
        let lines = keys_and_patterns_of(keys.iter().map(String::as_str));
        assert_eq!(Vec::from_iter(lines), ["a1", "lock", "n*"]);
    }

    #[test]
    fn the_table_is_bounded_whatever_is_changed_and_then_keeps_less() {
        let mut table = ChangedKeyTable::default();
        let words = |number: u32| -> String {
            (0..6).map(|place| char::from(b'a' + (number >> (4 * place) & 15) as u8)).collect()
        };
        for number in 0..200_000 {
            table.learn(format!("lock:{}", words(number)).as_bytes());
            table.learn(format!("{}:{number}", words(number)).as_bytes());
        }
        assert!(table.bytes() < 256 << 10, "{}", table.bytes());
        for number in 0..200_000 {
            assert!(table.contains(format!("lock:{}", words(number)).as_bytes()));
        }
    }

    proptest! {
        #[test]
        fn a_changed_key_is_never_forgotten(keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..60)) {
            let mut table = ChangedKeyTable::default();
            for key in &keys {
                table.learn(key);
            }
            for key in &keys {
                prop_assert!(table.contains(key));
                prop_assert!(!NeverRules::default().may_keep(key, || table.contains(key)));
            }
            let texts: Vec<String> = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
            let rules = NeverRules {
                keys_and_patterns: keys_and_patterns_of(texts.iter().map(String::as_str)),
                ..NeverRules::default()
            };
            for text in &texts {
                prop_assert!(!rules.may_keep(text.as_bytes(), || false));
            }
        }
    }
}
