//! What one process keeps, and whether it may still be served: by age, by TTL, and by this client's own writes.
//!
//! INVARIANT: a value is kept only if no write of its key was in flight at any moment of its fetch.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_strategy::fixed_set::FixedSetLoads;
use glasscache_strategy::near_values::{ClientContext, FetchedValue, NearValues, Validity};
use glasscache_strategy::never_kept::Learned;
use glasscache_strategy::notation::{LocalRule, Strategy};
use glasscache_strategy::policy::AnyPolicy;
use glasscache_strategy::rollout::counts::RequestCost;
use glasscache_strategy::rollout::process_rollout::ProcessRollout;
use glasscache_strategy::rollout::rollout_share::Group;
use glasscache_strategy::rollout::warm_up::NearContent;
use glasscache_strategy::rules::{Location, PrefetchRules, store_fetched};

use super::coverage::COHERENT_BOUND;
use super::entry::{
    ItemEnd, NearEntry, NearKey, NearValue, allocated_bytes, compute_expiry, entry_bytes,
    fixed_key_bytes, value_bytes,
};
use super::fetches_in_flight::{AwaitedKey, FetchInFlight};
use super::fixed_set_load::{FixedSetLoad, LoadOutcome};
use super::keep_rules::KeepRules;
use super::options::{ByteAccounting, StrategyOptions};
use super::related_keys::RelatedKeysOfRead;
use super::scope::ScopeState;
use super::stats::NearStats;
use super::value_comparison::ValueComparison;
use super::watch::{WatchEvent, possible_near_keys};
use super::watches::Watches;
use super::write_tracker::WriteTracker;
use super::writes::FLUSH_DELAY_SLACK;

/// The fixed set, the near cache, and what bounds their use.
#[derive(Debug)]
pub(super) struct NearState {
    near_values: NearValues<NearKey, NearEntry>,
    keep_rules: KeepRules,
    writes: WriteTracker,
    fixed_set_load: FixedSetLoad,
    /// No fetched value is cached before: a delayed flush is under way.
    caching_paused_until: Option<Instant>,
    near_ttl: Option<Duration>,
    byte_accounting: ByteAccounting,
    stats: NearStats,
    warnings: VecDeque<String>,
    has_warned_of_ttls: bool,
    process_rollout: ProcessRollout,
    value_comparison: ValueComparison,
    /// If other clients' changes are followed.
    watches: Option<Watches>,
}

/// Which values may be served at a moment.
struct ValidityNow<'s> {
    now: Instant,
    may_serve: bool,
    writes: &'s WriteTracker,
    keep_rules: &'s KeepRules,
}

impl Validity<NearKey, NearEntry> for ValidityNow<'_> {
    fn may_keep(&self, key: &NearKey) -> bool {
        self.keep_rules.may_keep(key)
    }

    fn is_fresh(&self, entry: &NearEntry) -> bool {
        self.may_serve && entry.is_fresh(self.now)
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

/// The result of looking up the keys of one read.
#[derive(Debug, Default)]
pub(super) struct KeyLookup {
    /// The value of each key that is available.
    pub(super) values: Vec<Option<NearValue>>,
    /// Whether the value of each key, or that there is none, is known without a call.
    pub(super) needs_no_fetch: Vec<bool>,
    /// What one call fetches.
    pub(super) keys_to_fetch: Vec<NearKey>,
    /// Which of the fetched keys are cached, of a read that the strategy does not serve.
    pub(super) keys_to_cache: HashSet<NearKey>,
    /// What other reads of the request are fetching, by the index of the key: looked up when that has ended.
    pub(super) awaited_keys: Vec<AwaitedKey>,
    /// What the process keeps of keys that are fetched all the same, to be compared.
    pub(super) kept_values: Vec<(NearKey, NearValue)>,
}

/// How a read is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadMode {
    /// By the strategy.
    Strategy,
    /// By the servers, as in a process without a strategy; the near cache takes note of it for other requests.
    Control,
    /// By the servers, without strategy and near cache.
    Bypass,
}

