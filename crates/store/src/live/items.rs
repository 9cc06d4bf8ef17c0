//! The items of a miniature cache: what the policy needs of each, in queues, found by the tag of its key.
//!
//! Compact, because the sample has to fit into half a per cent of the memory: links are numbers of 16 bits, and a key
//! is 32 bits of its hash. With 65,535 items at most, a wrong match is less frequent than one in 65,000 lookups. They are
//! allocated in pieces of one size, which serve each other when samples grow and are halved: tables that grow as a whole
//! left an allocator with twice their memory.

/// The number of an item.
pub(super) type ItemId = u16;

/// No item.
const NONE: ItemId = ItemId::MAX;

/// Maximum number of items.
const ITEMS_MAX: usize = NONE as usize;

/// Items that are allocated together.
const CHUNK_ITEMS: usize = 64;

/// The least number of buckets.
const BUCKETS_MIN: usize = 64;

/// A sampled key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampledKey {
    /// 32 bits of its hash.
    pub(super) tag: u32,
    /// It is still sampled at one in 2^level keys, 0 to 15.
    pub(super) level: u8,
}

/// One item.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    tag: u32,
    /// Bytes that it counts against the capacity.
    pub(super) bytes: u32,
    /// The second at which it expires; 0 never.
    pub(super) expires_at: u32,
    older: ItemId,
    younger: ItemId,
    /// In the LRU, its time to live in seconds, rounded ([`encode_number`]); in a miniature, when it entered the small queue.
    pub(super) detail: u16,
    /// The queue it is in.
    pub(super) queue: u8,
    /// Two bits of its frequency and four of its level: an item has 20 bytes.
    frequency_and_level: u8,
}

/// A frequency has two bits.
const FREQUENCY_MASK: u8 = 3;
const LEVEL_SHIFT: u32 = 2;

impl Item {
    /// Whether it expired by itself.
    pub(super) fn is_expired(&self, now: u32) -> bool {
        self.expires_at != 0 && self.expires_at <= now
    }

    /// How often it was used recently, 0 to 3.
    pub(super) fn frequency(&self) -> u8 {
        self.frequency_and_level & FREQUENCY_MASK
    }

    /// Changes the frequency, at most 3.
    pub(super) fn set_frequency(&mut self, frequency: u8) {
        let level_bits = self.frequency_and_level & !FREQUENCY_MASK;
        self.frequency_and_level = level_bits | frequency.min(FREQUENCY_MASK);
    }

    fn level(&self) -> u8 {
        self.frequency_and_level >> LEVEL_SHIFT
    }
}

/// An entry without an item.
const UNUSED: Item = Item {
    tag: 0,
    bytes: 0,
    expires_at: 0,
    older: NONE,
    younger: NONE,
    detail: 0,
    queue: 0,
    frequency_and_level: 0,
};

/// The ends of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    oldest: ItemId,
    youngest: ItemId,
    /// Bytes of its items.
    pub(super) bytes: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Queue { oldest: NONE, youngest: NONE, bytes: 0 }
    }
}

/// Items in `QUEUES` queues.
#[derive(Debug, Clone)]
pub(super) struct Items<const QUEUES: usize> {
    #[expect(clippy::vec_box, reason = "chunks that moved would be a table that grows as a whole")]
    chunks: Vec<Box<[Item; CHUNK_ITEMS]>>,
    /// Entries in use or used before: those after them in the last chunk never were.
    entry_count: usize,
    /// The first of the unused entries, linked by `older`.
    first_unused: ItemId,
    /// An open-addressing hash table of item numbers, a power of two long.
    buckets: Vec<ItemId>,
    queues: [Queue; QUEUES],
    count: usize,
}

impl<const QUEUES: usize> Default for Items<QUEUES> {
    fn default() -> Self {
        Items {
            chunks: Vec::new(),
            entry_count: 0,
            first_unused: NONE,
            buckets: Vec::new(),
            queues: [Queue::default(); QUEUES],
            count: 0,
        }
    }
}

