//! A miniature of the store: the policy's own decisions over a sample of the keys, without values.
//!
//! Items are evicted one by one, in the order of their age, and not by segments; their bytes are those of their records.
//! What a segment wastes is in the capacity, which the caller measures at the real store.

use super::ghost_tags::GhostTags;
use super::items::{Item, ItemId, Items, SampledKey};
use crate::policy::{Decision, EvictionCandidate, Policy, QueueSizes, TwoQueuePolicy};
use crate::segments::Queue;
use crate::tuning::PolicySettings;

/// Of what is examined for room at most this many eighths are kept, as in the store.
const KEPT_EIGHTHS_MAX: u64 = 7;

/// Entries that are examined for expiry with each operation.
const ENTRIES_EXAMINED: usize = 2;

const QUEUES: [Queue; 2] = [Queue::Small, Queue::Main];

/// An item's age in the small queue is known to this part of the age at which its uses count.
const YOUNG_UNITS: u16 = 64;

/// The capacity of a miniature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Capacity {
    /// Live bytes of records that fit.
    pub(super) bytes: u64,
    /// Tags that the ghost keeps.
    pub(super) ghost_tags: usize,
    /// Bytes that sweeps may keep beyond their share.
    pub(super) keep_budget_bytes: u64,
}

/// What is stored under a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredItem {
    /// Bytes of its record.
    pub(super) bytes: u32,
    /// The second at which it expires; 0 never.
    pub(super) expires_at: u32,
}

impl StoredItem {
    /// The same, stored now: it lives for its whole time to live, where that is known (not 0).
    pub(super) fn with_ttl(self, ttl_s: u32, now: u32) -> Self {
        let whole_ttl = if ttl_s > 0 && self.expires_at > 0 { now + ttl_s } else { 0 };
        StoredItem { expires_at: self.expires_at.max(whole_ttl), ..self }
    }
}

/// One miniature store.
#[derive(Debug, Clone)]
pub(super) struct Miniature {
    policy: TwoQueuePolicy,
    capacity: Capacity,
    items: Items<2>,
    ghost: GhostTags,
    keep_budget: u64,
    next_examined: usize,
    /// Bytes of everything that was inserted.
    inserted_bytes: u64,
    /// Bytes that have entered the small queue, in units of the youngest part of it, and the rest of them.
    entered_units: u16,
    entered_bytes: u64,
}

impl Miniature {
    pub(super) fn new(policy: TwoQueuePolicy) -> Self {
        Miniature {
            policy,
            capacity: Capacity::default(),
            items: Items::default(),
            ghost: GhostTags::default(),
            keep_budget: 0,
            next_examined: 0,
            inserted_bytes: 0,
            entered_units: 0,
            entered_bytes: 0,
        }
    }

    /// The settings of its policy.
    pub(super) fn settings(&self) -> PolicySettings {
        self.policy.settings
    }

    /// Changes the settings of its policy; what no longer fits a queue leaves with the next insertions.
    pub(super) fn change_settings(&mut self, settings: PolicySettings) {
        self.policy.settings = settings;
    }

    /// Number of items.
    pub(super) fn item_count(&self) -> usize {
        self.items.count()
    }

    /// Bytes of everything that was inserted.
    pub(super) fn inserted_bytes(&self) -> u64 {
        self.inserted_bytes
    }

