//! `stats detail`: gets, hits, sets and deletes by key prefix, while it is switched on.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use glasscache_protocol::percent;
use glasscache_store::Store;

use crate::shared::counters::Counters;
use crate::shared::key_text::fits_in_line;
use crate::shared::lock::lock;
use crate::shared::sizes::is_slice_full;

/// The table may use this fraction of `-m`: a client that invents prefixes must not use up the memory.
const MEMORY_DIVISOR: u64 = 64;

/// Bytes of a prefix in addition to its name: its counters, its entry in the map, and the overhead of the
/// allocator.
const ENTRY_OVERHEAD_BYTES: usize = 112;

/// The prefix table of one server. Its memory counts against `-m`.
pub(crate) struct PrefixTable {
    is_on: AtomicBool,
    delimiter: u8,
    store: Arc<Store>,
    /// Commands that were not counted because the table was full.
    uncounted_commands: AtomicU64,
    prefixes: Mutex<Prefixes>,
}

#[derive(Default)]
struct Prefixes {
    by_name: BTreeMap<Box<[u8]>, PrefixCounts>,
    memory_bytes: usize,
}

/// Prefixes that are discarded and still to be freed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DiscardedPrefixes(BTreeMap<Box<[u8]>, PrefixCounts>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct PrefixCounts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

impl PrefixTable {
    pub(crate) fn new(is_on: bool, delimiter: u8, store: Arc<Store>) -> PrefixTable {
        PrefixTable {
            is_on: AtomicBool::new(is_on),
            delimiter,
            store,
            uncounted_commands: AtomicU64::new(0),
            prefixes: Mutex::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Takes all prefixes out of the table, for `stats reset`; the caller frees them in slices.
    pub(crate) fn take_prefixes(&self) -> DiscardedPrefixes {
        let discarded = std::mem::take(&mut *lock(&self.prefixes));
        self.uncounted_commands.store(0, Ordering::Relaxed);
        self.store.charge_buffers(-(discarded.memory_bytes as i64));
        DiscardedPrefixes(discarded.by_name)
    }

    /// Approximate memory of the table in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        lock(&self.prefixes).memory_bytes as u64
    }

    /// Commands that were not counted because the table was full.
    pub(crate) fn uncounted_commands(&self) -> u64 {
        self.uncounted_commands.load(Ordering::Relaxed)
    }

    pub(crate) fn record_get(&self, key: &[u8], is_hit: bool) {
        self.record(key, |counts| {
            counts.gets += 1;
            counts.hits += u64::from(is_hit);
        });
    }

    pub(crate) fn record_set(&self, key: &[u8]) {
        self.record(key, |counts| counts.sets += 1);
    }

    pub(crate) fn record_delete(&self, key: &[u8]) {
        self.record(key, |counts| counts.deletes += 1);
    }

    /// Updates the counts of the prefix of `key`; a key without the delimiter has no prefix and is not counted.
    fn record(&self, key: &[u8], update: impl FnOnce(&mut PrefixCounts)) {
        if !self.is_on() {
            return;
        }
        let Some(end) = memchr::memchr(self.delimiter, key) else {
            return;
        };
        let name = key.get(..end).unwrap_or_default();
        let mut prefixes = lock(&self.prefixes);
        if let Some(counts) = prefixes.by_name.get_mut(name) {
            update(counts);
            return;
        }
        let entry_bytes = name.len() + ENTRY_OVERHEAD_BYTES;
        if (prefixes.memory_bytes + entry_bytes) as u64 > self.store.memory_bytes() / MEMORY_DIVISOR
        {
            self.uncounted_commands.fetch_add(1, Ordering::Relaxed);
            return;
        }
        prefixes.memory_bytes += entry_bytes;
        update(prefixes.by_name.entry(name.into()).or_default());
        drop(prefixes);
        self.store.charge_buffers(entry_bytes as i64);
    }

    /// Appends a slice of the table in memcached's form, after the prefix `resume_after`; true at the end. Bytes that
    /// are not allowed on a line are percent-encoded.
    pub(crate) fn append_slice(
        &self,
        resume_after: &mut Option<Box<[u8]>>,
        counters: &Counters,
        out: &mut Vec<u8>,
    ) -> bool {
        let range_start = resume_after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (range_start, Bound::<&[u8]>::Unbounded);
        let mut last_listed: Option<&Box<[u8]>> = None;
        let prefixes = lock(&self.prefixes);
        let later_prefixes = prefixes.by_name.range::<[u8], _>(range);
        for (examined, (name, counts)) in later_prefixes.enumerate() {
            if is_slice_full(examined, out.len()) {
                *resume_after = last_listed.cloned();
                return false;
            }
            counters.examined.bump();
            out.extend_from_slice(b"PREFIX ");
            for byte in name {
                if fits_in_line(&[*byte]) {
                    out.push(*byte);
                } else {
                    percent::encode(&[*byte], out);
                }
            }
            last_listed = Some(name);
            // Writing to a vector cannot fail.
            let _ = write!(
                out,
                " get {} hit {} set {} del {}\r\n",
                counts.gets, counts.hits, counts.sets, counts.deletes
            );
        }
        out.extend_from_slice(b"END\r\n");
        true
    }
}

impl DiscardedPrefixes {
    /// Frees some prefixes; true when none is left.
    pub(crate) fn free_some(&mut self, count: usize) -> bool {
        for _ in 0..count {
            if self.0.pop_first().is_none() {
                return true;
            }
        }
        self.0.is_empty()
    }
}