impl<const QUEUES: usize> Items<QUEUES> {
    /// Number of items.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.len() * size_of::<[Item; CHUNK_ITEMS]>()
            + self.chunks.capacity() * size_of::<usize>()
            + self.buckets.capacity() * size_of::<ItemId>()
    }

    /// Bytes of the items of a queue.
    pub(super) fn queue_bytes(&self, queue: usize) -> u64 {
        self.queues.get(queue).map_or(0, |queue| queue.bytes)
    }

    /// Bytes of all items.
    pub(super) fn bytes(&self) -> u64 {
        self.queues.iter().map(|queue| queue.bytes).sum()
    }

    /// The entry of this number.
    pub(super) fn get(&self, id: ItemId) -> Option<&Item> {
        self.chunks.get(usize::from(id) / CHUNK_ITEMS)?.get(usize::from(id) % CHUNK_ITEMS)
    }

    /// The same, to be changed; not its bytes or queue.
    pub(super) fn get_mut(&mut self, id: ItemId) -> Option<&mut Item> {
        self.chunks.get_mut(usize::from(id) / CHUNK_ITEMS)?.get_mut(usize::from(id) % CHUNK_ITEMS)
    }

    /// The tag of an item.
    pub(super) fn tag(&self, id: ItemId) -> u32 {
        self.get(id).map_or(0, |item| item.tag)
    }

    /// The oldest item of a queue.
    pub(super) fn oldest(&self, queue: usize) -> Option<ItemId> {
        self.queues.get(queue).map(|queue| queue.oldest).filter(|id| *id != NONE)
    }

    /// The number of the item with this tag.
    pub(super) fn find(&self, tag: u32) -> Option<ItemId> {
        let bucket = self.find_bucket(tag)?;
        self.buckets.get(bucket).copied()
    }

    /// Adds an item at the young end of a queue; `None` if there are too many, or the tag is there.
    pub(super) fn insert(&mut self, key: SampledKey, bytes: u32, queue: usize) -> Option<ItemId> {
        if self.count >= ITEMS_MAX || self.find(key.tag).is_some() {
            return None;
        }
        if (self.count + 1) * 4 > self.buckets.len() * 3 {
            self.grow_buckets();
        }
        let id = self.take_unused()?;
        *self.get_mut(id)? =
            Item { tag: key.tag, bytes, frequency_and_level: key.level << LEVEL_SHIFT, ..UNUSED };
        self.put_into_bucket(key.tag, id);
        self.count += 1;
        self.link_youngest(id, queue);
        Some(id)
    }

    /// Takes an item out.
    pub(super) fn remove(&mut self, id: ItemId) {
        let Some(item) = self.get(id).copied() else {
            return;
        };
        self.remove_from_buckets(item.tag);
        self.unlink(id);
        let first_unused = std::mem::replace(&mut self.first_unused, id);
        if let Some(unused) = self.get_mut(id) {
            unused.older = first_unused;
            unused.bytes = 0;
        }
        self.count -= 1;
    }

    /// Moves an item to the young end of a queue.
    pub(super) fn move_to_youngest(&mut self, id: ItemId, queue: usize) {
        self.unlink(id);
        self.link_youngest(id, queue);
    }

    /// Changes the bytes of an item.
    pub(super) fn set_bytes(&mut self, id: ItemId, bytes: u32) {
        let Some(item) = self.get_mut(id) else {
            return;
        };
        let (bytes_before, queue) = (std::mem::replace(&mut item.bytes, bytes), item.queue);
        if let Some(queue) = self.queues.get_mut(usize::from(queue)) {
            queue.bytes = queue.bytes + u64::from(bytes) - u64::from(bytes_before);
        }
    }

    /// The item of this number, if there is one.
    pub(super) fn in_use(&self, id: ItemId) -> Option<&Item> {
        self.get(id).filter(|item| item.bytes > 0)
    }

    /// Number of entries, in use or not.
    pub(super) fn entry_count(&self) -> usize {
        self.entry_count
    }

    /// Takes out every item of a lower level, and gives the memory back.
    pub(super) fn retain_level(&mut self, level_min: u8) {
        let mut kept = Items::default();
        for queue in 0..QUEUES {
            let mut next = self.oldest(queue);
            while let Some(item) = next.and_then(|id| self.get(id)).copied() {
                if item.level() >= level_min {
                    let key = SampledKey { tag: item.tag, level: item.level() };
                    let id = kept.insert(key, item.bytes, queue);
                    if let Some(copy) = id.and_then(|id| kept.get_mut(id)) {
                        copy.expires_at = item.expires_at;
                        copy.detail = item.detail;
                        copy.set_frequency(item.frequency());
                    }
                }
                next = Some(item.younger).filter(|id| *id != NONE);
            }
        }
        *self = kept;
    }

    fn take_unused(&mut self) -> Option<ItemId> {
        if let Some(unused) = self.get(self.first_unused) {
            let next_unused = unused.older;
            return Some(std::mem::replace(&mut self.first_unused, next_unused));
        }
        if self.entry_count == self.chunks.len() * CHUNK_ITEMS {
            self.chunks.push(Box::new([UNUSED; CHUNK_ITEMS]));
        }
        let id = ItemId::try_from(self.entry_count).ok()?;
        self.entry_count += 1;
        Some(id)
    }

    fn link_youngest(&mut self, id: ItemId, queue_number: usize) {
        let (Some(bytes), Some(queue)) =
            (self.get(id).map(|item| item.bytes), self.queues.get_mut(queue_number))
        else {
            return;
        };
        let older = std::mem::replace(&mut queue.youngest, id);
        queue.bytes += u64::from(bytes);
        if older == NONE {
            queue.oldest = id;
        }
        let Some(item) = self.get_mut(id) else {
            return;
        };
        (item.older, item.younger, item.queue) = (older, NONE, queue_number as u8);
        if let Some(older_item) = self.get_mut(older) {
            older_item.younger = id;
        }
    }

    fn unlink(&mut self, id: ItemId) {
        let Some(Item { older, younger, queue, bytes, .. }) = self.get(id).copied() else {
            return;
        };
        if let Some(older_item) = self.get_mut(older) {
            older_item.younger = younger;
        }
        if let Some(younger_item) = self.get_mut(younger) {
            younger_item.older = older;
        }
        if let Some(queue) = self.queues.get_mut(usize::from(queue)) {
            queue.bytes -= u64::from(bytes);
            if queue.oldest == id {
                queue.oldest = younger;
            }
            if queue.youngest == id {
                queue.youngest = older;
            }
        }
    }

    fn home(&self, tag: u32) -> usize {
        // The table is at most half of 2^17 long, and the tag is well mixed.
        tag as usize & (self.buckets.len() - 1)
    }

    fn find_bucket(&self, tag: u32) -> Option<usize> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut bucket = self.home(tag);
        // Ends at an empty bucket: at least a quarter of them are.
        loop {
            let id = self.buckets.get(bucket).copied().filter(|id| *id != NONE)?;
            if self.tag(id) == tag {
                return Some(bucket);
            }
            bucket = (bucket + 1) & (self.buckets.len() - 1);
        }
    }

    fn put_into_bucket(&mut self, tag: u32, id: ItemId) {
        let mask = self.buckets.len() - 1;
        let mut bucket = self.home(tag);
        while self.buckets.get(bucket).is_some_and(|id| *id != NONE) {
            bucket = (bucket + 1) & mask;
        }
        if let Some(empty) = self.buckets.get_mut(bucket) {
            *empty = id;
        }
    }

    /// Empties the bucket of a tag and moves those after it that belong before it (backward shift).
    fn remove_from_buckets(&mut self, tag: u32) {
        let Some(mut hole) = self.find_bucket(tag) else {
            return;
        };
        let mask = self.buckets.len() - 1;
        let mut bucket = hole;
        loop {
            bucket = (bucket + 1) & mask;
            let Some(id) = self.buckets.get(bucket).copied().filter(|id| *id != NONE) else {
                break;
            };
            let distance_from_home = bucket.wrapping_sub(self.home(self.tag(id))) & mask;
            if distance_from_home >= bucket.wrapping_sub(hole) & mask {
                if let Some(empty) = self.buckets.get_mut(hole) {
                    *empty = id;
                }
                hole = bucket;
            }
        }
        if let Some(empty) = self.buckets.get_mut(hole) {
            *empty = NONE;
        }
    }

    fn grow_buckets(&mut self) {
        let bucket_count = (self.buckets.len() * 2).max(BUCKETS_MIN);
        let old_buckets = std::mem::replace(&mut self.buckets, vec![NONE; bucket_count]);
        for id in old_buckets.into_iter().filter(|id| *id != NONE) {
            self.put_into_bucket(self.tag(id), id);
        }
    }
}

