//! Which keys belong together: children by the strategy file or the application, and the learned rules.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use glasscache_strategy::file::LearnedTogetherRules;
use glasscache_strategy::near_values::RelatedItems;
use glasscache_strategy::never_kept::NeverRules;
use glasscache_strategy::rules::{ChildrenRule, PrefetchRules};
use glasscache_strategy::together::TogetherRules;

use super::entry::{NearKey, key_bytes, near_key, wire_key};
use super::keep_rules::KeepRules;
use super::options::{ChildrenOf, StrategyOptions};
use crate::error::Error;
use crate::key::{KeyEncoder, KeyEncoding};

/// Keys of a subtree that the application names after which it is not called again: a graph without an end must not hold a read.
const SUBTREE_KEYS_MAX: usize = 10_000;

/// The keys that belong to a key, and the rules that use them.
#[derive(Debug)]
pub(super) struct RelatedKeys {
    pub(super) rules: PrefetchRules,
    children: HashMap<NearKey, Vec<NearKey>>,
    /// The position of each child in the file, which orders the levels of a subtree.
    positions: HashMap<NearKey, u32>,
    children_of: Option<ChildrenOf>,
    learned: LearnedTogetherRules,
    never: Arc<NeverRules>,
    namespace: Vec<u8>,
    key_encoding: KeyEncoding,
}

impl RelatedKeys {
    pub(super) fn new(options: &StrategyOptions, encoder: KeyEncoder<'_>) -> Result<Self, Error> {
        let mut related_keys = Self {
            rules: options.file.strategy.prefetch_rules(),
            children: HashMap::new(),
            positions: HashMap::new(),
            children_of: options.children_of.clone(),
            learned: options.file.learned.clone(),
            never: Arc::new(options.file.never.clone().with(&options.never)),
            namespace: encoder.namespace.to_vec(),
            key_encoding: encoder.encoding,
        };
        // A key that is a parent and a child is in memory once.
        let mut known_keys: HashSet<NearKey> = HashSet::new();
        let mut intern = |key: NearKey| {
            if let Some(known_key) = known_keys.get(&key) {
                return known_key.clone();
            }
            known_keys.insert(key.clone());
            key
        };
        for ((parent, child), position) in options.file.children.iter().zip(0..) {
            let parent = intern(related_keys.key_of_rule("child", parent)?);
            let child = intern(related_keys.key_of_rule("child", child)?);
            related_keys.positions.insert(child.clone(), position);
            related_keys.children.entry(parent).or_default().push(child);
        }
        related_keys.children.values_mut().for_each(Vec::shrink_to_fit);
        Ok(related_keys)
    }

    /// Which keys the client may keep, before it has learned of any.
    pub(super) fn keep_rules(&self) -> KeepRules {
        KeepRules::new(self.never.clone(), &self.namespace)
    }

    /// The memory that the rules take in the process.
    pub(super) fn bytes(&self) -> usize {
        let children =
            self.children.values().map(|children| children.capacity() * size_of::<NearKey>());
        let parents_bytes = self.children.capacity() * (size_of::<(NearKey, Vec<NearKey>)>() + 1);
        let positions_bytes = self.positions.capacity() * (size_of::<(NearKey, u32)>() + 1);
        let keys_bytes = self.positions.keys().map(key_bytes);
        let learned_bytes = self.learned.with_items.bytes() + self.learned.with_pages.bytes();
        children.chain(keys_bytes).sum::<usize>()
            + parents_bytes
            + positions_bytes
            + learned_bytes
            + self.never.bytes()
    }

    /// A key of the strategy file as it is kept; the error names its rule.
    pub(super) fn key_of_rule(&self, rule: &str, application_key: &str) -> Result<NearKey, Error> {
        let rule_error = |error| Error::BadSetting(format!("strategy rule `{rule}`: {error}"));
        self.near_key(application_key.as_bytes()).map_err(rule_error)
    }

    /// An application's key as it is kept.
    pub(super) fn near_key(&self, application_key: &[u8]) -> Result<NearKey, Error> {
        let encoder = KeyEncoder { namespace: &self.namespace, encoding: self.key_encoding };
        Ok(near_key(encoder.wire_key(application_key, &mut Vec::new())?))
    }

    /// A kept key as the application writes it; one in base64 as it goes on the wire.
    pub(super) fn name_of(&self, key: &NearKey) -> String {
        let wire_form = wire_key(key);
        let name = self.without_namespace(key).unwrap_or(wire_form.bytes);
        String::from_utf8_lossy(name).into_owned()
    }

