//! Clock with one bit: FIFO in which an object that was used since its last inspection gets a second chance.

use super::queue::{Locations, Queue};
use super::{Policy, Removable, Weights};

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const USED: u8 = 2;

/// A Clock cache.
pub(crate) struct Clock<W> {
    states: Vec<u8>,
    locations: Locations,
    queue: Queue,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Clock<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            states: vec![ABSENT; object_count],
            locations: vec![0; object_count],
            queue: Queue::new(1),
            capacity,
            weights,
        }
    }

    #[inline]
    fn evict(&mut self) {
        let weights = self.weights;
        while let Some(id) = self.queue.pop(&mut self.locations, |id| weights.of(id)) {
            let state = &mut self.states[id as usize];
            if *state == PRESENT {
                *state = ABSENT;
                return;
            }
            *state = PRESENT;
            self.queue.push(&mut self.locations, id, weights.of(id));
        }
    }
}

impl<W: Weights> Policy for Clock<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        let state = &mut self.states[id as usize];
        if *state != ABSENT {
            *state = USED;
            return true;
        }
        *state = PRESENT;
        let weight = self.weights.of(id);
        while self.queue.weight() + weight > self.capacity {
            self.evict();
        }
        self.queue.push(&mut self.locations, id, weight);
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ u32::from(self.states[id as usize]))
    }
}

impl<W: Weights> Removable for Clock<W> {
    fn remove(&mut self, id: u32) {
        if self.states[id as usize] != ABSENT {
            self.states[id as usize] = ABSENT;
            self.queue.subtract_member(self.weights.of(id));
            self.locations[id as usize] = 0;
        }
    }
}
