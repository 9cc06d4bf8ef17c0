//! Belady's optimum for objects of one size: evicts the object whose next use is furthest away.
//!
//! The cache is the set of positions at which its objects are used next (`BitmapTree`): request `at` hits if `at` is
//! in the set, and the victim is the highest position. Objects that are never used again are kept in a separate list
//! and evicted first. There is no state per object. Two forms, which differ by up to 0.01 on real traces: a miss must
//! store, as in libCacheSim, or may bypass the cache, as in Caffeine's Clairvoyant and in Belady's own paper (IBM
//! Systems Journal 1966).

use super::bitmap_tree::BitmapTree;
use super::links::{Links, NEVER};
use super::{Policy, Weights};

/// An optimal cache.
pub(crate) struct Belady<'a, W> {
    ids: &'a [u32],
    links: &'a Links,
    weights: W,
    capacity: u64,
    used: u64,
    next_uses: BitmapTree,
    /// Objects in the cache that are never used again.
    never_used_again: Vec<u32>,
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
        let next_uses = BitmapTree::new(ids.len());
        Self {
            ids,
            links,
            weights,
            capacity,
            used: 0,
            next_uses,
            never_used_again: Vec::new(),
            may_bypass,
        }
    }

    #[inline]
    fn evict(&mut self) {
        let victim = if let Some(id) = self.never_used_again.pop() {
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
            NEVER => self.never_used_again.push(id),
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
            // The new object competes with the others, and may itself be evicted.
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
