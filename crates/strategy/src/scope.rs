//! What one request has asked for and holds: its memory from its first item to its last.
//!
//! Without it a request that needs an item twice would fetch it twice whenever the local cache has
//! let it go in between. [`View`] joins it with the process's fixed set and local cache, which is the
//! world that [`crate::rules`] decide over in a client.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::near::NearCache;
use crate::rules::World;

/// The items that one request asked for, and the values it holds.
#[derive(Debug)]
pub struct Scope<K, V> {
    seen: HashSet<K>,
    held: HashMap<K, V>,
}

impl<K, V> Default for Scope<K, V> {
    fn default() -> Self {
        Self {
            seen: HashSet::new(),
            held: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq, V> Scope<K, V> {
    /// The value of an item that the request holds.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.held.get(key)
    }
}

/// A tree of items, as the application knows it.
pub trait Tree<K> {
    /// Appends the children of `key` in ascending order.
    fn children(&self, key: &K, list: &mut Vec<K>);
}

/// A client's world: what is fixed, what is near, and what this request has.
pub struct View<'a, K, V, T> {
    /// The fixed set and its values.
    pub fixed: &'a HashMap<K, V>,
    /// The local cache of this process.
    pub near: &'a mut NearCache<K, V>,
    /// This request's own.
    pub scope: &'a mut Scope<K, V>,
    /// Values that came with the last fetch, with the bytes that each counts locally, not yet settled.
    pub arrived: &'a HashMap<K, (V, u32)>,
    /// Who is whose child.
    pub tree: &'a T,
}

impl<K, V, T> World for View<'_, K, V, T>
where
    K: Clone + Ord + Hash,
    V: Clone,
    T: Tree<K>,
{
    type Key = K;

    fn see(&mut self, key: &K) -> bool {
        self.scope.seen.insert(key.clone())
    }

    fn is_fixed(&self, key: &K) -> bool {
        self.fixed.contains_key(key)
    }

    fn is_held(&self, key: &K) -> bool {
        self.scope.held.contains_key(key)
    }

    fn hold(&mut self, key: &K) {
        let value = self
            .arrived
            .get(key)
            .map(|(value, _)| value)
            .or_else(|| self.near.peek(key));
        if let Some(value) = value.cloned() {
            self.scope.held.insert(key.clone(), value);
        }
    }

    fn local_get(&mut self, key: &K) -> bool {
        self.near.get(key).is_some()
    }

    fn local_contains(&self, key: &K) -> bool {
        self.near.peek(key).is_some()
    }

    fn local_insert(&mut self, key: &K) {
        if let Some((value, bytes)) = self.arrived.get(key).cloned() {
            self.near.insert(key, value, bytes);
        }
    }

    fn children(&self, key: &K, list: &mut Vec<K>) {
        self.tree.children(key, list);
    }
}
