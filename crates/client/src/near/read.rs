//! One read under a strategy: what is available, and the calls that fetch the rest, one after the other.
//!
//! A driver does each [`NearStep`] in its own way, sends a [`Fetch`] and passes in the result or waits for a fetch of
//! another read, until none is left. So the blocking client, the tokio client and the asyncio client decide alike.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use glasscache_protocol::meta::request::WireKey;
use glasscache_strategy::rules::ChildrenRule;

use super::ClientNearCache;
use super::entry::{NearKey, NearValue, near_key, wire_key};
use super::fetch::{Fetch, FetchReason, FetchedItem, FetchedItems, value_bytes};
use super::fetches_in_flight::{AbsentKeys, AwaitedKey, AwaitedKeys};
use super::fixed_set_load::LoadOutcome;
use super::kept_values::FetchedKey;
use super::related_keys::RelatedKeysOfRead;
use super::rollout_state::ReadMode;
use super::scope::{RequestScope, ScopeFetch, ScopeState};
use super::state::KeyLookup;
use crate::error::{Error, Failures};

/// A read of some keys that is under way.
#[derive(Debug)]
pub struct NearRead {
    near: Arc<ClientNearCache>,
    scope: Option<Arc<RequestScope>>,
    keys: Vec<NearKey>,
    values: Vec<Option<NearValue>>,
    /// Whether the value of each key, or that there is none, is known without a call.
    needs_no_fetch: Vec<bool>,
    failures_by_key: HashMap<NearKey, Error>,
    stage: NearReadStage,
    mode: ReadMode,
    /// Which of the fetched keys are kept, where the strategy does not serve the read.
    keys_to_cache: HashSet<NearKey>,
    /// When it began to load the fixed set, if it does.
    load_started_at: Option<Instant>,
    /// What it is fetching for its request, until it is over or given up.
    scope_fetch: Option<ScopeFetch>,
    /// What it needs and other reads of its request are fetching.
    awaited_keys: AwaitedKeys,
    /// What the process keeps of keys that are fetched all the same.
    kept_values: Vec<(NearKey, NearValue)>,
    /// When its last call for the request ended: its caller waits until it resumes.
    call_ended_at: Option<Instant>,
}

/// What is fetched next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NearReadStage {
    Load,
    Page,
    Items,
    /// Items that other reads were fetching.
    AwaitedItems,
}

