//! Flushes: their count, which decides which items are alive, and the delayed flush that waits for its second.
//!
//! Flushes of everything and of a prefix have one sequence of numbers. A segment records the number of flushes at
//! which it was opened, its generation; an item of it is dead if everything, or a prefix of its key, was flushed with
//! a higher number. So a flush costs one addition and an entry in a table, and while none came after the segment was
//! opened, one comparison shows that. A copy is published only if the item that it replaces is not flushed then, in a
//! segment whose generation includes all flushes of its key: so it dies with that item, whenever the flush comes
//! (docs/decisions/store.md, 0011 and 0099).

use std::sync::PoisonError;

use crate::prefix_flushes::{PrefixFlushes, TableFull};
use crate::request::Seconds;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// All flushes, as they are saved while the server is stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FlushSnapshot {
    pub(crate) flush_count: u64,
    pub(crate) last_full_flush: u64,
    pub(crate) due_second_plus_one: u64,
    /// Hash and number of each remembered prefix.
    pub(crate) prefixes: Vec<(u64, u64)>,
}

/// The number of flushes, and when the next one is due.
pub(crate) struct Flushes {
    flush_count: AtomicU64,
    /// The number of the last flush of everything.
    last_full_flush: AtomicU64,
    prefixes: PrefixFlushes,
    /// Second at which a delayed flush takes effect, plus one; 0 if none is pending.
    due_second_plus_one: AtomicU64,
    /// Held while a flush is set or takes effect.
    change_lock: Mutex<()>,
}

impl Flushes {
    /// No flush so far; `seed` is that of the hash of prefixes, whose table takes a part of `memory_bytes`.
    pub(crate) fn new(seed: u64, memory_bytes: u64) -> Self {
        Flushes {
            flush_count: AtomicU64::new(0),
            last_full_flush: AtomicU64::new(0),
            prefixes: PrefixFlushes::new(seed, memory_bytes),
            due_second_plus_one: AtomicU64::new(0),
            change_lock: Mutex::new(()),
        }
    }

    /// The state from which [`Flushes::restore`] continues.
    pub(crate) fn snapshot(&self) -> FlushSnapshot {
        FlushSnapshot {
            flush_count: self.flush_count.load(Ordering::Acquire),
            last_full_flush: self.last_full_flush.load(Ordering::Acquire),
            due_second_plus_one: self.due_second_plus_one.load(Ordering::Acquire),
            prefixes: self.prefixes.snapshot(),
        }
    }

    /// Continues where another one with the same seed ended; no other thread uses this one yet.
    pub(crate) fn restore(&self, snapshot: &FlushSnapshot) {
        self.prefixes.restore(&snapshot.prefixes, snapshot.flush_count);
        self.last_full_flush.store(snapshot.last_full_flush, Ordering::Release);
        self.flush_count.store(snapshot.flush_count, Ordering::Release);
        self.due_second_plus_one.store(snapshot.due_second_plus_one, Ordering::Release);
    }

