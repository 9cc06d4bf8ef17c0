//! Counters of the store: a block of plain numbers per worker, summed when they are read.
//!
//! A worker only adds to its own block (a load and a store, no locked instruction), so counting costs other workers
//! nothing. Differences may be negative in one block: only sums have a meaning.

use std::sync::atomic::{AtomicI64, Ordering};

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
    /// Evicted items, and those of them that had a TTL, per slab class of the config.
    pub evicted_by_slab_class: Vec<(u64, u64)>,
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
    /// For each slab class: items, their bytes, evicted items, evicted items with a TTL.
    classes: Box<[[AtomicI64; 4]]>,
}

impl CounterBlock {
    pub(crate) fn new(class_count: usize) -> Self {
        let new_class = || std::array::from_fn(|_| AtomicI64::new(0));
        CounterBlock {
            counts: std::array::from_fn(|_| AtomicI64::new(0)),
            classes: (0..class_count).map(|_| new_class()).collect(),
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
        for (class_counters, other_counters) in self.classes.iter().zip(&other_block.classes) {
            for (counter, other_counter) in class_counters.iter().zip(other_counters) {
                add_to_counter(counter, other_counter.load(Ordering::Relaxed));
            }
        }
    }

    /// Adds items and requested bytes to a slab class.
    #[inline]
    pub(crate) fn add_to_class(&self, class_index: usize, items: i64, bytes: i64) {
        if let Some([item_counter, byte_counter, ..]) = self.classes.get(class_index) {
            add_to_counter(item_counter, items);
            add_to_counter(byte_counter, bytes);
        }
    }

    /// Counts an evicted item in its slab class.
    pub(crate) fn add_evicted(&self, class_index: usize, has_ttl: bool) {
        if let Some([.., evicted, with_ttl]) = self.classes.get(class_index) {
            add_to_counter(evicted, 1);
            add_to_counter(with_ttl, i64::from(has_ttl));
        }
    }
}

/// Adds to a counter. It has one writer, so a load and a store are enough; readers may see either.
#[inline]
fn add_to_counter(counter: &AtomicI64, amount: i64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// A pair of numbers for each class.
fn class_pairs(classes: &[[i64; 4]], select_pair: fn([i64; 4]) -> (i64, i64)) -> Vec<(u64, u64)> {
    let to_pair = |numbers: &[i64; 4]| {
        let (first, second) = select_pair(*numbers);
        (first.max(0) as u64, second.max(0) as u64)
    };
    classes.iter().map(to_pair).collect()
}

/// Sums what the workers counted.
pub(crate) fn sum_blocks<'b>(blocks: impl Iterator<Item = &'b CounterBlock>) -> Counters {
    let mut totals = [0i64; COUNTER_COUNT];
    let mut classes: Vec<[i64; 4]> = Vec::new();
    for block in blocks {
        for (total, counter) in totals.iter_mut().zip(&block.counts) {
            *total += counter.load(Ordering::Relaxed);
        }
        classes.resize(classes.len().max(block.classes.len()), [0; 4]);
        for (class_totals, class_counters) in classes.iter_mut().zip(&block.classes) {
            for (total, counter) in class_totals.iter_mut().zip(class_counters) {
                *total += counter.load(Ordering::Relaxed);
            }
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
        by_slab_class: class_pairs(&classes, |[items, bytes, ..]| (items, bytes)),
        evicted_by_slab_class: class_pairs(&classes, |[.., evicted, with_ttl]| (evicted, with_ttl)),
        ..Counters::default()
    }
}
