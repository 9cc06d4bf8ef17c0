//! Segmented LRU: four segments of a quarter each; a hit promotes by one segment, and the overflow of a segment moves
//! to the one below.
//!
//! Equal to libCacheSim 0.3.5, request by request, in what the papers leave open: a new object enters the lowest
//! segment with room, so that an empty cache fills all four; an object that overflows into the lowest segment evicts what
//! exceeds its quarter at once; and an object larger than a quarter is never stored, so that nothing is stored
//! below four objects. Entering the lowest segment only costs up to 0.7 of the requests of a loop that just fits.

use super::queue::{Locations, Queue, queue_of};
use super::{Policy, Removable, Weights};

/// Number of segments, from the one for new objects to the one for the most used.
const SEGMENTS: usize = 4;

/// A segmented LRU cache.
pub(crate) struct Slru<W> {
    locations: Locations,
    segments: [Queue; SEGMENTS],
    segment_capacity: u64,
    used_weight: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Slru<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            locations: vec![0; object_count],
            segments: std::array::from_fn(|index| Queue::new(index as u32 + 1)),
            segment_capacity: capacity / SEGMENTS as u64,
            used_weight: 0,
            capacity,
            weights,
        }
    }

    /// The segment that an object is in; the queue of a segment has its index plus 1 as number.
    #[inline]
    fn segment_index_of(&self, id: u32) -> Option<usize> {
        let queue_number = queue_of(self.locations[id as usize]) as usize;
        queue_number.checked_sub(1)
    }

    /// Moves an object from one segment up to the next.
    #[inline]
    fn promote(&mut self, from_index: usize, id: u32) {
        if from_index + 1 == SEGMENTS {
            self.segments[from_index].move_to_end(&mut self.locations, id);
            return;
        }
        let weight = self.weights.of(id);
        self.segments[from_index].subtract_member(weight);
        self.segments[from_index + 1].push(&mut self.locations, id, weight);
        let mut has_pushed_to_lowest = false;
        for segment_index in (1..=from_index + 1).rev() {
            while self.segments[segment_index].weight() > self.segment_capacity {
                self.demote(segment_index);
                has_pushed_to_lowest |= segment_index == 1;
            }
        }
        while has_pushed_to_lowest && self.segments[0].weight() > self.segment_capacity {
            self.evict();
        }
    }

    /// Moves the least recently used object of a segment down by one.
    #[inline]
    fn demote(&mut self, from_index: usize) {
        let weights = self.weights;
        if let Some(id) = self.segments[from_index].pop(&mut self.locations, |id| weights.of(id)) {
            self.segments[from_index - 1].push(&mut self.locations, id, weights.of(id));
        }
    }

    fn evict(&mut self) {
        let weights = self.weights;
        for segment in &mut self.segments {
            if let Some(id) = segment.pop(&mut self.locations, |id| weights.of(id)) {
                self.used_weight -= weights.of(id);
                return;
            }
        }
    }

    /// The lowest segment that has room, or the lowest of all, which then exceeds its quarter.
    #[inline]
    fn segment_index_for(&self, weight: u64) -> usize {
        let has_room = |queue: &Queue| queue.weight() + weight <= self.segment_capacity;
        self.segments.iter().position(has_room).unwrap_or(0)
    }
}

impl<W: Weights> Policy for Slru<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        if let Some(segment_index) = self.segment_index_of(id) {
            self.promote(segment_index, id);
            return true;
        }
        let weight = self.weights.of(id);
        if weight > self.segment_capacity {
            return false;
        }
        while self.used_weight + weight > self.capacity {
            self.evict();
        }
        self.used_weight += weight;
        let segment_index = self.segment_index_for(weight);
        self.segments[segment_index].push(&mut self.locations, id, weight);
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}

impl<W: Weights> Removable for Slru<W> {
    fn remove(&mut self, id: u32) {
        if let Some(segment_index) = self.segment_index_of(id) {
            let weight = self.weights.of(id);
            self.segments[segment_index].subtract_member(weight);
            self.locations[id as usize] = 0;
            self.used_weight -= weight;
        }
    }
}
