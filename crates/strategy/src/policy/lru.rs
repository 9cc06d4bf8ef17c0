//! Least recently used, bounded in items: the policy that everything else is compared with.

use super::queue::{Links, Queue};
use super::{Gone, Policy};

/// Keeps the `capacity` items used last.
#[derive(Debug)]
pub struct Lru {
    capacity: usize,
    queue: Queue,
    links: Links,
}

impl Lru {
    /// An empty cache of `capacity` items; 0 keeps nothing.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            queue: Queue::default(),
            links: Links::default(),
        }
    }
}

impl Policy for Lru {
    fn contains(&self, slot: u32) -> bool {
        self.links.is_queued(slot)
    }

    fn get(&mut self, slot: u32) -> bool {
        self.queue.renew(&mut self.links, slot)
    }

    fn insert(&mut self, slot: u32, _bytes: u32, gone: &mut impl FnMut(u32, Gone)) -> bool {
        if self.capacity == 0 {
            return false;
        }
        if self.queue.len() == self.capacity
            && let Some(oldest) = self.queue.pop(&mut self.links)
        {
            gone(oldest, Gone::Slot);
        }
        self.queue.push(&mut self.links, slot);
        true
    }

    fn remove(&mut self, slot: u32) {
        if self.links.is_queued(slot) {
            self.queue.unlink(&mut self.links, slot);
        }
    }

    fn clear(&mut self) {
        self.queue.clear(&mut self.links);
    }
}