    /// The generation of a segment that is opened now.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.flush_count.load(Ordering::Acquire)
    }

    /// Everything in segments of a lower generation is dead.
    pub(crate) fn living_generation_min(&self) -> u64 {
        self.last_full_flush.load(Ordering::Acquire)
    }

    /// Whether an item with this key in a segment of this generation is dead by a flush. `key` is called only if
    /// there was a flush since the segment was opened.
    #[inline]
    pub(crate) fn is_flushed<'k>(&self, generation: u64, key: impl FnOnce() -> &'k [u8]) -> bool {
        generation != self.generation() && self.is_flushed_since(generation, key())
    }

    #[cold]
    #[inline(never)]
    fn is_flushed_since(&self, generation: u64, key: &[u8]) -> bool {
        generation < self.living_generation_min() || self.prefixes.is_flushed_since(key, generation)
    }

    /// Maximum number of prefixes that are remembered.
    pub(crate) fn prefixes_max(&self) -> usize {
        self.prefixes.prefixes_max()
    }

    /// Segments of a lower generation should be swept, so that prefixes can be forgotten; `None` while there is room for
    /// more.
    #[inline]
    pub(crate) fn awaited_generation(&self) -> Option<u64> {
        self.prefixes.awaited_generation()
    }

    /// Number of prefixes that are remembered, and the bytes of their table.
    pub(crate) fn prefix_count_and_bytes(&self) -> (usize, usize) {
        (self.prefixes.prefix_count(), self.prefixes.table_bytes())
    }

    /// Makes everything written before under keys that start with `prefix` dead. `oldest_generation` returns the lowest
    /// generation of a segment that may hold an item or still be read.
    pub(crate) fn flush_prefix(
        &self,
        prefix: &[u8],
        oldest_generation: impl Fn() -> u64,
    ) -> Result<(), TableFull> {
        let _change_guard = self.change_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let flush_number = self.flush_count.load(Ordering::Relaxed) + 1;
        let last_forgettable_flush = || oldest_generation().max(self.living_generation_min());
        // INVARIANT: recorded before it is counted, so a segment of this generation sees the flush as one that came
        // before it, and an item of an earlier one is never found alive when this returns.
        self.prefixes.record(prefix, flush_number, last_forgettable_flush)?;
        self.flush_count.store(flush_number, Ordering::Release);
        Ok(())
    }

    /// Makes everything written before the clock reaches `flush_at` dead from then on. It replaces a pending flush.
    pub(crate) fn flush(&self, flush_at: Seconds, now: Seconds) {
        let _change_guard = self.change_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if flush_at <= now {
            self.apply_full_flush();
        } else {
            self.due_second_plus_one.store(u64::from(flush_at.0) + 1, Ordering::Release);
        }
    }

    /// Lets a pending flush take effect if its second has come; every operation checks this first, so it is one
    /// load.
    #[inline]
    pub(crate) fn apply_due_flush(&self, now: Seconds) {
        // Acquire pairs with the Release in `apply_full_flush`: a thread that sees the flush done sees its count.
        let due_second_plus_one = self.due_second_plus_one.load(Ordering::Acquire);
        if due_second_plus_one != 0 && due_second_plus_one <= u64::from(now.0) + 1 {
            self.apply_due_flush_under_lock(now);
        }
    }

    /// Lets a pending flush take effect once. A thread that comes while another lets the flush take effect waits for
    /// it, so that no operation of that second still sees flushed items.
    #[cold]
    fn apply_due_flush_under_lock(&self, now: Seconds) {
        let _change_guard = self.change_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let due_second_plus_one = self.due_second_plus_one.load(Ordering::Relaxed);
        if due_second_plus_one != 0 && due_second_plus_one <= u64::from(now.0) + 1 {
            self.apply_full_flush();
        }
    }

    fn apply_full_flush(&self) {
        let flush_number = self.flush_count.load(Ordering::Relaxed) + 1;
        // In this order, as for a prefix.
        self.last_full_flush.store(flush_number, Ordering::Release);
        self.flush_count.store(flush_number, Ordering::Release);
        self.due_second_plus_one.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: Seconds = Seconds(10);

    #[test]
    fn a_delayed_flush_takes_effect_once_at_its_second() {
        let flushes = Flushes::new(7, u64::MAX);
        flushes.flush(Seconds(12), NOW);
        flushes.apply_due_flush(Seconds(11));
        assert_eq!(flushes.generation(), 0);
        flushes.apply_due_flush(Seconds(12));
        flushes.apply_due_flush(Seconds(13));
        assert_eq!(flushes.generation(), 1);
    }

    #[test]
    fn a_flush_at_once_replaces_one_that_is_pending() {
        let flushes = Flushes::new(7, u64::MAX);
        flushes.flush(Seconds(12), NOW);
        flushes.flush(NOW, NOW);
        flushes.apply_due_flush(Seconds(12));
        assert_eq!(flushes.generation(), 1);
    }

    #[test]
    fn generations_do_not_return_after_as_many_flushes_as_32_bits_count() {
        let flushes = Flushes::new(7, u64::MAX);
        flushes.flush_count.store(u64::from(u32::MAX), Ordering::Relaxed);
        flushes.flush(NOW, NOW);
        assert_eq!(flushes.generation(), 1 << 32);
    }

    #[test]
    fn flushes_of_everything_and_of_prefixes_are_numbered_in_one_sequence() {
        let flushes = Flushes::new(7, u64::MAX);
        flushes.flush_prefix(b"a:", || 0).unwrap();
        flushes.flush(NOW, NOW);
        flushes.flush_prefix(b"b:", || 0).unwrap();
        assert_eq!((flushes.generation(), flushes.living_generation_min()), (3, 2));
        let is_flushed = |generation, key| flushes.is_flushed(generation, || key);
        assert!(is_flushed(1, b"a:x") && is_flushed(2, b"b:x"));
        assert!(!is_flushed(2, b"a:x") && !is_flushed(3, b"b:x"));
    }
}

