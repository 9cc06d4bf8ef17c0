//! The list of sparse segments: sealed ones with few live bytes, to be swept before unused memory is taken.
//!
//! A page that was never written costs a fault and the zeroing of 4 KiB or 2 MiB, far more than copying the rest of
//! a nearly dead segment. The thread that brings a segment below the bound adds it here, so there is no search. An
//! entry is a hint: when it is taken the segment may have been swept, or opened again.

use std::sync::PoisonError;

use crate::memory::SegmentId;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};

/// A segment is sparse when less than one in this many of its bytes is live. A set of keys that is overwritten at
/// random then takes 3.5 times its size, as far as `-m` allows, and a fifteenth of a byte is copied per byte
/// written. With 8 it is 2.9 times and a seventh, which costs 11 % more processor time per set of 100 KB; 32 is 4.1
/// times and gains a hundredth (`examples/overwrite.rs`, `figures speed --scenario set-100k`).
const SPARSE_DIVISOR: usize = 16;

/// Whether a segment with these live bytes of those appended is worth emptying.
#[inline]
pub(crate) fn is_sparse(live_bytes: usize, used_bytes: usize) -> bool {
    live_bytes * SPARSE_DIVISOR < used_bytes
}

/// The segments that became sparse.
pub(crate) struct SparseList {
    ids: Mutex<Vec<SegmentId>>,
    /// Length of the list, readable without the lock.
    listed_count: AtomicUsize,
    /// A segment is in the list at most once, which bounds it.
    listed_flags: Box<[AtomicBool]>,
}

impl SparseList {
    pub(crate) fn new(segment_count: usize) -> Self {
        SparseList {
            ids: Mutex::new(Vec::new()),
            listed_count: AtomicUsize::new(0),
            listed_flags: (0..segment_count).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.listed_count.load(Ordering::Relaxed) == 0
    }

    /// Adds a segment, unless it is already listed.
    #[cold]
    pub(crate) fn add(&self, id: SegmentId) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let flag = self.listed_flags.get(id.0 as usize);
        if flag.is_some_and(|flag| !flag.swap(true, Ordering::Relaxed)) {
            ids.push(id);
            self.listed_count.store(ids.len(), Ordering::Relaxed);
        }
    }

    /// Takes the segment that was added last: its bytes are the most likely to be in a processor's cache.
    pub(crate) fn pop(&self) -> Option<SegmentId> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ids.pop()?;
        self.listed_count.store(ids.len(), Ordering::Relaxed);
        if let Some(flag) = self.listed_flags.get(id.0 as usize) {
            flag.store(false, Ordering::Relaxed);
        }
        Some(id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_listed_once_until_it_is_taken() {
        let list = SparseList::new(4);
        list.add(SegmentId(2));
        list.add(SegmentId(2));
        list.add(SegmentId(3));
        assert_eq!(list.pop(), Some(SegmentId(3)));
        assert_eq!(list.pop(), Some(SegmentId(2)));
        assert!(list.is_empty() && list.pop().is_none());
        list.add(SegmentId(2));
        assert!(!list.is_empty());
    }

    #[test]
    fn overwrites_of_few_keys_do_not_spread_over_all_the_memory() {
        use crate::{Config, Seconds, SetOptions, Store};
        let store = Store::new(Config::default()).unwrap();
        let mut worker = store.worker();
        let (value, options) = ([7; 1000], SetOptions::default());
        let mut random_state = 1u64;
        for _ in 0..100_000 {
            random_state = random_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = ((random_state >> 33) % 4000).to_string();
            worker.set(key.as_bytes(), store.hash(key.as_bytes()), &value, &options, Seconds(2));
            worker.pass();
        }
        let counters = store.counters();
        assert_eq!(counters.evictions, 0);
        assert!(counters.segment_bytes < 4 * counters.item_bytes, "{counters:?}");
    }
}
