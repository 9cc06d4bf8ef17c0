//! Keys of a log that the servers do not have: expired, evicted or deleted since it was recorded.
//!
//! On a cache that is in use there are always some. If they are few, both the forecast and the replay leave them out. A
//! size that the log does not have, of an item that no recorded request read, is that on the servers.

use std::collections::{HashMap, HashSet};

use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::trace::log::{Items, RecordedCalls, RequestLog};

use super::{ReplayError, Servers};
use crate::target::new_call_budget;

/// The share of the reads, and of the fixed set, whose keys may be left out.
pub(super) const ABSENT_SHARE_MAX: f64 = 0.01;

/// Keys of one call.
const KEYS_PER_CALL: usize = 100;

/// The keys that the servers do not have, and the sizes that the log does not have.
#[derive(Debug, Default)]
pub(super) struct AbsentKeys {
    keys: HashSet<String>,
    /// Reads of the log that need one of them, and all reads.
    reads: (u64, u64),
    /// Keys of the fixed set among them, and all of it.
    fixed_keys: (usize, usize),
    /// Bytes on the servers of the items whose size the log does not have, by key.
    unknown_sizes: HashMap<String, u32>,
}

impl AbsentKeys {
    /// Looks for all keys that the log or the strategy names.
    ///
    /// # Errors
    /// A key that cannot go on the wire, or a call that failed.
    pub(super) fn find(
        servers: Servers<'_>,
        log: &RequestLog,
        strategy_file: &StrategyFile,
    ) -> Result<Self, ReplayError> {
        let client = servers.new_client(servers.client_options())?;
        let mut all_keys: Vec<&str> = log.items.keys.iter().map(String::as_str).collect();
        all_keys.extend(strategy_file.fixed_keys.iter().map(String::as_str));
        let keys_and_sizes = log.items.keys.iter().zip(&log.items.sizes);
        let without_size = keys_and_sizes.filter(|(_, size)| **size == 0);
        let keys_without_size: HashSet<&str> = without_size.map(|(key, _)| key.as_str()).collect();
        let mut absent_keys = Self::default();
        for keys in all_keys.chunks(KEYS_PER_CALL) {
            let keys_as_bytes: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
            let (found, failures) = client.get_many(&keys_as_bytes, &new_call_budget())?;
            if let Some((_, error)) = failures.into_iter().next() {
                return Err(error.into());
            }
            let sizes: HashMap<usize, usize> =
                found.into_iter().map(|(index, _, body)| (index, body.len())).collect();
            for (index, key) in keys.iter().enumerate() {
                match sizes.get(&index) {
                    None => {
                        absent_keys.keys.insert((*key).to_owned());
                    }
                    Some(&size) if keys_without_size.contains(key) => {
                        absent_keys.unknown_sizes.insert((*key).to_owned(), size as u32);
                    }
                    Some(_) => {}
                }
            }
        }
        let is_absent = |key: &&String| absent_keys.keys.contains(*key);
        let key_of_read = |&item: &u32| &log.items.keys[item as usize];
        let absent_reads = log.requests.items.iter().map(key_of_read).filter(is_absent).count();
        absent_keys.reads = (absent_reads as u64, log.requests.items.len() as u64);
        let fixed_keys = &strategy_file.fixed_keys;
        absent_keys.fixed_keys = (fixed_keys.iter().filter(is_absent).count(), fixed_keys.len());
        Ok(absent_keys)
    }

    /// Whether there are any, and few enough to be left out.
    pub(super) fn can_be_left_out(&self) -> bool {
        let is_few = |absent: f64, all: f64| absent <= all * ABSENT_SHARE_MAX;
        !self.keys.is_empty()
            && is_few(self.reads.0 as f64, self.reads.1 as f64)
            && is_few(self.fixed_keys.0 as f64, self.fixed_keys.1 as f64)
    }

    /// How many keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Reads of the log that need one of them, and all reads.
    pub(super) fn reads(&self) -> (u64, u64) {
        self.reads
    }

    /// Gives items without a size the one that they have on the servers.
    pub(super) fn set_unknown_sizes(&self, items: &mut Items) {
        for (key, size) in items.keys.iter().zip(&mut items.sizes) {
            *size = self.unknown_sizes.get(key).copied().unwrap_or(*size);
        }
    }

    /// Leaves them out of the requests, the fixed set and the tree; of one that is fetched all the same no bytes come.
    pub(super) fn leave_out(&self, log: &mut RequestLog, strategy_file: &mut StrategyFile) {
        let is_present = |key: &String| !self.keys.contains(key);
        let items = &mut log.items;
        for (key, size) in items.keys.iter().zip(&mut items.sizes) {
            *size = if is_present(key) { *size } else { 0 };
        }
        let requests = &mut log.requests;
        let (mut kept_items, mut starts) = (Vec::with_capacity(requests.items.len()), vec![0]);
        let mut calls = RecordedCalls::default();
        for index in 0..requests.len() {
            let mut keys_of_calls = Vec::new();
            for read_items in requests.calls_of(index) {
                let items_before = kept_items.len();
                let read_items = read_items.iter().copied();
                kept_items
                    .extend(read_items.filter(|&item| is_present(&items.keys[item as usize])));
                keys_of_calls.push((kept_items.len() - items_before) as u32);
            }
            starts.push(kept_items.len());
            let times = requests.calls.of(index).map(|(_, times)| times);
            calls.push(index, times.map(|times| (keys_of_calls.as_slice(), times)));
        }
        (requests.items, requests.starts, requests.calls) = (kept_items, starts, calls);
        strategy_file.fixed_keys.retain(is_present);
        strategy_file.children.retain(|(parent, child)| is_present(parent) && is_present(child));
    }
}
