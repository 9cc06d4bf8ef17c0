//! The counters of a strategy that a client runs.

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
