//! A worker's accounting: it counts the items that the worker stored and removed, and resizes index and ghost
//! accordingly.
//!
//! Every publication and removal of an item is recorded here, so that live bytes of segments, counters and the
//! number of items agree. The index follows the number of items in small steps, made by the workers that change it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::counters::{CounterBlock, CounterId, EvictedOfClass};
use crate::eviction_reports::EvictedItem;
use crate::index::ResizeOutcome;
use crate::item::{bits, piece_record_bytes};
use crate::lookup::LocatedItem;
use crate::memory::Addr;
use crate::request::{Expiry, KeyHash, Seconds};
use crate::sampling::{Operation, Recorder};
use crate::segments::SEGMENTS_FOR_EVICTION;
use crate::store::Store;

/// A worker reports its new items to the others once per this many.
const ITEMS_PER_REPORT: i64 = 16;
/// Buckets split or merged at one such time: twice what this many items need.
const RESIZE_STEPS: usize = 5;
/// The mean size of new items is taken over about this many.
const NEW_ITEM_WINDOW: usize = 1024;

/// The accounting of one worker.
pub(crate) struct ItemAccounting {
    store: Arc<Store>,
    /// The number of its block of counters; `None` for a worker that was never registered.
    worker_index: Option<usize>,
    /// Mean bytes of recent new items, in fractions of [`NEW_ITEM_WINDOW`].
    new_item_bytes_mean_scaled: Cell<usize>,
    /// Items added or removed since the last report.
    unreported_items: Cell<i64>,
    recorder: Recorder,
}

impl ItemAccounting {
    pub(crate) fn new(store: Arc<Store>, worker_index: Option<usize>) -> Self {
        ItemAccounting {
            store,
            worker_index,
            new_item_bytes_mean_scaled: Cell::new(0),
            unreported_items: Cell::new(0),
            recorder: Recorder::new(worker_index),
        }
    }

