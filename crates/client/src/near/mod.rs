//! The strategy that a client runs: a fixed set and a near cache in the process, and what is fetched together.
//!
//! A read looks in [`ClientNearCache`] first, and makes the calls that a [`NearRead`] returns or waits for those of other
//! reads of its request (`fetches_in_flight`). Which items are available and what one call fetches is decided by
//! `glasscache_strategy`, whose code the simulator replays; here are the values (`kept_values`) and what makes them stale:
//! time (`freshness`), writes (`writes`) and those of others (`watch`). No socket and no clock: drivers wait and pass
//! in the time. The rules of freshness and their reasons: docs/decisions/strategies.md, 0073.

mod coverage;
mod entry;
mod fetch;
mod fetches_in_flight;
mod fixed_set_load;
mod freshness;
mod keep_rules;
mod kept_values;
mod options;
mod read;
mod related_keys;
mod rollout_state;
mod scope;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod value_comparison;
mod warnings;
pub mod watch;
mod watches;
mod write_tracker;
mod writes;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use glasscache_protocol::meta::request::WireKey;
pub use glasscache_strategy::fixed_set;
pub use glasscache_strategy::never_kept::NeverRules;
pub use glasscache_strategy::rollout;
use glasscache_strategy::rollout::counts::RequestCost;
use glasscache_strategy::rollout::json::rollout_json;
pub use glasscache_strategy::rollout::rollout_share::{Group, RolloutShare, ShareBy, ShareError};

use crate::error::Error;
use crate::fork::Process;
use crate::key::KeyEncoder;
pub use entry::{ItemEnd, NearValue};
pub use fetch::{Fetch, FetchReason, FetchedItems};
pub use options::{ChildrenOf, StrategyOptions};

pub use read::{NearRead, NearStep, only_value};
pub use scope::RequestScope;
use scope::ScopeState;
pub use stats::NearStats;
pub(crate) use writes::NearWriteGuard;

use entry::NearKey;
use keep_rules::KeepRules;
pub use keep_rules::as_package_call;
pub(crate) use keep_rules::is_noted_change;
use related_keys::RelatedKeys;
use state::NearState;

/// What a client keeps in the process under its strategy; shared by its threads.
#[derive(Debug)]
pub struct ClientNearCache {
    related_keys: RelatedKeys,
    options: StrategyOptions,
    fixed_keys: Vec<NearKey>,
    process_cache: ArcSwap<ProcessNearCache>,
}

/// The state of one process: after a fork a child begins with nothing, for a lock may be held by a thread that it lacks.
#[derive(Debug)]
pub(crate) struct ProcessNearCache {
    process: Process,
    state: Mutex<NearState>,
}

