//! SIEVE: a queue in insertion order, and a hand that moves from old to new and evicts unused objects.
//!
//! The queue is an array with holes: an evicted object leaves one, and the array is packed when it is full, so the
//! hand reads forward through memory where a list would jump (Zhang et al., NSDI 2024).

use super::{Policy, Removable, Weights};

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const USED: u8 = 2;

/// Marks a slot whose object was evicted; never an id because a trace has fewer requests.
const HOLE: u32 = u32::MAX;

/// A SIEVE cache.
pub(crate) struct Sieve<W> {
    states: Vec<u8>,
    /// Objects from old to new, with holes.
    queue: Vec<u32>,
    /// The slot of each object, if objects may be removed; else empty.
    slots: Vec<u32>,
    hand: usize,
    used_weight: u64,
    capacity: u64,
    weights: W,
}

impl<W: Weights> Sieve<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64) -> Self {
        Self {
            states: vec![ABSENT; object_count],
            queue: Vec::with_capacity(1024),
            slots: Vec::new(),
            hand: 0,
            used_weight: 0,
            capacity,
            weights,
        }
    }

    /// A cache from which objects can be removed.
    pub(crate) fn with_removal(object_count: usize, weights: W, capacity: u64) -> Self {
        Self { slots: vec![0; object_count], ..Self::new(object_count, weights, capacity) }
    }

    #[inline]
    fn evict(&mut self) {
        loop {
            if self.hand >= self.queue.len() {
                self.hand = 0;
            }
            let id = self.queue[self.hand];
            self.hand += 1;
            if id == HOLE {
                continue;
            }
            let state = &mut self.states[id as usize];
            if *state == PRESENT {
                *state = ABSENT;
                self.queue[self.hand - 1] = HOLE;
                self.used_weight -= self.weights.of(id);
                self.step_over_holes();
                return;
            }
            *state = PRESENT;
        }
    }

    /// Moves the hand to the next object, or to the oldest if there is no newer one: an object stored now is not
    /// next.
    #[inline]
    fn step_over_holes(&mut self) {
        while self.queue.get(self.hand) == Some(&HOLE) {
            self.hand += 1;
        }
        if self.hand >= self.queue.len() {
            self.hand = 0;
        }
    }

    #[inline]
    fn store(&mut self, id: u32) {
        if self.queue.len() == self.queue.capacity() {
            self.close_holes();
        }
        if let Some(slot) = self.slots.get_mut(id as usize) {
            *slot = self.queue.len() as u32;
        }
        self.queue.push(id);
    }

    /// Closes the holes; the array doubles if that leaves it more than half full.
    #[cold]
    fn close_holes(&mut self) {
        let old_capacity = self.queue.capacity();
        let hole_count = self.queue[..self.hand].iter().filter(|&&id| id == HOLE).count();
        self.hand -= hole_count;
        self.queue.retain(|&id| id != HOLE);
        if !self.slots.is_empty() {
            for (slot, &id) in self.queue.iter().enumerate() {
                self.slots[id as usize] = slot as u32;
            }
        }
        if self.queue.len() * 2 > old_capacity {
            self.queue.reserve_exact(old_capacity * 2 - self.queue.len());
        }
    }
}

impl<W: Weights> Policy for Sieve<W> {
    #[inline]
    fn request(&mut self, _: u32, id: u32) -> bool {
        let state = &mut self.states[id as usize];
        if *state != ABSENT {
            *state = USED;
            return true;
        }
        *state = PRESENT;
        let weight = self.weights.of(id);
        while self.used_weight + weight > self.capacity {
            self.evict();
        }
        self.used_weight += weight;
        self.store(id);
        false
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        ids.iter().fold(0, |sum, &id| sum ^ u32::from(self.states[id as usize]))
    }
}

impl<W: Weights> Removable for Sieve<W> {
    fn remove(&mut self, id: u32) {
        if self.states[id as usize] != ABSENT {
            self.states[id as usize] = ABSENT;
            self.used_weight -= self.weights.of(id);
            self.queue[self.slots[id as usize] as usize] = HOLE;
            self.step_over_holes();
        }
    }
}
