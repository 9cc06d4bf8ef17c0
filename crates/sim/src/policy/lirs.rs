//! LIRS: keeps the objects whose last two uses lay closest together, and tries the others in a hundredth of the room.
//!
//! Two orders, as in the paper (Jiang and Zhang, SIGMETRICS 2002): the stack, by last use, of the low ("LIR") objects
//! and of all others used since the oldest of them; and the trial queue of the others that are in the cache. The
//! stack is cut at its lower end down to a LIR object, so an object still in it was used again sooner than that one.
//! Objects that left the cache but not the stack are bounded to twice the capacity.

use super::queue::{Queue, Words};
use super::{Policy, Weights, share};

/// In the cache, protected.
const LIR: u8 = 1;
/// In the cache, on trial.
const TRIAL: u8 = 2;
/// Left the cache; remembered while in the stack.
const GONE: u8 = 3;

/// A LIRS cache.
pub(crate) struct Lirs<W> {
    states: Vec<u8>,
    stack_words: Words,
    stack: Queue,
    /// The trial queue, and the queue of those gone: an object is in one of the two at most.
    words: Words,
    trial: Queue,
    gone: Queue,
    lir_used: u64,
    lir_capacity: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Lirs<W> {
    pub(crate) fn new(distinct: usize, weights: W, capacity: u64) -> Self {
        Self {
            states: vec![0; distinct],
            stack_words: vec![0; distinct],
            stack: Queue::new(1),
            words: vec![0; distinct],
            trial: Queue::new(1),
            gone: Queue::new(2),
            lir_used: 0,
            lir_capacity: capacity.saturating_sub(share(capacity, 0.01)).max(1),
            capacity,
            weights,
        }
    }

    /// Puts an object on top of the stack.
    #[inline]
    fn lift(&mut self, id: u32) {
        if self.stack_words[id as usize] == 0 {
            self.stack.push(&mut self.stack_words, id, 1);
        } else {
            self.stack.renew(&mut self.stack_words, id);
        }
    }

    /// Cuts the stack down to its lowest LIR object.
    #[inline]
    fn cut(&mut self) {
        while let Some(id) = self.stack.peek(&self.stack_words) {
            match self.states[id as usize] {
                LIR => return,
                GONE => self.forget(id),
                _ => {
                    self.stack.pop(&mut self.stack_words, |_| 1);
                }
            }
        }
    }

    /// Forgets an object that left the cache.
    fn forget(&mut self, id: u32) {
        self.states[id as usize] = 0;
        self.gone.leave(1);
        self.words[id as usize] = 0;
        self.stack.leave(1);
        self.stack_words[id as usize] = 0;
    }

    /// Turns the lowest LIR objects into objects on trial until the others fit.
    fn demote(&mut self) {
        while self.lir_used > self.lir_capacity {
            self.cut();
            let Some(id) = self.stack.pop(&mut self.stack_words, |_| 1) else {
                return;
            };
            let weight = self.weights.of(id);
            self.lir_used -= weight;
            self.states[id as usize] = TRIAL;
            self.trial.push(&mut self.words, id, weight);
        }
        self.cut();
    }

    /// Evicts the object that has been on trial longest.
    fn evict(&mut self) {
        let weights = self.weights;
        let Some(id) = self.trial.pop(&mut self.words, |id| weights.of(id)) else {
            // Nothing is on trial: the lowest LIR object is tried and goes at the next step.
            self.lir_capacity_shrunk();
            return;
        };
        if self.stack_words[id as usize] == 0 {
            self.states[id as usize] = 0;
            return;
        }
        self.states[id as usize] = GONE;
        self.gone.push(&mut self.words, id, 1);
        if u64::from(self.gone.count()) > 2 * u64::from(self.stack.count() - self.gone.count()) + 2
            && let Some(oldest) = self.gone.peek(&self.words)
        {
            self.forget(oldest);
        }
    }

    fn lir_capacity_shrunk(&mut self) {
        let full = self.lir_capacity;
        self.lir_capacity = self.lir_used.saturating_sub(1);
        self.demote();
        self.lir_capacity = full;
    }

    fn promote(&mut self, id: u32, weight: u64) {
        self.states[id as usize] = LIR;
        self.lir_used += weight;
        self.lift(id);
        self.demote();
    }

    /// A hit on trial: protected if its last use is still in the stack.
    fn hit_on_trial(&mut self, id: u32) {
        if self.stack_words[id as usize] == 0 {
            self.lift(id);
            self.trial.renew(&mut self.words, id);
            return;
        }
        let weight = self.weights.of(id);
        self.trial.leave(weight);
        self.words[id as usize] = 0;
        self.promote(id, weight);
    }

    fn miss(&mut self, id: u32) {
        let weight = self.weights.of(id);
        let is_known = self.states[id as usize] == GONE;
        if is_known {
            self.gone.leave(1);
            self.words[id as usize] = 0;
            self.states[id as usize] = 0;
        }
        while self.lir_used + self.trial.weight() + weight > self.capacity {
            self.evict();
        }
        let has_room = self.lir_used + weight <= self.lir_capacity && self.trial.count() == 0;
        if is_known || has_room {
            self.promote(id, weight);
        } else {
            self.states[id as usize] = TRIAL;
            self.lift(id);
            self.trial.push(&mut self.words, id, weight);
        }
    }
}

impl<W: Weights> Policy for Lirs<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        match self.states[id as usize] {
            LIR => {
                let is_lowest = self.stack.peek(&self.stack_words) == Some(id);
                self.stack.renew(&mut self.stack_words, id);
                if is_lowest {
                    self.cut();
                }
                true
            }
            TRIAL => {
                self.hit_on_trial(id);
                true
            }
            _ => {
                self.miss(id);
                false
            }
        }
    }

    fn warm(&self, ids: &[u32]) -> u32 {
        ids.iter()
            .fold(0, |sum, &id| sum ^ self.stack_words[id as usize])
    }
}