    /// A key without its namespace, if it is plain.
    fn without_namespace<'k>(&self, key: &'k NearKey) -> Option<&'k [u8]> {
        key.strip_prefix(self.namespace.as_slice()).filter(|_| !wire_key(key).is_base64)
    }

    /// Has the application name the children that the rules may fetch with these keys, and with the page.
    ///
    /// No lock may be held: the function is the application's.
    pub(super) fn children_of_read(
        &self,
        keys: &[NearKey],
        page: Option<&NearKey>,
    ) -> ChildrenOfRead {
        let mut children_of_read = ChildrenOfRead::default();
        let Some(children_of) = &self.children_of else {
            return children_of_read;
        };
        // An application's graph may have cycles: a key below the page is the child of the first that names it.
        let mut subtree: HashSet<NearKey> = page.into_iter().cloned().collect();
        if self.rules.children != ChildrenRule::Never {
            for key in keys {
                self.add_children(children_of, key, &mut children_of_read);
            }
        }
        if let (Some(page), Some(depth)) = (page, self.rules.subtree_depth) {
            let mut level = vec![page.clone()];
            for _ in 0..depth {
                let mut next_level = Vec::new();
                for key in &level {
                    if subtree.len() >= SUBTREE_KEYS_MAX {
                        return children_of_read;
                    }
                    self.add_children(children_of, key, &mut children_of_read);
                    if let Some(children) = children_of_read.by_parent.get_mut(key) {
                        children.retain(|child| subtree.insert(child.clone()));
                        next_level.extend_from_slice(children);
                    }
                }
                if next_level.is_empty() {
                    break;
                }
                level = next_level;
            }
        }
        children_of_read
    }

    fn add_children(
        &self,
        children_of: &ChildrenOf,
        key: &NearKey,
        children_of_read: &mut ChildrenOfRead,
    ) {
        let Some(without_namespace) =
            self.without_namespace(key).filter(|_| !children_of_read.by_parent.contains_key(key))
        else {
            return;
        };
        let child_keys = children_of.call(without_namespace).into_iter();
        let valid_keys = child_keys.filter_map(|child| self.near_key(&child).ok());
        children_of_read.by_parent.insert(key.clone(), valid_keys.collect());
    }

    fn push_companions(
        &self,
        together_rules: &TogetherRules,
        key: &NearKey,
        out: &mut Vec<NearKey>,
    ) {
        let without_namespace = self.without_namespace(key).map(std::str::from_utf8);
        if let Some(Ok(key_text)) = without_namespace.filter(|_| !together_rules.is_empty()) {
            let mut names = Vec::new();
            together_rules.companions(key_text, &mut names);
            let valid_keys = names.iter().filter_map(|name| self.near_key(name.as_bytes()).ok());
            out.extend(valid_keys);
        }
    }
}

/// The children that the application named for one read.
#[derive(Debug, Default)]
pub(super) struct ChildrenOfRead {
    by_parent: HashMap<NearKey, Vec<NearKey>>,
}

/// The keys that belong to the keys of one read.
#[derive(Debug)]
pub(super) struct RelatedKeysOfRead<'f> {
    pub(super) related_keys: &'f RelatedKeys,
    pub(super) children_of_read: &'f ChildrenOfRead,
}

impl RelatedItems<NearKey> for RelatedKeysOfRead<'_> {
    fn children(&self, key: &NearKey, out: &mut Vec<NearKey>) {
        let children = match self.related_keys.children_of {
            Some(_) => self.children_of_read.by_parent.get(key),
            None => self.related_keys.children.get(key),
        };
        out.extend(children.into_iter().flatten().cloned());
    }

    /// Children that the application names stay in its order.
    fn sort_level(&self, level: &mut [NearKey]) {
        if self.related_keys.children_of.is_none() {
            level.sort_by_key(|key| self.related_keys.positions.get(key));
        }
    }

    fn companions(&self, key: &NearKey, out: &mut Vec<NearKey>) {
        self.related_keys.push_companions(&self.related_keys.learned.with_items, key, out);
    }

    fn page_companions(&self, page: &NearKey, out: &mut Vec<NearKey>) {
        self.related_keys.push_companions(&self.related_keys.learned.with_pages, page, out);
    }
}
