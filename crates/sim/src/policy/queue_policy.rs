//! LRU and FIFO with a queue of their objects, for traces in which objects leave by other ways than eviction.
//!
//! The forms without a queue (`lru`, `fifo`) are several times as fast, but derive what a cache holds from the requests
//! alone.

use super::queue::{Locations, Queue};
use super::{Policy, Removable, Weights};

/// An LRU cache if a hit moves an object to the end, else a FIFO cache.
pub(crate) struct QueuePolicy<W, const MOVE_ON_HIT: bool> {
    locations: Locations,
    queue: Queue,
    capacity: u64,
    weights: W,
}

impl<W: Weights, const MOVE_ON_HIT: bool> QueuePolicy<W, MOVE_ON_HIT> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self { locations: vec![0; object_count], queue: Queue::new(1), capacity, weights }
    }
}

impl<W: Weights, const MOVE_ON_HIT: bool> Policy for QueuePolicy<W, MOVE_ON_HIT> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        if self.locations[id as usize] != 0 {
            if MOVE_ON_HIT {
                self.queue.move_to_end(&mut self.locations, id);
            }
            return true;
        }
        let weights = self.weights;
        let weight = weights.of(id);
        while self.queue.weight() + weight > self.capacity {
            self.queue.pop(&mut self.locations, |id| weights.of(id));
        }
        self.queue.push(&mut self.locations, id, weight);
        false
    }
}

impl<W: Weights, const MOVE_ON_HIT: bool> Removable for QueuePolicy<W, MOVE_ON_HIT> {
    fn remove(&mut self, id: u32) {
        if self.locations[id as usize] != 0 {
            self.queue.subtract_member(self.weights.of(id));
            self.locations[id as usize] = 0;
        }
    }
}