#[cfg(all(test, loom))]
mod interleaved {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::index::{Entry, Index, SegmentSource};
    use crate::memory::{Addr, Lines, SegmentId};
    use crate::request::KeyHash;

    const NOW: Seconds = Seconds(10);
    const KEY_HASH: KeyHash = KeyHash(0);
    const ITEM_ADDR: Addr = Addr(2);
    const COPY_ADDR: Addr = Addr(4);

    struct NoSegments;

    impl SegmentSource for NoSegments {
        fn allocate_segment(&self) -> Option<SegmentId> {
            None
        }
        fn free_segment(&self, _segment: SegmentId) {}
    }

    /// A key with one item of generation 0, and memory for a copy whose segment may be opened at any time.
    struct FlushedItem {
        index: Index,
        flushes: Flushes,
        copy_generation: AtomicU64,
    }

    impl FlushedItem {
        fn new() -> Arc<Self> {
            let flushed_item = FlushedItem {
                index: Index::new(Lines::with_segment_count(1, 1), SegmentId(0), 1),
                flushes: Flushes::new(7, u64::MAX),
                copy_generation: AtomicU64::new(0),
            };
            let entry = Entry::new(KEY_HASH, 0, ITEM_ADDR);
            flushed_item.index.lock(KEY_HASH).insert(entry, &NoSegments).unwrap();
            Arc::new(flushed_item)
        }

        /// What touch, append and a moving sweep do: decide, open a segment, publish.
        fn copy(&self) {
            if self.is_flushed(0) {
                return;
            }
            let generation = self.flushes.generation();
            self.copy_generation.store(generation, Ordering::Relaxed);
            if self.is_flushed(0) {
                return;
            }
            let mut bucket = self.index.lock(KEY_HASH);
            if let Some(slot) = bucket.find(KEY_HASH, |addr| addr == ITEM_ADDR) {
                bucket.replace(slot, Entry::new(KEY_HASH, 0, COPY_ADDR));
            }
        }

        fn has_living_item(&self) -> bool {
            self.index.find(KEY_HASH, |_| true).is_some_and(|hit| {
                let generation = if hit.entry.item_addr() == COPY_ADDR {
                    self.copy_generation.load(Ordering::Relaxed)
                } else {
                    0
                };
                !self.is_flushed(generation)
            })
        }

        fn is_flushed(&self, generation: u64) -> bool {
            self.flushes.is_flushed(generation, || b"key")
        }
    }

    #[test]
    fn a_copy_made_while_a_flush_runs_does_not_outlive_it() {
        loom::model(|| {
            let flushed_item = FlushedItem::new();
            let copier = {
                let flushed_item = Arc::clone(&flushed_item);
                thread::spawn(move || flushed_item.copy())
            };
            flushed_item.flushes.flush(NOW, NOW);
            assert!(!flushed_item.has_living_item(), "alive when the flush had ended");
            copier.join().unwrap();
            assert!(!flushed_item.has_living_item(), "alive when the copy was made");
        });
    }

    #[test]
    fn a_copy_made_while_a_prefix_is_flushed_does_not_outlive_it() {
        loom::model(|| {
            let flushed_item = FlushedItem::new();
            let copier = {
                let flushed_item = Arc::clone(&flushed_item);
                thread::spawn(move || flushed_item.copy())
            };
            flushed_item.flushes.flush_prefix(b"k", || 0).unwrap();
            assert!(!flushed_item.has_living_item(), "alive when the flush had ended");
            copier.join().unwrap();
            assert!(!flushed_item.has_living_item(), "alive when the copy was made");
        });
    }

    #[test]
    fn no_operation_of_the_second_of_a_delayed_flush_comes_before_it() {
        loom::model(|| {
            let flushed_item = FlushedItem::new();
            flushed_item.flushes.flush(Seconds(12), NOW);
            let operation = |flushed_item: &FlushedItem| {
                flushed_item.flushes.apply_due_flush(Seconds(12));
                assert!(!flushed_item.has_living_item());
                flushed_item.copy();
                assert!(!flushed_item.has_living_item());
            };
            let other = {
                let flushed_item = Arc::clone(&flushed_item);
                thread::spawn(move || operation(&flushed_item))
            };
            operation(&flushed_item);
            other.join().unwrap();
            assert_eq!(flushed_item.flushes.generation(), 1, "flushed more than once");
        });
    }
}
