//! The values that the process keeps in its fixed set and its near cache, and which of them a read may use.
//!
//! INVARIANT: a value is kept only if no write of its key was in flight at any moment of its fetch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use glasscache_strategy::near_values::{ClientContext, FetchedValue, NearValues, Validity};
use glasscache_strategy::never_kept::Learned;
use glasscache_strategy::notation::LocalRule;
use glasscache_strategy::policy::AnyPolicy;
use glasscache_strategy::rules::{Location, PrefetchRules, store_fetched};

use super::entry::{ItemEnd, NearEntry, NearKey, NearValue, near_item_bytes, value_bytes};
use super::fetches_in_flight::FetchInFlight;
use super::freshness::{FetchTerms, Moment};
use super::keep_rules::KeepRules;
use super::related_keys::RelatedKeysOfRead;
use super::scope::ScopeState;
use super::write_tracker::WriteTracker;

/// The keys of a fetch that are stored together: the tables that this needs stay small, also if the fetch is the load of a
/// fixed set, because what the process has allocated once it rarely gives back.
const STORED_AT_ONCE: usize = 256;

/// The values, which keys have some, and which were written since their fetch began.
#[derive(Debug)]
pub(super) struct KeptValues {
    near_values: NearValues<NearKey, NearEntry>,
    keep_rules: KeepRules,
    writes: WriteTracker,
}

/// Which values may be served at a moment.
struct ValidityNow<'s> {
    moment: Moment,
    writes: &'s WriteTracker,
    keep_rules: &'s KeepRules,
}

impl Validity<NearKey, NearEntry> for ValidityNow<'_> {
    fn may_keep(&self, key: &NearKey) -> bool {
        self.keep_rules.may_keep(key)
    }

    fn is_fresh(&self, entry: &NearEntry) -> bool {
        self.moment.is_fresh(entry)
    }

    fn is_current(&self, key: &NearKey, entry: &NearEntry) -> bool {
        self.writes.generation(key) == Some(entry.generation)
    }
}

/// What a fetch brought for one key.
#[derive(Debug, Clone)]
pub(super) struct FetchedKey {
    pub(super) value: Option<NearValue>,
    /// Seconds left; `None`: unknown, or the value must not be cached for another reason.
    pub(super) ttl_s: Option<i64>,
    /// The caller reads this key itself.
    pub(super) is_requested: bool,
}

impl FetchedKey {
    /// What arrived for a key of this generation, as it is kept.
    fn into_value(
        self,
        key: &NearKey,
        generation: u64,
        terms: FetchTerms,
    ) -> FetchedValue<NearEntry> {
        let expiry = terms.expiry(self.ttl_s);
        let cached_bytes = match (&self.value, expiry) {
            (Some(value), Ok(_)) if terms.may_cache() => {
                Some(u32::try_from(near_item_bytes(key, value)).unwrap_or(u32::MAX))
            }
            _ => None,
        };
        let started_at = terms.started_at.now();
        let entry = NearEntry {
            value: self.value,
            generation,
            expires_at: expiry.unwrap_or(Some(started_at)),
            item_end: ItemEnd::of_fetch(started_at, self.ttl_s),
        };
        FetchedValue { value: entry, cached_bytes }
    }
}

impl KeptValues {
    /// None yet of these keys of the fixed set, and an empty near cache under this policy.
    pub(super) fn new(fixed_keys: &[NearKey], policy: AnyPolicy, keep_rules: KeepRules) -> Self {
        Self {
            near_values: NearValues::new(fixed_keys.iter().cloned(), policy),
            keep_rules,
            writes: WriteTracker::new(),
        }
    }

    /// Drops all values and keeps none from now on.
    pub(super) fn disable(&mut self) {
        self.near_values = NearValues::new([], AnyPolicy::Nothing);
    }

    /// The value that a read outside a request finds, and in which cache.
    pub(super) fn get(&mut self, key: &[u8], moment: Moment) -> Option<(Location, NearValue)> {
        let is_fixed = self.near_values.fixed().contains_key(key);
        let entry = self.near_values.get(key, |entry| moment.is_fresh(entry))?;
        let location = if is_fixed { Location::Fixed } else { Location::Local };
        Some((location, entry.value.clone()?))
    }

