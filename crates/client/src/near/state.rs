//! What one process keeps under its strategy, with what was counted of it: reads, loads of the fixed set, this client's
//! writes and those of others.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use glasscache_strategy::notation::Strategy;
use glasscache_strategy::rollout::counts::RequestCost;
use glasscache_strategy::rollout::rollout_share::Group;
use glasscache_strategy::rollout::warm_up::NearContent;
use glasscache_strategy::rules::{Location, PrefetchRules};

use super::entry::{ItemEnd, NearKey, NearValue, fixed_key_bytes};
use super::fetches_in_flight::AwaitedKey;
use super::fixed_set_load::{FixedSetLoad, LoadOutcome};
use super::freshness::Freshness;
use super::keep_rules::KeepRules;
use super::kept_values::{FetchedKey, KeptValues};
use super::options::StrategyOptions;
use super::related_keys::RelatedKeysOfRead;
use super::rollout_state::{ReadMode, RolloutState};
use super::scope::ScopeState;
use super::stats::NearStats;
use super::warnings::Warnings;
use super::watch::{WatchEvent, possible_near_keys};
use super::writes::FLUSH_DELAY_SLACK;

/// The fixed set, the near cache, and what bounds their use.
#[derive(Debug)]
pub(super) struct NearState {
    pub(super) kept_values: KeptValues,
    pub(super) freshness: Freshness,
    pub(super) rollout: RolloutState,
    pub(super) stats: NearStats,
    pub(super) warnings: Warnings,
    fixed_set_load: FixedSetLoad,
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

impl NearState {
    pub(super) fn new(
        options: &StrategyOptions,
        fixed_keys: &[NearKey],
        keep_rules: KeepRules,
    ) -> Self {
        let policy = options.file.strategy.local.new_policy();
        Self {
            kept_values: KeptValues::new(fixed_keys, policy, keep_rules),
            freshness: Freshness::new(options.near_ttl, options.is_coherent),
            rollout: RolloutState::new(options),
            stats: NearStats::default(),
            warnings: Warnings::default(),
            fixed_set_load: FixedSetLoad::new(fixed_keys.len(), options.near_ttl),
        }
    }

    /// Counts a request that has ended; the strategy may disable itself by that.
    pub(super) fn end_request(
        &mut self,
        group_and_route: (Group, Option<&str>),
        cost: &RequestCost,
        strategy: &Strategy,
    ) {
        let (items, is_full) = self.kept_values.cached_count_and_is_full();
        let is_fixed_set_loaded = self.fixed_set_load.is_loaded();
        let near_content = NearContent { items, is_full, is_fixed_set_loaded };
        if let Some(reason) = self.rollout.end_request(group_and_route, cost, near_content) {
            self.warnings.add(Some(format!(
                "the strategy {strategy} has disabled itself: {reason}; the requests of this process run without it, and \
                 glasscache rollout compares them"
            )));
            self.kept_values.disable();
            self.fixed_set_load = FixedSetLoad::new(0, None);
        }
    }

    /// The value of a read outside a request, if it is available and nothing is due.
    pub(super) fn get_without_call(&mut self, key: &[u8], now: Instant) -> Option<NearValue> {
        if self.rollout.read_mode(None) != ReadMode::Strategy
            || self.fixed_set_load.is_due(now)
            || !self.freshness.may_serve(now)
            || self.rollout.is_comparison_due()
        {
            return None;
        }
        let (location, value) = self.kept_values.get(key, self.freshness.at(now))?;
        self.stats.count_read(location);
        self.rollout.note_hit(|| key.into(), &value, &self.freshness, now);
        Some(value)
    }

