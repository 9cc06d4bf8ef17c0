//! LRU without lists: the cache holds the objects used in a window of the trace.
//!
//! After request `position` an LRU cache holds the distinct objects of the longest window of requests, ending there, that
//! fits. So a request hits if the object's last use is within the window, and evicting moves the start of the window
//! past the next request whose object was not used again. With the links of the trace (`RequestLinks`), made once for all
//! sizes, both are sequential reads: no state by object at all.

use super::links::{NEVER, RequestLinks};
use super::{Policy, Weights};

/// An LRU cache.
pub(crate) struct Lru<'a, W> {
    ids: &'a [u32],
    links: &'a RequestLinks,
    weights: W,
    capacity: u64,
    /// First request of the window.
    window_start: u32,
    used_weight: u64,
}

impl<'a, W: Weights> Lru<'a, W> {
    pub(crate) fn new(ids: &'a [u32], links: &'a RequestLinks, weights: W, capacity: u64) -> Self {
        Self { ids, links, weights, capacity, window_start: 0, used_weight: 0 }
    }

    /// Moves the start past the least recently used object; `position` is the request that needs space.
    #[inline]
    fn evict(&mut self, position: u32) {
        loop {
            let oldest_request = self.window_start as usize;
            self.window_start += 1;
            // An object used again before now counts at its later use; one that never fitted does not count.
            if self.links.next[oldest_request] > position {
                let weight = self.weights.of(self.ids[oldest_request]);
                if weight <= self.capacity {
                    self.used_weight -= weight;
                    return;
                }
            }
        }
    }
}

impl<W: Weights> Policy for Lru<'_, W> {
    #[inline]
    fn request(&mut self, position: u32, id: u32) -> bool {
        let previous = self.links.previous[position as usize];
        if previous != NEVER && previous >= self.window_start {
            return true;
        }
        let weight = self.weights.of(id);
        while self.used_weight + weight > self.capacity {
            self.evict(position);
        }
        self.used_weight += weight;
        false
    }
}