    /// Bytes of records that fit.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity.bytes
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        (self.items, self.ghost) = (Items::default(), GhostTags::default());
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.items.memory_bytes() + self.ghost.memory_bytes()
    }

    /// Changes the capacity; what no longer fits leaves with the next insertions.
    pub(super) fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
        self.ghost.set_capacity(capacity.ghost_tags);
    }

    /// Keeps only the keys that are sampled at one in 2^`level_min`.
    pub(super) fn retain_level(&mut self, level_min: u8) {
        self.items.retain_level(level_min);
    }

    /// A read; whether it hits.
    pub(super) fn get(&mut self, tag: u32, now: u32) -> bool {
        self.examine_for_expiry(now);
        let Some(id) = self.items.find(tag) else {
            return false;
        };
        let is_alive = self.items.get(id).is_some_and(|item| !item.is_expired(now));
        if is_alive {
            self.count_use(id);
        } else {
            self.items.remove(id);
        }
        is_alive
    }

    /// A read; whether it hits. What the store has found, and this has not, is stored now.
    pub(super) fn get_or_store(
        &mut self,
        key: SampledKey,
        refilled: Option<StoredItem>,
        mean_bytes: u64,
        now: u32,
    ) -> bool {
        let is_hit = self.get(key.tag, now);
        if let Some(refilled) = refilled.filter(|_| !is_hit) {
            self.set(key, refilled, mean_bytes, now);
        }
        is_hit
    }

    /// Counts a use of an item, unless it is young.
    fn count_use(&mut self, id: ItemId) {
        let (entered_units, skips_young) = (self.entered_units, self.skips_young());
        if let Some(item) = self.items.get_mut(id) {
            let age = entered_units.wrapping_sub(item.detail);
            let is_young = skips_young && queue_of(item) == Queue::Small && age < YOUNG_UNITS;
            item.set_frequency(item.frequency() + u8::from(!is_young));
        }
    }

    fn skips_young(&self) -> bool {
        self.policy.settings.skip_percent > 0
    }

    /// Bytes of the record of a key's item, if there is one.
    pub(super) fn bytes_of(&self, tag: u32) -> Option<u32> {
        let item = self.items.find(tag).and_then(|id| self.items.get(id));
        item.map(|item| item.bytes)
    }

    /// Whether the key has an item that is alive.
    pub(super) fn contains(&self, tag: u32, now: u32) -> bool {
        let item = self.items.find(tag).and_then(|id| self.items.get(id));
        item.is_some_and(|item| !item.is_expired(now))
    }

    /// Stores an item: a new one in the queue that the policy chooses, another copy at the young end of the same.
    pub(super) fn set(&mut self, key: SampledKey, stored: StoredItem, mean_bytes: u64, now: u32) {
        self.examine_for_expiry(now);
        let id = match self.items.find(key.tag) {
            Some(id) => {
                self.items.set_bytes(id, stored.bytes);
                self.rewrite(id);
                Some(id)
            }
            None if u64::from(stored.bytes) > self.capacity.bytes => None,
            None => {
                let queue = self.policy.queue_of_new_item(self.ghost.forget(key.tag));
                self.inserted_bytes += u64::from(stored.bytes);
                let id = self.items.insert(key, stored.bytes, queue as usize);
                id.inspect(|&id| self.count_entered(id))
            }
        };
        if let Some(item) = id.and_then(|id| self.items.get_mut(id)) {
            item.expires_at = stored.expires_at;
        }
        self.evict(mean_bytes, now);
    }

    /// A set; one that fills a miss of the store changes nothing where there was no miss.
    pub(super) fn set_or_keep(
        &mut self,
        key: SampledKey,
        stored: StoredItem,
        is_fill: bool,
        mean_bytes: u64,
        now: u32,
    ) {
        if !(is_fill && self.contains(key.tag, now)) {
            self.set(key, stored, mean_bytes, now);
        }
    }

    /// Changes when an item expires; it is rewritten, so it is the youngest of its queue.
    pub(super) fn touch(&mut self, tag: u32, expires_at: u32, now: u32) {
        let Some(id) = self.items.find(tag).filter(|_| self.contains(tag, now)) else {
            return;
        };
        if self.skips_young()
            && self.items.get(id).is_some_and(|item| queue_of(item) == Queue::Small)
        {
            // The read that comes with it finds a young item: it is a use at the age that the item had before.
            self.count_use(id);
        }
        if let Some(item) = self.items.get_mut(id) {
            item.expires_at = expires_at;
            self.rewrite(id);
        }
    }

    /// Moves an item that is written again to the young end of its queue.
    fn rewrite(&mut self, id: ItemId) {
        let queue = self.items.get(id).map_or(0, |item| item.queue);
        self.items.move_to_youngest(id, usize::from(queue));
        self.count_entered(id);
    }

    /// Counts the bytes of an item that was written into the small queue, and records when that was.
    fn count_entered(&mut self, id: ItemId) {
        let Some(item) = self.items.get_mut(id).filter(|item| queue_of(item) == Queue::Small)
        else {
            return;
        };
        item.detail = self.entered_units;
        self.entered_bytes += u64::from(item.bytes);
        let young_bytes = self.policy.settings.young_bytes(self.capacity.bytes);
        let unit_bytes = (young_bytes / u64::from(YOUNG_UNITS)).max(1);
        self.entered_units =
            self.entered_units.wrapping_add((self.entered_bytes / unit_bytes) as u16);
        self.entered_bytes %= unit_bytes;
    }

    /// Removes an item.
    pub(super) fn delete(&mut self, tag: u32) {
        if let Some(id) = self.items.find(tag) {
            self.items.remove(id);
        }
    }

    /// Evicts until everything fits.
    fn evict(&mut self, mean_bytes: u64, now: u32) {
        while self.items.bytes() > self.capacity.bytes {
            let Some(victim) = self.choose_victim() else {
                return;
            };
            self.decide(victim, mean_bytes, now);
        }
    }

    fn choose_victim(&self) -> Option<ItemId> {
        let [small, main] = [0, 1].map(|queue| self.items.queue_bytes(queue) as usize);
        let sizes = QueueSizes { small_bytes: small, main_bytes: main, last_swept_position: 0 };
        let queue = self.policy.choose_victim_queue(&sizes).queue as usize;
        self.items.oldest(queue).or_else(|| self.items.oldest(1 - queue))
    }

    fn decide(&mut self, victim: ItemId, mean_bytes: u64, now: u32) {
        let Some(item) = self.items.get(victim).copied() else {
            return;
        };
        let bytes = u64::from(item.bytes);
        self.keep_budget = (self.keep_budget + bytes * KEPT_EIGHTHS_MAX / 8)
            .min(self.capacity.keep_budget_bytes.max(bytes));
        let decision = if item.is_expired(now) {
            Decision::Evict { remember: false }
        } else {
            self.policy.decide(&candidate(&item, mean_bytes))
        };
        match decision {
            Decision::Evict { remember } => self.remove_evicted(victim, remember),
            Decision::Promote { .. } | Decision::Stay { .. } if bytes > self.keep_budget => {
                self.remove_evicted(victim, true);
            }
            Decision::Promote { frequency } => self.keep(victim, frequency, Queue::Main),
            Decision::Stay { frequency } => {
                self.keep(victim, frequency, queue_of(&item));
            }
        }
    }

    fn keep(&mut self, id: ItemId, frequency: u8, queue: Queue) {
        if let Some(item) = self.items.get_mut(id) {
            item.set_frequency(frequency);
            self.keep_budget = self.keep_budget.saturating_sub(u64::from(item.bytes));
        }
        self.items.move_to_youngest(id, queue as usize);
    }

    fn remove_evicted(&mut self, id: ItemId, remember: bool) {
        if remember {
            self.ghost.remember(self.items.tag(id));
        }
        self.items.remove(id);
    }

    /// Removes expired items among a few entries: their segments are reclaimed before anything is evicted.
    fn examine_for_expiry(&mut self, now: u32) {
        for _ in 0..ENTRIES_EXAMINED {
            self.next_examined = (self.next_examined + 1) % self.items.entry_count().max(1);
            let id = self.next_examined as ItemId;
            if self.items.in_use(id).is_some_and(|item| item.is_expired(now)) {
                self.items.remove(id);
            }
        }
    }
}

