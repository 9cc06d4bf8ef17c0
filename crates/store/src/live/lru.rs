//! LRU at all sizes of the curve at once, to compare with: one list in the order of use, divided where the capacities end.
//!
//! An item in band 0 fits into the smallest cache, one in band 1 into the second, and so on, because a larger LRU holds
//! everything that a smaller one does.

use super::items::{Item, ItemId, Items, SampledKey, decode_number, encode_number};
use super::miniature::StoredItem;

/// The list.
#[derive(Debug, Clone)]
pub(super) struct LruBands<const SIZES: usize> {
    items: Items<SIZES>,
    /// By rising size.
    capacities: [u64; SIZES],
}

impl<const SIZES: usize> Default for LruBands<SIZES> {
    fn default() -> Self {
        LruBands { items: Items::default(), capacities: [0; SIZES] }
    }
}

impl<const SIZES: usize> LruBands<SIZES> {
    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.items.memory_bytes()
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.items = Items::default();
    }

    /// Changes the capacities, in bytes.
    pub(super) fn set_capacities(&mut self, capacities: [u64; SIZES]) {
        self.capacities = capacities;
        self.rebalance();
    }

    /// Keeps only the keys that are sampled at one in 2^`level_min`.
    pub(super) fn retain_level(&mut self, level_min: u8) {
        self.items.retain_level(level_min);
    }

    /// A read; the number of the smallest size at which it hits, `SIZES` if it misses at all.
    pub(super) fn get(&mut self, tag: u32, now: u32) -> usize {
        let Some((id, item)) = self.find(tag) else {
            return SIZES;
        };
        if item.is_expired(now) {
            self.items.remove(id);
            return SIZES;
        }
        self.items.move_to_youngest(id, 0);
        self.rebalance();
        usize::from(item.queue)
    }

    /// The time to live with which the item was stored, in seconds; 0 if unknown.
    pub(super) fn ttl_s(&self, tag: u32) -> u32 {
        self.find(tag).map_or(0, |(_, item)| decode_number(item.detail))
    }

    /// Stores an item.
    pub(super) fn set(&mut self, key: SampledKey, stored: StoredItem, now: u32) {
        let id = match self.find(key.tag) {
            Some((id, _)) => {
                self.items.set_bytes(id, stored.bytes);
                self.items.move_to_youngest(id, 0);
                Some(id)
            }
            None => self.items.insert(key, stored.bytes, 0),
        };
        if let Some(item) = id.and_then(|id| self.items.get_mut(id)) {
            item.expires_at = stored.expires_at;
            item.detail = encode_number(stored.expires_at.saturating_sub(now));
        }
        self.rebalance();
    }

    /// Changes when an item expires.
    pub(super) fn touch(&mut self, tag: u32, expires_at: u32, now: u32) {
        if let Some((id, _)) = self.find(tag).filter(|(_, item)| !item.is_expired(now)) {
            self.items.move_to_youngest(id, 0);
            if let Some(item) = self.items.get_mut(id) {
                item.expires_at = expires_at;
                item.detail = encode_number(expires_at.saturating_sub(now));
            }
            self.rebalance();
        }
    }

    /// Removes an item.
    pub(super) fn delete(&mut self, tag: u32) {
        if let Some((id, _)) = self.find(tag) {
            self.items.remove(id);
        }
    }

    fn find(&self, tag: u32) -> Option<(ItemId, Item)> {
        let id = self.items.find(tag)?;
        Some((id, *self.items.get(id)?))
    }

    /// Moves what no longer fits into a band to the next, and removes what fits into none.
    fn rebalance(&mut self) {
        let mut bytes_before = 0;
        for (band, capacity) in self.capacities.into_iter().enumerate() {
            while bytes_before + self.items.queue_bytes(band) > capacity {
                let Some(oldest) = self.items.oldest(band) else {
                    break;
                };
                if band + 1 < SIZES {
                    self.items.move_to_youngest(oldest, band + 1);
                } else {
                    self.items.remove(oldest);
                }
            }
            bytes_before += self.items.queue_bytes(band);
        }
    }
}
