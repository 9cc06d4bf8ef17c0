//! The item store: an index over append-only segments, without sockets or clocks.
//!
//! SCAFFOLD: this engine keeps everything in one locked map, so that the server can be written
//! against the final interface while the segments are being built. It is replaced as a whole.
#![allow(missing_docs, clippy::pedantic)]

mod request;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub use request::*;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("memory limit {0} bytes is too small")]
    MemoryTooSmall(u64),
    #[error("cannot map {0} bytes for the store: {1}")]
    NoMemory(u64, String),
}

/// Settings fixed at start.
#[derive(Debug, Clone)]
pub struct Config {
    /// `-m` in bytes: items, index and buffers together.
    pub memory_bytes: u64,
    /// `-I`: largest item (memcached's measure: key + value + its header).
    pub item_bytes_max: u32,
    /// False under `-M`: refuse instead of evicting.
    pub evict: bool,
    /// How many [`Worker`]s will be registered at most.
    pub workers: usize,
    /// Seed of the key hash; random in production, fixed in tests.
    pub hash_seed: u64,
    /// memcached's chunk sizes at the given -f and -n; the store counts what its items would occupy.
    pub slab_chunk_bytes: Vec<u32>,
}

struct Entry {
    key: Box<[u8]>,
    value: Box<[u8]>,
    flags: u32,
    expiry: Mutex<Expiry>,
    unique: CasUnique,
    born: u64,
    stale: AtomicBool,
    win_sent: AtomicBool,
    fetched: AtomicBool,
    last_access: AtomicU32,
}

pub struct Store {
    config: Config,
    map: Mutex<HashMap<Vec<u8>, &'static Entry>>,
    unique: AtomicU64,
}

impl Store {
    pub fn new(config: Config) -> Result<Arc<Store>, Error> {
        Ok(Arc::new(Store { config, map: Mutex::default(), unique: AtomicU64::new(1) }))
    }
    pub fn config(&self) -> &Config {
        &self.config
    }
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let mut h = 0xcbf2_9ce4_8422_2325 ^ self.config.hash_seed;
        for b in key {
            h = (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
        KeyHash(h ^ (h >> 32))
    }
    /// Registers one worker; at most `config.workers` may live at once.
    pub fn worker(self: &Arc<Self>) -> Worker {
        Worker { store: Arc::clone(self) }
    }
    /// Everything written before this moment is dead once the clock shows `at` (`flush_all [delay]`).
    pub fn flush(&self, _at: Seconds, _now: Seconds) {
        self.map.lock().unwrap().clear();
    }
    /// `cache_memlimit`: a new limit in bytes.
    pub fn set_memory(&self, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }
    pub fn counters(&self) -> Counters {
        let map = self.map.lock().unwrap();
        let user: usize = map.values().map(|e| e.key.len() + e.value.len()).sum();
        Counters { items: map.len() as u64, user_bytes: user as u64, ..Counters::default() }
    }
    /// Memory outside the store that counts inside `-m` (connection buffers); may be called by any thread.
    pub fn charge_buffers(&self, _delta_bytes: i64) {}
}

/// A snapshot of what the store holds and did; the real list grows with the engine.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    pub items: u64,
    pub items_total: u64,
    /// Key and value bytes of the resident items.
    pub user_bytes: u64,
    /// Bytes that the resident items take in segments, headers included.
    pub item_bytes: u64,
    pub index_bytes: u64,
    pub segment_bytes: u64,
    pub buffer_bytes: u64,
    pub evictions: u64,
    /// Evicted without ever having been read.
    pub evicted_unfetched: u64,
    pub expired_unfetched: u64,
    pub reclaimed: u64,
    /// Items, and their requested bytes in memcached's measure, per slab class of the config.
    pub by_slab_class: Vec<(u64, u64)>,
}

/// One thread's handle on the store: its epoch, its open segments, its counters. Not `Sync`.
///
/// Items borrow from `&self`; `pass` and `go_offline` take `&mut self`, so nothing can be
/// borrowed when the worker tells the others that it has let go.
pub struct Worker {
    store: Arc<Store>,
}

