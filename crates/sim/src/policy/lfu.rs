//! LFU: evicts the object used least often since it was stored; among equals, the first to reach that number.

use super::frequency::Frequencies;
use super::{Policy, Removable, Weights};

/// An LFU cache.
pub(crate) struct Lfu<W> {
    frequencies: Frequencies,
    used_weight: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Lfu<W> {
    pub(crate) fn new(
        object_count: usize,
        request_count: usize,
        weights: W,
        capacity: u64,
    ) -> Self {
        Self {
            frequencies: Frequencies::new(object_count, request_count),
            used_weight: 0,
            capacity,
            weights,
        }
    }
}

impl<W: Weights> Policy for Lfu<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        if self.frequencies.uses(id) > 0 {
            self.frequencies.record_use(id);
            return true;
        }
        let weight = self.weights.of(id);
        while self.used_weight + weight > self.capacity {
            let Some(victim) = self.frequencies.next_victim() else {
                break;
            };
            self.frequencies.remove(victim);
            self.used_weight -= self.weights.of(victim);
        }
        self.used_weight += weight;
        self.frequencies.insert(id, 1);
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.frequencies.uses(id))
    }
}

impl<W: Weights> Removable for Lfu<W> {
    fn remove(&mut self, id: u32) {
        if self.frequencies.uses(id) > 0 {
            self.frequencies.remove(id);
            self.used_weight -= self.weights.of(id);
        }
    }
}
