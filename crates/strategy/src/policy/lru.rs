//! Least recently used, bounded in items: the baseline for all other policies.

use super::queue::{Links, Queue};
use super::{Policy, Released};

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
        Self { capacity, queue: Queue::default(), links: Links::default() }
    }
}

impl Policy for Lru {
    fn contains(&self, slot: u32) -> bool {
        self.links.is_queued(slot)
    }

    fn get(&mut self, slot: u32) -> bool {
        self.queue.move_to_newest(&mut self.links, slot)
    }

    fn insert(
        &mut self,
        slot: u32,
        _bytes: u32,
        on_release: &mut impl FnMut(u32, Released),
    ) -> bool {
        if self.capacity == 0 {
            return false;
        }
        if self.queue.len() == self.capacity
            && let Some(oldest) = self.queue.pop(&mut self.links)
        {
            on_release(oldest, Released::Slot);
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
