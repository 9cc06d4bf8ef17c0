//! Which gets missed and why, by key prefix, from the lines of one `watch`.
//!
//! A server prints a lookup line for each get, and also for the lookup that precedes a store, on the same connection:
//! that lookup is discarded when the store's line follows; otherwise every look-aside fill would count as two misses.
//! What happened to a key before the watch began is not known; such a miss is counted in `unknown_cause`.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use glasscache_protocol::percent::to_printable;
use glasscache_sim::key_prefix::{NO_PREFIX, key_prefix};

use super::event::{Event, FetchStatus};

/// Keys whose last event is remembered (16 bytes each and the table around them); a miss on a later one has an unknown cause.
const KEYS_MAX: usize = 1 << 20;

/// Prefixes with a row of their own; the rest share one.
const PREFIXES_MAX: usize = 10_000;

/// Name of the row for prefixes beyond the first ten thousand.
pub(crate) const OTHER_PREFIXES: &str = "(other)";

/// Gets of one prefix, or of all, and why some missed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Causes {
    /// Lookups by clients.
    pub gets: u64,
    /// Of them misses.
    pub misses: u64,
    /// Misses on an item past its TTL.
    pub expired: u64,
    /// Misses on an item that was evicted.
    pub evicted: u64,
    /// Of the evicted, those that were not read between store and eviction.
    pub evicted_unread: u64,
    /// Misses on an item that was deleted or flushed.
    pub removed: u64,
    /// Misses on a key that was not stored during the watch: never set, or removed before.
    #[serde(rename = "unseen")]
    pub unknown_cause: u64,
}

impl Causes {
    fn add(&mut self, lookup_result: LookupResult) {
        self.gets += 1;
        let cause_count = match lookup_result {
            LookupResult::Hit => return,
            LookupResult::Expired => &mut self.expired,
            LookupResult::Evicted { was_read } => {
                self.evicted_unread += u64::from(!was_read);
                &mut self.evicted
            }
            LookupResult::Removed => &mut self.removed,
            LookupResult::MissOfUnknownCause => &mut self.unknown_cause,
        };
        *cause_count += 1;
        self.misses += 1;
    }
}

/// The result of a lookup, with the cause of a miss.
#[derive(Debug, Clone, Copy)]
enum LookupResult {
    Hit,
    Expired,
    Evicted { was_read: bool },
    Removed,
    MissOfUnknownCause,
}

/// The last event of a key.
#[derive(Debug, Clone, Copy)]
enum LastEvent {
    /// Stored, and past its TTL at this time, if ever.
    Stored(Option<f64>),
    Evicted {
        was_read: bool,
    },
    Deleted,
}

/// A lookup that may belong to a following store.
#[derive(Debug)]
struct PendingLookup {
    key_hash: u64,
    prefix: Vec<u8>,
    lookup_result: LookupResult,
}

/// Counts of one watch.
#[derive(Debug)]
pub struct WatchTally {
    delimiters: Vec<u8>,
    last_events: HashMap<u64, LastEvent>,
    pending_lookups: HashMap<u32, PendingLookup>,
    causes_by_prefix: BTreeMap<Vec<u8>, Causes>,
    total: Causes,
    skipped_lines: u64,
}

impl WatchTally {
    /// A tally whose prefixes end with the first of `delimiters` in a key.
    pub fn new(delimiters: &[u8]) -> WatchTally {
        WatchTally {
            delimiters: delimiters.to_vec(),
            last_events: HashMap::new(),
            pending_lookups: HashMap::new(),
            causes_by_prefix: BTreeMap::new(),
            total: Causes::default(),
            skipped_lines: 0,
        }
    }