    /// Keys whose values are to be compared with the servers', with what the process keeps of them; none of `keys`, which
    /// are fetched anyway. Without any of these only when there are enough for a call.
    pub(super) fn take_values_to_compare(
        &mut self,
        keys: &[NearKey],
        now: Instant,
    ) -> Vec<(NearKey, NearValue)> {
        let has_call = !keys.is_empty() || self.rollout.is_comparison_due();
        if !has_call || !self.freshness.may_serve(now) {
            return Vec::new();
        }
        let moment = self.freshness.at(now);
        let keys_to_compare = self.rollout.take_keys_to_compare().into_iter();
        let not_fetched = keys_to_compare.filter(|key| !keys.contains(key));
        let with_kept_value = |key| {
            let value = self.kept_values.fresh_value(&key, moment)?;
            Some((key, value))
        };
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
        if self.kept_values.generation(key) == generation {
            self.rollout.compare_value(key, kept_value, server_value, now);
        }
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
        let moment = self.freshness.at(now);
        let has_fetches = !scope_state.fetches.is_empty();
        let mut keys_of_lookup = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            if has_fetches
                && let Some(fetch) = self.kept_values.fetch_to_await(key, scope_state, moment)
            {
                let fetch = fetch.clone();
                lookup.awaited_keys.push(AwaitedKey { index, fetch });
                lookup.needs_no_fetch.push(false);
                lookup.values.push(None);
                continue;
            }
            let (location, value) = self.kept_values.look_up(
                key,
                scope_state,
                (rules, related_keys),
                moment,
                &mut keys_of_lookup,
            );
            self.stats.count_read(location);
            if let (Location::Fixed | Location::Local, Some(value)) = (location, &value) {
                self.rollout.note_hit(|| key.clone(), value, &self.freshness, now);
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

    /// Whether a read may use that a fetch which it waited for, and which began with this generation of the key, found no
    /// value; then it is counted.
    pub(super) fn use_absence(
        &mut self,
        (key, generation): (&NearKey, u64),
        scope_state: &ScopeState,
        now: Instant,
    ) -> bool {
        let is_unchanged = self.kept_values.generation(key) == Some(generation);
        let may_use = is_unchanged && !self.is_available(key, scope_state, now);
        if may_use {
            self.stats.count_read(Location::AlreadyRequested);
        }
        may_use
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
        let moment = self.freshness.at(now);
        for key in &lookup.keys_to_fetch {
            let (location, value) = self.kept_values.look_up(
                key,
                scope_state,
                (PrefetchRules::default(), related_keys),
                moment,
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

    /// What the request's page fetches at its begin.
    pub(super) fn begin_request(
        &mut self,
        page: &NearKey,
        scope_state: &mut ScopeState,
        rules: PrefetchRules,
        related_keys: &RelatedKeysOfRead<'_>,
        now: Instant,
    ) -> Vec<NearKey> {
        let moment = self.freshness.at(now);
        self.kept_values.begin_request(page, scope_state, (rules, related_keys), moment)
    }

    /// Whether a read of a key would need no call.
    pub(super) fn is_available(
        &self,
        key: &NearKey,
        scope_state: &ScopeState,
        now: Instant,
    ) -> bool {
        self.kept_values.is_available(key, scope_state, self.freshness.at(now))
    }

    /// The value that a read of a key is served without a call, and when the item may end on its server.
    pub(super) fn held_value(
        &self,
        key: &NearKey,
        scope_state: &ScopeState,
        now: Instant,
    ) -> Option<(NearValue, ItemEnd)> {
        self.kept_values.held_value(key, scope_state, self.freshness.at(now))
    }

    /// Whether the process, or a request, holds the value of a key after a read by the strategy.
    pub(super) fn holds_reads_of(&self, key: &NearKey, group: Option<Group>) -> bool {
        self.rollout.read_mode(group) == ReadMode::Strategy
            && self.kept_values.holds_reads_of(key, group.is_some())
    }

    /// Stores what a fetch, started at `started_at` with these generations, brought for its keys; `None`: no reply.
    pub(super) fn store(
        &mut self,
        keys_and_generations: (&[NearKey], &[Option<u64>]),
        fetched_keys: Vec<Option<FetchedKey>>,
        scope_state: Option<&mut ScopeState>,
        related_keys: &RelatedKeysOfRead<'_>,
        started_at: Instant,
    ) {
        let terms = self.freshness.terms_of_fetch(started_at);
        self.kept_values.store(
            keys_and_generations,
            fetched_keys,
            scope_state,
            related_keys,
            terms,
        );
    }

    /// The keys of the fixed set that the caller is to load now, if any; then others do not. Not before what is loaded may
    /// be cached.
    pub(super) fn begin_load(&mut self, fixed_keys: &[NearKey], now: Instant) -> Vec<NearKey> {
        let previous_load = self.fixed_set_load.began_at();
        if !self.freshness.may_cache(now) || !self.fixed_set_load.begin(now) {
            return Vec::new();
        }
        let needs_load = |key: &&NearKey| {
            let entry = self.kept_values.fixed_entry(key);
            let expires_at = entry.and_then(|entry| entry.expires_at);
            self.kept_values.may_keep(key)
                && self.fixed_set_load.needs_load(key, entry.is_some(), expires_at, now)
        };
        let keys: Vec<NearKey> = fixed_keys.iter().filter(needs_load).cloned().collect();
        if keys.is_empty() {
            let first_expiry = self.kept_values.first_fixed_expiry();
            self.fixed_set_load.skip(now, previous_load, first_expiry);
        }
        keys
    }

    /// Ends a load of these keys, whose values were stored before: see [`FixedSetLoad::finish`].
    pub(super) fn end_load(&mut self, now: Instant, mut outcome: LoadOutcome<'_>) {
        outcome.absent_keys.retain(|key| self.kept_values.fixed_entry(key).is_none());
        self.fixed_set_load.finish(now, outcome, self.kept_values.first_fixed_expiry());
    }

    /// Notes what the user should know of keys of the fixed set that servers lack, once.
    pub(super) fn warn_of_missing_keys(&mut self, name_of: impl Fn(&NearKey) -> String) {
        let key_count = self.kept_values.fixed_key_count();
        self.warnings.add(self.fixed_set_load.take_warning(key_count, name_of));
    }

    /// Begins a write of keys by this client, which are not kept until it ends.
    pub(super) fn begin_write(&mut self, keys: &[NearKey]) {
        for key in keys {
            self.stats.invalidated += u64::from(self.kept_values.begin_write(key));
        }
    }

    /// Ends a write of keys by this client.
    pub(super) fn end_write(&mut self, keys: &[NearKey]) {
        for key in keys {
            self.stats.invalidated += u64::from(self.kept_values.end_write(key));
        }
    }

    /// Begins a change of all items by this client: nothing is kept until it ends.
    pub(super) fn begin_flush(&mut self) {
        self.kept_values.begin_flush();
        self.clear();
    }

    /// Ends a change of all items by this client.
    pub(super) fn end_flush(&mut self) {
        self.kept_values.end_flush();
        self.clear();
    }

    /// Removes every value after a change of the servers or of all items; the fixed set is loaded again.
    ///
    /// The requests that fetch everything again are not what the forecast describes, so the roll-out leaves this window out.
    pub(super) fn clear(&mut self) {
        self.rollout.reset_window();
        self.invalidate_all();
    }

    /// Removes every value, those of fetches in flight too.
    fn invalidate_all(&mut self) {
        self.kept_values.change_all();
        self.reload_fixed_set();
    }

    /// Has the fixed set, whose values were removed, loaded again.
    fn reload_fixed_set(&mut self) {
        if self.kept_values.fixed_key_count() > 0 {
            self.fixed_set_load.mark_due();
        }
    }

    /// Expects reports of the servers in these slots, and removes every value: keys may have other servers than before.
    pub(super) fn expect_watches(&mut self, slots: &[usize]) {
        self.freshness.expect_watches(slots);
        // Fetches in flight are of the present servers: a change of them invalidates earlier ones.
        self.kept_values.clear();
        self.reload_fixed_set();
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
                let slot_and_address = (slot, server_address);
                let warning = self.freshness.begin_watch(slot_and_address, report_level);
                self.warnings.add(warning);
                self.invalidate_all();
            }
            WatchEvent::Changed(changed_key) => {
                for key in possible_near_keys(&changed_key) {
                    self.stats.changed_by_others += u64::from(self.kept_values.change(&key));
                }
            }
            WatchEvent::ChangedMany => self.invalidate_for_watch(),
            WatchEvent::FlushIn(delay_s) => {
                let delay = Duration::from_secs(delay_s.into());
                self.freshness.pause_caching(now + delay + FLUSH_DELAY_SLACK);
                self.invalidate_for_watch();
            }
            WatchEvent::Confirmed(sent_at) => self.freshness.confirm_watch(slot, sent_at),
        }
    }

    /// Removes every value, for the server in `slot` reports no changes until a watch of it begins again.
    pub(super) fn handle_watch_loss(&mut self, slot: usize) {
        self.freshness.lose_watch(slot);
        self.invalidate_for_watch();
    }

    /// Removes every value for what a watch reported or lost. That is part of what a coherent near cache costs, so the
    /// roll-out counts the requests that fetch everything again: a watch that is lost over and over disables the strategy.
    fn invalidate_for_watch(&mut self) {
        self.stats.watch_clears += 1;
        self.invalidate_all();
    }

    /// The counters, and what is kept at present.
    pub(super) fn stats(
        &self,
        fixed_keys: &[NearKey],
        name_of: impl Fn(&NearKey) -> String,
    ) -> NearStats {
        let (fixed_loaded, fixed_bytes) = self.kept_values.loaded_count_and_bytes();
        let (near_items, _) = self.kept_values.cached_count_and_is_full();
        let disable_reason = self.rollout.process_rollout().disable_reason();
        NearStats {
            fixed_keys: fixed_keys.len() as u64,
            fixed_loaded,
            missing_keys: self.fixed_set_load.missing_keys().iter().map(name_of).collect(),
            disabled: disable_reason.map(ToString::to_string),
            near_items: near_items as u64,
            near_bytes: self.kept_values.cached_bytes(),
            fixed_bytes,
            rules_bytes: (fixed_keys.iter().map(fixed_key_bytes).sum::<usize>()
                + self.kept_values.learned_bytes()) as u64,
            ..self.stats.clone()
        }
    }
}
