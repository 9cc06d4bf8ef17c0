//! 2Q: new objects enter a FIFO of a quarter; objects requested again after they left it enter the LRU.
//!
//! The ghost of objects evicted from the FIFO holds half the capacity (Johnson and Shasha, VLDB 1994, full version).

use super::ghost::Ghost;
use super::queue::{Locations, Queue, queue_of};
use super::{Policy, Removable, Weights, capacity_share};

/// Numbers of the queues in an object's location.
const FRESH_QUEUE: u32 = 1;
const MAIN_QUEUE: u32 = 2;

/// A 2Q cache.
pub(crate) struct TwoQ<W> {
    locations: Locations,
    fresh_queue: Queue,
    main_queue: Queue,
    ghost: Ghost,
    fresh_capacity: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> TwoQ<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            locations: vec![0; object_count],
            fresh_queue: Queue::new(FRESH_QUEUE),
            main_queue: Queue::new(MAIN_QUEUE),
            ghost: Ghost::new(object_count, capacity_share(capacity, 0.5)),
            fresh_capacity: capacity_share(capacity, 0.25),
            capacity,
            weights,
        }
    }

    fn evict(&mut self) {
        let weights = self.weights;
        let weight_of = |id: u32| weights.of(id);
        if self.fresh_queue.weight() >= self.fresh_capacity || self.main_queue.count() == 0 {
            if let Some(id) = self.fresh_queue.pop(&mut self.locations, weight_of) {
                self.ghost.remember(id, weights);
            }
        } else {
            self.main_queue.pop(&mut self.locations, weight_of);
        }
    }
}

impl<W: Weights> Policy for TwoQ<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        match queue_of(self.locations[id as usize]) {
            FRESH_QUEUE => return true,
            MAIN_QUEUE => {
                self.main_queue.move_to_end(&mut self.locations, id);
                return true;
            }
            _ => {}
        }
        let weight = self.weights.of(id);
        let is_remembered = self.ghost.remove_if_present(id, weight);
        while self.fresh_queue.weight() + self.main_queue.weight() + weight > self.capacity {
            self.evict();
        }
        let queue = if is_remembered { &mut self.main_queue } else { &mut self.fresh_queue };
        queue.push(&mut self.locations, id, weight);
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}

impl<W: Weights> Removable for TwoQ<W> {
    fn remove(&mut self, id: u32) {
        let (locations, weight) = (&mut self.locations, self.weights.of(id));
        let _ = self.fresh_queue.remove(locations, id, weight)
            || self.main_queue.remove(locations, id, weight);
    }
}
