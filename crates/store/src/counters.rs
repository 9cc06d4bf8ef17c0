//! Counters of the store: a block of plain numbers per worker, summed when they are read.
//!
//! A worker only adds to its own block (a load and a store, no locked instruction), so counting costs other workers
//! nothing. Differences may be negative in one block: only sums have a meaning.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::Seconds;

/// A snapshot of the contents and counters of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Items resident now (expired ones count until they are found).
    pub items: u64,
    /// Items ever stored.
    pub items_total: u64,
    /// Key and value bytes of the resident items.
    pub user_bytes: u64,
    /// Bytes that the resident items take in segments, headers included.
    pub item_bytes: u64,
    /// Segments of the index, in bytes.
    pub index_bytes: u64,
    /// Segments of the ghost, in bytes.
    pub ghost_bytes: u64,
    /// Segments of items, in bytes.
    pub segment_bytes: u64,
    /// Bytes charged for buffers.
    pub buffer_bytes: u64,
    /// Items evicted.
    pub evictions: u64,
    /// Evicted without ever having been read.
    pub evicted_unfetched: u64,
    /// Evicted unexpired items that had a TTL.
    pub evicted_with_ttl: u64,
    /// Expired items removed without ever having been read.
    pub expired_unfetched: u64,
    /// Expired items whose memory was reclaimed.
    pub reclaimed: u64,
    /// Reads that missed because the item under the key had expired.
    pub misses_expired: u64,
    /// Reads that missed because the item under the key had been flushed.
    pub misses_flushed: u64,
    /// Items copied by compaction and promotion.
    pub moved_items: u64,
    /// Bytes copied by compaction and promotion.
    pub moved_bytes: u64,
    /// Writes of keys that the ghost remembered.
    pub ghost_hits: u64,
    /// Items evicted because the index had no memory for another line.
    pub displaced: u64,
    /// Writes refused for lack of memory.
    pub refused: u64,
    /// Times a write found no segment that all readers had passed.
    pub epoch_waits: u64,
    /// Segments held by reference beyond the epoch now.
    pub held_segments: u64,
    /// Bytes that are backed ahead of need and not yet used.
    pub ready_bytes: u64,
    /// Bytes of uncommitted uploads.
    pub upload_bytes: u64,
    /// Items, and their requested bytes by memcached's measure, per slab class of the config (the first entry is
    /// the class of the smallest chunk).
    pub by_slab_class: Vec<(u64, u64)>,
    /// What was evicted, per slab class of the config.
    pub evicted_by_slab_class: Vec<EvictedOfClass>,
}

impl Counters {
    /// The same contents, with what was counted since `before`.
    #[must_use]
    pub fn since(mut self, before: &Counters) -> Counters {
        for (count, count_before) in [
            (&mut self.items_total, before.items_total),
            (&mut self.evictions, before.evictions),
            (&mut self.evicted_unfetched, before.evicted_unfetched),
            (&mut self.evicted_with_ttl, before.evicted_with_ttl),
            (&mut self.expired_unfetched, before.expired_unfetched),
            (&mut self.reclaimed, before.reclaimed),
            (&mut self.misses_expired, before.misses_expired),
            (&mut self.misses_flushed, before.misses_flushed),
        ] {
            *count = count.saturating_sub(count_before);
        }
        for (class, class_before) in
            self.evicted_by_slab_class.iter_mut().zip(&before.evicted_by_slab_class)
        {
            class.items = class.items.saturating_sub(class_before.items);
            class.with_ttl = class.with_ttl.saturating_sub(class_before.with_ttl);
            class.unfetched = class.unfetched.saturating_sub(class_before.unfetched);
        }
        self
    }
}

/// What was evicted of one slab class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvictedOfClass {
    /// Items.
    pub items: u64,
    /// Those that had a TTL.
    pub with_ttl: u64,
    /// Those that were never read.
    pub unfetched: u64,
    /// When the last of them was evicted.
    pub last_at: Seconds,
    /// Seconds that nobody had used it for then.
    pub last_idle_s: u32,
}

impl EvictedOfClass {
    /// Adds what another worker evicted.
    fn add(&mut self, other: EvictedOfClass) {
        self.items += other.items;
        self.with_ttl += other.with_ttl;
        self.unfetched += other.unfetched;
        let latest = (other.last_at, other.last_idle_s).max((self.last_at, self.last_idle_s));
        (self.last_at, self.last_idle_s) = latest;
    }
}

/// The numbers of one worker, by name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CounterId {
    Items,
    ItemsTotal,
    UserBytes,
    ItemBytes,
    Evictions,
    EvictedUnfetched,
    EvictedWithTtl,
    ExpiredUnfetched,
    Reclaimed,
    MissesExpired,
    MissesFlushed,
    MovedItems,
    MovedBytes,
    GhostHits,
    Displaced,
    Refused,
    EpochWaits,
}

const COUNTER_COUNT: usize = CounterId::EpochWaits as usize + 1;

/// One worker's numbers.
pub(crate) struct CounterBlock {
    counts: [AtomicI64; COUNTER_COUNT],
    classes: Box<[ClassBlock]>,
}

/// One worker's numbers of a slab class.
#[derive(Default)]
struct ClassBlock {
    items: AtomicI64,
    bytes: AtomicI64,
    evicted: AtomicI64,
    evicted_with_ttl: AtomicI64,
    evicted_unfetched: AtomicI64,
    /// The second of the last eviction in the upper half, the seconds without use in the lower one, so that a reader
    /// never sees those of different items.
    last_eviction: AtomicU64,
}