/// Bits of the mantissa of an encoded number.
const MANTISSA_BITS: u32 = 8;

/// A number with nine significant bits.
pub(super) fn encode_number(number: u32) -> u16 {
    let shift = (u32::BITS - number.leading_zeros()).saturating_sub(MANTISSA_BITS + 1);
    ((shift << (MANTISSA_BITS + 1)) | (number >> shift)) as u16
}

/// What [`encode_number`] encoded, rounded down.
pub(super) fn decode_number(code: u16) -> u32 {
    let mantissa_mask = (1 << (MANTISSA_BITS + 1)) - 1;
    (u32::from(code) & mantissa_mask) << (code >> (MANTISSA_BITS + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_keep_nine_significant_bits() {
        for ttl_s in [0, 1, 60, 511, 600, 86_400, 30 * 86_400, u32::MAX] {
            let decoded = decode_number(encode_number(ttl_s));
            assert!(decoded <= ttl_s && ttl_s - decoded <= ttl_s / 256, "{ttl_s}: {decoded}");
        }
    }

    #[test]
    fn items_agree_with_a_map_and_queues_with_vectors() {
        let mut items = Items::<2>::default();
        let mut expected: [Vec<(u32, u32)>; 2] = [Vec::new(), Vec::new()];
        let mut state = 1_u64;
        for step in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (tag, action) =
                (((state >> 33) as u32 % 300).wrapping_mul(0x0100_0001), state >> 60);
            let queue = (state >> 50) as usize % 2;
            let position = |list: &[(u32, u32)]| list.iter().position(|entry| entry.0 == tag);
            let present = expected.iter().position(|list| position(list).is_some());
            match (items.find(tag), action) {
                (None, 0..8) => {
                    items.insert(SampledKey { tag, level: 0 }, step + 1, queue);
                    expected[queue].push((tag, step + 1));
                }
                (Some(id), 8..12) => {
                    items.move_to_youngest(id, queue);
                    let from = present.unwrap();
                    let index = position(&expected[from]).unwrap();
                    let entry = expected[from].remove(index);
                    expected[queue].push(entry);
                }
                (Some(id), 12..) => {
                    items.remove(id);
                    let from = present.unwrap();
                    let index = position(&expected[from]).unwrap();
                    expected[from].remove(index);
                }
                (found, _) => assert_eq!(found.is_some(), present.is_some()),
            }
            for (queue, list) in expected.iter().enumerate() {
                let bytes: u64 = list.iter().map(|entry| u64::from(entry.1)).sum();
                assert_eq!(items.queue_bytes(queue), bytes);
                assert_eq!(items.oldest(queue).map(|id| items.tag(id)), list.first().map(|e| e.0));
            }
        }
        assert_eq!(items.count(), expected.iter().map(Vec::len).sum::<usize>());
    }

    #[test]
    fn a_higher_level_keeps_the_order_of_what_stays() {
        let mut items = Items::<1>::default();
        for tag in 1..=1000_u32 {
            let key = SampledKey { tag, level: tag.trailing_zeros() as u8 };
            let id = items.insert(key, 10, 0).unwrap();
            items.get_mut(id).unwrap().set_frequency(3);
        }
        items.retain_level(2);
        assert_eq!((items.count(), items.bytes()), (250, 2500));
        assert_eq!(
            items.oldest(0).map(|id| (items.tag(id), items.get(id).unwrap().frequency())),
            Some((4, 3))
        );
        assert!(items.find(6).is_none() && items.find(1000).is_some());
    }
}
