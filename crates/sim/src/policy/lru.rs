//! LRU without lists: the cache holds the objects used in a window of the trace.
//!
//! After request `at` an LRU cache holds the distinct objects of the longest window of requests, ending there, that
//! fits. So a request hits if the object's last use is within the window, and evicting moves the start of the window
//! past the next request whose object was not used again. With the links of the trace (`Links`), made once for all
//! sizes, both are sequential reads: no state by object at all.

use super::links::{Links, NEVER};
use super::{Policy, Weights};

/// An LRU cache.
pub(crate) struct Lru<'a, W> {
    ids: &'a [u32],
    links: &'a Links,
    weights: W,
    capacity: u64,
    /// First request of the window.
    start: u32,
    used: u64,
}

impl<'a, W: Weights> Lru<'a, W> {
    pub(crate) fn new(ids: &'a [u32], links: &'a Links, weights: W, capacity: u64) -> Self {
        Self {
            ids,
            links,
            weights,
            capacity,
            start: 0,
            used: 0,
        }
    }

    /// Moves the start past the least recently used object; `at` is the request that needs space.
    #[inline]
    fn evict(&mut self, at: u32) {
        loop {
            let start = self.start as usize;
            self.start += 1;
            // An object used again before now counts at its later use; one that never fitted does not count.
            if self.links.next[start] > at {
                let weight = self.weights.of(self.ids[start]);
                if weight <= self.capacity {
                    self.used -= weight;
                    return;
                }
            }
        }
    }
}

impl<W: Weights> Policy for Lru<'_, W> {
    #[inline]
    fn request(&mut self, at: u32, id: u32) -> bool {
        let previous = self.links.previous[at as usize];
        if previous != NEVER && previous >= self.start {
            return true;
        }
        let weight = self.weights.of(id);
        while self.used + weight > self.capacity {
            self.evict(at);
        }
        self.used += weight;
        false
    }
}
