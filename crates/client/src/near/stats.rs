//! The counters of a strategy that a client runs.

use glasscache_strategy::fixed_set::FixedSetLoads;
use glasscache_strategy::rules::Location;

/// Counters of reads and of what they fetched, and what is kept at present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NearStats {
    /// Keys that were read.
    pub reads: u64,
    /// Reads that the fixed set served.
    pub fixed_hits: u64,
    /// Reads that the near cache served.
    pub local_cache_hits: u64,
    /// Reads that were served by what their request held.
    pub request_scope_hits: u64,
    /// Calls that were made to fetch what was not available.
    pub calls: u64,
    /// Keys of these calls.
    pub keys: u64,
    /// Bytes of the values that they brought.
    pub bytes: u64,
    /// Keys of these calls that a request used.
    pub used_keys: u64,
    /// Calls that loaded or refreshed the fixed set; not among `calls`.
    pub fixed_set_calls: u64,
    /// Keys of these calls.
    pub fixed_set_keys: u64,
    /// Values that were removed because this client wrote their keys.
    pub invalidated: u64,
    /// Values that were removed because another client changed their keys.
    pub changed_by_others: u64,
    /// Times that everything was forgotten because reports of other clients' changes were lost or were about many keys.
    pub watch_clears: u64,
    /// Keys of the fixed set.
    pub fixed_keys: u64,
    /// Keys of the fixed set whose values are loaded.
    pub fixed_loaded: u64,
    /// Keys of the fixed set that the servers did not have when it was last loaded.
    pub missing_keys: Vec<String>,
    /// Items in the near cache.
    pub near_items: u64,
    /// Memory that the items of the near cache take, in bytes.
    pub near_bytes: u64,
    /// Memory that the values of the fixed set take, in bytes.
    pub fixed_bytes: u64,
    /// Memory that the rules take, in bytes: what is fetched together, the keys of the fixed set, and which keys are not
    /// kept.
    pub rules_bytes: u64,
    /// Why the strategy has disabled itself, if it has.
    pub disabled: Option<String>,
}

impl NearStats {
    /// Counts the read of a key, which was found there.
    pub(super) fn count_read(&mut self, location: Location) {
        self.reads += 1;
        match location {
            Location::Fixed => self.fixed_hits += 1,
            Location::Local => self.local_cache_hits += 1,
            Location::Prefetched | Location::AlreadyRequested => self.request_scope_hits += 1,
            Location::Missing => {}
        }
        self.used_keys += u64::from(location.uses_fetched_key());
    }

    /// Counts keys that were read and not found in time by the fetches of other reads.
    pub(super) fn count_failed_waits(&mut self, key_count: usize) {
        self.reads += key_count as u64;
    }

    /// Counts a call for this many keys that brought this many bytes; loads of the fixed set are counted apart.
    pub(super) fn count_call(&mut self, key_count: usize, value_bytes: usize, is_load: bool) {
        if is_load {
            self.fixed_set_calls += 1;
            self.fixed_set_keys += key_count as u64;
        } else {
            self.calls += 1;
            self.keys += key_count as u64;
            self.bytes += value_bytes as u64;
        }
    }

    /// What the loads of the fixed set cost.
    pub(super) fn fixed_set_loads(&self) -> FixedSetLoads {
        FixedSetLoads { calls: self.fixed_set_calls, keys: self.fixed_set_keys }
    }
}