    /// Looks up a key of a read, and replaces `keys_to_fetch` with what one call fetches if it is missing.
    pub(super) fn look_up(
        &mut self,
        key: &NearKey,
        scope_state: &mut ScopeState,
        (rules, related_keys): (PrefetchRules, &RelatedKeysOfRead<'_>),
        moment: Moment,
        keys_to_fetch: &mut Vec<NearKey>,
    ) -> (Location, Option<NearValue>) {
        let validity = ValidityNow { moment, writes: &self.writes, keep_rules: &self.keep_rules };
        let mut context = ClientContext {
            near_values: &mut self.near_values,
            scope: &mut scope_state.held,
            fetched_values: &HashMap::new(),
            related_items: related_keys,
            validity: &validity,
        };
        let mut location = rules.look_up(&mut context, key, keys_to_fetch);
        // A write removes what is kept of its key, so what is kept is current. Its generation may be an earlier one,
        // for other keys that were written since share it.
        if location == Location::Local
            && let Some(generation) = self.writes.generation(key)
            && let Some(entry) = scope_state.held.get_mut(key)
        {
            entry.generation = generation;
        }
        let scope_entry = scope_state.held.get(key);
        let scope_entry = scope_entry.filter(|entry| validity.is_current(key, entry));
        let value = match (location, scope_entry) {
            (Location::Missing, _) => None,
            (Location::Fixed, _) | (Location::AlreadyRequested, None) => {
                let entry = self.near_values.get(&**key, |entry| moment.is_fresh(entry));
                entry.and_then(|entry| entry.value.clone())
            }
            (_, scope_entry) => scope_entry.and_then(|entry| entry.value.clone()),
        };
        // That a key fetched ahead of need has no value is known for one read: the next one may wait for a value.
        let was_absent = location == Location::Prefetched && value.is_none();
        if was_absent {
            scope_state.held.remove(key);
        } else if value.is_none() && location != Location::Missing {
            location = Location::Missing;
            keys_to_fetch.push(key.clone());
        }
        (location, value)
    }

    /// The keys to fetch when a request for this page begins.
    pub(super) fn begin_request(
        &mut self,
        page: &NearKey,
        scope_state: &mut ScopeState,
        (rules, related_keys): (PrefetchRules, &RelatedKeysOfRead<'_>),
        moment: Moment,
    ) -> Vec<NearKey> {
        let mut keys_to_fetch = Vec::new();
        let context = ClientContext {
            near_values: &mut self.near_values,
            scope: &mut scope_state.held,
            fetched_values: &HashMap::new(),
            related_items: related_keys,
            validity: &ValidityNow { moment, writes: &self.writes, keep_rules: &self.keep_rules },
        };
        rules.begin_request(&context, page, &mut keys_to_fetch);
        keys_to_fetch.retain(|key| scope_state.fetches.get(key).is_none());
        keys_to_fetch
    }

    /// The fetch by which another read of the request is fetching a key, unless the key already has a value that may be
    /// served, or each read fetches it.
    pub(super) fn fetch_to_await<'s>(
        &self,
        key: &NearKey,
        scope_state: &'s ScopeState,
        moment: Moment,
    ) -> Option<&'s Arc<FetchInFlight>> {
        let fetch = scope_state.fetches.get(key).filter(|_| self.keep_rules.may_keep(key))?;
        let scope_entry = self.current_scope_entry(key, scope_state);
        let has_value = scope_entry.is_some_and(|entry| entry.value.is_some());
        (!has_value && !self.has_fresh_value(key, moment)).then_some(fetch)
    }

    /// Whether a read of a key would need no call.
    pub(super) fn is_available(
        &self,
        key: &NearKey,
        scope_state: &ScopeState,
        moment: Moment,
    ) -> bool {
        self.has_fresh_value(key, moment) || self.current_scope_entry(key, scope_state).is_some()
    }

    /// Whether the process keeps a value that may be served.
    fn has_fresh_value(&self, key: &NearKey, moment: Moment) -> bool {
        let is_fresh = |entry: &NearEntry| moment.is_fresh(entry);
        self.fixed_entry(key).is_some_and(is_fresh) || self.cached_entry(key).is_some_and(is_fresh)
    }