fn candidate(item: &Item, mean_bytes: u64) -> EvictionCandidate {
    EvictionCandidate {
        queue: queue_of(item),
        frequency: item.frequency(),
        bytes: item.bytes as usize,
        mean_bytes: mean_bytes as usize,
    }
}

fn queue_of(item: &Item) -> Queue {
    QUEUES.get(usize::from(item.queue)).copied().unwrap_or(Queue::Main)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_counts_by_what_was_written_after_the_item_and_a_touch_by_the_age_before() {
        let mut miniature = Miniature::new(TwoQueuePolicy::OWN);
        let capacity = Capacity { bytes: 1 << 20, ghost_tags: 100, keep_budget_bytes: 1 << 16 };
        miniature.set_capacity(capacity);
        let young_items = TwoQueuePolicy::OWN.settings.young_bytes(capacity.bytes) as u32 / 100;
        let stored = StoredItem { bytes: 100, expires_at: 0 };
        let set = |miniature: &mut Miniature, tags: std::ops::Range<u32>| {
            tags.for_each(|tag| miniature.set(SampledKey { tag, level: 0 }, stored, 100, 2));
        };
        let read = |miniature: &mut Miniature| {
            assert!(miniature.get(1, 2));
            let id = miniature.items.find(1).unwrap();
            miniature.items.get(id).unwrap().frequency()
        };
        set(&mut miniature, 1..young_items - 1);
        assert_eq!(read(&mut miniature), 0);
        set(&mut miniature, young_items - 1..young_items + 4);
        assert_eq!(read(&mut miniature), 1);
        miniature.touch(1, 0, 2);
        assert_eq!(read(&mut miniature), 2);
        miniature.touch(1, 0, 2);
        assert_eq!(read(&mut miniature), 2);
    }
}
