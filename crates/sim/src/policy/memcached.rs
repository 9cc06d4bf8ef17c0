//! memcached in the process: slab classes that take pages as items come, and an LRU in three parts in each class.
//!
//! The capacity is the whole of `-m`. A page goes to the class that needs it first and stays there; a class without a
//! page gets its first one beyond `-m`. New items enter HOT, of at most 20 % of a class; an item used twice since it
//! entered moves to WARM, of at most 40 %; the rest falls to COLD, whose oldest item is evicted. HOT and WARM also give
//! up what was not used for 0.2 and 2 times the age of the oldest item of COLD.
//!
//! Two things differ from the server. The thread that keeps the parts in order runs after each request, and ages count
//! requests. No page moves between classes: memcached moves at most a few pages a minute while it evicts
//! (docs/decisions/lab.md, 0086).

use super::queue::{Locations, Queue, queue_of};
use super::{Policy, Removable, Weights};
use crate::slabs::classes::{LINE_END_BYTES, PAGE_BYTES, SlabClasses, SlabConfig, head_bytes};

/// The parts of the LRU of a class, each the number of a queue.
const HOT: u32 = 1;
const WARM: u32 = 2;
const COLD: u32 = 3;

/// Largest share of the bytes of a class, in percent (`hot_lru_pct`, `warm_lru_pct`).
const HOT_PERCENT: u64 = 20;
const WARM_PERCENT: u64 = 40;

/// Largest age over that of the oldest item of COLD, in tenths (`hot_max_factor`, `warm_max_factor`).
const HOT_AGE_TENTHS: u64 = 2;
const WARM_AGE_TENTHS: u64 = 20;

/// How often an item was used: in memcached `ITEM_FETCHED`, and `ITEM_ACTIVE` from the second use on.
const FETCHED: u8 = 1;
const ACTIVE: u8 = 2;

/// A memcached of default settings.
pub(crate) struct Memcached<W> {
    slab_classes: SlabClasses,
    /// Bytes of an item without its value.
    head_bytes: u32,
    weights: W,
    classes: Vec<Class>,
    /// Pages within `-m` that no class has taken.
    free_pages: u64,
    objects: Objects,
}

/// What is known of each object.
struct Objects {
    locations: Locations,
    /// The position of the request that stored it, or last found it in use.
    update_positions: Vec<u32>,
    /// [`FETCHED`] and [`ACTIVE`].
    use_flags: Vec<u8>,
}

/// A slab class and its LRU.
struct Class {
    hot: Queue,
    warm: Queue,
    cold: Queue,
    has_page: bool,
    free_chunks: u32,
}

/// An item as its class counts it.
#[derive(Clone, Copy)]
struct Item {
    class_index: usize,
    bytes: u32,
    chunks: u32,
}

impl<W: Weights> Memcached<W> {
    pub(crate) fn new(object_count: usize, weights: W, capacity: u64, key_bytes: u32) -> Self {
        let slab_classes = SlabClasses::new(&SlabConfig::default());
        let new_class = |_| Class {
            hot: Queue::new(HOT),
            warm: Queue::new(WARM),
            cold: Queue::new(COLD),
            has_page: false,
            free_chunks: 0,
        };
        Self {
            classes: (0..slab_classes.chunk_sizes().len()).map(new_class).collect(),
            slab_classes,
            head_bytes: head_bytes(key_bytes, false),
            weights,
            free_pages: capacity / u64::from(PAGE_BYTES),
            objects: Objects {
                locations: vec![0; object_count],
                update_positions: vec![0; object_count],
                use_flags: vec![0; object_count],
            },
        }
    }

    /// The item of an object; `None` if it is above memcached's largest item. An item above the largest chunk takes several of them.
    fn item_of(&self, id: u32) -> Option<Item> {
        let value_bytes = u32::try_from(self.weights.of(id)).ok()?;
        let bytes = self.head_bytes.checked_add(value_bytes)?.checked_add(LINE_END_BYTES)?;
        Some(Item {
            class_index: self.slab_classes.class_of(bytes)? - 1,
            bytes,
            chunks: bytes.div_ceil(self.slab_classes.chunk_bytes_max()),
        })
    }