    /// The value that is kept of a key, if it may be served.
    pub(super) fn fresh_value(&self, key: &NearKey, moment: Moment) -> Option<NearValue> {
        self.fresh_entry(key, moment)?.value.clone()
    }

    fn fresh_entry(&self, key: &NearKey, moment: Moment) -> Option<&NearEntry> {
        let entry = self.fixed_entry(key).or_else(|| self.cached_entry(key));
        entry.filter(|entry| moment.is_fresh(entry))
    }

    /// The value with which a read is served without a call, and when the item may expire on its server.
    pub(super) fn held_value(
        &self,
        key: &NearKey,
        scope_state: &ScopeState,
        moment: Moment,
    ) -> Option<(NearValue, ItemEnd)> {
        let scope_entry = self.current_scope_entry(key, scope_state);
        let entry = scope_entry.or_else(|| self.fresh_entry(key, moment))?;
        Some((entry.value.clone()?, entry.item_end))
    }

    /// Whether the process keeps the value of a key that it reads by the strategy, or the request of the read does.
    pub(super) fn holds_reads_of(&self, key: &NearKey, is_in_request: bool) -> bool {
        let is_kept = is_in_request
            || self.near_values.local_cache().has_room()
            || self.near_values.fixed().contains_key(key);
        is_kept && self.keep_rules.may_keep(key)
    }

