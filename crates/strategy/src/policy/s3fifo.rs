//! S3-FIFO, bounded in items: most items are used once, and leave early through a small queue.
//!
//! Yang, Zhang, Qiu, Yue, Vinayak: "FIFO queues are all you need for cache eviction", SOSP 2023.
//! A newcomer enters the small queue (a tenth of the cache). When room is needed and the small queue
//! is at its share, its oldest item moves to the main queue if it was used at least twice since, else
//! it leaves and the ghost queue remembers it. The main queue gives its oldest another round for each
//! use, up to three. A newcomer that the ghost queue remembers enters the main queue at once.
//! A hit only counts, up to 3: nothing moves, which is why the server can do it without a lock.

use super::queue::{Links, Queue};
use super::{Policy, Released};

/// Uses are counted up to here.
const USES_MAX: u8 = 3;
/// Uses in the small queue that move an item to the main queue.
const USES_TO_PROMOTE: u8 = 2;

// The indexes of the queues in `S3Fifo::queues`.
const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

#[derive(Debug, Clone, Copy, Default)]
struct SlotState {
    /// The queue of the slot; valid only while the slot is in a queue.
    queue_index: u8,
    uses: u8,
}

/// Keeps up to `capacity` items in a small and a main queue and remembers nine tenths as many that left.
#[derive(Debug)]
pub struct S3Fifo {
    capacity: usize,
    small_capacity: usize,
    ghost_capacity: usize,
    queues: [Queue; 3],
    links: Links,
    slot_states: Vec<SlotState>,
}

impl S3Fifo {
    /// An empty cache of `capacity` items, a tenth of them (at least 1) in the small queue; 0 keeps nothing.
    pub fn new(capacity: usize) -> Self {
        let small_capacity = (capacity / 10).max(1);
        let ghost_capacity = capacity.saturating_sub(small_capacity);
        let queues = [Queue::default(), Queue::default(), Queue::default()];
        Self {
            capacity,
            small_capacity,
            ghost_capacity,
            queues,
            links: Links::default(),
            slot_states: Vec::new(),
        }
    }

    fn is_in_queue(&self, slot: u32, queue_index: usize) -> bool {
        self.links.is_queued(slot)
            && usize::from(self.slot_states[slot as usize].queue_index) == queue_index
    }

    fn push_to_queue(&mut self, slot: u32, queue_index: usize, uses: u8) {
        self.queues[queue_index].push(&mut self.links, slot);
        self.slot_states[slot as usize] = SlotState { queue_index: queue_index as u8, uses };
    }

    /// Makes room for one item.
    fn evict(&mut self, on_release: &mut impl FnMut(u32, Released)) {
        loop {
            let small_is_full = self.queues[SMALL].len() >= self.small_capacity;
            let queue_index =
                if small_is_full || self.queues[MAIN].len() == 0 { SMALL } else { MAIN };
            let Some(slot) = self.queues[queue_index].pop(&mut self.links) else {
                return;
            };
            let uses = self.slot_states[slot as usize].uses;
            match queue_index {
                SMALL if uses >= USES_TO_PROMOTE => self.push_to_queue(slot, MAIN, 0),
                SMALL => return self.move_to_ghost(slot, on_release),
                _ if uses > 0 => self.push_to_queue(slot, MAIN, uses - 1),
                _ => return on_release(slot, Released::Slot),
            }
        }
    }

    fn move_to_ghost(&mut self, slot: u32, on_release: &mut impl FnMut(u32, Released)) {
        if self.ghost_capacity == 0 {
            return on_release(slot, Released::Slot);
        }
        if self.queues[GHOST].len() == self.ghost_capacity
            && let Some(oldest) = self.queues[GHOST].pop(&mut self.links)
        {
            on_release(oldest, Released::Slot);
        }
        self.push_to_queue(slot, GHOST, 0);
        on_release(slot, Released::Value);
    }
}

impl Policy for S3Fifo {
    fn contains(&self, slot: u32) -> bool {
        self.links.is_queued(slot) && !self.is_in_queue(slot, GHOST)
    }

    fn get(&mut self, slot: u32) -> bool {
        if !self.contains(slot) {
            return false;
        }
        let uses = &mut self.slot_states[slot as usize].uses;
        *uses = (*uses + 1).min(USES_MAX);
        true
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
        if slot as usize >= self.slot_states.len() {
            self.slot_states.resize(slot as usize + 1, SlotState::default());
        }
        let queue_index = if self.is_in_queue(slot, GHOST) { MAIN } else { SMALL };
        if queue_index == MAIN {
            self.queues[GHOST].unlink(&mut self.links, slot);
        }
        if self.queues[SMALL].len() + self.queues[MAIN].len() == self.capacity {
            self.evict(on_release);
        }
        self.push_to_queue(slot, queue_index, 0);
        true
    }

    fn remove(&mut self, slot: u32) {
        if self.links.is_queued(slot) {
            let queue_index = usize::from(self.slot_states[slot as usize].queue_index);
            self.queues[queue_index].unlink(&mut self.links, slot);
        }
    }

    fn clear(&mut self) {
        for queue in &mut self.queues {
            queue.clear(&mut self.links);
        }
    }
}
