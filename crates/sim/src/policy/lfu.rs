//! LFU: evicts the object used least often since it was stored; among equals, the first to reach that number.

use super::frequency::Frequencies;
use super::{Policy, Removable, Weights};

/// An LFU cache.
pub(crate) struct Lfu<W> {
    objects: Frequencies,
    used: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Lfu<W> {
    pub(crate) fn new(distinct: usize, requests: usize, weights: W, capacity: u64) -> Self {
        Self {
            objects: Frequencies::new(distinct, requests),
            used: 0,
            capacity,
            weights,
        }
    }
}

impl<W: Weights> Policy for Lfu<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        if self.objects.uses(id) > 0 {
            self.objects.note_use(id);
            return true;
        }
        let weight = self.weights.of(id);
        while self.used + weight > self.capacity {
            let Some(victim) = self.objects.first() else {
                break;
            };
            self.objects.remove(victim);
            self.used -= self.weights.of(victim);
        }
        self.used += weight;
        self.objects.insert(id, 1);
        false
    }

    fn prefetch(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.objects.uses(id))
    }
}

impl<W: Weights> Removable for Lfu<W> {
    fn remove(&mut self, id: u32) {
        if self.objects.uses(id) > 0 {
            self.objects.remove(id);
            self.used -= self.weights.of(id);
        }
    }
}
