//! 2Q: new objects enter a FIFO of a quarter; objects requested again after they left it enter the LRU.
//!
//! The ghost of objects evicted from the FIFO holds half the capacity (Johnson and Shasha, VLDB 1994, full version).

use super::ghost::Ghost;
use super::queue::{Locations, Queue, queue_of};
use super::{Policy, Removable, Weights, share};

const FRESH: u32 = 1;
const MAIN: u32 = 2;

/// A 2Q cache.
pub(crate) struct TwoQ<W> {
    locations: Locations,
    fresh: Queue,
    main: Queue,
    ghost: Ghost,
    fresh_capacity: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> TwoQ<W> {
    pub(crate) fn new(distinct: usize, weights: W, capacity: u64) -> Self {
        Self {
            locations: vec![0; distinct],
            fresh: Queue::new(FRESH),
            main: Queue::new(MAIN),
            ghost: Ghost::new(distinct, share(capacity, 0.5)),
            fresh_capacity: share(capacity, 0.25),
            capacity,
            weights,
        }
    }

    fn evict(&mut self) {
        let weights = self.weights;
        let weight = |id: u32| weights.of(id);
        if self.fresh.weight() >= self.fresh_capacity || self.main.count() == 0 {
            if let Some(id) = self.fresh.pop(&mut self.locations, weight) {
                self.ghost.remember(id, weights);
            }
        } else {
            self.main.pop(&mut self.locations, weight);
        }
    }
}

impl<W: Weights> Policy for TwoQ<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        match queue_of(self.locations[id as usize]) {
            FRESH => return true,
            MAIN => {
                self.main.move_to_end(&mut self.locations, id);
                return true;
            }
            _ => {}
        }
        let weight = self.weights.of(id);
        let is_remembered = self.ghost.remove_if_present(id, weight);
        while self.fresh.weight() + self.main.weight() + weight > self.capacity {
            self.evict();
        }
        let queue = if is_remembered {
            &mut self.main
        } else {
            &mut self.fresh
        };
        queue.push(&mut self.locations, id, weight);
        false
    }

    fn prefetch(&self, ids: &[u32]) -> u32 {
        ids.iter()
            .fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}

impl<W: Weights> Removable for TwoQ<W> {
    fn remove(&mut self, id: u32) {
        let weight = self.weights.of(id);
        match queue_of(self.locations[id as usize]) {
            FRESH => self.fresh.note_removed(weight),
            MAIN => self.main.note_removed(weight),
            _ => return,
        }
        self.locations[id as usize] = 0;
    }
}
