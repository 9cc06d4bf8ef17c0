//! The scope of one request: the items that it has requested and the values that it holds.
//!
//! Without it a request that needs an item twice would fetch it twice if the local cache evicted it in between.
//! [`ClientContext`] combines the scope with the fixed set and the local cache of the process for [`crate::rules`].

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::near::NearCache;
use crate::rules::RequestContext;

/// The items that one request has requested, and the values it holds.
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

/// How items belong together: the tree that the application knows, and the rules that were learned.
pub trait Tree<K> {
    /// Appends the children of `key` in ascending order.
    fn children(&self, key: &K, list: &mut Vec<K>);
    /// Appends what learned rules fetch with the item.
    fn companions(&self, key: &K, list: &mut Vec<K>);
    /// Appends what learned rules fetch at the start of a request about the page.
    fn page_companions(&self, page: &K, list: &mut Vec<K>);
}

/// The context of a request in a client: fixed set, local cache and request scope.
pub struct ClientContext<'a, K, V, T> {
    /// The fixed set and its values.
    pub fixed: &'a HashMap<K, V>,
    /// The local cache of this process.
    pub near: &'a mut NearCache<K, V>,
    /// The scope of this request.
    pub scope: &'a mut Scope<K, V>,
    /// Values of the last fetch that are not yet stored, with the bytes that each counts in the local cache.
    pub arrived: &'a HashMap<K, (V, u32)>,
    /// The children of each item.
    pub tree: &'a T,
}

impl<K, V, T> RequestContext for ClientContext<'_, K, V, T>
where
    K: Clone + Ord + Hash,
    V: Clone,
    T: Tree<K>,
{
    type Key = K;

    fn note_request(&mut self, key: &K) -> bool {
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

    fn companions(&self, key: &K, list: &mut Vec<K>) {
        self.tree.companions(key, list);
    }

    fn page_companions(&self, page: &K, list: &mut Vec<K>) {
        self.tree.page_companions(page, list);
    }
}
