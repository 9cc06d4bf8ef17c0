//! Belady's optimum for objects of one size: evicts the object whose next use is furthest away.
//!
//! The cache is the set of positions at which its objects are used next (`BitmapTree`): request `position` hits if `position` is
//! in the set, and the victim is the highest position. Objects that are never used again are kept in a separate list
//! and evicted first. There is no state per object. Two forms, which differ by up to 0.01 on real traces: a miss must
//! store, as in libCacheSim, or may bypass the cache, as in Caffeine's Clairvoyant and in Belady's own paper (IBM
//! Systems Journal 1966).

use super::bitmap_tree::BitmapTree;
use super::links::{NEVER, RequestLinks};
use super::{Policy, Removable, Weights};

/// An optimal cache.
pub(crate) struct Belady<'a, W> {
    ids: &'a [u32],
    links: &'a RequestLinks,
    weights: W,
    capacity: u64,
    used_weight: u64,
    next_use_positions: BitmapTree,
    /// Objects in the cache that are never used again.
    never_used_again: Vec<u32>,
    may_bypass: bool,
    /// The next use of each object in the cache, if objects may be removed; else empty.
    next_use_by_id: Vec<u32>,
}

/// Marks an object that is not in the cache; a trace has fewer requests.
const ABSENT: u32 = u32::MAX - 1;

impl<'a, W: Weights> Belady<'a, W> {
    pub(crate) fn new(
        ids: &'a [u32],
        links: &'a RequestLinks,
        weights: W,
        capacity: u64,
        may_bypass: bool,
    ) -> Self {
        let next_use_positions = BitmapTree::new(ids.len());
        Self {
            ids,
            links,
            weights,
            capacity,
            used_weight: 0,
            next_use_positions,
            never_used_again: Vec::new(),
            may_bypass,
            next_use_by_id: Vec::new(),
        }
    }

    /// A cache of up to `object_count` objects, from which they can be removed.
    pub(crate) fn with_removal(self, object_count: usize) -> Self {
        Self { next_use_by_id: vec![ABSENT; object_count], ..self }
    }

    /// The last object in the cache that is never used again.
    #[inline]
    fn pop_never_used_again(&mut self) -> Option<u32> {
        loop {
            let id = self.never_used_again.pop()?;
            if self.next_use_by_id.get(id as usize) != Some(&ABSENT) {
                return Some(id);
            }
        }
    }

    #[inline]
    fn set_next_use(&mut self, id: u32, next: u32) {
        if let Some(known_next) = self.next_use_by_id.get_mut(id as usize) {
            *known_next = next;
        }
    }

    #[inline]
    fn evict(&mut self) {
        let victim = if let Some(id) = self.pop_never_used_again() {
            id
        } else {
            let Some(position) = self.next_use_positions.highest() else {
                return;
            };
            self.next_use_positions.remove(position);
            self.ids[position as usize]
        };
        self.set_next_use(victim, ABSENT);
        self.used_weight -= self.weights.of(victim);
    }

    #[inline]
    fn store(&mut self, position: u32, id: u32) {
        self.set_next_use(id, self.links.next[position as usize]);
        match self.links.next[position as usize] {
            NEVER => self.never_used_again.push(id),
            next => self.next_use_positions.insert(next),
        }
    }
}

impl<W: Weights> Policy for Belady<'_, W> {
    #[inline]
    fn request(&mut self, position: u32, id: u32) -> bool {
        if self.next_use_positions.contains(position) {
            self.next_use_positions.remove(position);
            self.store(position, id);
            return true;
        }
        let weight = self.weights.of(id);
        if self.may_bypass {
            // The new object competes with the others, and may itself be evicted.
            self.used_weight += weight;
            self.store(position, id);
            while self.used_weight > self.capacity {
                self.evict();
            }
        } else {
            while self.used_weight + weight > self.capacity {
                self.evict();
            }
            self.used_weight += weight;
            self.store(position, id);
        }
        false
    }
}

impl<W: Weights> Removable for Belady<'_, W> {
    fn remove(&mut self, id: u32) {
        let next = std::mem::replace(&mut self.next_use_by_id[id as usize], ABSENT);
        if next == ABSENT {
            return;
        }
        self.used_weight -= self.weights.of(id);
        if next != NEVER {
            self.next_use_positions.remove(next);
        }
    }
}