    /// Counts one event that happened at `time_s`.
    pub(crate) fn record(&mut self, time_s: f64, event: &Event) {
        match event {
            Event::Fetch { key, status, connection } => {
                self.record_lookup(time_s, key, *status, *connection);
            }
            Event::Store { key, is_stored, ttl_s, connection } => {
                let key_hash = hash_key(key);
                match self.pending_lookups.remove(connection) {
                    Some(pending) if pending.key_hash == key_hash => {} // the store's own lookup
                    Some(pending) => self.count_lookup(&pending),
                    None => {}
                }
                if *is_stored {
                    let expiry_s = ttl_s.map(|ttl| time_s + ttl as f64);
                    self.remember_event(key_hash, LastEvent::Stored(expiry_s));
                }
            }
            Event::Evict { key, was_read } => {
                self.remember_event(hash_key(key), LastEvent::Evicted { was_read: *was_read });
            }
            Event::Delete { key } => self.remember_event(hash_key(key), LastEvent::Deleted),
            Event::Skipped(lines) => self.skipped_lines += lines,
        }
    }

    fn record_lookup(&mut self, time_s: f64, key: &[u8], status: FetchStatus, connection: u32) {
        let key_hash = hash_key(key);
        let lookup_result = match status {
            FetchStatus::Found => LookupResult::Hit,
            FetchStatus::Expired => LookupResult::Expired,
            FetchStatus::Flushed => LookupResult::Removed,
            FetchStatus::NotFound => match self.last_events.get(&key_hash) {
                Some(LastEvent::Stored(Some(expiry_s))) if *expiry_s <= time_s + 1.0 => {
                    LookupResult::Expired
                }
                Some(LastEvent::Evicted { was_read }) => {
                    LookupResult::Evicted { was_read: *was_read }
                }
                // Stored, and not evicted, expired or deleted in a line that was seen: flushed, or deleted on a
                // server that prints no deletions.
                Some(LastEvent::Stored(_) | LastEvent::Deleted) => LookupResult::Removed,
                None => LookupResult::MissOfUnknownCause,
            },
        };
        let pending = PendingLookup {
            key_hash,
            prefix: key_prefix(key, &self.delimiters).unwrap_or(NO_PREFIX.as_bytes()).to_vec(),
            lookup_result,
        };
        if let Some(earlier) = self.pending_lookups.insert(connection, pending) {
            self.count_lookup(&earlier);
        }
    }

    fn remember_event(&mut self, key_hash: u64, last_event: LastEvent) {
        if self.last_events.len() < KEYS_MAX || self.last_events.contains_key(&key_hash) {
            self.last_events.insert(key_hash, last_event);
        }
    }

    fn count_lookup(&mut self, pending: &PendingLookup) {
        self.total.add(pending.lookup_result);
        let is_new = !self.causes_by_prefix.contains_key(&pending.prefix);
        let row_name = if is_new && self.causes_by_prefix.len() >= PREFIXES_MAX {
            OTHER_PREFIXES.as_bytes()
        } else {
            &pending.prefix
        };
        self.causes_by_prefix.entry(row_name.to_vec()).or_default().add(pending.lookup_result);
    }

    /// Ends the watch: the totals, the prefixes with the most misses first, and the number of skipped lines.
    pub(crate) fn finish(mut self) -> (Causes, Vec<(String, Causes)>, u64) {
        for pending in std::mem::take(&mut self.pending_lookups).into_values() {
            self.count_lookup(&pending);
        }
        let mut rows: Vec<(String, Causes)> = self
            .causes_by_prefix
            .into_iter()
            .map(|(row_name, causes)| (printable_row_name(&row_name), causes))
            .collect();
        rows.sort_by_key(|(_, causes)| std::cmp::Reverse((causes.misses, causes.gets)));
        (self.total, rows, self.skipped_lines)
    }
}

/// The name of a row; a prefix so that a terminal shows it and no two are alike.
fn printable_row_name(row_name: &[u8]) -> String {
    let is_prefix = row_name != NO_PREFIX.as_bytes() && row_name != OTHER_PREFIXES.as_bytes();
    if is_prefix { to_printable(row_name) } else { String::from_utf8_lossy(row_name).into_owned() }
}

