//! Flushes: the count that decides which items are alive, and the delayed flush that waits for its second.
//!
//! A segment records the count at which it was opened, its generation; its items are alive only while that is still
//! the count. So a flush costs one addition. A copy is published only if its segment has the generation of the item
//! that it replaces: then it dies with that item, whenever the flush comes (docs/decisions/0011).

use std::sync::PoisonError;

use crate::request::Seconds;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The number of flushes, and when the next one is due.
pub(crate) struct Flushes {
    count: AtomicU64,
    /// Second at which a delayed flush takes effect, plus one; 0 if none is pending.
    due: AtomicU64,
    /// Held while a flush is set or takes effect.
    changing: Mutex<()>,
}

impl Flushes {
    pub(crate) fn new() -> Self {
        Flushes {
            count: AtomicU64::new(0),
            due: AtomicU64::new(0),
            changing: Mutex::new(()),
        }
    }

    /// The generation of items that are written and alive now.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Makes everything written before the clock reaches `at` dead from then on. It replaces a pending flush.
    pub(crate) fn flush(&self, at: Seconds, now: Seconds) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if at <= now {
            self.take_effect();
        } else {
            self.due.store(u64::from(at.0) + 1, Ordering::Release);
        }
    }

    /// Lets a pending flush take effect if its second has come; every operation checks this first, so it is one
    /// load.
    #[inline]
    pub(crate) fn note_time(&self, now: Seconds) {
        // Acquire pairs with the Release in `take_effect`: a thread that sees the flush done sees its count.
        let due = self.due.load(Ordering::Acquire);
        if due != 0 && due <= u64::from(now.0) + 1 {
            self.flush_due(now);
        }
    }

    /// A thread that comes while another lets the flush take effect waits for it, so that no operation of that
    /// second still sees flushed items.
    #[cold]
    fn flush_due(&self, now: Seconds) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.due.load(Ordering::Relaxed);
        if due != 0 && due <= u64::from(now.0) + 1 {
            self.take_effect();
        }
    }

    fn take_effect(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.due.store(0, Ordering::Release);
    }
}

/// Whether a copy of this generation dies with the flush that ends `source`, the generation of the item from which
/// it was made or decided. A copy of a later generation would outlive it.
#[inline]
pub(crate) fn has_same_generation(source: u64, copy: u64) -> bool {
    source == copy
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: Seconds = Seconds(10);

    #[test]
    fn a_delayed_flush_takes_effect_once_at_its_second() {
        let flushes = Flushes::new();
        flushes.flush(Seconds(12), NOW);
        flushes.note_time(Seconds(11));
        assert_eq!(flushes.generation(), 0);
        flushes.note_time(Seconds(12));
        flushes.note_time(Seconds(13));
        assert_eq!(flushes.generation(), 1);
    }

    #[test]
    fn a_flush_at_once_replaces_one_that_is_pending() {
        let flushes = Flushes::new();
        flushes.flush(Seconds(12), NOW);
        flushes.flush(NOW, NOW);
        flushes.note_time(Seconds(12));
        assert_eq!(flushes.generation(), 1);
    }

    #[test]
    fn generations_do_not_return_after_as_many_flushes_as_32_bits_count() {
        let flushes = Flushes::new();
        flushes.count.store(u64::from(u32::MAX), Ordering::Relaxed);
        flushes.flush(NOW, NOW);
        assert_eq!(flushes.generation(), 1 << 32);
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
    const KEY: KeyHash = KeyHash(0);
    const ITEM: Addr = Addr(2);
    const COPY: Addr = Addr(4);

    struct Nothing;

    impl SegmentSource for Nothing {
        fn take(&self) -> Option<SegmentId> {
            None
        }
        fn give(&self, _segment: SegmentId) {}
    }

    /// A key with one item of generation 0, and memory for a copy whose segment may be opened at any time.
    struct World {
        index: Index,
        flushes: Flushes,
        copy_generation: AtomicU64,
    }

    impl World {
        fn new() -> Arc<Self> {
            let world = World {
                index: Index::new(Lines::with(1, 1), SegmentId(0), 1),
                flushes: Flushes::new(),
                copy_generation: AtomicU64::new(0),
            };
            let entry = Entry::new(KEY, 0, ITEM);
            world.index.lock(KEY).insert(entry, &Nothing).unwrap();
            Arc::new(world)
        }

        /// What touch, append and a moving sweep do: decide, open a segment, publish.
        fn copy(&self) {
            if self.flushes.generation() != 0 {
                return;
            }
            let generation = self.flushes.generation();
            self.copy_generation.store(generation, Ordering::Relaxed);
            if !has_same_generation(0, generation) {
                return;
            }
            let mut bucket = self.index.lock(KEY);
            if let Some(slot) = bucket.find(KEY, |at| at == ITEM) {
                bucket.replace(slot, Entry::new(KEY, 0, COPY));
            }
        }

        fn has_living_item(&self) -> bool {
            self.index.find(KEY, |_| true).is_some_and(|hit| {
                let generation = if hit.entry.item() == COPY {
                    self.copy_generation.load(Ordering::Relaxed)
                } else {
                    0
                };
                generation == self.flushes.generation()
            })
        }
    }

    #[test]
    fn a_copy_made_while_a_flush_runs_does_not_outlive_it() {
        loom::model(|| {
            let world = World::new();
            let copier = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.copy())
            };
            world.flushes.flush(NOW, NOW);
            assert!(!world.has_living_item(), "alive when the flush had ended");
            copier.join().unwrap();
            assert!(!world.has_living_item(), "alive when the copy was made");
        });
    }

    #[test]
    fn no_operation_of_the_second_of_a_delayed_flush_comes_before_it() {
        loom::model(|| {
            let world = World::new();
            world.flushes.flush(Seconds(12), NOW);
            let operation = |world: &World| {
                world.flushes.note_time(Seconds(12));
                assert!(!world.has_living_item());
                world.copy();
                assert!(!world.has_living_item());
            };
            let other = {
                let world = Arc::clone(&world);
                thread::spawn(move || operation(&world))
            };
            operation(&world);
            other.join().unwrap();
            assert_eq!(world.flushes.generation(), 1, "flushed more than once");
        });
    }
}
