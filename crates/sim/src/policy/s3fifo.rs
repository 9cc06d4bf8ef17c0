//! S3-FIFO: new objects enter a small queue, those used there move to the main queue, and a ghost remembers the rest.
//!
//! Small queue 10 % of the capacity, ghost 90 %, two uses to be promoted; the main queue is a Clock with counts up to
//! 3 (Yang et al., SOSP 2023). No object moves on a hit: one byte an object holds where it is and its uses.

use super::ghost::Ghost;
use super::queue::{Locations, Queue};
use super::{Policy, Removable, Weights, capacity_share};

/// Uses are the low bits of a state, counted up to 3.
const USES_MASK: u8 = 3;
const IN_SMALL: u8 = 4;
const IN_MAIN: u8 = 8;

/// Numbers of the queues in an object's location.
const SMALL_QUEUE: u32 = 1;
const MAIN_QUEUE: u32 = 2;

/// Uses in the small queue that move an object to the main queue.
const USES_TO_PROMOTE: u8 = 2;

/// An S3-FIFO cache.
pub(crate) struct S3Fifo<W> {
    states: Vec<u8>,
    locations: Locations,
    small_queue: Queue,
    main_queue: Queue,
    small_capacity: u64,
    capacity: u64,
    ghost: Ghost,
    has_evicted: bool,
    weights: W,
}

impl<W: Weights> S3Fifo<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            states: vec![0; object_count],
            locations: vec![0; object_count],
            small_queue: Queue::new(SMALL_QUEUE),
            main_queue: Queue::new(MAIN_QUEUE),
            small_capacity: capacity_share(capacity, 0.1),
            capacity,
            ghost: Ghost::new(object_count, capacity_share(capacity, 0.9)),
            has_evicted: false,
            weights,
        }
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        let main_capacity = self.capacity - self.small_capacity;
        if self.main_queue.weight() > main_capacity || self.small_queue.count() == 0 {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    /// Moves used objects to the main queue until one is evicted; if all were used, the caller calls again and evicts
    /// from the main queue.
    fn evict_from_small(&mut self) {
        let weights = self.weights;
        while let Some(id) = self.small_queue.pop(&mut self.locations, |id| weights.of(id)) {
            let state = &mut self.states[id as usize];
            if *state & USES_MASK < USES_TO_PROMOTE {
                *state = 0;
                self.ghost.remember(id, weights);
                return;
            }
            *state = IN_MAIN;
            self.main_queue.push(&mut self.locations, id, weights.of(id));
        }
    }

    fn evict_from_main(&mut self) {
        let weights = self.weights;
        while let Some(id) = self.main_queue.pop(&mut self.locations, |id| weights.of(id)) {
            let state = &mut self.states[id as usize];
            if *state & USES_MASK == 0 {
                *state = 0;
                return;
            }
            *state -= 1;
            self.main_queue.push(&mut self.locations, id, weights.of(id));
        }
    }

    fn store(&mut self, id: u32, weight: u64) {
        let is_remembered = self.ghost.remove_if_present(id, weight);
        while self.small_queue.weight() + self.main_queue.weight() + weight > self.capacity {
            self.evict();
        }
        // Before the first eviction a full small queue has no information about its objects, so new ones go to the
        // main queue.
        let is_filling = !self.has_evicted && self.small_queue.weight() >= self.small_capacity;
        if is_remembered || is_filling {
            self.states[id as usize] = IN_MAIN;
            self.main_queue.push(&mut self.locations, id, weight);
        } else {
            self.states[id as usize] = IN_SMALL;
            self.small_queue.push(&mut self.locations, id, weight);
        }
    }
}

impl<W: Weights> Policy for S3Fifo<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        let state = &mut self.states[id as usize];
        if *state != 0 {
            *state += u8::from(*state & USES_MASK < USES_MASK);
            return true;
        }
        self.store(id, self.weights.of(id));
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ u32::from(self.states[id as usize]))
    }
}

impl<W: Weights> Removable for S3Fifo<W> {
    fn remove(&mut self, id: u32) {
        let (locations, weight) = (&mut self.locations, self.weights.of(id));
        if self.small_queue.remove(locations, id, weight)
            || self.main_queue.remove(locations, id, weight)
        {
            self.states[id as usize] = 0;
        }
    }
}
