//! Segmented LRU: four segments of a quarter each; a hit climbs one, what falls out of one lands in the one below.

use super::queue::{Queue, Words, queue_of};
use super::{Policy, Weights};

/// Segments, from the one for newcomers to the one for the most used.
const SEGMENTS: usize = 4;

/// A segmented LRU cache.
pub(crate) struct Slru<W> {
    words: Words,
    segments: [Queue; SEGMENTS],
    segment_capacity: u64,
    used: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Slru<W> {
    pub(crate) fn new(distinct: usize, weights: W, capacity: u64) -> Self {
        Self {
            words: vec![0; distinct],
            segments: std::array::from_fn(|at| Queue::new(at as u32 + 1)),
            segment_capacity: (capacity / SEGMENTS as u64).max(1),
            used: 0,
            capacity,
            weights,
        }
    }

    /// Moves an object from one segment up to the next.
    #[inline]
    fn climb(&mut self, from: usize, id: u32) {
        let weight = self.weights.of(id);
        if from + 1 == SEGMENTS || weight > self.segment_capacity {
            self.segments[from].renew(&mut self.words, id);
            return;
        }
        self.segments[from].leave(weight);
        self.segments[from + 1].push(&mut self.words, id, weight);
        for segment in (1..=from + 1).rev() {
            while self.segments[segment].weight() > self.segment_capacity {
                self.fall(segment);
            }
        }
    }

    /// Moves the least recently used object of a segment down by one.
    #[inline]
    fn fall(&mut self, from: usize) {
        let weights = self.weights;
        if let Some(id) = self.segments[from].pop(&mut self.words, |id| weights.of(id)) {
            self.segments[from - 1].push(&mut self.words, id, weights.of(id));
        }
    }

    fn evict(&mut self) {
        let weights = self.weights;
        for segment in &mut self.segments {
            if let Some(id) = segment.pop(&mut self.words, |id| weights.of(id)) {
                self.used -= weights.of(id);
                return;
            }
        }
    }
}

impl<W: Weights> Policy for Slru<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        let segment = queue_of(self.words[id as usize]);
        if segment != 0 {
            self.climb(segment as usize - 1, id);
            return true;
        }
        let weight = self.weights.of(id);
        while self.used + weight > self.capacity {
            self.evict();
        }
        self.used += weight;
        self.segments[0].push(&mut self.words, id, weight);
        false
    }

    fn warm(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.words[id as usize])
    }
}