impl ClassBlock {
    /// The numbers that are sums.
    fn sums(&self) -> [&AtomicI64; 5] {
        [&self.items, &self.bytes, &self.evicted, &self.evicted_with_ttl, &self.evicted_unfetched]
    }

    fn evicted(&self) -> EvictedOfClass {
        let read = |counter: &AtomicI64| counter.load(Ordering::Relaxed).max(0).cast_unsigned();
        let last_eviction = self.last_eviction.load(Ordering::Relaxed);
        EvictedOfClass {
            items: read(&self.evicted),
            with_ttl: read(&self.evicted_with_ttl),
            unfetched: read(&self.evicted_unfetched),
            last_at: Seconds((last_eviction >> 32) as u32),
            last_idle_s: last_eviction as u32,
        }
    }
}

impl CounterBlock {
    pub(crate) fn new(class_count: usize) -> Self {
        CounterBlock {
            counts: std::array::from_fn(|_| AtomicI64::new(0)),
            classes: (0..class_count).map(|_| ClassBlock::default()).collect(),
        }
    }

    /// Adds to a number; only the owner of the block calls this.
    #[inline]
    pub(crate) fn add(&self, counter_id: CounterId, amount: i64) {
        if let Some(counter) = self.counts.get(counter_id as usize) {
            add_to_counter(counter, amount);
        }
    }

    /// Adds everything that another block counted; no other thread uses either meanwhile.
    pub(crate) fn add_all(&self, other_block: &CounterBlock) {
        for (counter, other_counter) in self.counts.iter().zip(&other_block.counts) {
            add_to_counter(counter, other_counter.load(Ordering::Relaxed));
        }
        for (class, other_class) in self.classes.iter().zip(&other_block.classes) {
            for (counter, other_counter) in class.sums().into_iter().zip(other_class.sums()) {
                add_to_counter(counter, other_counter.load(Ordering::Relaxed));
            }
            let latest = other_class.last_eviction.load(Ordering::Relaxed);
            class.last_eviction.fetch_max(latest, Ordering::Relaxed);
        }
    }

    /// Adds items and requested bytes to a slab class.
    #[inline]
    pub(crate) fn add_to_class(&self, class_index: usize, items: i64, bytes: i64) {
        if let Some(class) = self.classes.get(class_index) {
            add_to_counter(&class.items, items);
            add_to_counter(&class.bytes, bytes);
        }
    }

    /// Counts an evicted item in its slab class; `item` is that item alone.
    pub(crate) fn add_evicted(&self, class_index: usize, item: EvictedOfClass) {
        if let Some(class) = self.classes.get(class_index) {
            add_to_counter(&class.evicted, item.items.cast_signed());
            add_to_counter(&class.evicted_with_ttl, item.with_ttl.cast_signed());
            add_to_counter(&class.evicted_unfetched, item.unfetched.cast_signed());
            let last_eviction = u64::from(item.last_at.0) << 32 | u64::from(item.last_idle_s);
            class.last_eviction.store(last_eviction, Ordering::Relaxed);
        }
    }
}

/// Adds to a counter. It has one writer, so a load and a store are enough; readers may see either.
#[inline]
fn add_to_counter(counter: &AtomicI64, amount: i64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Sums what the workers counted.
pub(crate) fn sum_blocks<'b>(blocks: impl Iterator<Item = &'b CounterBlock>) -> Counters {
    let mut totals = [0i64; COUNTER_COUNT];
    let mut classes: Vec<((i64, i64), EvictedOfClass)> = Vec::new();
    for block in blocks {
        for (total, counter) in totals.iter_mut().zip(&block.counts) {
            *total += counter.load(Ordering::Relaxed);
        }
        classes.resize(classes.len().max(block.classes.len()), Default::default());
        for (((items, bytes), evicted), class) in classes.iter_mut().zip(&block.classes) {
            *items += class.items.load(Ordering::Relaxed);
            *bytes += class.bytes.load(Ordering::Relaxed);
            evicted.add(class.evicted());
        }
    }
    let total_of = |counter_id: CounterId| {
        totals.get(counter_id as usize).map_or(0, |&total| total.max(0) as u64)
    };
    Counters {
        items: total_of(CounterId::Items),
        items_total: total_of(CounterId::ItemsTotal),
        user_bytes: total_of(CounterId::UserBytes),
        item_bytes: total_of(CounterId::ItemBytes),
        evictions: total_of(CounterId::Evictions),
        evicted_unfetched: total_of(CounterId::EvictedUnfetched),
        evicted_with_ttl: total_of(CounterId::EvictedWithTtl),
        expired_unfetched: total_of(CounterId::ExpiredUnfetched),
        reclaimed: total_of(CounterId::Reclaimed),
        misses_expired: total_of(CounterId::MissesExpired),
        misses_flushed: total_of(CounterId::MissesFlushed),
        moved_items: total_of(CounterId::MovedItems),
        moved_bytes: total_of(CounterId::MovedBytes),
        ghost_hits: total_of(CounterId::GhostHits),
        displaced: total_of(CounterId::Displaced),
        refused: total_of(CounterId::Refused),
        epoch_waits: total_of(CounterId::EpochWaits),
        by_slab_class: classes
            .iter()
            .map(|((items, bytes), _)| ((*items).max(0) as u64, (*bytes).max(0) as u64))
            .collect(),
        evicted_by_slab_class: classes.iter().map(|(_, evicted)| *evicted).collect(),
        ..Counters::default()
    }
}