    /// Reports an operation on a key, if it is sampled.
    #[inline]
    pub(crate) fn sample<'k>(&self, hash: KeyHash, operation: impl FnOnce() -> Operation<'k>) {
        self.recorder.record(&self.store.sampling, hash, operation);
    }

    /// Reports how long a client took to fill a miss of a key, if it is sampled.
    pub(crate) fn sample_fill(&self, hash: KeyHash, time_us: usize, now: Seconds) {
        self.recorder.record_fill(&self.store.sampling, hash, time_us, now);
    }

    #[inline]
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    #[inline]
    pub(crate) fn count(&self, counter_id: CounterId, amount: i64) {
        if let Some(block) = self.counter_block() {
            block.add(counter_id, amount);
        }
    }

    fn counter_block(&self) -> Option<&CounterBlock> {
        self.store.counter_blocks.get(self.worker_index?)
    }

    /// Mean key and value bytes of recent new items.
    pub(crate) fn new_item_bytes_mean(&self) -> usize {
        self.new_item_bytes_mean_scaled.get() / NEW_ITEM_WINDOW
    }

    /// Counts a new copy that was published in place of `old`, or as a new item; `shared_pieces` are now part of it.
    #[inline]
    pub(crate) fn count_publication(
        &self,
        old: Option<&LocatedItem>,
        was_alive: bool,
        new_addr: Addr,
        shared_pieces: &[Addr],
    ) {
        let new_item = self.store.locate(new_addr);
        match old {
            None => {
                self.count_new(&new_item);
                let mean_scaled = self.new_item_bytes_mean_scaled.get();
                self.new_item_bytes_mean_scaled.set(
                    mean_scaled - mean_scaled / NEW_ITEM_WINDOW + Store::user_bytes(&new_item),
                );
            }
            Some(old) => {
                if !was_alive {
                    self.count_expired(old);
                }
                if old.is_counted_like(&new_item) {
                    self.release_record(old);
                } else {
                    self.count_new(&new_item);
                    self.release_item_except(old, shared_pieces);
                }
            }
        }
    }

    /// Counts an item that was published.
    pub(crate) fn count_new(&self, item: &LocatedItem) {
        self.count_item(item, 1);
    }

    /// Counts an item in (1) or out (-1).
    fn count_item(&self, item: &LocatedItem, sign: i64) {
        if let Some(block) = self.counter_block() {
            count_item_in_block(&self.store, block, item, sign);
        }
        self.adjust_item_count(sign);
    }

    /// Releases an item that no slot names any more; `shared_pieces` are part of its successor.
    pub(crate) fn release_item_except(&self, item: &LocatedItem, shared_pieces: &[Addr]) {
        self.count_item(item, -1);
        let store = &*self.store;
        if item.header.is_chained {
            let mut shared_pieces = shared_pieces.to_vec();
            shared_pieces.sort_unstable();
            for piece in store.pieces_of(item) {
                if shared_pieces.binary_search(&piece).is_err() {
                    store
                        .segments
                        .count_dead(piece, piece_record_bytes(store.piece_data_bytes(piece)));
                }
            }
        }
        self.release_record(item);
    }

    /// Releases the record of an item that no slot refers to any more, without its pieces.
    #[inline]
    fn release_record(&self, item: &LocatedItem) {
        self.store.segments.count_dead(item.addr, self.store.record_bytes(item));
    }

    /// Empties the slot that names the item at `addr`; false if it names another item now.
    pub(crate) fn remove_from_index(&self, hash: KeyHash, addr: Addr) -> bool {
        let mut bucket = self.store.index.lock(hash);
        let Some(slot) = bucket.find(hash, |slot_addr| slot_addr == addr) else {
            return false;
        };
        bucket.remove(slot);
        true
    }

    /// Removes an item that a lookup found dead, and counts the miss.
    pub(crate) fn remove_dead(&self, hash: KeyHash, dead: &LocatedItem) {
        let cause = if self.store.is_flushed(dead) {
            CounterId::MissesFlushed
        } else {
            CounterId::MissesExpired
        };
        self.count(cause, 1);
        if self.remove_from_index(hash, dead.addr) {
            self.count_expired(dead);
            self.release_item_except(dead, &[]);
        }
    }

    /// Removes the item under the key, because its replacement cannot be stored.
    pub(crate) fn remove_key(&self, key: &[u8], hash: KeyHash) {
        let mut bucket = self.store.index.lock(hash);
        let Some(slot) = bucket.find(hash, |addr| self.store.has_key(addr, key)) else {
            return;
        };
        bucket.remove(slot);
        drop(bucket);
        self.release_item_except(&self.store.locate(slot.entry.item_addr()), &[]);
    }

    /// Releases one of the least used items of a chain, which was evicted because the chain was at its bound or the
    /// index had no memory for a line.
    #[cold]
    pub(crate) fn release_displaced(&self, addr: Addr, now: Seconds) {
        let item = self.store.locate(addr);
        self.count(CounterId::Displaced, 1);
        self.count_evicted(&item, now);
        self.release_item_except(&item, &[]);
    }

    /// Counts an expired item.
    pub(crate) fn count_expired(&self, item: &LocatedItem) {
        self.count(CounterId::Reclaimed, 1);
        if self.store.state_word_of(item.addr) & bits::FETCHED == 0 {
            self.count(CounterId::ExpiredUnfetched, 1);
        }
    }

    /// Counts an item that is evicted, and reports it to watchers.
    pub(crate) fn count_evicted(&self, item: &LocatedItem, now: Seconds) {
        let state_word = self.store.state_word_of(item.addr);
        let was_fetched = state_word & bits::FETCHED != 0;
        self.count(CounterId::Evictions, 1);
        self.count(CounterId::EvictedUnfetched, i64::from(!was_fetched));
        let ttl_s = match item.header.expiry {
            Expiry::Never => None,
            Expiry::At(second) => Some(second.0.saturating_sub(now.0)),
        };
        self.count(CounterId::EvictedWithTtl, i64::from(ttl_s.is_some()));
        if let Some(block) = self.counter_block() {
            let header = &item.header;
            let value_bytes = header.value_bytes as usize;
            let memcached_bytes =
                Store::memcached_item_bytes(header.key_bytes, value_bytes, header.flags);
            let last_access = Store::access_of(item, state_word);
            block.add_evicted(
                self.store.slab_class(memcached_bytes),
                EvictedOfClass {
                    items: 1,
                    with_ttl: u64::from(ttl_s.is_some()),
                    unfetched: u64::from(!was_fetched),
                    last_at: now,
                    last_idle_s: now.0.saturating_sub(last_access.0),
                },
            );
        }
        if self.store.reports.is_enabled() {
            self.store.reports.add(EvictedItem {
                key: self.store.key_of(item).into(),
                was_fetched,
                ttl_s,
                last_access: Store::access_of(item, state_word),
                value_bytes: item.header.value_bytes,
            });
        }
    }

    /// Records that items were added or removed, and sometimes lets the index follow.
    #[inline]
    fn adjust_item_count(&self, amount: i64) {
        let unreported = self.unreported_items.get() + amount;
        self.unreported_items.set(unreported);
        if unreported.abs() >= ITEMS_PER_REPORT {
            self.store.approximate_item_count.fetch_add(unreported, Ordering::Relaxed);
            self.unreported_items.set(0);
            self.resize_index();
        }
    }

    /// Makes a few splits or merges, if the number of items requires them; true if more are due.
    pub(crate) fn resize_index(&self) -> bool {
        let store = &*self.store;
        let item_count = store.approximate_item_count.load(Ordering::Relaxed).max(0) as usize;
        for _ in 0..RESIZE_STEPS {
            let outcome = if store.index.needs_split(item_count) {
                store.index.split(store, store)
            } else if store.index.needs_merge(item_count) {
                store.index.merge(store)
            } else {
                return false;
            };
            if outcome != ResizeOutcome::Done {
                return false;
            }
        }
        store.index.needs_split(item_count) || store.index.needs_merge(item_count)
    }

    /// Lets the ghost follow the number of items; once per victim, because only a store that evicts needs one.
    pub(crate) fn resize_ghost(&self) {
        let percent = self.store.policy.ghost_percent();
        if percent > 0 && self.store.config().evict {
            let item_count =
                self.store.approximate_item_count.load(Ordering::Relaxed).max(0) as usize;
            self.store.ghost.resize_step(
                item_count * percent / 100,
                &self.store.segments,
                SEGMENTS_FOR_EVICTION,
            );
        }
    }
}

/// Counts an item in (1) or out (-1) of a block.
#[inline]
pub(crate) fn count_item_in_block(
    store: &Store,
    block: &CounterBlock,
    item: &LocatedItem,
    sign: i64,
) {
    let piece_bytes: usize =
        store.pieces_of(item).map(|piece| piece_record_bytes(store.piece_data_bytes(piece))).sum();
    block.add(CounterId::Items, sign);
    block.add(CounterId::UserBytes, sign * Store::user_bytes(item) as i64);
    block.add(CounterId::ItemBytes, sign * (store.record_bytes(item) + piece_bytes) as i64);
    let memcached_bytes = Store::memcached_item_bytes(
        item.header.key_bytes,
        item.header.value_bytes as usize,
        item.header.flags,
    );
    block.add_to_class(store.slab_class(memcached_bytes), sign, sign * memcached_bytes as i64);
}

impl Drop for ItemAccounting {
    fn drop(&mut self) {
        self.store.approximate_item_count.fetch_add(self.unreported_items.get(), Ordering::Relaxed);
    }
}