fn hash_key(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_lines(lines: &[&str]) -> (Causes, Vec<(String, Causes)>, u64) {
        let mut tally = WatchTally::new(b":");
        for line in lines {
            if let Some((time_s, event)) = Event::parse(line) {
                tally.record(time_s, &event);
            }
        }
        tally.finish()
    }

    #[test]
    fn a_look_aside_fill_counts_as_one_miss() {
        let (total, causes_by_prefix, _) = count_lines(&[
            "ts=1.0 type=item_get key=a:1 status=not_found cfd=7",
            "ts=1.1 type=item_get key=a:1 status=not_found cfd=7",
            "ts=1.1 type=item_store key=a:1 status=stored cmd=set ttl=0 cfd=7",
            "ts=1.2 type=item_get key=a:1 status=found cfd=7",
        ]);
        assert_eq!((total.gets, total.misses, total.unknown_cause), (2, 1, 1));
        assert_eq!(causes_by_prefix[0].0, "a:");
    }

    #[test]
    fn distinguishes_each_cause() {
        let (total, _, skipped) = count_lines(&[
            "ts=1.0 type=item_store key=short status=stored cmd=set ttl=1 cfd=7",
            "ts=1.0 type=item_store key=long status=stored cmd=set ttl=100 cfd=7",
            "ts=2.0 type=eviction key=read fetch=yes",
            "ts=2.0 type=eviction key=unread fetch=no",
            "ts=2.0 type=deleted key=long cmd=delete",
            "skipped=3",
            "ts=3.0 type=item_get key=short status=not_found cfd=8",
            "ts=3.0 type=item_get key=long status=not_found cfd=8",
            "ts=3.0 type=item_get key=read status=not_found cfd=8",
            "ts=3.0 type=item_get key=unread status=not_found cfd=8",
            "ts=3.0 type=item_get key=unknown status=not_found cfd=8",
            "ts=3.0 type=item_get key=old status=expired cfd=8",
        ]);
        let expected = Causes {
            gets: 6,
            misses: 6,
            expired: 2,
            evicted: 2,
            evicted_unread: 1,
            removed: 1,
            unknown_cause: 1,
        };
        assert_eq!((total, skipped), (expected, 3));
    }

    #[test]
    fn prefixes_are_printable_and_apart() {
        let (_, causes_by_prefix, _) = count_lines(&[
            "ts=1.0 type=item_get key=a%0D%0Ab%3A1 status=found cfd=7",
            "ts=1.0 type=item_get key=%FF%3A1 status=found cfd=8",
            "ts=1.0 type=item_get key=%FE%3A1 status=found cfd=9",
            "ts=1.0 type=item_get key=none status=found cfd=10",
        ]);
        let mut names: Vec<String> = causes_by_prefix.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(names, ["%FE:", "%FF:", "(no prefix)", "a%0D%0Ab:"]);
    }

    #[test]
    fn an_item_that_is_stored_expired_is_missed_as_expired() {
        let (total, _, _) = count_lines(&[
            "ts=1.0 type=item_store key=a status=stored cmd=set ttl=4294967233 cfd=7",
            "ts=1.5 type=item_get key=a status=not_found cfd=8",
        ]);
        assert_eq!((total.expired, total.removed), (1, 0));
    }

    #[test]
    fn a_store_of_another_key_keeps_both_gets() {
        let (total, _, _) = count_lines(&[
            "ts=1.0 type=item_get key=a status=not_found cfd=7",
            "ts=1.0 type=item_store key=b status=stored cmd=set ttl=0 cfd=7",
            "ts=1.0 type=item_get key=b status=found cfd=7",
        ]);
        assert_eq!((total.gets, total.misses), (2, 1));
    }

    #[test]
    fn prefixes_beyond_the_bound_share_one_row() {
        let mut tally = WatchTally::new(b":");
        for number in 0..=PREFIXES_MAX {
            let line = format!("ts=1.0 type=item_get key=p{number}:x status=found cfd=7");
            let (time_s, event) = Event::parse(&line).unwrap();
            tally.record(time_s, &event);
        }
        let (total, causes_by_prefix, _) = tally.finish();
        assert_eq!(total.gets as usize, PREFIXES_MAX + 1);
        assert!(causes_by_prefix.iter().any(|(row_name, _)| row_name == OTHER_PREFIXES));
        assert!(causes_by_prefix.len() <= PREFIXES_MAX + 1);
    }
}
