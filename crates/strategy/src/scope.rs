//! The scope of one request: the items that it has requested and the values that it has fetched or read.
//!
//! Without it a request that needs an item twice would fetch it twice if the local cache evicted it in between.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// The items that one request has requested, and the values that it has fetched or read.
#[derive(Debug)]
pub struct Scope<K, V> {
    requested_keys: HashSet<K>,
    values: HashMap<K, V>,
}

impl<K, V> Default for Scope<K, V> {
    fn default() -> Self {
        Self { requested_keys: HashSet::new(), values: HashMap::new() }
    }
}

impl<K: Hash + Eq, V> Scope<K, V> {
    /// Records that the request uses an item; false if it already did.
    pub fn mark_requested(&mut self, key: K) -> bool {
        self.requested_keys.insert(key)
    }

    /// The value of an item in the scope.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key)
    }

    /// The value of an item in the scope, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(key)
    }

    /// Adds the value of an item.
    pub fn insert(&mut self, key: K, value: V) {
        self.values.insert(key, value);
    }

    /// Removes the value of an item.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.values.remove(key)
    }
}
