//! One read under a strategy: what is available, and the calls that fetch the rest, one after the other.
//!
//! A driver sends each [`Fetch`], waits in its own way and passes in the result, until none is left. So the blocking
//! client, the tokio client and the asyncio client decide alike.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use glasscache_protocol::meta::request::WireKey;
use glasscache_strategy::rules::Prefetch;

use super::ClientNearCache;
use super::entry::{NearKey, NearValue, near_key, wire_key};
use super::related_keys::RelatedKeysOfRead;
use super::scope::{RequestScope, ScopeState};
use super::state::{FetchedKey, ReadMode};
use crate::error::{Error, Failures};

/// A read of some keys that is under way.
#[derive(Debug)]
pub struct NearRead {
    near: Arc<ClientNearCache>,
    scope: Option<Arc<RequestScope>>,
    keys: Vec<NearKey>,
    values: Vec<Option<NearValue>>,
    /// The keys whose value comes with the last fetch.
    needs_no_fetch: Vec<bool>,
    failures: HashMap<NearKey, Error>,
    stage: NearReadStage,
    mode: ReadMode,
    /// Which of the fetched keys are kept, where the strategy does not serve the read.
    keys_to_cache: HashSet<NearKey>,
    /// Since when it loads the fixed set.
    load_started_at: Option<Instant>,
}

/// What is fetched next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NearReadStage {
    Load,
    Page,
    Items,
    Done,
}

/// Why keys are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchReason {
    /// The fixed set is loaded or refreshed.
    Load,
    /// A request about a page begins.
    Page,
    /// Items are read.
    Items,
}

/// One call to be made: these keys, each with its remaining TTL.
#[derive(Debug)]
pub struct Fetch {
    keys: Vec<NearKey>,
    generations: Vec<Option<u64>>,
    started_at: Instant,
    reason: FetchReason,
}

/// What a fetch brought so far, by the index of the key.
#[derive(Debug, Default)]
pub struct FetchedItems {
    items: Vec<Option<FetchedItem>>,
    lacks_ttls: bool,
}

#[derive(Debug)]
struct FetchedItem {
    value: Option<NearValue>,
    ttl_s: Option<i64>,
}

impl Fetch {
    /// The keys as they go on the wire.
    pub fn keys(&self) -> Vec<WireKey<'_>> {
        self.keys.iter().map(wire_key).collect()
    }

    /// When the call begins.
    pub fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Why they are fetched.
    pub fn reason(&self) -> FetchReason {
        self.reason
    }

    /// When the call must end, whose read must end at `deadline`: what is not read itself gets half of the time.
    pub fn deadline(&self, deadline: Instant) -> Instant {
        match self.reason {
            FetchReason::Items => deadline,
            FetchReason::Load | FetchReason::Page => {
                self.started_at + deadline.saturating_duration_since(self.started_at) / 2
            }
        }
    }
}

impl FetchedItems {
    /// Notes what came for the key at `index`; `ttl_s` as of [`MetaReply`](crate::pipeline::MetaReply), `None` if the
    /// value must not be kept.
    pub fn record_item(&mut self, index: usize, value: Option<NearValue>, ttl_s: Option<i64>) {
        if self.items.len() <= index {
            self.items.resize_with(index + 1, || None);
        }
        if let Some(item) = self.items.get_mut(index) {
            *item = Some(FetchedItem { value, ttl_s });
        }
    }

    /// Notes that a server cannot send the TTLs of its values.
    pub fn mark_without_ttls(&mut self) {
        self.lacks_ttls = true;
    }

    /// Bytes of the values.
    pub fn bytes(&self) -> usize {
        self.values().map(|value| value.bytes.len()).sum()
    }

    /// Whether there is any value.
    pub fn has_value(&self) -> bool {
        self.values().next().is_some()
    }

    fn values(&self) -> impl Iterator<Item = &NearValue> {
        let items = self.items.iter().flatten();
        items.filter_map(|item| item.value.as_ref())
    }
}

