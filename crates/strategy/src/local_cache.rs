//! The local cache: values by key in the process of the client, kept by one of the policies.
//!
//! Policies know only slots; this file assigns a slot to every key, stores the values and reuses slots. A
//! key whose value was evicted may keep its slot for a while, if the policy remembers it (S3-FIFO's
//! ghost queue).

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use crate::policy::{AnyPolicy, Policy, Released};

#[derive(Debug)]
struct SlotEntry<K, V> {
    key: K,
    value: Option<V>,
}

/// A bounded map from keys to values that forgets by policy.
#[derive(Debug)]
pub struct LocalCache<K, V> {
    policy: AnyPolicy,
    slot_by_key: HashMap<K, u32>,
    /// The entry of each slot; `None`: the slot is free.
    entries: Vec<Option<SlotEntry<K, V>>>,
    free_slots: Vec<u32>,
    /// How many slots have a value.
    value_count: usize,
    /// Whether a value was evicted for another one since the cache was empty.
    has_evicted: bool,
}

impl<K: Clone + Eq + Hash, V> LocalCache<K, V> {
    /// An empty cache under `policy`.
    pub fn new(policy: AnyPolicy) -> Self {
        Self {
            policy,
            slot_by_key: HashMap::new(),
            entries: Vec::new(),
            free_slots: Vec::new(),
            value_count: 0,
            has_evicted: false,
        }
    }

    /// Returns the value under `key` and records the use; `None` is a miss.
    pub fn get<Q>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let slot = *self.slot_by_key.get(key)?;
        self.policy.get(slot);
        self.entries[slot as usize].as_ref()?.value.as_ref()
    }

    /// Returns the value under `key` without recording anything.
    pub fn peek<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let slot = *self.slot_by_key.get(key)?;
        self.entries[slot as usize].as_ref()?.value.as_ref()
    }

    /// Stores a value that counts `bytes`; replaces the value under `key`, and may evict others.
    pub fn insert(&mut self, key: &K, value: V, bytes: u32) {
        if self.peek(key).is_some() {
            self.remove(key);
        }
        let slot = self.slot_or_new(key);
        let Self { policy, slot_by_key, entries, free_slots, value_count, has_evicted } = self;
        let is_kept = policy.insert(slot, bytes, &mut |released_slot, released| {
            let value =
                entries[released_slot as usize].as_mut().and_then(|entry| entry.value.take());
            *value_count -= usize::from(value.is_some());
            *has_evicted = true;
            if released == Released::Slot {
                release(released_slot, slot_by_key, entries, free_slots);
            }
        });
        match &mut entries[slot as usize] {
            Some(entry) if is_kept => {
                entry.value = Some(value);
                *value_count += 1;
            }
            _ => release(slot, slot_by_key, entries, free_slots),
        }
    }

    /// Removes and returns the value under `key`, for example after an invalidation.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let slot = *self.slot_by_key.get(key)?;
        self.policy.remove(slot);
        let value = self.entries[slot as usize].as_mut().and_then(|entry| entry.value.take());
        self.value_count -= usize::from(value.is_some());
        release(slot, &mut self.slot_by_key, &mut self.entries, &mut self.free_slots);
        value
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.policy.clear();
        self.slot_by_key.clear();
        self.entries.clear();
        self.free_slots.clear();
        self.value_count = 0;
        self.has_evicted = false;
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.value_count
    }

    /// Whether it may hold a value at all.
    pub fn has_room(&self) -> bool {
        !matches!(self.policy, AnyPolicy::Nothing)
    }

    /// Whether it holds as much as it ever will: it had to evict something, or it keeps nothing.
    pub fn is_full(&self) -> bool {
        self.has_evicted || matches!(self.policy, AnyPolicy::Nothing)
    }

    /// The keys and values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.entries.iter().flatten();
        entries.filter_map(|entry| Some((&entry.key, entry.value.as_ref()?)))
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot_or_new(&mut self, key: &K) -> u32 {
        if let Some(&slot) = self.slot_by_key.get(key) {
            return slot;
        }
        let entry = Some(SlotEntry { key: key.clone(), value: None });
        let slot = if let Some(slot) = self.free_slots.pop() {
            self.entries[slot as usize] = entry;
            slot
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        };
        self.slot_by_key.insert(key.clone(), slot);
        slot
    }
}

fn release<K: Eq + Hash, V>(
    slot: u32,
    slot_by_key: &mut HashMap<K, u32>,
    entries: &mut [Option<SlotEntry<K, V>>],
    free_slots: &mut Vec<u32>,
) {
    if let Some(entry) = entries[slot as usize].take() {
        slot_by_key.remove(&entry.key);
        free_slots.push(slot);
    }
}