impl NearState {
    pub(super) fn new(
        options: &StrategyOptions,
        fixed_keys: &[NearKey],
        keep_rules: KeepRules,
    ) -> Self {
        let strategy = &options.file.strategy;
        Self {
            near_values: NearValues::new(fixed_keys.iter().cloned(), strategy.local.new_policy()),
            keep_rules,
            writes: WriteTracker::new(),
            fixed_set_load: FixedSetLoad::new(fixed_keys.len(), options.near_ttl),
            caching_paused_until: None,
            near_ttl: options.near_ttl,
            byte_accounting: options.byte_accounting,
            stats: NearStats::default(),
            warnings: VecDeque::new(),
            has_warned_of_ttls: false,
            watches: options.is_coherent.then(Watches::default),
            value_comparison: ValueComparison::new(options.near_check),
            process_rollout: ProcessRollout::new(
                options.file.forecast.clone(),
                options.share,
                RandomState::new().hash_one(std::process::id()),
            ),
        }
    }

    pub(super) fn process_rollout(&self) -> &ProcessRollout {
        &self.process_rollout
    }

    /// The group of a request that begins.
    pub(super) fn assign_request_group(&mut self) -> Group {
        self.process_rollout.begin_request()
    }

    /// Counts a request that has ended; the strategy may disable itself by that.
    pub(super) fn end_request(
        &mut self,
        (group, route): (Group, Option<&str>),
        cost: &RequestCost,
        strategy: &Strategy,
    ) {
        let local_cache = self.near_values.local_cache();
        let near_content = NearContent {
            items: local_cache.len(),
            is_full: local_cache.is_full(),
            is_fixed_set_loaded: self.fixed_set_load.is_loaded(),
        };
        self.process_rollout.count_value_checks(&self.value_comparison.take_checks());
        let regression = self.process_rollout.end_request(group, route, cost, near_content);
        if let Some(regression) = regression {
            self.warnings.push_back(format!(
                "the strategy {strategy} has disabled itself: {regression}; the requests of this process run without it, and \
                 glasscache rollout compares them"
            ));
            self.near_values = NearValues::new([], AnyPolicy::Nothing);
            self.fixed_set_load = FixedSetLoad::new(0, None);
        }
    }

    /// How a read is served, by the group of its request.
    pub(super) fn read_mode(&self, group: Option<Group>) -> ReadMode {
        let is_control_process = self.process_rollout.is_control_process();
        match group.or_else(|| self.process_rollout.group_outside_requests()) {
            _ if is_control_process => ReadMode::Bypass,
            Some(Group::Strategy) => ReadMode::Strategy,
            Some(Group::Control) => ReadMode::Control,
            None => ReadMode::Bypass,
        }
    }

    /// The value of a read outside a request, if it is available and nothing is due.
    pub(super) fn get_without_call(&mut self, key: &[u8], now: Instant) -> Option<NearValue> {
        if self.read_mode(None) != ReadMode::Strategy
            || self.fixed_set_load.is_due(now)
            || !self.may_serve(now)
        {
            return None;
        }
        let is_fixed = self.near_values.fixed().contains_key(key);
        if self.value_comparison.is_due() {
            return None;
        }
        let value = self.near_values.get(key, |entry| entry.is_fresh(now))?.value.clone()?;
        self.count_read(if is_fixed { Location::Fixed } else { Location::Local });
        self.note_hit(|| key.into(), &value, now);
        Some(value)
    }

    /// How much of what the near cache may hold it holds, 0 to 1, if there is one.
    pub(super) fn fill_fraction(&self, local: LocalRule) -> Option<f64> {
        let local_cache = self.near_values.local_cache();
        let items = local_cache.len() as f64;
        let fraction = match local {
            LocalRule::Nothing | LocalRule::S4Fifo(..) | LocalRule::Tuned(_) => return None,
            LocalRule::Lru(items_max) | LocalRule::S3Fifo(items_max) => items / items_max as f64,
            LocalRule::LruBytes(bytes_max) => self.near_bytes() as f64 / bytes_max as f64,
        };
        Some(if local_cache.is_full() { 1.0 } else { fraction.min(1.0) })
    }

