//! W-TinyLFU: a window of a hundredth, then a segmented LRU that admits an object if it is used more than its
//! victims.
//!
//! Uses of the recent past are counted for every object, up to 15, and halved after ten times as many requests as the
//! cache holds objects (Einziger, Friedman and Manes, 2017). The counts are exact, one byte an object, where a cache
//! has a sketch: the sketch's collisions are what this model leaves out.

use super::queue::{Locations, Queue, queue_of};
use super::{Policy, Removable, Weights, capacity_share};

const WINDOW: u32 = 1;
const PROBATION: u32 = 2;
const PROTECTED: u32 = 3;

/// Uses are counted up to this, as in a sketch of four bits.
const USES_MAX: u8 = 15;

/// A W-TinyLFU cache.
pub(crate) struct TinyLfu<W> {
    locations: Locations,
    uses: Vec<u8>,
    window: Queue,
    probation: Queue,
    protected: Queue,
    window_capacity: u64,
    protected_capacity: u64,
    capacity: u64,
    /// Requests until the counts are halved.
    requests_until_halving: u64,
    weights: W,
}

impl<W: Weights> TinyLfu<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        let window_capacity = capacity_share(capacity, 0.01);
        Self {
            locations: vec![0; object_count],
            uses: vec![0; object_count],
            window: Queue::new(WINDOW),
            probation: Queue::new(PROBATION),
            protected: Queue::new(PROTECTED),
            window_capacity,
            protected_capacity: capacity_share(capacity.saturating_sub(window_capacity), 0.8),
            capacity,
            requests_until_halving: 1000,
            weights,
        }
    }

    #[inline]
    fn record_use(&mut self, id: u32) {
        let uses = &mut self.uses[id as usize];
        *uses += u8::from(*uses < USES_MAX);
        self.requests_until_halving -= 1;
        if self.requests_until_halving == 0 {
            self.halve_uses();
        }
    }

    #[cold]
    fn halve_uses(&mut self) {
        for uses in &mut self.uses {
            *uses /= 2;
        }
        let object_count = self.window.count() + self.probation.count() + self.protected.count();
        self.requests_until_halving = 10 * u64::from(object_count).max(100);
    }

    /// Moves an object from probation to the protected queue, and demotes protected objects that no longer fit.
    fn protect(&mut self, id: u32) {
        let weights = self.weights;
        let weight = weights.of(id);
        self.probation.subtract_member(weight);
        self.protected.push(&mut self.locations, id, weight);
        while self.protected.weight() > self.protected_capacity {
            let Some(demoted) = self.protected.pop(&mut self.locations, |id| weights.of(id)) else {
                return;
            };
            self.probation.push(&mut self.locations, demoted, weights.of(demoted));
        }
    }

    /// Objects evicted from the window are candidates for admission.
    fn shrink_window(&mut self) {
        let weights = self.weights;
        while self.window.weight() > self.window_capacity {
            let Some(candidate) = self.window.pop(&mut self.locations, |id| weights.of(id)) else {
                return;
            };
            self.admit(candidate);
        }
    }

    /// Evicts objects that are used less until the candidate has space, and admits it.
    ///
    /// The first object that is used as often ends this without the candidate; those evicted before it stay evicted.
    fn admit(&mut self, candidate: u32) {
        let weights = self.weights;
        let weight = weights.of(candidate);
        let main_capacity = self.capacity - self.window_capacity.min(self.capacity);
        if weight > main_capacity {
            return;
        }
        while self.probation.weight() + self.protected.weight() + weight > main_capacity {
            let queue =
                if self.probation.count() > 0 { &mut self.probation } else { &mut self.protected };
            let Some(victim) = queue.peek(&self.locations) else {
                return;
            };
            if self.uses[candidate as usize] <= self.uses[victim as usize] {
                return;
            }
            queue.pop(&mut self.locations, |id| weights.of(id));
        }
        self.probation.push(&mut self.locations, candidate, weight);
    }
}

impl<W: Weights> Policy for TinyLfu<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        self.record_use(id);
        match queue_of(self.locations[id as usize]) {
            WINDOW => self.window.move_to_end(&mut self.locations, id),
            PROBATION => self.protect(id),
            PROTECTED => self.protected.move_to_end(&mut self.locations, id),
            _ => {
                let weight = self.weights.of(id);
                self.window.push(&mut self.locations, id, weight);
                self.shrink_window();
                return false;
            }
        }
        true
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.locations[id as usize])
    }
}

impl<W: Weights> Removable for TinyLfu<W> {
    fn remove(&mut self, id: u32) {
        let (locations, weight) = (&mut self.locations, self.weights.of(id));
        let _ = self.window.remove(locations, id, weight)
            || self.probation.remove(locations, id, weight)
            || self.protected.remove(locations, id, weight);
    }
}
