//! A ghost: the objects that were evicted last, without their values, in the order of eviction.

use super::Weights;
use super::queue::{Locations, Queue};

/// Remembers up to `capacity` of evicted weight.
#[derive(Debug, Clone)]
pub(super) struct Ghost {
    locations: Locations,
    queue: Queue,
    capacity: u64,
}

impl Ghost {
    pub(super) fn new(object_count: usize, capacity: u64) -> Self {
        Self { locations: vec![0; object_count], queue: Queue::new(1), capacity }
    }

    /// Adds an object, and removes the oldest ones that no longer fit.
    pub(super) fn remember(&mut self, id: u32, weights: impl Weights) {
        let weight = weights.of(id);
        if weight > self.capacity {
            return;
        }
        while self.queue.weight() + weight > self.capacity {
            self.queue.pop(&mut self.locations, |id| weights.of(id));
        }
        self.queue.push(&mut self.locations, id, weight);
    }

    /// Changes what it remembers, and removes the oldest objects that no longer fit.
    pub(super) fn set_capacity(&mut self, capacity: u64, weights: impl Weights) {
        self.capacity = capacity;
        while self.queue.weight() > self.capacity {
            self.queue.pop(&mut self.locations, |id| weights.of(id));
        }
    }

    /// Forgets an object and returns whether it was remembered.
    #[inline]
    pub(super) fn remove_if_present(&mut self, id: u32, weight: u64) -> bool {
        let location = &mut self.locations[id as usize];
        if *location == 0 {
            return false;
        }
        *location = 0;
        self.queue.subtract_member(weight);
        true
    }
}
