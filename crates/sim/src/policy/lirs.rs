//! LIRS: keeps the objects whose last two uses were closest together; the others share a hundredth of the capacity.
//!
//! Two orders, as in the paper (Jiang and Zhang, SIGMETRICS 2002): the stack, by last use, of the low ("LIR") objects
//! and of all others used since the oldest of them; and the trial queue of the others that are in the cache. The
//! stack is cut at its lower end down to a LIR object, so an object still in it was used again sooner than that one.
//! Objects that left the cache but not the stack are bounded to twice the capacity.

use super::queue::{Locations, Queue};
use super::{Policy, Removable, Weights, capacity_share};

/// Neither in the cache nor remembered.
const ABSENT: u8 = 0;
/// In the cache, protected.
const LIR: u8 = 1;
/// In the cache, on trial ("resident HIR" in the paper).
const TRIAL: u8 = 2;
/// Evicted, but remembered while in the stack.
const NON_RESIDENT: u8 = 3;

/// A LIRS cache.
pub(crate) struct Lirs<W> {
    states: Vec<u8>,
    stack_locations: Locations,
    stack: Queue,
    /// The trial queue and the queue of non-resident objects: an object is in at most one of the two.
    queue_locations: Locations,
    trial_queue: Queue,
    non_resident_queue: Queue,
    lir_weight: u64,
    lir_capacity: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Lirs<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            states: vec![ABSENT; object_count],
            stack_locations: vec![0; object_count],
            stack: Queue::new(1),
            queue_locations: vec![0; object_count],
            trial_queue: Queue::new(1),
            non_resident_queue: Queue::new(2),
            lir_weight: 0,
            lir_capacity: capacity.saturating_sub(capacity_share(capacity, 0.01)).max(1),
            capacity,
            weights,
        }
    }

    /// Moves an object to the top of the stack.
    #[inline]
    fn push_to_top(&mut self, id: u32) {
        if self.stack_locations[id as usize] == 0 {
            self.stack.push(&mut self.stack_locations, id, 1);
        } else {
            self.stack.move_to_end(&mut self.stack_locations, id);
        }
    }

    /// Prunes the stack down to its lowest LIR object.
    #[inline]
    fn prune_stack(&mut self) {
        while let Some(id) = self.stack.peek(&self.stack_locations) {
            match self.states[id as usize] {
                LIR => return,
                NON_RESIDENT => self.forget(id),
                _ => {
                    self.stack.pop(&mut self.stack_locations, |_| 1);
                }
            }
        }
    }

    /// Forgets a non-resident object.
    fn forget(&mut self, id: u32) {
        self.states[id as usize] = ABSENT;
        self.non_resident_queue.subtract_member(1);
        self.queue_locations[id as usize] = 0;
        self.stack.subtract_member(1);
        self.stack_locations[id as usize] = 0;
    }

    /// Demotes the lowest LIR objects to trial objects until the others fit.
    fn demote(&mut self) {
        while self.lir_weight > self.lir_capacity {
            self.prune_stack();
            let Some(id) = self.stack.pop(&mut self.stack_locations, |_| 1) else {
                return;
            };
            let weight = self.weights.of(id);
            self.lir_weight -= weight;
            self.states[id as usize] = TRIAL;
            self.trial_queue.push(&mut self.queue_locations, id, weight);
        }
        self.prune_stack();
    }

    /// Evicts the object that has been on trial longest.
    fn evict(&mut self) {
        let weights = self.weights;
        let Some(id) = self.trial_queue.pop(&mut self.queue_locations, |id| weights.of(id)) else {
            // Nothing is on trial: the lowest LIR object becomes a trial object and is evicted at the next step.
            self.demote_lowest_lir();
            return;
        };
        if self.stack_locations[id as usize] == 0 {
            self.states[id as usize] = ABSENT;
            return;
        }
        self.states[id as usize] = NON_RESIDENT;
        self.non_resident_queue.push(&mut self.queue_locations, id, 1);
        if u64::from(self.non_resident_queue.count())
            > 2 * u64::from(self.stack.count() - self.non_resident_queue.count()) + 2
            && let Some(oldest) = self.non_resident_queue.peek(&self.queue_locations)
        {
            self.forget(oldest);
        }
    }

    fn demote_lowest_lir(&mut self) {
        let lir_capacity = self.lir_capacity;
        self.lir_capacity = self.lir_weight.saturating_sub(1);
        self.demote();
        self.lir_capacity = lir_capacity;
    }

    fn promote(&mut self, id: u32, weight: u64) {
        self.states[id as usize] = LIR;
        self.lir_weight += weight;
        self.push_to_top(id);
        self.demote();
    }

    /// A hit on trial: protected if its last use is still in the stack.
    fn handle_trial_hit(&mut self, id: u32) {
        if self.stack_locations[id as usize] == 0 {
            self.push_to_top(id);
            self.trial_queue.move_to_end(&mut self.queue_locations, id);
            return;
        }
        let weight = self.weights.of(id);
        self.trial_queue.subtract_member(weight);
        self.queue_locations[id as usize] = 0;
        self.promote(id, weight);
    }

    fn handle_miss(&mut self, id: u32) {
        let weight = self.weights.of(id);
        let is_non_resident = self.states[id as usize] == NON_RESIDENT;
        if is_non_resident {
            self.non_resident_queue.subtract_member(1);
            self.queue_locations[id as usize] = 0;
            self.states[id as usize] = ABSENT;
        }
        while self.lir_weight + self.trial_queue.weight() + weight > self.capacity {
            self.evict();
        }
        let has_room =
            self.lir_weight + weight <= self.lir_capacity && self.trial_queue.count() == 0;
        if is_non_resident || has_room {
            self.promote(id, weight);
        } else {
            self.states[id as usize] = TRIAL;
            self.push_to_top(id);
            self.trial_queue.push(&mut self.queue_locations, id, weight);
        }
    }
}

impl<W: Weights> Policy for Lirs<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        match self.states[id as usize] {
            LIR => {
                let is_lowest = self.stack.peek(&self.stack_locations) == Some(id);
                self.stack.move_to_end(&mut self.stack_locations, id);
                if is_lowest {
                    self.prune_stack();
                }
                true
            }
            TRIAL => {
                self.handle_trial_hit(id);
                true
            }
            _ => {
                self.handle_miss(id);
                false
            }
        }
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.stack_locations[id as usize])
    }
}

impl<W: Weights> Removable for Lirs<W> {
    fn remove(&mut self, id: u32) {
        let weight = self.weights.of(id);
        match self.states[id as usize] {
            LIR => self.lir_weight -= weight,
            TRIAL => {
                self.trial_queue.subtract_member(weight);
                self.queue_locations[id as usize] = 0;
            }
            _ => return,
        }
        self.states[id as usize] = ABSENT;
        if self.stack_locations[id as usize] != 0 {
            self.stack.subtract_member(1);
            self.stack_locations[id as usize] = 0;
            self.prune_stack();
        }
    }
}