/// What a driver does next for a read.
#[derive(Debug)]
pub enum NearStep {
    /// It makes this call, and passes what it brings to [`NearRead::finish_fetch`].
    Fetch(Fetch),
    /// It waits until [`NearRead::poll_wait`] is ready; at its deadline it calls [`NearRead::time_out`].
    Wait,
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
        let mode = near.current().state().rollout.read_mode(group);
        Self {
            near,
            scope,
            keys: keys.iter().copied().map(near_key).collect(),
            values: vec![None; keys.len()],
            needs_no_fetch: vec![false; keys.len()],
            failures_by_key: HashMap::new(),
            stage: match mode {
                ReadMode::Strategy => NearReadStage::Load,
                ReadMode::Control | ReadMode::Bypass => NearReadStage::Items,
            },
            mode,
            keys_to_cache: HashSet::new(),
            load_started_at: None,
            scope_fetch: None,
            awaited_keys: AwaitedKeys::default(),
            kept_values: Vec::new(),
            call_ended_at: None,
        }
    }

    /// What is to be done next; `None`: all is here. Of a read that is alone in its request it always is a fetch.
    ///
    /// `now` is when the caller resumed after the previous call; on an event loop that is later than the end of that call.
    pub fn step(&mut self, now: Instant) -> Option<NearStep> {
        if let Some((scope, ended_at)) = self.scope.as_ref().zip(self.call_ended_at.take()) {
            scope.state().cost.add_wait(now.saturating_duration_since(ended_at));
        }
        loop {
            let (keys, reason) = match self.stage {
                NearReadStage::Load => {
                    self.stage = NearReadStage::Page;
                    (self.begin_load(now), FetchReason::Load)
                }
                NearReadStage::Page => {
                    self.stage = NearReadStage::Items;
                    (self.begin_request(now), FetchReason::Page)
                }
                NearReadStage::Items => {
                    self.stage = NearReadStage::AwaitedItems;
                    (self.look_up(now), FetchReason::Items)
                }
                NearReadStage::AwaitedItems if self.awaited_keys.is_empty() => return None,
                NearReadStage::AwaitedItems if self.awaited_keys.are_in_flight() => {
                    return Some(NearStep::Wait);
                }
                NearReadStage::AwaitedItems => (self.look_up_awaited(now), FetchReason::Items),
            };
            if let Some(fetch) = self.begin_fetch(keys, reason, now) {
                return Some(NearStep::Fetch(fetch));
            }
        }
    }

    /// The call for these keys, and for those that are to be compared.
    fn begin_fetch(
        &mut self,
        mut keys: Vec<NearKey>,
        reason: FetchReason,
        now: Instant,
    ) -> Option<Fetch> {
        let (needed_keys, process_cache) = (keys.len(), self.near.current());
        let mut near_state = process_cache.state();
        let kept_values = std::mem::take(&mut self.kept_values).into_iter();
        let index_of = |key: &NearKey| keys.iter().position(|fetched_key| fetched_key == key);
        let with_index = |(key, value)| Some((index_of(&key)?, value));
        let mut comparisons: Vec<(usize, NearValue)> = kept_values.filter_map(with_index).collect();
        if reason == FetchReason::Items && self.mode == ReadMode::Strategy {
            for (key, value) in near_state.take_values_to_compare(&keys, now) {
                comparisons.push((keys.len(), value));
                keys.push(key);
            }
        }
        let generations = keys.iter().map(|key| near_state.kept_values.generation(key)).collect();
        (!keys.is_empty()).then_some(Fetch {
            keys,
            generations,
            started_at: now,
            reason,
            comparisons,
            needed_keys,
        })
    }

    fn begin_load(&mut self, now: Instant) -> Vec<NearKey> {
        let keys = self.near.current().state().begin_load(&self.near.fixed_keys, now);
        self.load_started_at = (!keys.is_empty()).then_some(now);
        keys
    }

    fn begin_request(&mut self, now: Instant) -> Vec<NearKey> {
        let related_keys = &self.near.related_keys;
        let Some(scope) = &self.scope else {
            return Vec::new();
        };
        let Some(page) = scope.state().page.take() else {
            return Vec::new();
        };
        let children_of_read = related_keys.children_of_read(&[], Some(&page));
        let related_keys_of_read =
            RelatedKeysOfRead { related_keys, children_of_read: &children_of_read };
        let mut scope_state = scope.state();
        let process_cache = self.near.current();
        let keys = process_cache.state().begin_request(
            &page,
            &mut scope_state,
            related_keys.rules,
            &related_keys_of_read,
            now,
        );
        let scope_fetch = ScopeFetch::begin(scope, &mut scope_state, &keys);
        drop(scope_state);
        self.scope_fetch = scope_fetch;
        keys
    }

    fn look_up(&mut self, now: Instant) -> Vec<NearKey> {
        let (lookup, scope_fetch) = self.look_up_keys(&self.keys, now);
        self.values = lookup.values;
        self.needs_no_fetch = lookup.needs_no_fetch;
        self.keys_to_cache = lookup.keys_to_cache;
        self.kept_values = lookup.kept_values;
        if !lookup.awaited_keys.is_empty() {
            self.awaited_keys.extend(lookup.awaited_keys.into_iter());
        }
        self.scope_fetch = scope_fetch;
        lookup.keys_to_fetch
    }

    /// Looks up again what other reads were fetching: what they brought is held, and what they failed to bring this read
    /// fetches itself, unless another one already does.
    fn look_up_awaited(&mut self, now: Instant) -> Vec<NearKey> {
        // What the request held may not be served in a child that was forked meanwhile.
        self.scope.take_if(|scope| !scope.is_of_this_process());
        let mut indices = Vec::new();
        for awaited_key in self.awaited_keys.take_ended() {
            if self.try_use_absence(&awaited_key, now) {
                self.set_value(awaited_key.index, None, true);
            } else {
                indices.push(awaited_key.index);
            }
        }
        let keys = indices.iter().filter_map(|&index| self.keys.get(index));
        let keys: Vec<NearKey> = keys.cloned().collect();
        let (lookup, scope_fetch) = self.look_up_keys(&keys, now);
        let found = lookup.values.into_iter().zip(lookup.needs_no_fetch);
        for (&index, (value, needs_no_fetch)) in indices.iter().zip(found) {
            self.set_value(index, value, needs_no_fetch);
        }
        let keys_still_awaited = lookup.awaited_keys.into_iter().filter_map(|awaited_key| {
            let index = *indices.get(awaited_key.index)?;
            Some(AwaitedKey { index, ..awaited_key })
        });
        self.awaited_keys.extend(keys_still_awaited);
        self.scope_fetch = scope_fetch;
        lookup.keys_to_fetch
    }

    /// Whether the fetch that this read waited for found no value, which it may use: it was in flight while the caller
    /// waited.
    fn try_use_absence(&self, awaited_key: &AwaitedKey, now: Instant) -> bool {
        let Some((scope, key)) = self.scope.as_ref().zip(self.keys.get(awaited_key.index)) else {
            return false;
        };
        let Some(generation) = awaited_key.fetch.absent_generation(key) else {
            return false;
        };
        let scope_state = scope.state();
        let process_cache = self.near.current();
        process_cache.state().use_absence((key, generation), &scope_state, now)
    }

    fn set_value(&mut self, index: usize, value: Option<NearValue>, needs_no_fetch: bool) {
        let old_value = self.values.get_mut(index);
        let old_needs_no_fetch = self.needs_no_fetch.get_mut(index);
        if let Some((old_value, old_needs_no_fetch)) = old_value.zip(old_needs_no_fetch) {
            (*old_value, *old_needs_no_fetch) = (value, needs_no_fetch);
        }
    }

    /// Looks up keys and begins the fetch of those that are missing, within the scope of the request if there is one.
    fn look_up_keys(&self, keys: &[NearKey], now: Instant) -> (KeyLookup, Option<ScopeFetch>) {
        let related_keys = &self.near.related_keys;
        let children_of_read =
            related_keys.children_of_read(&self.keys_with_children(keys, now), None);
        let related_keys_of_read =
            RelatedKeysOfRead { related_keys, children_of_read: &children_of_read };
        let scope = self.scope.as_ref().filter(|_| self.mode != ReadMode::Bypass);
        let mut scope_state = scope.map(|scope| scope.state());
        let process_cache = self.near.current();
        let lookup = match self.mode {
            ReadMode::Strategy => process_cache.state().look_up(
                keys,
                scope_state.as_deref_mut(),
                related_keys.rules,
                &related_keys_of_read,
                now,
            ),
            ReadMode::Control | ReadMode::Bypass => process_cache.state().look_up_without_strategy(
                keys,
                scope_state.as_deref_mut(),
                &related_keys_of_read,
                now,
            ),
        };
        // The requests of the control group fetch every key that they read.
        let scope_fetch = match (scope, &mut scope_state) {
            (Some(scope), Some(scope_state))
                if self.mode == ReadMode::Strategy && !lookup.keys_to_fetch.is_empty() =>
            {
                ScopeFetch::begin(scope, scope_state, &lookup.keys_to_fetch)
            }
            _ => None,
        };
        (lookup, scope_fetch)
    }

    /// The keys whose children the rules may fetch.
    fn keys_with_children(&self, keys: &[NearKey], now: Instant) -> Vec<NearKey> {
        let is_strategy_read = self.mode == ReadMode::Strategy;
        let Some(scope) = self.scope.as_ref().filter(|_| is_strategy_read) else {
            return Vec::new();
        };
        match self.near.related_keys.rules.children {
            ChildrenRule::Never => Vec::new(),
            ChildrenRule::Always => keys.to_vec(),
            ChildrenRule::WhenMissing => {
                let scope_state = scope.state();
                let process_cache = self.near.current();
                let near_state = process_cache.state();
                let is_missing = |key: &&NearKey| {
                    let is_in_flight = scope_state.fetches.get(key).is_some();
                    !is_in_flight && !near_state.is_available(key, &scope_state, now)
                };
                keys.iter().filter(is_missing).cloned().collect()
            }
        }
    }

    /// Has `waker` woken when the fetch that this read waits for may have ended; ready: it has, and the read goes on.
    ///
    /// A read leaves one waker, the last one, until it is dropped.
    pub fn poll_wait(&mut self, waker: &Waker) -> Poll<()> {
        self.awaited_keys.poll(waker)
    }

    /// Ends the wait of a read whose time is over: the keys that it waits for have failed, each by the error that
    /// `error_of` returns for it.
    pub fn time_out(&mut self, error_of: impl Fn(WireKey<'_>) -> Error) {
        let awaited_keys = self.awaited_keys.take_all();
        let keys = awaited_keys.iter().filter_map(|awaited_key| self.keys.get(awaited_key.index));
        let failures = keys.map(|key| (key.clone(), error_of(wire_key(key))));
        self.failures_by_key.extend(failures);
        self.near.current().state().stats.count_failed_waits(awaited_keys.len());
        let scope = self.scope.as_ref();
        if let Some(scope) = scope.filter(|scope| scope.is_of_this_process()) {
            scope.state().cost.has_failed |= !awaited_keys.is_empty();
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
            self.near.current().state().warnings.add_missing_ttls();
        }
        let mut items: Vec<Option<FetchedItem>> = fetched.items;
        items.resize_with(fetch.keys.len(), || None);
        self.compare_values(fetch, &items, now);
        let has_failed = items.iter().take(fetch.needed_keys).any(Option::is_none);
        if fetch.reason != FetchReason::Load {
            self.add_request_cost(fetch, &items, has_failed, now);
            self.call_ended_at = Some(now);
        }
        if fetch.keys.len() == fetch.needed_keys {
            self.use_items(fetch, items, failures, now);
        } else {
            items.truncate(fetch.needed_keys);
            self.use_items(&fetch.without_comparisons(), items, failures, now);
        }
    }

    /// Compares what the process kept of some keys with what the servers have.
    fn compare_values(&self, fetch: &Fetch, items: &[Option<FetchedItem>], now: Instant) {
        if fetch.comparisons.is_empty() {
            return;
        }
        let process_cache = self.near.current();
        let mut near_state = process_cache.state();
        for (index, kept_value) in &fetch.comparisons {
            // A key that is absent on its server may have been evicted: its value has not changed.
            let item = items.get(*index).and_then(Option::as_ref);
            let server_value = item.and_then(|item| item.value.as_ref());
            let key_and_generation = fetch.keys.get(*index).zip(fetch.generations.get(*index));
            if let Some((server_value, (key, &generation))) = server_value.zip(key_and_generation) {
                near_state.compare_value((key, generation), kept_value, server_value, now);
            }
        }
    }

    fn use_items(
        &mut self,
        fetch: &Fetch,
        items: Vec<Option<FetchedItem>>,
        failures: Failures,
        now: Instant,
    ) {
        let is_load = fetch.reason == FetchReason::Load;
        let has_failed = !failures.is_empty() || items.iter().any(Option::is_none);
        let load_outcome = is_load.then(|| load_outcome(fetch, &items, has_failed));
        if fetch.reason == FetchReason::Items {
            self.fill_values(fetch, &items);
            let failed_keys = failures
                .into_iter()
                .filter_map(|(index, error)| Some((fetch.keys.get(index)?.clone(), error)));
            self.failures_by_key.extend(failed_keys);
        }
        let scope_fetch = self.scope_fetch.take();
        let absent_keys = scope_fetch.as_ref().map(|_| find_absent_keys(fetch, &items));
        self.store(fetch, items);
        if let Some((scope_fetch, absent_keys)) = scope_fetch.zip(absent_keys) {
            scope_fetch.finish(absent_keys);
        }
        if let Some(load_outcome) = load_outcome {
            let process_cache = self.near.current();
            let mut near_state = process_cache.state();
            near_state.end_load(now, load_outcome);
            near_state.warn_of_missing_keys(|key| self.near.related_keys.name_of(key));
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
        let added_time = now.saturating_duration_since(fetch.started_at);
        let cost = &mut scope.state().cost;
        cost.calls = cost.calls.saturating_add(1);
        cost.keys = cost.keys.saturating_add(fetch.keys.len() as u32);
        cost.bytes = cost.bytes.saturating_add(value_bytes(items) as u64);
        cost.add_wait(added_time);
        cost.has_failed |= has_failed;
    }

    fn fill_values(&mut self, fetch: &Fetch, items: &[Option<FetchedItem>]) {
        let keys_and_items = fetch.keys.iter().zip(items);
        let items_by_key: HashMap<&NearKey, &FetchedItem> =
            keys_and_items.filter_map(|(key, item)| Some((key, item.as_ref()?))).collect();
        let requested_values = self.keys.iter().zip(&mut self.values).zip(&self.needs_no_fetch);
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
        let requested_keys: HashSet<&NearKey> = self.keys.iter().collect();
        let fetched_bytes = value_bytes(&items);
        let fetched_keys = items.into_iter().zip(&fetch.keys).map(|(item, key)| {
            let item = item.filter(|_| is_strategy_read || self.keys_to_cache.contains(key));
            item.map(|item| FetchedKey {
                value: item.value,
                ttl_s: item.ttl_s,
                is_requested: requested_keys.contains(key),
            })
        });
        let fetched_keys = fetched_keys.collect();
        let children_of_read = super::related_keys::ChildrenOfRead::default();
        let related_keys_of_read = RelatedKeysOfRead {
            related_keys: &self.near.related_keys,
            children_of_read: &children_of_read,
        };
        let is_load = fetch.reason == FetchReason::Load;
        let mut scope_guard = self.scope.as_ref().filter(|_| !is_load).map(|scope| scope.state());
        let scope_state: Option<&mut ScopeState> = scope_guard.as_deref_mut();
        let process_cache = self.near.current();
        let mut near_state = process_cache.state();
        if is_strategy_read {
            near_state.stats.count_call(fetch.keys.len(), fetched_bytes, is_load);
        }
        let keys_and_generations = (fetch.keys.as_slice(), fetch.generations.as_slice());
        near_state.store(
            keys_and_generations,
            fetched_keys,
            scope_state,
            &related_keys_of_read,
            fetch.started_at,
        );
    }

    /// How many keys were read without a call, and the bytes of their values.
    pub fn hit_count_and_bytes(&self) -> (usize, usize) {
        let known_values = self
            .values
            .iter()
            .zip(&self.needs_no_fetch)
            .filter(|(_, needs_no_fetch)| **needs_no_fetch);
        let value_lengths =
            known_values.clone().filter_map(|(value, _)| Some(value.as_ref()?.bytes.len()));
        (known_values.count(), value_lengths.sum())
    }

    /// The request that it belongs to, if there is one.
    pub fn scope(&self) -> Option<&Arc<RequestScope>> {
        self.scope.as_ref()
    }

    /// The value of each key, and the keys that could not be read.
    pub fn finish(mut self) -> (Vec<Option<NearValue>>, Failures) {
        let failed = self.keys.iter().enumerate().filter_map(|(index, key)| {
            let error = self.failures_by_key.get(key)?;
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

/// What a load of the fixed set brought.
fn load_outcome<'f>(
    fetch: &'f Fetch,
    items: &[Option<FetchedItem>],
    has_failed: bool,
) -> LoadOutcome<'f> {
    let keys_and_items = fetch.keys.iter().zip(items);
    let replied = keys_and_items.filter_map(|(key, item)| Some((key, item.as_ref()?)));
    let missing = replied.clone().filter(|(_, item)| item.value.is_none());
    LoadOutcome {
        keys: &fetch.keys,
        missing_keys: missing.map(|(key, _)| key.clone()).collect(),
        absent_keys: replied.map(|(key, _)| key.clone()).collect(),
        has_failed,
    }
}

/// The keys for which a call found no value.
fn find_absent_keys(fetch: &Fetch, items: &[Option<FetchedItem>]) -> AbsentKeys {
    let keys_and_items = fetch.keys.iter().zip(&fetch.generations).zip(items);
    let absent =
        keys_and_items.filter(|(_, item)| item.as_ref().is_some_and(|item| item.value.is_none()));
    absent.filter_map(|((key, generation), _)| Some((key.clone(), (*generation)?))).collect()
}

impl Drop for NearRead {
    /// A load whose caller gave up is tried again by another. What it was fetching for its request is in flight no more.
    fn drop(&mut self) {
        if let Some(started_at) = self.load_started_at {
            let process_cache = self.near.current();
            let outcome = LoadOutcome { has_failed: true, ..LoadOutcome::default() };
            process_cache.state().end_load(started_at, outcome);
        }
    }
}
