//! Least recently used, bounded in bytes: for values whose sizes differ much.

use super::queue::{Links, Queue};
use super::{Policy, Released};

/// Keeps the items used last, as many as fit into `capacity_bytes`; an item counts at least 1 byte.
#[derive(Debug)]
pub struct LruBytes {
    capacity_bytes: u64,
    used_bytes: u64,
    queue: Queue,
    links: Links,
    bytes_by_slot: Vec<u32>,
}

impl LruBytes {
    /// An empty cache of `capacity_bytes`; an item larger than that is never kept.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            used_bytes: 0,
            queue: Queue::default(),
            links: Links::default(),
            bytes_by_slot: Vec::new(),
        }
    }

    fn unlink(&mut self, slot: u32) {
        self.queue.unlink(&mut self.links, slot);
        self.used_bytes -= u64::from(self.bytes_by_slot[slot as usize]);
    }
}

impl Policy for LruBytes {
    fn contains(&self, slot: u32) -> bool {
        self.links.is_queued(slot)
    }

    fn get(&mut self, slot: u32) -> bool {
        self.queue.move_to_newest(&mut self.links, slot)
    }

    fn insert(
        &mut self,
        slot: u32,
        bytes: u32,
        on_release: &mut impl FnMut(u32, Released),
    ) -> bool {
        let bytes = bytes.max(1);
        if u64::from(bytes) > self.capacity_bytes {
            return false;
        }
        while self.used_bytes + u64::from(bytes) > self.capacity_bytes {
            let Some(oldest) = self.queue.oldest() else {
                break;
            };
            self.unlink(oldest);
            on_release(oldest, Released::Slot);
        }
        if slot as usize >= self.bytes_by_slot.len() {
            self.bytes_by_slot.resize(slot as usize + 1, 0);
        }
        self.bytes_by_slot[slot as usize] = bytes;
        self.used_bytes += u64::from(bytes);
        self.queue.push(&mut self.links, slot);
        true
    }

    fn remove(&mut self, slot: u32) {
        if self.links.is_queued(slot) {
            self.unlink(slot);
        }
    }

    fn clear(&mut self) {
        self.queue.clear(&mut self.links);
        self.used_bytes = 0;
    }
}