impl ProcessNearCache {
    fn new(options: &StrategyOptions, (fixed_keys, keep_rules): (&[NearKey], KeepRules)) -> Self {
        let state = NearState::new(options, fixed_keys, keep_rules);
        Self { process: Process::current(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, NearState> {
        // Counters and values are changed one at a time: after a panic of the caller they are still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientNearCache {
    /// What a client with these settings keeps; a key of the strategy that is not valid is an error, and so are a share, and a strategy
    /// that only the simulator has.
    pub fn new(mut options: StrategyOptions, encoder: KeyEncoder<'_>) -> Result<Self, Error> {
        let share_check = options.share.map(RolloutShare::check).transpose();
        share_check.map_err(|error| Error::BadSetting(error.to_string()))?;
        let strategy_check = options.file.strategy.check_runnable();
        strategy_check.map_err(|error| Error::BadSetting(error.to_string()))?;
        let related_keys = RelatedKeys::new(&options, encoder)?;
        let names_of_fixed_keys = options.file.fixed_keys.iter();
        let fixed_keys = names_of_fixed_keys.map(|key| related_keys.key_of_rule("key", key));
        let mut fixed_keys: Vec<NearKey> = fixed_keys.collect::<Result<_, _>>()?;
        let keep_rules = related_keys.keep_rules();
        fixed_keys.retain(|key| keep_rules.may_keep(key));
        // They are in memory once, as the client uses them.
        options.file.fixed_keys = Vec::new();
        options.file.children = Vec::new();
        let process_cache = ProcessNearCache::new(&options, (&fixed_keys, keep_rules));
        Ok(Self {
            related_keys,
            process_cache: ArcSwap::from_pointee(process_cache),
            fixed_keys,
            options,
        })
    }

    /// The settings.
    pub fn options(&self) -> &StrategyOptions {
        &self.options
    }

    /// A scope for one request, about the item under this key (without its namespace) if there is one.
    pub fn scope(self: &Arc<Self>, page: Option<&[u8]>) -> Result<RequestScope, Error> {
        let page = page.map(|key| self.related_keys.near_key(key)).transpose()?;
        let group = self.current().state().rollout.assign_request_group();
        Ok(RequestScope::new(self.clone(), group, page))
    }

    /// Counts a request that has ended.
    fn end_request(&self, group: Group, route: Option<&str>, cost: &RequestCost) {
        let process_cache = self.current();
        let strategy = &self.options.file.strategy;
        process_cache.state().end_request((group, route), cost, strategy);
    }

    /// The roll-out as JSON: what the requests of both groups needed, and the forecast (docs/reference/json.md).
    pub fn rollout_json(&self) -> String {
        let process_cache = self.current();
        let state = process_cache.state();
        let strategy = &self.options.file.strategy;
        let fill_fraction = state.kept_values.fill_fraction(strategy.local);
        let process_rollout = state.rollout.process_rollout();
        rollout_json(strategy, process_rollout, fill_fraction, state.stats.fixed_set_loads())
    }

    /// The value under a key if it needs no call, the common case of a read outside a request; `None`: begin a [`NearRead`].
    pub fn get_without_call(&self, key: WireKey<'_>, now: Instant) -> Option<NearValue> {
        if key.is_base64 {
            return None;
        }
        self.current().state().get_without_call(key.bytes, now)
    }

    /// Whether a read of a key (without its namespace) by the strategy is held afterwards, so that
    /// [`Self::held_value`] finds it.
    pub fn holds_reads_of(&self, key: &[u8], scope: Option<&RequestScope>) -> bool {
        let near_key = self.related_keys.near_key(key);
        let group = scope.map(RequestScope::group);
        near_key.is_ok_and(|key| self.current().state().holds_reads_of(&key, group))
    }

    /// The value under a key (without its namespace) that a read gets without a call, and when the item may end on its
    /// server; `None`: it makes a call.
    pub fn held_value(
        &self,
        key: &[u8],
        scope: Option<&RequestScope>,
        now: Instant,
    ) -> Option<(NearValue, ItemEnd)> {
        let key = self.related_keys.near_key(key).ok()?;
        let scope = scope.filter(|scope| scope.is_of_this_process());
        let single_read = ScopeState::of_single_read();
        let scope_guard = scope.map(RequestScope::state);
        let scope_state = scope_guard.as_deref().unwrap_or(&single_read);
        self.current().state().held_value(&key, scope_state, now)
    }

    /// Forgets the value under a key (without its namespace) that was changed where this client does not see it.
    pub fn forget(&self, key: &[u8]) -> Result<(), Error> {
        let keys = [self.related_keys.near_key(key)?];
        let process_cache = self.current();
        let mut state = process_cache.state();
        state.begin_write(&keys);
        state.end_write(&keys);
        Ok(())
    }

    /// Forgets every value, as after a change of the servers.
    pub fn clear(&self) {
        self.current().state().clear();
    }

    /// Expects reports of the servers in these slots, whose watches begin now.
    pub fn expect_watches(&self, slots: &[usize]) {
        self.current().state().expect_watches(slots);
    }

    /// Handles what a watch received of a server, named by its slot and its address.
    pub fn handle_watch_event(
        &self,
        slot_and_address: (usize, &str),
        event: watch::WatchEvent,
        now: Instant,
    ) {
        self.current().state().handle_watch_event(slot_and_address, event, now);
    }

    /// Handles the loss of the watch of the server in a slot: nothing that is cached may be served until it is back.
    pub fn handle_watch_loss(&self, slot: usize) {
        self.current().state().handle_watch_loss(slot);
    }

    /// The counters so far.
    pub fn stats(&self) -> NearStats {
        let name_of = |key: &NearKey| self.related_keys.name_of(key);
        let mut stats = self.current().state().stats(&self.fixed_keys, name_of);
        stats.rules_bytes += self.related_keys.bytes() as u64;
        stats
    }

    /// The counters alone, which cost the same whatever is kept: for one request or call.
    pub fn counters(&self) -> NearStats {
        self.current().state().stats.clone()
    }

    /// Returns, each once, what the user should know: keys that the servers lack, reports of servers that are limited, and
    /// that the strategy disabled itself.
    pub fn take_warning(&self) -> Option<String> {
        self.current().state().warnings.take()
    }

    fn current(&self) -> arc_swap::Guard<Arc<ProcessNearCache>> {
        let process_cache = self.process_cache.load();
        if process_cache.process.is_current() {
            return process_cache;
        }
        self.detach_after_fork(&process_cache);
        self.process_cache.load()
    }

    #[cold]
    fn detach_after_fork(&self, parent: &Arc<ProcessNearCache>) {
        // Its lock may be held by a thread that does not exist here: it is never dropped.
        std::mem::forget(Arc::clone(parent));
        self.process_cache.rcu(|process_cache| {
            if process_cache.process.is_current() {
                Arc::clone(process_cache)
            } else {
                let keep_rules = self.related_keys.keep_rules();
                Arc::new(ProcessNearCache::new(&self.options, (&self.fixed_keys, keep_rules)))
            }
        });
    }
}