    /// Finds room for an item; false if its class cannot give it any.
    fn make_room(&mut self, item: Item) -> bool {
        while self.classes[item.class_index].free_chunks < item.chunks {
            let class = &mut self.classes[item.class_index];
            if self.free_pages > 0 || !class.has_page {
                self.free_pages = self.free_pages.saturating_sub(1);
                class.has_page = true;
                class.free_chunks += PAGE_BYTES / self.slab_classes.chunk_sizes()[item.class_index];
            } else if let Some(victim) = class.find_victim(&self.objects) {
                self.remove(victim);
            } else {
                return false;
            }
        }
        true
    }
}

impl Class {
    fn queue_mut(&mut self, part: u32) -> &mut Queue {
        match part {
            HOT => &mut self.hot,
            WARM => &mut self.warm,
            _ => &mut self.cold,
        }
    }

    /// The item to evict: the oldest of COLD, or where that is empty of HOT, then of WARM.
    fn find_victim(&mut self, objects: &Objects) -> Option<u32> {
        [COLD, HOT, WARM].into_iter().find_map(|part| self.queue_mut(part).peek(&objects.locations))
    }

    /// Moves what HOT and WARM hold above their shares and ages to COLD, and what is in use to WARM.
    fn rebalance_queues(&mut self, objects: &mut Objects, now: u32, bytes_of: impl Fn(u32) -> u64) {
        let total_bytes = self.hot.weight() + self.warm.weight() + self.cold.weight();
        let oldest_cold = self.cold.peek(&objects.locations);
        let cold_age = oldest_cold.map_or(0, |id| objects.age(id, now));
        for (part, percent, age_tenths) in
            [(HOT, HOT_PERCENT, HOT_AGE_TENTHS), (WARM, WARM_PERCENT, WARM_AGE_TENTHS)]
        {
            let (bytes_max, age_max) = (total_bytes * percent / 100, cold_age * age_tenths / 10);
            while let Some(id) = self.queue_mut(part).peek(&objects.locations) {
                let target_part = if objects.use_flags[id as usize] & ACTIVE != 0 {
                    objects.use_flags[id as usize] &= !ACTIVE;
                    WARM
                } else if self.queue_mut(part).weight() > bytes_max
                    || objects.age(id, now) > age_max
                {
                    COLD
                } else {
                    break;
                };
                self.queue_mut(part).subtract_member(bytes_of(id));
                self.queue_mut(target_part).push(&mut objects.locations, id, bytes_of(id));
            }
        }
    }
}

impl Objects {
    fn age(&self, id: u32, now: u32) -> u64 {
        u64::from(now.saturating_sub(self.update_positions[id as usize]))
    }
}

impl<W: Weights> Policy for Memcached<W> {
    fn request(&mut self, position: u32, id: u32) -> bool {
        let Some(item) = self.item_of(id) else {
            return false;
        };
        let part = queue_of(self.objects.locations[id as usize]);
        let use_flags = self.objects.use_flags[id as usize];
        if part == 0 {
            if !self.make_room(item) {
                return false;
            }
            let class = &mut self.classes[item.class_index];
            class.free_chunks -= item.chunks;
            let locations = &mut self.objects.locations;
            class.hot.push(locations, id, item.bytes.into());
            self.objects.update_positions[id as usize] = position;
            self.objects.use_flags[id as usize] = 0;
        } else if use_flags & FETCHED == 0 {
            self.objects.use_flags[id as usize] = FETCHED;
        } else if use_flags & ACTIVE == 0 {
            self.objects.update_positions[id as usize] = position;
            if part == COLD {
                let class = &mut self.classes[item.class_index];
                class.cold.subtract_member(item.bytes.into());
                let locations = &mut self.objects.locations;
                class.warm.push(locations, id, item.bytes.into());
            } else {
                self.objects.use_flags[id as usize] |= ACTIVE;
            }
        }
        let (weights, head_bytes) = (self.weights, u64::from(self.head_bytes));
        let bytes_of = |id| head_bytes + weights.of(id) + u64::from(LINE_END_BYTES);
        self.classes[item.class_index].rebalance_queues(&mut self.objects, position, bytes_of);
        part != 0
    }