    fn near_bytes(&self) -> u64 {
        let bytes_of_entry = |(key, entry): (&NearKey, &NearEntry)| {
            let value = entry.value.as_ref();
            value.map_or(0, |value| allocated_bytes(key, value) as u64)
        };
        self.near_values.local_cache().iter().map(bytes_of_entry).sum()
    }

    /// Notes that the process served a read itself.
    fn note_hit(&mut self, key: impl Fn() -> NearKey, value: &NearValue, now: Instant) {
        if self.process_rollout.may_disable_itself()
            && let Some(age_bound) = self.age_bound()
        {
            self.value_comparison.note_hit(key, value, age_bound, now);
        }
    }

    /// How much longer than its replacement a value may be served.
    fn age_bound(&self) -> Option<Duration> {
        let watches = self.watches.as_ref();
        let is_coherent = watches.is_some_and(|watches| watches.coverage.is_confirmed());
        if is_coherent { Some(COHERENT_BOUND) } else { self.near_ttl }
    }

    /// Keys whose values are to be compared with the servers', with what the process keeps of them; none of `keys`, which
    /// are fetched anyway. Without any of these only when there are enough for a call.
    pub(super) fn take_values_to_compare(
        &mut self,
        keys: &[NearKey],
        now: Instant,
    ) -> Vec<(NearKey, NearValue)> {
        if keys.is_empty() && !self.value_comparison.is_due() || !self.may_serve(now) {
            return Vec::new();
        }
        let keys_to_compare = self.value_comparison.take_keys();
        let with_kept_value = |key: NearKey| {
            let fixed_entry = self.near_values.fixed().get(&key).and_then(Option::as_ref);
            let entry = fixed_entry.or_else(|| self.near_values.local_cache().peek(&key));
            let value = entry.filter(|entry| entry.is_fresh(now))?.value.clone()?;
            Some((key, value))
        };
        let not_fetched = keys_to_compare.into_iter().filter(|key| !keys.contains(key));
        not_fetched.filter_map(with_kept_value).collect()
    }

    /// Compares what the process kept of a key when a fetch began with what the fetch brought; nothing is compared if this
    /// process wrote the key meanwhile.
    pub(super) fn compare_value(
        &mut self,
        (key, generation): (&NearKey, Option<u64>),
        kept_value: &NearValue,
        server_value: &NearValue,
        now: Instant,
    ) {
        if self.process_rollout.may_disable_itself() && self.writes.generation(key) == generation {
            self.value_comparison.compare(key, kept_value, server_value, now);
        }
    }

    /// Whether what is kept may be served: reports of other clients' changes are complete, or not awaited.
    fn may_serve(&self, now: Instant) -> bool {
        let watches = self.watches.as_ref();
        watches.is_none_or(|watches| watches.are_complete(now))
    }

    /// Whether what a call that starts now fetches may be cached.
    fn may_cache(&self, now: Instant) -> bool {
        let mut pause_ends = self.caching_paused_until.iter();
        self.may_serve(now) && pause_ends.all(|&pause_end| now >= pause_end)
    }

    fn count_read(&mut self, location: Location) {
        self.stats.reads += 1;
        match location {
            Location::Fixed => self.stats.fixed_hits += 1,
            Location::Local => self.stats.local_cache_hits += 1,
            Location::Prefetched | Location::AlreadyRequested => self.stats.request_scope_hits += 1,
            Location::Missing => {}
        }
        self.stats.used_keys += u64::from(location.uses_fetched_key());
    }

