//! What a process keeps under a strategy: the fixed set and the local cache, and the context of a request over them.
//!
//! [`ClientContext`] combines these with the scope of a request for [`crate::rules`], as the simulator does with
//! arrays. Whether a value may still be served depends on time and writes, which the caller knows ([`Validity`]).

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use crate::local_cache::LocalCache;
use crate::policy::AnyPolicy;
use crate::rules::RequestContext;
use crate::scope::Scope;

/// The values that one process serves itself: those of the fixed set and of the local cache.
#[derive(Debug)]
pub struct NearValues<K, V> {
    /// The fixed set; `None`: its value is not loaded.
    fixed: HashMap<K, Option<V>>,
    local_cache: LocalCache<K, V>,
}

impl<K: Clone + Eq + Hash, V> NearValues<K, V> {
    /// Nothing but the keys of the fixed set and an empty local cache.
    pub fn new(fixed_keys: impl IntoIterator<Item = K>, policy: AnyPolicy) -> Self {
        Self {
            fixed: fixed_keys.into_iter().map(|key| (key, None)).collect(),
            local_cache: LocalCache::new(policy),
        }
    }

    /// The fixed set, with the values that are loaded.
    pub fn fixed(&self) -> &HashMap<K, Option<V>> {
        &self.fixed
    }

    /// The local cache.
    pub fn local_cache(&self) -> &LocalCache<K, V> {
        &self.local_cache
    }

    /// Returns a value that may be served and records the use.
    pub fn get<Q>(&mut self, key: &Q, is_fresh: impl Fn(&V) -> bool) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        // Before the look-ups, because a returned value stays borrowed.
        self.remove_stale(key, &is_fresh);
        let fixed_value = self.fixed.get(key).and_then(Option::as_ref);
        fixed_value.filter(|value| is_fresh(value)).or_else(|| self.local_cache.get(key))
    }

    /// Removes a value that may not be served. What the policy remembers of a key without a value stays.
    fn remove_stale<Q>(&mut self, key: &Q, is_fresh: impl Fn(&V) -> bool)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if self.local_cache.peek(key).is_some_and(|value| !is_fresh(value)) {
            self.local_cache.remove(key);
        }
    }

    /// Caches a value: in the fixed set if the key belongs to it, else in the local cache, where it counts `bytes`.
    pub fn insert(&mut self, key: &K, value: V, bytes: u32) {
        if let Some(fixed_value) = self.fixed.get_mut(key) {
            *fixed_value = Some(value);
        } else {
            self.local_cache.insert(key, value, bytes);
        }
    }

    /// Removes the value under `key`, for example after a write.
    pub fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some(fixed_value) = self.fixed.get_mut(key) {
            *fixed_value = None;
        }
        self.remove_stale(key, |_| false);
    }

    /// Removes the values of the keys that `may_keep` refuses.
    pub fn retain(&mut self, may_keep: impl Fn(&K) -> bool) {
        let fixed_keys = self.fixed.iter_mut();
        fixed_keys.filter(|(key, _)| !may_keep(key)).for_each(|(_, value)| *value = None);
        let cached_keys = self.local_cache.iter().map(|(key, _)| key);
        let refused_keys: Vec<K> = cached_keys.filter(|key| !may_keep(key)).cloned().collect();
        for key in &refused_keys {
            self.remove(key);
        }
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.fixed.values_mut().for_each(|value| *value = None);
        self.local_cache.clear();
    }
}

/// Which items belong to an item: in the tree that the application knows, and by the rules that were learned.
pub trait RelatedItems<K> {
    /// Appends the children of `key` in ascending order.
    fn children(&self, key: &K, fetch_list: &mut Vec<K>);
    /// Sorts one level of a subtree in ascending order.
    fn sort_level(&self, level: &mut [K]);
    /// Appends what learned rules fetch with the item.
    fn companions(&self, key: &K, fetch_list: &mut Vec<K>);
    /// Appends what learned rules fetch at the start of a request about the page.
    fn page_companions(&self, page: &K, fetch_list: &mut Vec<K>);
}

/// Whether values may be kept, and still be served.
pub trait Validity<K, V> {
    /// Whether the process may keep a value of the key ([`RequestContext::may_keep`]).
    fn may_keep(&self, key: &K) -> bool;
    /// Whether a cached value may be served now.
    fn is_fresh(&self, value: &V) -> bool;
    /// Whether a value in the scope of a request may be served within it.
    fn is_current(&self, key: &K, value: &V) -> bool;
}

/// A value that was just fetched.
#[derive(Debug, Clone)]
pub struct FetchedValue<V> {
    /// The value.
    pub value: V,
    /// The bytes that it counts in the local cache; `None`: it is not cached, but the scope of the request gets it.
    pub cached_bytes: Option<u32>,
}

/// The context of a request in a client.
#[derive(Debug)]
pub struct ClientContext<'a, K, V, R, F> {
    /// Fixed set and local cache of this process.
    pub near_values: &'a mut NearValues<K, V>,
    /// The scope of this request.
    pub scope: &'a mut Scope<K, V>,
    /// Values of the last fetch that are not yet stored.
    pub fetched_values: &'a HashMap<K, FetchedValue<V>>,
    /// The items that belong to each item.
    pub related_items: &'a R,
    /// Which values may be served.
    pub validity: &'a F,
}

impl<K, V, R, F> RequestContext for ClientContext<'_, K, V, R, F>
where
    K: Clone + Eq + Hash,
    V: Clone,
    R: RelatedItems<K>,
    F: Validity<K, V>,
{
    type Key = K;

    fn may_keep(&self, key: &K) -> bool {
        self.validity.may_keep(key)
    }

    fn mark_requested(&mut self, key: &K) -> bool {
        self.scope.mark_requested(key.clone())
    }

    fn has_fixed_value(&self, key: &K) -> bool {
        let value = self.near_values.fixed.get(key).and_then(Option::as_ref);
        value.is_some_and(|value| self.validity.is_fresh(value))
    }

    fn scope_contains(&self, key: &K) -> bool {
        let scope_value = self.scope.get(key);
        scope_value.is_some_and(|value| self.validity.is_current(key, value))
    }

    fn scope_insert(&mut self, key: &K) {
        let fetched = self.fetched_values.get(key).map(|fetched_value| &fetched_value.value);
        if let Some(value) = fetched.or_else(|| self.near_values.local_cache.peek(key)).cloned() {
            self.scope.insert(key.clone(), value);
        }
    }

    fn use_local_value(&mut self, key: &K) -> bool {
        let validity = self.validity;
        self.near_values.remove_stale(key, |value| validity.is_fresh(value));
        self.near_values.local_cache.get(key).is_some()
    }

    fn local_contains(&self, key: &K) -> bool {
        let local_value = self.near_values.local_cache.peek(key);
        local_value.is_some_and(|value| self.validity.is_fresh(value))
    }

    fn near_insert(&mut self, key: &K) {
        if let Some(FetchedValue { value, cached_bytes: Some(bytes) }) =
            self.fetched_values.get(key)
        {
            self.near_values.insert(key, value.clone(), *bytes);
        }
    }

    fn children(&self, key: &K, fetch_list: &mut Vec<K>) {
        self.related_items.children(key, fetch_list);
    }

    fn sort_level(&self, level: &mut [K]) {
        self.related_items.sort_level(level);
    }

    fn companions(&self, key: &K, fetch_list: &mut Vec<K>) {
        self.related_items.companions(key, fetch_list);
    }

    fn page_companions(&self, page: &K, fetch_list: &mut Vec<K>) {
        self.related_items.page_companions(page, fetch_list);
    }
}
