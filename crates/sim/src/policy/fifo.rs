//! FIFO without a queue: an object stays in the cache until the weight stored after it exceeds the capacity.
//!
//! Eviction removes the oldest object only when space is needed, so the cache holds the longest run of recent stores
//! that fits. For each object the weight stored before it is kept; a request is one read without a branch.

use super::{Policy, Weights};

/// A FIFO cache.
pub(crate) struct Fifo<W> {
    /// Weight stored before each object; 0 for one never stored, since the count starts above the capacity.
    weight_stored_before: Vec<u64>,
    stored_weight: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Fifo<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            weight_stored_before: vec![0; object_count],
            stored_weight: capacity + 1,
            capacity,
            weights,
        }
    }
}

impl<W: Weights> Policy for Fifo<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        let weight_stored_before = &mut self.weight_stored_before[id as usize];
        let is_hit = self.stored_weight - *weight_stored_before <= self.capacity;
        *weight_stored_before = if is_hit { *weight_stored_before } else { self.stored_weight };
        self.stored_weight += if is_hit { 0 } else { self.weights.of(id) };
        is_hit
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.weight_stored_before[id as usize] as u32)
    }
}
