//! GDSF: evicts the lowest uses / size, raised by the priority of what was evicted last, so that old uses fade.
//!
//! A binary heap whose entries may be stale: a hit only raises the object's priority in its array, and a stale entry
//! at the top of the heap is reinserted with the current priority (Cherkasova, 1998).

use super::{Policy, Removable, Weights};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Value of one use of an object of weight 1: priorities are whole numbers, and sizes up to this are distinguished.
const SCALE: u64 = 1 << 32;

/// A GDSF cache.
pub(crate) struct Gdsf<W> {
    /// The priority of each object in the cache; 0 for others.
    priorities: Vec<u64>,
    uses: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Priority of the object evicted last.
    inflation: u64,
    used_weight: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Gdsf<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            priorities: vec![0; object_count],
            uses: vec![0; object_count],
            heap: BinaryHeap::new(),
            inflation: 0,
            used_weight: 0,
            capacity,
            weights,
        }
    }

    fn evict(&mut self) {
        while let Some(mut top) = self.heap.peek_mut() {
            let Reverse((priority, id)) = *top;
            let current_priority = self.priorities[id as usize];
            if current_priority == priority {
                std::collections::binary_heap::PeekMut::pop(top);
                self.priorities[id as usize] = 0;
                self.inflation = priority;
                self.used_weight -= self.weights.of(id);
                return;
            }
            if current_priority == 0 {
                // Removed since; if it is stored again, it has another entry.
                std::collections::binary_heap::PeekMut::pop(top);
                continue;
            }
            // Writing through the guard sifts the entry down once instead of a pop and a push.
            *top = Reverse((current_priority, id));
        }
    }

    #[inline]
    fn raise_priority(&mut self, id: u32) {
        let uses = &mut self.uses[id as usize];
        *uses += 1;
        let priority_gain = u64::from(*uses) * SCALE / self.weights.of(id);
        self.priorities[id as usize] = self.inflation + priority_gain.max(1);
    }
}

impl<W: Weights> Policy for Gdsf<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        if self.priorities[id as usize] != 0 {
            self.raise_priority(id);
            return true;
        }
        let weight = self.weights.of(id);
        while self.used_weight + weight > self.capacity {
            self.evict();
        }
        self.used_weight += weight;
        self.uses[id as usize] = 0;
        self.raise_priority(id);
        self.heap.push(Reverse((self.priorities[id as usize], id)));
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ self.priorities[id as usize] as u32)
    }
}

impl<W: Weights> Removable for Gdsf<W> {
    fn remove(&mut self, id: u32) {
        if self.priorities[id as usize] != 0 {
            self.priorities[id as usize] = 0;
            self.used_weight -= self.weights.of(id);
        }
    }
}