impl NearRead {
    /// A read of these keys, within a request if there is a scope; without keys it fetches what the request's page needs.
    /// A child that was forked within a request reads outside of it.
    pub fn new(
        near: Arc<ClientNearCache>,
        keys: &[WireKey<'_>],
        scope: Option<Arc<RequestScope>>,
    ) -> Self {
        let scope = scope.filter(|scope| scope.is_of_this_process());
        let group = scope.as_ref().map(|scope| scope.group());
        let mode = near.current().state().read_mode(group);
        Self {
            near,
            scope,
            keys: keys.iter().copied().map(near_key).collect(),
            values: vec![None; keys.len()],
            needs_no_fetch: vec![false; keys.len()],
            failures: HashMap::new(),
            stage: match mode {
                ReadMode::Strategy => NearReadStage::Load,
                ReadMode::Control | ReadMode::Bypass => NearReadStage::Items,
            },
            mode,
            keys_to_cache: HashSet::new(),
            load_started_at: None,
        }
    }

    /// The next call to be made; `None`: all is here.
    pub fn step(&mut self, now: Instant) -> Option<Fetch> {
        loop {
            let (keys, reason) = match self.stage {
                NearReadStage::Load => {
                    self.stage = NearReadStage::Page;
                    (self.keys_to_load(now), FetchReason::Load)
                }
                NearReadStage::Page => {
                    self.stage = NearReadStage::Items;
                    (self.begin_request(now), FetchReason::Page)
                }
                NearReadStage::Items => {
                    self.stage = NearReadStage::Done;
                    (self.look_up(now), FetchReason::Items)
                }
                NearReadStage::Done => return None,
            };
            if !keys.is_empty() {
                let generations = self.near.current().state().generations(&keys);
                return Some(Fetch {
                    keys,
                    generations,
                    started_at: now,
                    reason,
                });
            }
        }
    }

    fn keys_to_load(&mut self, now: Instant) -> Vec<NearKey> {
        let is_due = self.near.current().state().begin_load(now);
        self.load_started_at = is_due.then_some(now);
        if is_due {
            self.near.fixed_keys.clone()
        } else {
            Vec::new()
        }
    }

    fn begin_request(&mut self, now: Instant) -> Vec<NearKey> {
        let related_keys = &self.near.related_keys;
        let Some(scope) = &self.scope else {
            return Vec::new();
        };
        let Some(page) = scope.state().page.take() else {
            return Vec::new();
        };
        let children = related_keys.children_of_read(&[], Some(&page));
        let related_keys_of_read = RelatedKeysOfRead {
            related_keys,
            children: &children,
        };
        let mut scope = scope.state();
        let near = self.near.current();
        near.state().begin_request(
            &page,
            &mut scope,
            related_keys.rules,
            &related_keys_of_read,
            now,
        )
    }

    fn look_up(&mut self, now: Instant) -> Vec<NearKey> {
        let related_keys = &self.near.related_keys;
        let children = related_keys.children_of_read(&self.keys_with_children(now), None);
        let related_keys_of_read = RelatedKeysOfRead {
            related_keys,
            children: &children,
        };
        let uses_scope = self.mode != ReadMode::Bypass;
        let scope = self.scope.as_ref().filter(|_| uses_scope);
        let mut scope = scope.map(|scope| scope.state());
        let scope = scope.as_deref_mut();
        let near = self.near.current();
        let lookup = match self.mode {
            ReadMode::Strategy => near.state().look_up(
                &self.keys,
                scope,
                related_keys.rules,
                &related_keys_of_read,
                now,
            ),
            ReadMode::Control | ReadMode::Bypass => {
                near.state()
                    .look_up_without_strategy(&self.keys, scope, &related_keys_of_read, now)
            }
        };
        self.values = lookup.values;
        self.needs_no_fetch = lookup.needs_no_fetch;
        self.keys_to_cache = lookup.keys_to_cache;
        lookup.fetch
    }

    /// The keys whose children the rules may fetch.
    fn keys_with_children(&self, now: Instant) -> Vec<NearKey> {
        let is_strategy_read = self.mode == ReadMode::Strategy;
        let Some(scope) = self.scope.as_ref().filter(|_| is_strategy_read) else {
            return Vec::new();
        };
        match self.near.related_keys.rules.prefetch {
            Prefetch::Nothing => Vec::new(),
            Prefetch::ChildrenAlways => self.keys.clone(),
            Prefetch::Children => {
                let scope = scope.state();
                let near = self.near.current();
                let near = near.state();
                let is_missing = |key: &&NearKey| !near.is_available(key, &scope, now);
                self.keys.iter().filter(is_missing).cloned().collect()
            }
        }
    }

    /// Adds what a call fetched, and for which keys it failed; `now` is when it ended.
    pub fn finish_fetch(
        &mut self,
        fetch: &Fetch,
        fetched: FetchedItems,
        failures: Failures,
        now: Instant,
    ) {
        if fetched.lacks_ttls {
            self.near.current().state().warn_of_missing_ttls();
        }
        let mut items: Vec<Option<FetchedItem>> = fetched.items;
        items.resize_with(fetch.keys.len(), || None);
        let is_load = fetch.reason == FetchReason::Load;
        let missing_keys = fetch.keys.iter().zip(&items).filter(|(_, item)| {
            let item = item.as_ref();
            is_load && item.is_some_and(|item| item.value.is_none())
        });
        let missing_keys: Vec<NearKey> = missing_keys.map(|(key, _)| key.clone()).collect();
        let has_failed = !failures.is_empty() || items.iter().any(Option::is_none);
        if !is_load {
            self.add_request_cost(fetch, &items, has_failed, now);
        }
        if fetch.reason == FetchReason::Items {
            self.fill_values(fetch, &items);
            let failed = failures
                .into_iter()
                .filter_map(|(index, error)| Some((fetch.keys.get(index)?.clone(), error)));
            self.failures.extend(failed);
        }
        self.store(fetch, items);
        if is_load {
            let near = self.near.current();
            let mut state = near.state();
            state.end_load(now, missing_keys, has_failed);
            state.warn_of_missing(|key| self.near.related_keys.name_of(key));
            self.load_started_at = None;
        }
    }

    /// Adds a call to what the request needed.
    fn add_request_cost(
        &self,
        fetch: &Fetch,
        items: &[Option<FetchedItem>],
        has_failed: bool,
        now: Instant,
    ) {
        let Some(scope) = &self.scope else { return };
        let waited = now.saturating_duration_since(fetch.started_at);
        let cost = &mut scope.state().cost;
        cost.calls = cost.calls.saturating_add(1);
        cost.keys = cost.keys.saturating_add(fetch.keys.len() as u32);
        cost.bytes = cost.bytes.saturating_add(value_bytes(items) as u64);
        cost.added_ns = cost.added_ns.saturating_add(waited.as_nanos() as u64);
        cost.has_failed |= has_failed;
    }

    fn fill_values(&mut self, fetch: &Fetch, items: &[Option<FetchedItem>]) {
        let items = fetch.keys.iter().zip(items);
        let items_by_key: HashMap<&NearKey, &FetchedItem> = items
            .filter_map(|(key, item)| Some((key, item.as_ref()?)))
            .collect();
        let requested_values = self
            .keys
            .iter()
            .zip(&mut self.values)
            .zip(&self.needs_no_fetch);
        for ((key, value), needs_no_fetch) in requested_values {
            if let Some(item) = items_by_key.get(key).filter(|_| !needs_no_fetch) {
                value.clone_from(&item.value);
            }
        }
    }

    fn store(&self, fetch: &Fetch, items: Vec<Option<FetchedItem>>) {
        if self.mode == ReadMode::Bypass {
            return;
        }
        let is_strategy_read = self.mode == ReadMode::Strategy;
        let requested: HashSet<&NearKey> = self.keys.iter().collect();
        let bytes = value_bytes(&items);
        let fetched_keys = items.into_iter().zip(&fetch.keys).map(|(item, key)| {
            let item = item.filter(|_| is_strategy_read || self.keys_to_cache.contains(key));
            item.map(|item| FetchedKey {
                value: item.value,
                ttl_s: item.ttl_s,
                is_requested: requested.contains(key),
            })
        });
        let fetched_keys = fetched_keys.collect();
        let children = super::related_keys::ChildrenOfRead::default();
        let related_keys = RelatedKeysOfRead {
            related_keys: &self.near.related_keys,
            children: &children,
        };
        let is_load = fetch.reason == FetchReason::Load;
        let mut scope = self
            .scope
            .as_ref()
            .filter(|_| !is_load)
            .map(|scope| scope.state());
        let scope: Option<&mut ScopeState> = scope.as_deref_mut();
        let near = self.near.current();
        let mut state = near.state();
        if is_strategy_read {
            state.count_call(fetch.keys.len(), bytes, is_load);
        }
        let keys = (fetch.keys.as_slice(), fetch.generations.as_slice());
        state.store(keys, fetched_keys, scope, &related_keys, fetch.started_at);
    }

    /// How many keys were read without a call, and the bytes of their values.
    pub fn hit_keys_and_bytes(&self) -> (usize, usize) {
        let known_values = self
            .values
            .iter()
            .zip(&self.needs_no_fetch)
            .filter(|(_, needs_no_fetch)| **needs_no_fetch);
        let bytes = known_values
            .clone()
            .filter_map(|(value, _)| Some(value.as_ref()?.bytes.len()));
        (known_values.count(), bytes.sum())
    }

    /// The value of each key, and the keys that could not be read.
    pub fn finish(mut self) -> (Vec<Option<NearValue>>, Failures) {
        let failed = self.keys.iter().enumerate().filter_map(|(index, key)| {
            let error = self.failures.get(key)?;
            Some((index, error.clone()))
        });
        let failures = failed.collect();
        (std::mem::take(&mut self.values), failures)
    }
}

/// The value that a read of one key has found.
pub fn only_value(
    (values, failures): (Vec<Option<NearValue>>, Failures),
) -> Result<Option<NearValue>, Error> {
    match failures.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(values.into_iter().next().flatten()),
    }
}

/// Bytes of the values that a call brought.
fn value_bytes(items: &[Option<FetchedItem>]) -> usize {
    let values = items
        .iter()
        .flatten()
        .filter_map(|item| item.value.as_ref());
    values.map(|value| value.bytes.len()).sum()
}

impl Drop for NearRead {
    /// A load whose caller gave up is tried again by another.
    fn drop(&mut self) {
        if let Some(started_at) = self.load_started_at {
            let near = self.near.current();
            near.state().end_load(started_at, Vec::new(), true);
        }
    }
}
