//! A model of memcached: its segmented LRU over its slab chunk sizes, with memory counted in bytes.
//!
//! Three queues (`doc/new_lru.txt` of memcached): new items enter HOT (at most 20 % of the memory); items that leave
//! it move to WARM (at most 40 %) if they were read twice, else to COLD; items read twice in COLD move to WARM
//! immediately; the tail of COLD is evicted. Not modelled: pages that belong to a class, and the threads that move
//! them.

use std::collections::VecDeque;

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;
const HOT_PERCENT: u64 = 20;
const WARM_PERCENT: u64 = 40;

#[derive(Clone, Copy, Default)]
struct Item {
    queue: usize,
    /// The number of its current entry in the queues; 0 if it is not in the cache. Older entries are stale.
    entry_number: u32,
    chunk_bytes: u32,
    is_fetched: bool,
    is_active: bool,
}

/// The model of the cache.
pub(crate) struct SegmentedLru {
    /// The item of each object, by id.
    items: Vec<Item>,
    /// Ids with the numbers of their entries.
    queues: [VecDeque<(u32, u32)>; 3],
    queue_bytes: [u64; 3],
    memory_bytes: u64,
    entry_count: u32,
}

impl SegmentedLru {
    pub(crate) fn new(object_count: usize, memory_bytes: u64) -> Self {
        SegmentedLru {
            items: vec![Item::default(); object_count],
            queues: Default::default(),
            queue_bytes: [0; 3],
            memory_bytes,
            entry_count: 0,
        }
    }

    /// Returns whether the item was in the cache; stores it if not.
    pub(crate) fn get_or_set(&mut self, id: usize, key_and_value_bytes: u32) -> bool {
        let mut item = self.items[id];
        if item.entry_number == 0 {
            item = Item { chunk_bytes: chunk_bytes_for(key_and_value_bytes), ..Item::default() };
            self.insert(id, item, HOT);
            self.make_room();
            return false;
        }
        item.is_active = item.is_fetched;
        item.is_fetched = true;
        if item.is_active && item.queue == COLD {
            self.remove(id, item);
            self.insert(id, Item { is_active: false, ..item }, WARM);
        } else {
            self.items[id] = item;
        }
        true
    }

    fn insert(&mut self, id: usize, item: Item, queue: usize) {
        self.entry_count += 1;
        self.items[id] = Item { queue, entry_number: self.entry_count, ..item };
        self.queues[queue].push_back((id as u32, self.entry_count));
        self.queue_bytes[queue] += u64::from(item.chunk_bytes);
    }

    fn remove(&mut self, id: usize, item: Item) {
        self.queue_bytes[item.queue] -= u64::from(item.chunk_bytes);
        self.items[id] = Item::default();
    }

    /// Removes and returns the oldest item of a queue.
    fn pop_oldest(&mut self, queue: usize) -> Option<(usize, Item)> {
        while let Some((id, entry_number)) = self.queues[queue].pop_front() {
            let item = self.items[id as usize];
            if item.entry_number == entry_number {
                self.remove(id as usize, item);
                return Some((id as usize, item));
            }
        }
        None
    }

    fn make_room(&mut self) {
        for (queue, percent) in [(HOT, HOT_PERCENT), (WARM, WARM_PERCENT)] {
            while self.queue_bytes[queue] * 100 > self.memory_bytes * percent {
                let Some((id, item)) = self.pop_oldest(queue) else {
                    break;
                };
                let next_queue = if item.is_active { WARM } else { COLD };
                self.insert(id, Item { is_active: false, ..item }, next_queue);
            }
        }
        while self.queue_bytes.iter().sum::<u64>() > self.memory_bytes {
            let Some((id, item)) = self.pop_oldest(COLD) else {
                break;
            };
            if item.is_active {
                self.insert(id, Item { is_active: false, ..item }, WARM);
            }
        }
    }
}

/// Bytes that memcached needs at `-f 1.25` for a key and value of this size: a chunk and a hash table entry.
fn chunk_bytes_for(key_and_value_bytes: u32) -> u32 {
    let item_bytes = f64::from(key_and_value_bytes) + 59.0;
    let mut chunk_bytes = 96f64;
    while chunk_bytes < item_bytes && chunk_bytes < 524_288.0 {
        chunk_bytes = (chunk_bytes * 1.25 / 8.0).ceil() * 8.0;
    }
    chunk_bytes.max(item_bytes) as u32 + 8
}
