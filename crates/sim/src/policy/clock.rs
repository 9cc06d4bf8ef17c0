//! Clock with one bit: FIFO in which an object that was used since its last inspection gets a second chance.

use super::ring::Ring;
use super::{Policy, Weights};

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const USED: u8 = 2;

/// A Clock cache.
pub(crate) struct Clock<W> {
    states: Vec<u8>,
    ring: Ring,
    used: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Clock<W> {
    pub(crate) fn new(distinct: usize, weights: W, capacity: u64) -> Self {
        Self {
            states: vec![ABSENT; distinct],
            ring: Ring::new(),
            used: 0,
            capacity,
            weights,
        }
    }

    #[inline]
    fn evict(&mut self) {
        while let Some(id) = self.ring.pop() {
            let state = &mut self.states[id as usize];
            if *state == PRESENT {
                *state = ABSENT;
                self.used -= self.weights.of(id);
                return;
            }
            *state = PRESENT;
            self.ring.push(id);
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
        while self.used + weight > self.capacity {
            self.evict();
        }
        self.used += weight;
        self.ring.push(id);
        false
    }

    fn prefetch(&self, ids: &[u32]) -> u32 {
        ids.iter()
            .fold(0, |sum, &id| sum ^ u32::from(self.states[id as usize]))
    }
}