    /// What the request holds of a key that was not written since.
    fn current_scope_entry<'s>(
        &self,
        key: &NearKey,
        scope_state: &'s ScopeState,
    ) -> Option<&'s NearEntry> {
        let entry = scope_state.held.get(key)?;
        (self.writes.generation(key) == Some(entry.generation)).then_some(entry)
    }

    /// What is kept of a key of the fixed set.
    pub(super) fn fixed_entry(&self, key: &NearKey) -> Option<&NearEntry> {
        self.near_values.fixed().get(key).and_then(Option::as_ref)
    }

    fn cached_entry(&self, key: &NearKey) -> Option<&NearEntry> {
        self.near_values.local_cache().peek(key)
    }

    /// Whether the process may keep the value of a key, and fetch it ahead of need.
    pub(super) fn may_keep(&self, key: &NearKey) -> bool {
        self.keep_rules.may_keep(key)
    }

    /// The generation of a key; `None` while it is written.
    pub(super) fn generation(&self, key: &NearKey) -> Option<u64> {
        self.writes.generation(key)
    }

    /// Stores what a fetch, started with these generations, brought for its keys; `None`: no reply.
    pub(super) fn store(
        &mut self,
        (keys, generations): (&[NearKey], &[Option<u64>]),
        fetched_keys: Vec<Option<FetchedKey>>,
        mut scope_state: Option<&mut ScopeState>,
        related_keys: &RelatedKeysOfRead<'_>,
        terms: FetchTerms,
    ) {
        let mut fetched_keys = fetched_keys.into_iter();
        let parts = keys.chunks(STORED_AT_ONCE).zip(generations.chunks(STORED_AT_ONCE));
        for (keys, generations) in parts {
            let fetched_keys = fetched_keys.by_ref().take(keys.len());
            self.store_part(
                (keys, generations),
                fetched_keys,
                scope_state.as_deref_mut().unwrap_or(&mut ScopeState::of_single_read()),
                related_keys,
                terms,
            );
        }
    }

    fn store_part(
        &mut self,
        (keys, generations): (&[NearKey], &[Option<u64>]),
        fetched_keys: impl Iterator<Item = Option<FetchedKey>>,
        scope_state: &mut ScopeState,
        related_keys: &RelatedKeysOfRead<'_>,
        terms: FetchTerms,
    ) {
        let mut arrived_values = HashMap::new();
        for ((key, &generation), fetched_key) in keys.iter().zip(generations).zip(fetched_keys) {
            let Some(fetched_key) = fetched_key else {
                continue;
            };
            let Some(current_generation) =
                self.writes.generation(key).filter(|&current| generation == Some(current))
            else {
                continue; // written meanwhile
            };
            if fetched_key.value.is_some() || !fetched_key.is_requested {
                arrived_values
                    .insert(key.clone(), fetched_key.into_value(key, current_generation, terms));
            }
        }
        let mut context = ClientContext {
            near_values: &mut self.near_values,
            scope: &mut scope_state.held,
            fetched_values: &arrived_values,
            related_items: related_keys,
            validity: &ValidityNow {
                moment: terms.started_at,
                writes: &self.writes,
                keep_rules: &self.keep_rules,
            },
        };
        store_fetched(&mut context, keys);
    }

    /// Notes that the application changes a key in place: this key and those of the same kind are not kept from now on.
    pub(super) fn learn_changed_key(&mut self, key: &NearKey) {
        match self.keep_rules.learn(key) {
            Learned::Nothing => {}
            Learned::Key => self.near_values.remove(key),
            Learned::Pattern => {
                let keep_rules = &self.keep_rules;
                self.near_values.retain(|key| keep_rules.may_keep(key));
            }
        }
    }

    /// Begins a write of a key by this client; returns whether a value of it was removed.
    pub(super) fn begin_write(&mut self, key: &NearKey) -> bool {
        self.writes.begin_write(key);
        self.remove(key)
    }

    /// Ends a write of a key by this client; returns whether a value of it was removed.
    pub(super) fn end_write(&mut self, key: &NearKey) -> bool {
        self.writes.end_write(key);
        self.remove(key)
    }

    /// Notes a change of a key by another client; returns whether a value of it was removed.
    pub(super) fn change(&mut self, key: &NearKey) -> bool {
        self.writes.record_change(key);
        self.remove(key)
    }

    fn remove(&mut self, key: &NearKey) -> bool {
        let was_kept = self.fixed_entry(key).is_some() || self.cached_entry(key).is_some();
        self.near_values.remove(key);
        was_kept
    }

    /// Begins a flush by this client: no key is kept until [`Self::end_flush`]; [`Self::change_all`] follows.
    pub(super) fn begin_flush(&mut self) {
        self.writes.begin_flush();
    }

    /// Ends a flush by this client; [`Self::change_all`] follows.
    pub(super) fn end_flush(&mut self) {
        self.writes.end_flush();
    }

    /// Removes every value, those of fetches in flight too.
    pub(super) fn change_all(&mut self) {
        self.writes.record_change_of_all();
        self.near_values.clear();
    }

    /// Removes every value; what fetches in flight bring is kept.
    pub(super) fn clear(&mut self) {
        self.near_values.clear();
    }

    /// The number of keys of the fixed set.
    pub(super) fn fixed_key_count(&self) -> usize {
        self.near_values.fixed().len()
    }

    /// The number of keys of the fixed set whose values are loaded, and the memory of these values.
    pub(super) fn loaded_count_and_bytes(&self) -> (u64, u64) {
        let entries = self.near_values.fixed().values().flatten();
        let values = entries.clone().filter_map(|entry| entry.value.as_ref());
        (entries.count() as u64, values.map(|value| value_bytes(value) as u64).sum())
    }

    /// The first expiry of a value of the fixed set.
    pub(super) fn first_fixed_expiry(&self) -> Option<Instant> {
        let loaded = self.near_values.fixed().values().flatten();
        loaded.filter_map(|entry| entry.expires_at).min()
    }

    /// The number of items in the near cache, and whether it is full.
    pub(super) fn cached_count_and_is_full(&self) -> (usize, bool) {
        let local_cache = self.near_values.local_cache();
        (local_cache.len(), local_cache.is_full())
    }

    /// The memory that the items of the near cache take.
    pub(super) fn cached_bytes(&self) -> u64 {
        let bytes_of_entry = |(key, entry): (&NearKey, &NearEntry)| {
            let value = entry.value.as_ref();
            value.map_or(0, |value| near_item_bytes(key, value) as u64)
        };
        self.near_values.local_cache().iter().map(bytes_of_entry).sum()
    }

    /// How full the near cache is, 0 to 1, if there is one.
    pub(super) fn fill_fraction(&self, local: LocalRule) -> Option<f64> {
        let (item_count, is_full) = self.cached_count_and_is_full();
        let items = item_count as f64;
        let fraction = match local {
            LocalRule::Nothing | LocalRule::S4Fifo(..) | LocalRule::Tuned(_) => return None,
            LocalRule::Lru(items_max) | LocalRule::S3Fifo(items_max) => items / items_max as f64,
            LocalRule::LruBytes(bytes_max) => self.cached_bytes() as f64 / bytes_max as f64,
        };
        Some(if is_full { 1.0 } else { fraction.min(1.0) })
    }

    /// The memory of what was learned about keys.
    pub(super) fn learned_bytes(&self) -> usize {
        self.keep_rules.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::freshness::Freshness;
    use super::super::options::StrategyOptions;
    use super::super::related_keys::{ChildrenOfRead, RelatedKeys};
    use super::*;
    use crate::key::{KeyEncoder, KeyEncoding};

    /// Fetches the value of a key, and does `meanwhile` before it is stored; returns whether it is kept.
    fn is_kept_after(
        before: impl FnOnce(&mut KeptValues, &NearKey),
        meanwhile: impl FnOnce(&mut KeptValues, &NearKey),
    ) -> bool {
        let file = "glasscache-strategy 1\nstrategy lru:9".parse().unwrap();
        let options = StrategyOptions::new(file);
        let encoder = KeyEncoder { namespace: b"", encoding: KeyEncoding::Base64 };
        let related_keys = &RelatedKeys::new(&options, encoder).unwrap();
        let related_keys_of_read =
            RelatedKeysOfRead { related_keys, children_of_read: &ChildrenOfRead::default() };
        let policy = options.file.strategy.local.new_policy();
        let mut kept_values = KeptValues::new(&[], policy, related_keys.keep_rules());
        let key: NearKey = b"a".as_slice().into();
        before(&mut kept_values, &key);
        let generation = kept_values.generation(&key);
        meanwhile(&mut kept_values, &key);
        let value = Some(NearValue { flags: 0, bytes: b"1".as_slice().into() });
        let fetched_key = FetchedKey { value, ttl_s: Some(-1), is_requested: true };
        let freshness = Freshness::new(None, false);
        let started_at = Instant::now();
        kept_values.store(
            (std::slice::from_ref(&key), &[generation]),
            vec![Some(fetched_key)],
            None,
            &related_keys_of_read,
            freshness.terms_of_fetch(started_at),
        );
        kept_values.fresh_value(&key, freshness.at(started_at)).is_some()
    }

    #[test]
    fn a_value_is_kept_only_if_its_key_did_not_change_at_any_moment_of_its_fetch() {
        let nothing = |_: &mut KeptValues, _: &NearKey| {};
        assert!(is_kept_after(nothing, nothing));
        assert!(is_kept_after(nothing, |kept_values, _| kept_values.clear()));
        let write = |kept_values: &mut KeptValues, key: &NearKey| {
            kept_values.begin_write(key);
            kept_values.end_write(key);
        };
        assert!(is_kept_after(write, nothing));
        assert!(!is_kept_after(nothing, write));
        let begin = |kept_values: &mut KeptValues, key: &NearKey| {
            kept_values.begin_write(key);
        };
        let end = |kept_values: &mut KeptValues, key: &NearKey| {
            kept_values.end_write(key);
        };
        assert!(!is_kept_after(begin, nothing));
        assert!(!is_kept_after(begin, end));
        assert!(!is_kept_after(nothing, begin));
        let change = |kept_values: &mut KeptValues, key: &NearKey| {
            kept_values.change(key);
        };
        assert!(!is_kept_after(nothing, change));
        assert!(!is_kept_after(nothing, |kept_values, _| kept_values.change_all()));
        assert!(!is_kept_after(|kept_values, _| kept_values.begin_flush(), nothing));
    }

    #[test]
    fn a_key_that_the_application_changes_itself_is_not_kept() {
        let learn =
            |kept_values: &mut KeptValues, key: &NearKey| kept_values.learn_changed_key(key);
        assert!(!is_kept_after(learn, |_, _| {}));
        assert!(!is_kept_after(|_, _| {}, learn));
    }
}
