//! Exact counts of a few keys: a table of their hashes that all workers read, and counts that each has of its own.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::request::KeyHash;

/// Slots of the table: more than twice the keys that are counted, so that few find no slot.
const SLOTS: usize = 256;

/// Slots in which a key may be.
const WAYS: usize = 4;

/// The keys that are counted.
pub(super) struct HotHashes([AtomicU64; SLOTS]);

impl Default for HotHashes {
    fn default() -> Self {
        HotHashes([const { AtomicU64::new(0) }; SLOTS])
    }
}

/// The slots in which a key may be.
fn slots_of(hash: KeyHash) -> Range<usize> {
    let first = (hash.0 >> 20) as usize % SLOTS / WAYS * WAYS;
    first..first + WAYS
}

impl HotHashes {
    /// Keeps the keys that are counted already where they are, removes the others and adds the new ones.
    pub(super) fn replace(&self, hashes: &[KeyHash]) {
        for slot in &self.0 {
            let hash = KeyHash(slot.load(Ordering::Relaxed));
            if hash.0 != 0 && !hashes.contains(&hash) {
                slot.store(0, Ordering::Relaxed);
            }
        }
        for hash in hashes.iter().filter(|hash| self.find(**hash).is_none()) {
            let empty = slots_of(*hash)
                .filter_map(|slot| self.0.get(slot))
                .find(|slot| slot.load(Ordering::Relaxed) == 0);
            if let Some(empty) = empty {
                empty.store(hash.0, Ordering::Relaxed);
            }
        }
    }

    /// The slot of a key.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash) -> Option<usize> {
        let slots = slots_of(hash);
        let first = slots.start;
        let is_slot_of_key = |slot: &AtomicU64| slot.load(Ordering::Relaxed) == hash.0;
        self.0.get(slots)?.iter().position(is_slot_of_key).map(|index| first + index)
    }
}

/// What was counted of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HotCount {
    /// Reads.
    pub(crate) requests: u64,
    /// Bytes of the values that they found.
    pub(crate) bytes: u64,
}

impl std::iter::Sum for HotCount {
    fn sum<I: Iterator<Item = HotCount>>(counts: I) -> HotCount {
        counts.fold(HotCount::default(), |sum, count| HotCount {
            requests: sum.requests + count.requests,
            bytes: sum.bytes + count.bytes,
        })
    }
}

/// One worker's counts by slot, which only grow; it alone writes them.
pub(super) struct HotCounts([[AtomicU64; 2]; SLOTS]);

impl Default for HotCounts {
    fn default() -> Self {
        HotCounts([const { [const { AtomicU64::new(0) }; 2] }; SLOTS])
    }
}

impl HotCounts {
    /// Counts a read that found a value of this length.
    pub(super) fn add(&self, slot: usize, value_bytes: usize) {
        if let Some([requests, bytes]) = self.0.get(slot) {
            requests.store(requests.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            bytes.store(bytes.load(Ordering::Relaxed) + value_bytes as u64, Ordering::Relaxed);
        }
    }

    /// What was counted in a slot, for whatever key was in it.
    pub(super) fn get(&self, slot: usize) -> HotCount {
        self.0.get(slot).map_or(HotCount::default(), |[requests, bytes]| HotCount {
            requests: requests.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        })
    }
}
