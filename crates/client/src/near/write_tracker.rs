//! The writes of this client that are in flight, so that nothing fetched at the same time is kept or served.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::{BuildHasher, RandomState};

use super::entry::NearKey;

/// Generation counters. Keys that share one cost each other a fetch now and then, never a stale value.
const WRITE_STRIPES: usize = 1024;

/// Writes of this client, and how often each key may have changed.
#[derive(Debug)]
pub(super) struct WriteTracker {
    /// How many writes of a key are in flight.
    writes_in_flight: HashMap<NearKey, u32>,
    flushes_in_flight: u32,
    /// How many changes have begun or ended, by stripes of keys.
    generations: Vec<u64>,
    /// How many changes of all keys have begun or ended.
    all_keys_generation: u64,
    hasher: RandomState,
}

impl WriteTracker {
    pub(super) fn new() -> Self {
        Self {
            writes_in_flight: HashMap::new(),
            flushes_in_flight: 0,
            generations: vec![0; WRITE_STRIPES],
            all_keys_generation: 0,
            hasher: RandomState::new(),
        }
    }

    pub(super) fn begin_write(&mut self, key: &NearKey) {
        *self.writes_in_flight.entry(key.clone()).or_default() += 1;
        self.record_change(key);
    }

    pub(super) fn end_write(&mut self, key: &NearKey) {
        if let MapEntry::Occupied(mut entry) = self.writes_in_flight.entry(key.clone()) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        self.record_change(key);
    }

    pub(super) fn begin_flush(&mut self) {
        self.flushes_in_flight += 1;
        self.record_change_of_all();
    }

    pub(super) fn end_flush(&mut self) {
        self.flushes_in_flight = self.flushes_in_flight.saturating_sub(1);
        self.record_change_of_all();
    }

    /// Notes a change of a key: its fetches in flight may bring the older value.
    pub(super) fn record_change(&mut self, key: &NearKey) {
        let stripe_index = self.stripe_index(key);
        if let Some(generation) = self.generations.get_mut(stripe_index) {
            *generation += 1;
        }
    }

    /// Notes a change of all keys: all fetches in flight may bring older values.
    pub(super) fn record_change_of_all(&mut self) {
        self.all_keys_generation += 1;
    }

    /// The generation of a key; `None` while it is written.
    pub(super) fn generation(&self, key: &NearKey) -> Option<u64> {
        let is_being_written =
            self.flushes_in_flight > 0 || self.writes_in_flight.contains_key(key);
        let generation = self.generations.get(self.stripe_index(key))?;
        (!is_being_written).then_some(generation + self.all_keys_generation)
    }

    fn stripe_index(&self, key: &NearKey) -> usize {
        self.hasher.hash_one(key) as usize % WRITE_STRIPES
    }
}
