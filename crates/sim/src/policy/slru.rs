//! Segmented LRU: four segments of a quarter each; a hit promotes by one segment, and the overflow of a segment moves
//! to the one below.

use super::queue::{Locations, Queue, queue_of};
use super::{Policy, Weights};

/// Number of segments, from the one for new objects to the one for the most used.
const SEGMENTS: usize = 4;

/// A segmented LRU cache.
pub(crate) struct Slru<W> {
    locations: Locations,
    segments: [Queue; SEGMENTS],
    segment_capacity: u64,
    used: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Slru<W> {
    pub(crate) fn new(distinct: usize, weights: W, capacity: u64) -> Self {
        Self {
            locations: vec![0; distinct],
            segments: std::array::from_fn(|at| Queue::new(at as u32 + 1)),
            segment_capacity: (capacity / SEGMENTS as u64).max(1),
            used: 0,
            capacity,
            weights,
        }
    }

    /// Moves an object from one segment up to the next.
    #[inline]
    fn promote(&mut self, from: usize, id: u32) {
        let weight = self.weights.of(id);
        if from + 1 == SEGMENTS || weight > self.segment_capacity {
            self.segments[from].move_to_end(&mut self.locations, id);
            return;
        }
        self.segments[from].detach(weight);
        self.segments[from + 1].push(&mut self.locations, id, weight);
        for segment in (1..=from + 1).rev() {
            while self.segments[segment].weight() > self.segment_capacity {
                self.demote(segment);
            }
        }
    }

    /// Moves the least recently used object of a segment down by one.
    #[inline]
    fn demote(&mut self, from: usize) {
        let weights = self.weights;
        if let Some(id) = self.segments[from].pop(&mut self.locations, |id| weights.of(id)) {
            self.segments[from - 1].push(&mut self.locations, id, weights.of(id));
        }
    }

    fn evict(&mut self) {
        let weights = self.weights;
        for segment in &mut self.segments {
            if let Some(id) = segment.pop(&mut self.locations, |id| weights.of(id)) {
                self.used -= weights.of(id);
                return;
            }
        }
    }
}

impl<W: Weights> Policy for Slru<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        let segment = queue_of(self.locations[id as usize]);
        if segment != 0 {
            self.promote(segment as usize - 1, id);
            return true;
        }
        let weight = self.weights.of(id);
        while self.used + weight > self.capacity {
            self.evict();
        }
        self.used += weight;
        self.segments[0].push(&mut self.locations, id, weight);
        false
    }

    fn prefetch(&self, ids: &[u32]) -> u32 {
        ids.iter()
            .fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}
