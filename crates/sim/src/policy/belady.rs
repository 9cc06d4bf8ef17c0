//! Belady's optimum for objects of one size: evicts what is used again last.
//!
//! The cache is the set of positions at which its objects are used next (`Positions`): request `at` hits if `at` is
//! in the set, and the victim is the highest position. Objects never used again wait apart and go first. Nothing is
//! kept by object. Two forms, which differ by up to 0.01 on real traces: a miss must store, as in libCacheSim, or it
//! may pass the cache by, as in Caffeine's Clairvoyant and in Belady's own paper (IBM Systems Journal 1966).

use super::links::{Links, NEVER};
use super::positions::Positions;
use super::{Policy, Weights};

/// An optimal cache.
pub(crate) struct Belady<'a, W> {
    ids: &'a [u32],
    links: &'a Links,
    weights: W,
    capacity: u64,
    used: u64,
    next_uses: Positions,
    /// Objects in the cache that are never used again.
    done: Vec<u32>,
    may_bypass: bool,
}

impl<'a, W: Weights> Belady<'a, W> {
    pub(crate) fn new(
        ids: &'a [u32],
        links: &'a Links,
        weights: W,
        capacity: u64,
        may_bypass: bool,
    ) -> Self {
        let next_uses = Positions::new(ids.len());
        Self {
            ids,
            links,
            weights,
            capacity,
            used: 0,
            next_uses,
            done: Vec::new(),
            may_bypass,
        }
    }

    #[inline]
    fn evict(&mut self) {
        let victim = if let Some(id) = self.done.pop() {
            id
        } else {
            let Some(position) = self.next_uses.highest() else {
                return;
            };
            self.next_uses.remove(position);
            self.ids[position as usize]
        };
        self.used -= self.weights.of(victim);
    }

    #[inline]
    fn store(&mut self, at: u32, id: u32) {
        match self.links.next[at as usize] {
            NEVER => self.done.push(id),
            next => self.next_uses.insert(next),
        }
    }
}

impl<W: Weights> Policy for Belady<'_, W> {
    #[inline]
    fn request(&mut self, at: u32, id: u32) -> bool {
        if self.next_uses.contains(at) {
            self.next_uses.remove(at);
            self.store(at, id);
            return true;
        }
        let weight = self.weights.of(id);
        if self.may_bypass {
            // The newcomer competes with the others, and may be the one that goes.
            self.used += weight;
            self.store(at, id);
            while self.used > self.capacity {
                self.evict();
            }
        } else {
            while self.used + weight > self.capacity {
                self.evict();
            }
            self.used += weight;
            self.store(at, id);
        }
        false
    }
}