    /// Looks up the keys of one read, which may belong to a request.
    pub(super) fn look_up(
        &mut self,
        keys: &[NearKey],
        scope_state: Option<&mut ScopeState>,
        rules: PrefetchRules,
        related_keys: &RelatedKeysOfRead<'_>,
        now: Instant,
    ) -> KeyLookup {
        let (mut lookup, mut seen_keys) = (KeyLookup::default(), HashSet::new());
        let mut temporary_scope_state = None;
        let (scope_state, rules) = if let Some(scope_state) = scope_state {
            (scope_state, rules)
        } else {
            // Outside a request nothing would hold what is fetched ahead of need.
            let scope_state = temporary_scope_state.insert(ScopeState::of_single_read());
            (scope_state, PrefetchRules::default())
        };
        let has_fetches = !scope_state.fetches.is_empty();
        let mut keys_of_lookup = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            if has_fetches && let Some(fetch) = self.fetch_to_await(key, scope_state, now) {
                let fetch = fetch.clone();
                lookup.awaited_keys.push(AwaitedKey { index, fetch });
                lookup.needs_no_fetch.push(false);
                lookup.values.push(None);
                continue;
            }
            let (location, value) =
                self.look_up_key(key, scope_state, rules, related_keys, now, &mut keys_of_lookup);
            self.count_read(location);
            if let (Location::Fixed | Location::Local, Some(value)) = (location, &value) {
                self.note_hit(|| key.clone(), value, now);
            }
            lookup.needs_no_fetch.push(location != Location::Missing);
            lookup.values.push(value);
            let new_keys = keys_of_lookup.drain(..).filter(|new_key| {
                let is_in_flight = new_key != key && scope_state.fetches.get(new_key).is_some();
                !is_in_flight && seen_keys.insert(new_key.clone())
            });
            lookup.keys_to_fetch.extend(new_keys);
        }
        lookup
    }

    /// The fetch by which another read of the request is fetching a key, unless the key already has a value that may be
    /// served, or each read fetches it.
    fn fetch_to_await<'s>(
        &self,
        key: &NearKey,
        scope_state: &'s ScopeState,
        now: Instant,
    ) -> Option<&'s Arc<FetchInFlight>> {
        let fetch = scope_state.fetches.get(key).filter(|_| self.keep_rules.may_keep(key))?;
        let scope_entry = self.current_scope_entry(key, scope_state);
        let has_value = scope_entry.is_some_and(|entry| entry.value.is_some());
        (!has_value && !self.has_fresh_value(key, now)).then_some(fetch)
    }

    /// Whether a read may use that a fetch which it waited for, and which began with this generation of the key, found no
    /// value; then it is counted.
    pub(super) fn use_absence(
        &mut self,
        (key, generation): (&NearKey, u64),
        scope_state: &ScopeState,
        now: Instant,
    ) -> bool {
        let is_unchanged = self.writes.generation(key) == Some(generation);
        let may_use = is_unchanged && !self.is_available(key, scope_state, now);
        if may_use {
            self.count_read(Location::AlreadyRequested);
        }
        may_use
    }

    /// Counts keys that were read and not found in time by the fetches of other reads.
    pub(super) fn count_failed_waits(&mut self, key_count: usize) {
        self.stats.reads += key_count as u64;
    }

    /// Looks up the keys of one read that the strategy does not serve: every key is fetched.
    ///
    /// In the control group the near cache takes note of them as if the strategy had served them, and keeps what it did
    /// not have. So it holds what it would if all requests ran the strategy, which is what a forecast is for.
    pub(super) fn look_up_without_strategy(
        &mut self,
        keys: &[NearKey],
        scope_state: Option<&mut ScopeState>,
        related_keys: &RelatedKeysOfRead<'_>,
        now: Instant,
    ) -> KeyLookup {
        let mut seen_keys = HashSet::new();
        let new_keys = keys.iter().filter(|key| seen_keys.insert((*key).clone()));
        let mut lookup = KeyLookup {
            values: vec![None; keys.len()],
            needs_no_fetch: vec![false; keys.len()],
            keys_to_fetch: new_keys.cloned().collect(),
            ..KeyLookup::default()
        };
        let Some(scope_state) = scope_state else {
            return lookup;
        };
        for key in &lookup.keys_to_fetch {
            let (location, value) = self.look_up_key(
                key,
                scope_state,
                PrefetchRules::default(),
                related_keys,
                now,
                &mut Vec::new(),
            );
            match (location, value) {
                (Location::Missing, _) => {
                    lookup.keys_to_cache.insert(key.clone());
                }
                (Location::Fixed | Location::Local, Some(value)) => {
                    lookup.kept_values.push((key.clone(), value));
                }
                _ => {}
            }
        }
        lookup
    }

    fn look_up_key(
        &mut self,
        key: &NearKey,
        scope_state: &mut ScopeState,
        rules: PrefetchRules,
        related_keys: &RelatedKeysOfRead<'_>,
        now: Instant,
        keys_to_fetch: &mut Vec<NearKey>,
    ) -> (Location, Option<NearValue>) {
        let may_serve = self.may_serve(now);
        let mut context = ClientContext {
            near_values: &mut self.near_values,
            scope: &mut scope_state.held,
            fetched_values: &HashMap::new(),
            related_items: related_keys,
            validity: &ValidityNow {
                now,
                may_serve,
                writes: &self.writes,
                keep_rules: &self.keep_rules,
            },
        };
        let mut location = rules.look_up(&mut context, key, keys_to_fetch);
        let scope_entry = scope_state.held.get(key);
        let scope_entry =
            scope_entry.filter(|entry| self.writes.generation(key) == Some(entry.generation));
        let value = match (location, scope_entry) {
            (Location::Missing, _) => None,
            (Location::Fixed, _) | (Location::AlreadyRequested, None) => {
                let is_fresh = |entry: &NearEntry| may_serve && entry.is_fresh(now);
                let entry = self.near_values.get(&**key, is_fresh);
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

    /// What the request's page fetches at its begin.
    pub(super) fn begin_request(
        &mut self,
        page: &NearKey,
        scope_state: &mut ScopeState,
        rules: PrefetchRules,
        related_keys: &RelatedKeysOfRead<'_>,
        now: Instant,
    ) -> Vec<NearKey> {
        let mut keys_to_fetch = Vec::new();
        let may_serve = self.may_serve(now);
        let context = ClientContext {
            near_values: &mut self.near_values,
            scope: &mut scope_state.held,
            fetched_values: &HashMap::new(),
            related_items: related_keys,
            validity: &ValidityNow {
                now,
                may_serve,
                writes: &self.writes,
                keep_rules: &self.keep_rules,
            },
        };
        rules.begin_request(&context, page, &mut keys_to_fetch);
        keys_to_fetch.retain(|key| scope_state.fetches.get(key).is_none());
        keys_to_fetch
    }

    /// Whether a read of a key would need no call.
    pub(super) fn is_available(
        &self,
        key: &NearKey,
        scope_state: &ScopeState,
        now: Instant,
    ) -> bool {
        self.has_fresh_value(key, now) || self.current_scope_entry(key, scope_state).is_some()
    }

    /// Whether the process keeps a value that may be served.
    fn has_fresh_value(&self, key: &NearKey, now: Instant) -> bool {
        let may_serve = self.may_serve(now);
        let is_fresh = |entry: &NearEntry| may_serve && entry.is_fresh(now);
        let fixed_entry = self.near_values.fixed().get(key).and_then(Option::as_ref);
        let cached_entry = self.near_values.local_cache().peek(key);
        fixed_entry.is_some_and(is_fresh) || cached_entry.is_some_and(is_fresh)
    }

    /// The value that a read of a key is served without a call, and when the item may end on its server.
    pub(super) fn held_value(
        &self,
        key: &NearKey,
        scope_state: &ScopeState,
        now: Instant,
    ) -> Option<(NearValue, ItemEnd)> {
        let may_serve = self.may_serve(now);
        let is_fresh = |entry: &&NearEntry| may_serve && entry.is_fresh(now);
        let fixed_entry = self.near_values.fixed().get(key).and_then(Option::as_ref);
        let cached_entry = self.near_values.local_cache().peek(key);
        let kept_entry = fixed_entry.or(cached_entry).filter(is_fresh);
        let entry = self.current_scope_entry(key, scope_state).or(kept_entry)?;
        Some((entry.value.clone()?, entry.item_end))
    }

    /// Whether the process, or a request, holds the value of a key after a read by the strategy.
    pub(super) fn holds_reads_of(&self, key: &NearKey, group: Option<Group>) -> bool {
        let is_kept = group.is_some()
            || self.near_values.local_cache().has_room()
            || self.near_values.fixed().contains_key(key);
        self.read_mode(group) == ReadMode::Strategy && is_kept && self.keep_rules.may_keep(key)
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

    /// The generation of each key, to be passed to [`Self::store`] with what the fetch brings.
    pub(super) fn generations(&self, keys: &[NearKey]) -> Vec<Option<u64>> {
        keys.iter().map(|key| self.writes.generation(key)).collect()
    }

    /// Stores what a fetch, started at `started_at` with these generations, brought for its keys; `None`: no reply.
    pub(super) fn store(
        &mut self,
        (keys, generations): (&[NearKey], &[Option<u64>]),
        fetched_keys: Vec<Option<FetchedKey>>,
        scope_state: Option<&mut ScopeState>,
        related_keys: &RelatedKeysOfRead<'_>,
        started_at: Instant,
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
                arrived_values.insert(
                    key.clone(),
                    self.to_fetched_value(key, fetched_key, current_generation, started_at),
                );
            }
        }
        let mut temporary_scope_state = ScopeState::of_single_read();
        let may_serve = self.may_serve(started_at);
        let mut context = ClientContext {
            near_values: &mut self.near_values,
            scope: &mut scope_state.unwrap_or(&mut temporary_scope_state).held,
            fetched_values: &arrived_values,
            related_items: related_keys,
            validity: &ValidityNow {
                now: started_at,
                may_serve,
                writes: &self.writes,
                keep_rules: &self.keep_rules,
            },
        };
        store_fetched(&mut context, keys);
    }

    fn to_fetched_value(
        &self,
        key: &NearKey,
        fetched_key: FetchedKey,
        generation: u64,
        started_at: Instant,
    ) -> FetchedValue<NearEntry> {
        let expiry = compute_expiry(started_at, fetched_key.ttl_s, self.near_ttl);
        let is_cacheable = self.may_cache(started_at);
        let cached_bytes = match (&fetched_key.value, expiry) {
            (Some(value), Ok(_)) if is_cacheable => {
                Some(entry_bytes(self.byte_accounting, key, value))
            }
            _ => None,
        };
        let entry = NearEntry {
            value: fetched_key.value,
            generation,
            expires_at: expiry.unwrap_or(Some(started_at)),
            item_end: ItemEnd::of_fetch(started_at, fetched_key.ttl_s),
        };
        FetchedValue { value: entry, cached_bytes }
    }

    /// Counts a call for this many keys that brought this many bytes; loads of the fixed set are counted apart.
    pub(super) fn count_call(&mut self, key_count: usize, value_bytes: usize, is_load: bool) {
        let stats = &mut self.stats;
        if is_load {
            stats.fixed_set_calls += 1;
            stats.fixed_set_keys += key_count as u64;
        } else {
            stats.calls += 1;
            stats.keys += key_count as u64;
            stats.bytes += value_bytes as u64;
        }
    }

    /// What the loads of the fixed set cost.
    pub(super) fn fixed_set_loads(&self) -> FixedSetLoads {
        FixedSetLoads { calls: self.stats.fixed_set_calls, keys: self.stats.fixed_set_keys }
    }

    /// The keys of the fixed set that the caller is to load now, if any; then others do not. Not before what is loaded may
    /// be cached.
    pub(super) fn begin_load(&mut self, fixed_keys: &[NearKey], now: Instant) -> Vec<NearKey> {
        let previous_load = self.fixed_set_load.began_at();
        if !self.may_cache(now) || !self.fixed_set_load.begin(now) {
            return Vec::new();
        }
        let needs_load = |key: &&NearKey| {
            let entry = self.near_values.fixed().get(*key).and_then(Option::as_ref);
            let expires_at = entry.and_then(|entry| entry.expires_at);
            self.keep_rules.may_keep(key)
                && self.fixed_set_load.needs_load(key, entry.is_some(), expires_at, now)
        };
        let keys: Vec<NearKey> = fixed_keys.iter().filter(needs_load).cloned().collect();
        if keys.is_empty() {
            self.fixed_set_load.skip(now, previous_load, self.first_expiry());
        }
        keys
    }

    /// Ends a load of these keys, whose values were stored before: see [`FixedSetLoad::finish`].
    pub(super) fn end_load(&mut self, now: Instant, mut outcome: LoadOutcome<'_>) {
        let has_no_value =
            |key: &NearKey| self.near_values.fixed().get(key).is_none_or(Option::is_none);
        outcome.absent_keys.retain(has_no_value);
        self.fixed_set_load.finish(now, outcome, self.first_expiry());
    }

    /// The first expiry of a value of the fixed set.
    fn first_expiry(&self) -> Option<Instant> {
        let loaded = self.near_values.fixed().values().flatten();
        loaded.filter_map(|entry| entry.expires_at).min()
    }

    /// Notes what the user should know of keys of the fixed set that servers lack, once.
    pub(super) fn warn_of_missing_keys(&mut self, name_of: impl Fn(&NearKey) -> String) {
        let key_count = self.near_values.fixed().len();
        self.warnings.extend(self.fixed_set_load.take_warning(key_count, name_of));
    }

    /// Notes that values of a server cannot be kept, once.
    pub(super) fn warn_of_missing_ttls(&mut self) {
        if !std::mem::replace(&mut self.has_warned_of_ttls, true) {
            self.warnings.push_back(
                "a server sends values without their TTLs, as in classic text and in the binary protocol: the strategy \
                 keeps none of them in the process, where they could outlive their TTL"
                    .to_owned(),
            );
        }
    }

    pub(super) fn take_warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }

    /// Notes that the application changes a key in place: it is not kept from now on, nor is what is like it.
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

    pub(super) fn begin_write(&mut self, keys: &[NearKey]) {
        for key in keys {
            self.writes.begin_write(key);
            self.invalidate_key(key);
        }
    }

    pub(super) fn end_write(&mut self, keys: &[NearKey]) {
        for key in keys {
            self.writes.end_write(key);
            self.invalidate_key(key);
        }
    }

    fn invalidate_key(&mut self, key: &NearKey) {
        let has_fixed_value = self.near_values.fixed().get(key).is_some_and(Option::is_some);
        let was_cached = has_fixed_value || self.near_values.local_cache().peek(key).is_some();
        self.stats.invalidated += u64::from(was_cached);
        self.near_values.remove(key);
    }

    pub(super) fn begin_flush(&mut self) {
        self.writes.begin_flush();
        self.clear();
    }

    pub(super) fn end_flush(&mut self) {
        self.writes.end_flush();
        self.clear();
    }

    /// Caches no fetched value until then, if a flush is delayed.
    pub(super) fn pause_caching(&mut self, until: Instant, is_delayed: bool) {
        if is_delayed {
            self.caching_paused_until = self.caching_paused_until.max(Some(until));
        }
    }

    /// Removes every value after a change of the servers or of all items; the fixed set is loaded again.
    ///
    /// The requests that fetch everything again are not what the forecast describes, so the roll-out leaves this window out.
    pub(super) fn clear(&mut self) {
        self.process_rollout.reset_window();
        self.invalidate_all();
    }

    /// Removes every value, those of fetches in flight too.
    fn invalidate_all(&mut self) {
        self.writes.record_change_of_all();
        self.clear_values();
    }

    fn clear_values(&mut self) {
        self.near_values.clear();
        if !self.near_values.fixed().is_empty() {
            self.fixed_set_load.mark_due();
        }
    }

    /// Expects reports of the servers in these slots, and removes every value: keys may have other servers than before.
    pub(super) fn expect_watches(&mut self, slots: &[usize]) {
        if let Some(watches) = &mut self.watches {
            watches.coverage.set_expected_slots(slots);
        }
        // Fetches in flight are of the present servers: a change of them invalidates earlier ones.
        self.clear_values();
    }

    /// Handles what a watch of the server in `slot` received.
    pub(super) fn handle_watch_event(
        &mut self,
        (slot, server_address): (usize, &str),
        event: WatchEvent,
        now: Instant,
    ) {
        match event {
            WatchEvent::Began(report_level) => {
                if let Some(watches) = &mut self.watches {
                    let warning =
                        watches.begin((slot, server_address), report_level, self.near_ttl);
                    self.warnings.extend(warning);
                }
                self.invalidate_all();
            }
            WatchEvent::Changed(changed_key) => {
                for key in possible_near_keys(&changed_key) {
                    self.writes.record_change(&key);
                    let invalidated_before = self.stats.invalidated;
                    self.invalidate_key(&key);
                    self.stats.changed_by_others += self.stats.invalidated - invalidated_before;
                    self.stats.invalidated = invalidated_before;
                }
            }
            WatchEvent::ChangedMany => self.invalidate_for_watch(),
            WatchEvent::FlushIn(delay_s) => {
                let delay = Duration::from_secs(delay_s.into());
                self.pause_caching(now + delay + FLUSH_DELAY_SLACK, true);
                self.invalidate_for_watch();
            }
            WatchEvent::Confirmed(sent_at) => {
                if let Some(watches) = &mut self.watches {
                    watches.coverage.record_confirmation(slot, sent_at);
                }
            }
        }
    }

    /// Removes every value, for the server in `slot` reports no changes until a watch of it begins again.
    pub(super) fn handle_watch_loss(&mut self, slot: usize) {
        if let Some(watches) = &mut self.watches {
            watches.coverage.record_loss(slot);
        }
        self.invalidate_for_watch();
    }

    /// Removes every value for what a watch reported or lost. That is part of what a coherent near cache costs, so the
    /// roll-out counts the requests that fetch everything again: a watch that is lost over and over disables the strategy.
    fn invalidate_for_watch(&mut self) {
        self.stats.watch_clears += 1;
        self.invalidate_all();
    }

    pub(super) fn counters(&self) -> NearStats {
        self.stats.clone()
    }

    pub(super) fn stats(
        &self,
        fixed_keys: &[NearKey],
        name_of: impl Fn(&NearKey) -> String,
    ) -> NearStats {
        let fixed_entries = self.near_values.fixed().values().flatten();
        let fixed_values = fixed_entries.filter_map(|entry| entry.value.as_ref());
        NearStats {
            fixed_keys: fixed_keys.len() as u64,
            fixed_loaded: self.near_values.fixed().values().flatten().count() as u64,
            missing_keys: self.fixed_set_load.missing_keys().iter().map(name_of).collect(),
            disabled: self.process_rollout.disable_reason().map(ToString::to_string),
            near_items: self.near_values.local_cache().len() as u64,
            near_bytes: self.near_bytes(),
            fixed_bytes: fixed_values.map(|value| value_bytes(value) as u64).sum(),
            rules_bytes: (fixed_keys.iter().map(fixed_key_bytes).sum::<usize>()
                + self.keep_rules.bytes()) as u64,
            ..self.stats.clone()
        }
    }
}
