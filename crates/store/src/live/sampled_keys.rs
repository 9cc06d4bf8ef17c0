//! The sampled keys at each size of the curve.
//!
//! How a miniature treats a read in which it and the store differ follows from the look-aside use of a cache, in which
//! the application stores what it missed:
//!
//! | the store | the miniature | then |
//! |---|---|---|
//! | hits | misses | it would have been stored now, with its whole TTL: the miniature stores it |
//! | misses | hits | it would not have been stored: the set that follows within a minute changes nothing there |
//! | misses | misses | the set that follows stores it |

use super::distinct::DistinctKeys;
use super::items::SampledKey;
use super::lru::LruBands;
use super::miniature::{Miniature, StoredItem};
use super::pending_fills::PendingFills;
use super::window::{GROUPS, PRESENT, SIZE_COUNT, Window};
use crate::footprint::record_bytes;
use crate::policy::TwoQueuePolicy;
use crate::request::KeyHash;
use crate::sampling::{self, Event, EventKind};
use crate::tuning::PolicySettings;

/// The mean size of new items is taken over about this many sampled ones.
const MEAN_WINDOW: f64 = 64.0;

/// The sampled keys at each size.
pub(super) struct SampledKeys {
    /// One in this many keys is sampled.
    pub(super) keys_per_sample: u32,
    pub(super) miniatures: [Miniature; SIZE_COUNT],
    pub(super) lru: LruBands<SIZE_COUNT>,
    pub(super) distinct: DistinctKeys,
    pub(super) window: Window,
    pub(super) mean_bytes: f64,
    pending: PendingFills,
}

impl SampledKeys {
    /// Every key is sampled at first.
    pub(super) fn new() -> Self {
        SampledKeys {
            keys_per_sample: 1,
            miniatures: std::array::from_fn(|_| Miniature::new(TwoQueuePolicy::OWN)),
            lru: LruBands::default(),
            distinct: DistinctKeys::default(),
            window: Window::default(),
            mean_bytes: 0.0,
            pending: PendingFills::default(),
        }
    }

    /// The miniature of the present size.
    pub(super) fn present(&self) -> &Miniature {
        let [_, _, _, present, ..] = &self.miniatures;
        const { assert!(PRESENT == 3) };
        present
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.miniatures.iter().map(Miniature::memory_bytes).sum::<usize>()
            + self.lru.memory_bytes()
            + self.distinct.memory_bytes()
            + self.window.memory_bytes()
            + size_of::<PendingFills>()
    }

    /// About how many sampled items there are when the store is full.
    pub(super) fn items_if_full(&self) -> f64 {
        self.present().capacity_bytes() as f64 / self.mean_bytes.max(1.0)
    }

    /// Samples half of the keys from now on.
    pub(super) fn lower_rate(&mut self) {
        self.keys_per_sample *= 2;
        let level_min = self.keys_per_sample.ilog2() as u8;
        self.miniatures.iter_mut().for_each(|miniature| miniature.retain_level(level_min));
        self.lru.retain_level(level_min);
        self.distinct.retain_level(level_min);
    }

    /// The store has these settings from now on.
    pub(super) fn change_settings(&mut self, settings: PolicySettings) {
        self.miniatures.iter_mut().for_each(|miniature| miniature.change_settings(settings));
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.miniatures.iter_mut().for_each(Miniature::clear);
        self.lru.clear();
    }

    /// Does at every size what a worker did.
    pub(super) fn apply(&mut self, event: &Event<'_>) {
        let (key, stored) = (sampled_key(event.hash), stored_item(event));
        let now = event.at.0;
        match event.kind {
            EventKind::GetHit | EventKind::GetMiss => {
                self.apply_read(key, stored, event.kind == EventKind::GetHit, now);
            }
            EventKind::Set => self.apply_set(key, stored, now),
            EventKind::Delete => {
                self.miniatures.iter_mut().for_each(|miniature| miniature.delete(key.tag));
                self.lru.delete(key.tag);
                self.distinct.delete(key.tag);
            }
            EventKind::Touch => {
                let expires_at = event.expires_at;
                for miniature in &mut self.miniatures {
                    miniature.touch(key.tag, expires_at, now);
                }
                self.lru.touch(key.tag, expires_at, now);
                self.distinct.touch(key.tag, expires_at);
            }
            EventKind::Fill => {}
        }
    }

    fn apply_read(&mut self, key: SampledKey, stored: StoredItem, is_hit: bool, now: u32) {
        let scale = self.keys_per_sample as f32;
        let refilled = is_hit.then(|| stored.with_ttl(self.lru.ttl_s(key.tag), now));
        let lru_hit_from = self.lru.get(key.tag, now);
        let mean_bytes = self.mean_bytes as u64;
        let mut missed = [false; SIZE_COUNT];
        for (miniature, missed) in self.miniatures.iter_mut().zip(&mut missed) {
            *missed = !miniature.get_or_store(key, refilled, mean_bytes, now);
        }
        if is_hit && lru_hit_from == SIZE_COUNT {
            self.lru.set(key, stored, now);
        }
        if !is_hit {
            self.pending.add(key.tag, now);
        }
        let group = key.tag as usize % GROUPS;
        self.window.count_read(group, scale, missed, lru_hit_from, now);
        match self.distinct.get(key.tag, now) {
            Some(true) if !is_hit => {
                let scale = self.distinct.scale() * f64::from(self.keys_per_sample);
                self.window.count_avoidable(scale, now);
            }
            Some(false) if is_hit => self.distinct.set(key, stored, now),
            _ => {}
        }
    }

    fn apply_set(&mut self, key: SampledKey, stored: StoredItem, now: u32) {
        let is_fill = self.pending.take(key.tag, now);
        if is_fill || self.mean_bytes == 0.0 {
            let window = if self.mean_bytes == 0.0 { 1.0 } else { MEAN_WINDOW };
            self.mean_bytes += (f64::from(stored.bytes) - self.mean_bytes) / window;
        }
        let mean_bytes = self.mean_bytes as u64;
        for miniature in &mut self.miniatures {
            miniature.set_or_keep(key, stored, is_fill, mean_bytes, now);
        }
        self.lru.set(key, stored, now);
        self.distinct.set(key, stored, now);
    }
}

/// What the sample knows of a key.
pub(super) fn sampled_key(hash: KeyHash) -> SampledKey {
    // Other bits than those by which keys are sampled.
    let tag = (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> u32::BITS) as u32;
    SampledKey { tag, level: sampling::level_of(hash) }
}

/// What an event stores or has found, with the bytes of its record as the store writes it.
pub(super) fn stored_item(event: &Event<'_>) -> StoredItem {
    let expiry_bytes = if event.expires_at == 0 { 0 } else { EXPIRY_BYTES };
    StoredItem {
        bytes: record_bytes(event.key_bytes.into(), event.value_bytes) as u32 + expiry_bytes,
        expires_at: event.expires_at,
    }
}

/// Bytes of an expiry in a record.
const EXPIRY_BYTES: u32 = 2;