impl Worker {
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
    /// Must be called before the first lookup and after each sleep.
    pub fn go_online(&mut self) {}
    /// Says that nothing is borrowed and the thread may sleep.
    pub fn go_offline(&mut self) {}
    /// Says that nothing is borrowed at this moment; call once a loop turn and between long slices.
    pub fn pass(&mut self) {}
    /// Bounded background work (compaction, expiry, splits); true while more is waiting.
    pub fn maintain(&mut self, _now: Seconds) -> bool {
        false
    }
    pub fn prefetch_bucket(&self, _hash: KeyHash) {}
    pub fn prefetch_item(&self, _hash: KeyHash) {}

    fn live(&self, key: &[u8], now: Seconds) -> Option<&'static Entry> {
        let mut map = self.store.map.lock().unwrap();
        let entry = *map.get(key)?;
        let dead = matches!(*entry.expiry.lock().unwrap(), Expiry::At(at) if at <= now);
        if dead {
            map.remove(key);
            return None;
        }
        Some(entry)
    }

    /// A plain read that records the hit; `None` is a miss.
    pub fn get(&self, key: &[u8], _hash: KeyHash, now: Seconds) -> Option<Item<'_>> {
        let entry = self.live(key, now)?;
        let was_fetched = entry.fetched.swap(true, Ordering::Relaxed);
        let last = entry.last_access.swap(now.0, Ordering::Relaxed);
        Some(Item { entry, was_fetched, last_access: Seconds(last), _worker: self })
    }
    /// Looks without recording anything.
    pub fn peek(&self, key: &[u8], _hash: KeyHash, now: Seconds) -> Option<Item<'_>> {
        let entry = self.live(key, now)?;
        Some(Item {
            entry,
            was_fetched: entry.fetched.load(Ordering::Relaxed),
            last_access: Seconds(entry.last_access.load(Ordering::Relaxed)),
            _worker: self,
        })
    }
    /// A read with the options of `gat` and meta `mg`. The second value is true when `vivify` created the item.
    pub fn get_with(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &GetOptions,
        now: Seconds,
    ) -> Option<(Item<'_>, Lease)> {
        if self.live(key, now).is_none() {
            let expiry = options.vivify?;
            self.set(key, hash, b"", &SetOptions { expiry, mode: SetMode::Add, ..SetOptions::default() }, now);
            let item = self.peek(key, hash, now)?;
            item.entry.win_sent.store(true, Ordering::Relaxed);
            return Some((item, Lease { won: true, ..Lease::default() }));
        }
        let item = if options.no_bump { self.peek(key, hash, now)? } else { self.get(key, hash, now)? };
        let mut lease = Lease { is_stale: item.entry.stale.load(Ordering::Relaxed), ..Lease::default() };
        let left = match item.expiry() {
            Expiry::Never => u32::MAX,
            Expiry::At(at) => at.0.saturating_sub(now.0),
        };
        if item.entry.win_sent.load(Ordering::Relaxed) {
            lease.win_sent = true;
        } else if lease.is_stale || options.recache_s.is_some_and(|r| left < r) {
            lease.won = !item.entry.win_sent.swap(true, Ordering::Relaxed);
        }
        if let Some(expiry) = options.touch {
            *item.entry.expiry.lock().unwrap() = expiry;
        }
        Some((item, lease))
    }
    /// A write whose value is at hand.
    pub fn set(&self, key: &[u8], _hash: KeyHash, value: &[u8], options: &SetOptions, now: Seconds) -> SetOutcome {
        let old = self.live(key, now);
        if key.len() + value.len() > self.store.config.item_bytes_max as usize {
            self.store.map.lock().unwrap().remove(key);
            return SetOutcome::TooLarge;
        }
        let mut stale = false;
        if let Some(unique) = options.compare {
            let Some(old) = old else { return SetOutcome::NotFound };
            if old.unique != unique {
                if options.invalidate && unique < old.unique {
                    stale = true;
                } else {
                    return SetOutcome::Exists;
                }
            }
        }
        let mut flags = options.flags;
        let mut expiry = options.expiry;
        let bytes = match (options.mode, old) {
            (SetMode::Add, Some(_)) | (SetMode::Replace, None) => return SetOutcome::NotStored,
            (SetMode::Append | SetMode::Prepend, None) => match options.vivify {
                Some(e) => {
                    expiry = e;
                    value.to_vec()
                }
                None => return SetOutcome::NotStored,
            },
            (SetMode::Append, Some(old)) => {
                flags = old.flags;
                expiry = *old.expiry.lock().unwrap();
                [&old.value, value].concat()
            }
            (SetMode::Prepend, Some(old)) => {
                flags = old.flags;
                expiry = *old.expiry.lock().unwrap();
                [value, &old.value].concat()
            }
            _ => value.to_vec(),
        };
        let born = self.store.unique.fetch_add(1, Ordering::Relaxed);
        let unique = options.new_unique.unwrap_or(CasUnique(born));
        let entry: &'static Entry = Box::leak(Box::new(Entry {
            key: key.into(),
            value: bytes.into(),
            flags,
            expiry: Mutex::new(expiry),
            unique,
            born,
            stale: AtomicBool::new(stale),
            win_sent: AtomicBool::new(false),
            fetched: AtomicBool::new(false),
            last_access: AtomicU32::new(now.0),
        }));
        self.store.map.lock().unwrap().insert(key.to_vec(), entry);
        SetOutcome::Stored(unique)
    }
    /// Room for a value that arrives in pieces. Nothing is visible until `commit`; a drop gives it back.
    pub fn reserve(
        &self,
        key: &[u8],
        hash: KeyHash,
        value_bytes: u32,
        options: &SetOptions,
        _now: Seconds,
    ) -> Result<Reservation, Refusal> {
        if value_bytes > self.store.config.item_bytes_max {
            self.store.map.lock().unwrap().remove(key);
            return Err(Refusal::TooLarge);
        }
        Ok(Reservation { key: key.into(), hash, value: vec![0; value_bytes as usize], filled: 0, options: *options })
    }
    /// Makes a completely filled reservation visible at once.
    pub fn commit(&self, reservation: Reservation, now: Seconds) -> SetOutcome {
        self.set(&reservation.key, reservation.hash, &reservation.value, &reservation.options, now)
    }
    pub fn delete(&self, key: &[u8], _hash: KeyHash, options: &DeleteOptions, now: Seconds) -> DeleteOutcome {
        let Some(old) = self.live(key, now) else { return DeleteOutcome::NotFound };
        if options.compare.is_some_and(|c| c != old.unique) {
            return DeleteOutcome::Exists;
        }
        if options.invalidate {
            old.stale.store(true, Ordering::Relaxed);
            old.win_sent.store(false, Ordering::Relaxed);
            if let Some(expiry) = options.expiry {
                *old.expiry.lock().unwrap() = expiry;
            }
        } else {
            self.store.map.lock().unwrap().remove(key);
        }
        DeleteOutcome::Deleted
    }
    pub fn arith(&self, key: &[u8], hash: KeyHash, options: &ArithOptions, now: Seconds) -> ArithOutcome {
        let (value, expiry, flags, created) = match self.live(key, now) {
            None => match options.initial {
                None => return ArithOutcome::NotFound,
                Some((n, expiry)) => (n, expiry, 0, true),
            },
            Some(old) => {
                if options.compare.is_some_and(|c| c != old.unique) {
                    return ArithOutcome::Exists;
                }
                let Some(n) = std::str::from_utf8(&old.value).ok().and_then(|s| s.trim_end().parse::<u64>().ok())
                else {
                    return ArithOutcome::NotANumber;
                };
                let n = if options.decrement { n.saturating_sub(options.delta) } else { n.wrapping_add(options.delta) };
                (n, options.touch.unwrap_or(*old.expiry.lock().unwrap()), old.flags, false)
            }
        };
        let set = SetOptions { flags, expiry, new_unique: options.new_unique, ..SetOptions::default() };
        match self.set(key, hash, value.to_string().as_bytes(), &set, now) {
            SetOutcome::Stored(unique) => ArithOutcome::Number { value, unique, expiry, created },
            _ => ArithOutcome::NoMemory,
        }
    }
    /// Visits live items from `cursor` (0 at first), at most about `limit`; returns the next cursor or `None` at the end.
    /// Every item present throughout the walk is seen at least once.
    pub fn scan(&self, _cursor: u64, _limit: usize, now: Seconds, visit: &mut dyn FnMut(&Item<'_>)) -> Option<u64> {
        let keys: Vec<Vec<u8>> = self.store.map.lock().unwrap().keys().cloned().collect();
        for key in keys {
            if let Some(item) = self.peek(&key, KeyHash(0), now) {
                visit(&item);
            }
        }
        None
    }
    /// From now on evicted items are reported to `take_evicted` (for `watch evictions`); off by default.
    pub fn report_evictions(&self, _on: bool) {}
    pub fn take_evicted(&self, _visit: &mut dyn FnMut(&Evicted)) {}
}