    fn prefetch_cache_lines(&self, ids: &[u32]) -> u32 {
        let locations = &self.objects.locations;
        ids.iter().fold(0, |sum, &id| sum ^ locations[id as usize])
    }
}

impl<W: Weights> Removable for Memcached<W> {
    fn remove(&mut self, id: u32) {
        let part = queue_of(self.objects.locations[id as usize]);
        let Some(item) = self.item_of(id).filter(|_| part != 0) else {
            return;
        };
        let class = &mut self.classes[item.class_index];
        class.queue_mut(part).subtract_member(item.bytes.into());
        class.free_chunks += item.chunks;
        self.objects.locations[id as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ByteWeights, UnitWeights};
    use super::*;

    /// Items of a page of the class of values of 1 byte under keys of 10: 1 MiB in chunks of 96 bytes.
    const ITEMS_PER_PAGE: u32 = 10_922;

    /// Requests these objects in order; returns how many missed.
    fn count_misses<W: Weights>(
        cache: &mut Memcached<W>,
        position: &mut u32,
        ids: impl Iterator<Item = u32>,
    ) -> usize {
        ids.filter(|&id| {
            *position += 1;
            !cache.request(*position, id)
        })
        .count()
    }

    #[test]
    fn a_page_holds_as_many_items_as_in_memcached() {
        let (mut position, item_count) = (0, 2 * ITEMS_PER_PAGE);
        let mut cache = Memcached::new(item_count as usize + 1, UnitWeights, 2 << 20, 10);
        assert_eq!(count_misses(&mut cache, &mut position, 0..item_count), item_count as usize);
        assert_eq!(count_misses(&mut cache, &mut position, 0..item_count), 0);
        // One more evicts the oldest.
        assert_eq!(count_misses(&mut cache, &mut position, item_count..=item_count), 1);
        assert_eq!(count_misses(&mut cache, &mut position, [1, 0].into_iter()), 1);
    }

    #[test]
    fn an_item_used_twice_survives_a_scan_and_one_used_once_does_not() {
        let (mut position, item_count) = (0, 2 * ITEMS_PER_PAGE);
        let mut cache = Memcached::new(item_count as usize, UnitWeights, 1 << 20, 10);
        count_misses(&mut cache, &mut position, 0..ITEMS_PER_PAGE);
        count_misses(&mut cache, &mut position, 0..200);
        count_misses(&mut cache, &mut position, 0..100);
        count_misses(&mut cache, &mut position, ITEMS_PER_PAGE..item_count);
        assert_eq!(count_misses(&mut cache, &mut position, 0..200), 100);
    }

    #[test]
    fn a_class_without_a_page_gets_one_beyond_the_limit() {
        let sizes = [&vec![1; 2 * ITEMS_PER_PAGE as usize][..], &[5_000, 5_000]].concat();
        let large_ids = 2 * ITEMS_PER_PAGE..2 * ITEMS_PER_PAGE + 2;
        let mut cache = Memcached::new(sizes.len(), ByteWeights(&sizes), 1 << 20, 10);
        let mut position = 0;
        count_misses(&mut cache, &mut position, 0..2 * ITEMS_PER_PAGE);
        assert_eq!(count_misses(&mut cache, &mut position, large_ids.clone()), 2);
        assert_eq!(count_misses(&mut cache, &mut position, large_ids), 0);
    }

    #[test]
    fn a_removed_item_frees_its_chunk_and_a_refused_one_is_a_miss() {
        let sizes = [600_000, 600_000, 600_000, 2_000_000];
        let mut cache = Memcached::new(sizes.len(), ByteWeights(&sizes), 2 << 20, 10);
        let mut position = 0;
        assert_eq!(count_misses(&mut cache, &mut position, [0, 1, 0, 1].into_iter()), 2);
        cache.remove(0);
        assert_eq!(count_misses(&mut cache, &mut position, [2, 1, 2, 0].into_iter()), 2);
        assert_eq!(count_misses(&mut cache, &mut position, [3, 3].into_iter()), 2);
    }
}