/// What `watch evictions` tells of one evicted item.
#[derive(Debug, Clone)]
pub struct Evicted {
    pub key: Box<[u8]>,
    pub was_fetched: bool,
    pub ttl_s: Option<u32>,
    pub last_access: Seconds,
    pub value_bytes: u32,
}

/// A live item, borrowed until the worker passes.
pub struct Item<'w> {
    entry: &'static Entry,
    was_fetched: bool,
    last_access: Seconds,
    _worker: &'w Worker,
}

impl<'w> Item<'w> {
    pub fn key(&self) -> &'w [u8] {
        &self.entry.key
    }
    pub fn flags(&self) -> u32 {
        self.entry.flags
    }
    pub fn value_bytes(&self) -> u32 {
        self.entry.value.len() as u32
    }
    /// The value when it lies in one piece (every value below a sixteenth of a segment does).
    pub fn value(&self) -> Option<&'w [u8]> {
        Some(&self.entry.value)
    }
    /// The value in one or more pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &'w [u8]> + use<'w> {
        std::iter::once(&*self.entry.value)
    }
    pub fn unique(&self) -> CasUnique {
        self.entry.unique
    }
    pub fn expiry(&self) -> Expiry {
        *self.entry.expiry.lock().unwrap()
    }
    /// Whether it had been read before this read (meta `h`).
    pub fn was_fetched(&self) -> bool {
        self.was_fetched
    }
    /// When it was last read or written before this read (meta `t` and `l` are computed from it).
    pub fn last_access(&self) -> Seconds {
        self.last_access
    }
    pub fn birth(&self) -> u64 {
        self.entry.born
    }
    /// Keeps the value's segments alive beyond the epoch, for a socket that does not take it all.
    /// `None` when an eighth of all segments is held already: copy, or close the longest-stalled reader.
    pub fn hold(&self) -> Option<Held> {
        Some(Held { entry: self.entry })
    }
}

/// A value held by reference beyond the epoch; dropping it lets the segments go.
pub struct Held {
    entry: &'static Entry,
}

impl Held {
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.entry.value)
    }
}

/// Room for one value, owned by a connection while its bytes arrive.
pub struct Reservation {
    key: Box<[u8]>,
    hash: KeyHash,
    value: Vec<u8>,
    filled: usize,
    options: SetOptions,
}

impl Reservation {
    /// The next stretch to fill, never longer than what is missing; empty when complete or when
    /// no memory can be had now (then `is_complete` is false and the upload should be closed).
    ///
    /// The worker is needed because room for the next piece may have to be won by eviction;
    /// it is asked for piece by piece, as bytes arrive (at most 64 KiB at a time).
    pub fn space(&mut self, _worker: &Worker, _now: Seconds) -> &mut [u8] {
        &mut self.value[self.filled..]
    }
    /// Says that `bytes` of `space` were written.
    pub fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
    }
    pub fn is_complete(&self) -> bool {
        self.filled == self.value.len()
    }
    pub fn missing_bytes(&self) -> u32 {
        (self.value.len() - self.filled) as u32
    }
}
