//! The distinct keys of the last hour, in a fixed memory: their bytes, and which misses more memory could have avoided.
//!
//! A smaller sample of the sampled keys: those with the lowest tags, fewer of them whenever the table is full.

use std::hash::BuildHasherDefault;

use super::hash_map::HashedKeyMap;
use super::items::SampledKey;
use super::miniature::StoredItem;

/// Keys that are kept at most.
const KEYS_MAX: usize = 448;

/// How long a key counts after its last use.
const WINDOW_S: u32 = 3600;

#[derive(Debug, Clone, Copy)]
struct DistinctKey {
    bytes: u32,
    expires_at: u32,
    last_used_at: u32,
    level: u8,
    is_deleted: bool,
}

/// The table.
#[derive(Debug, Clone)]
pub(super) struct DistinctKeys {
    keys: HashedKeyMap<u32, DistinctKey>,
    /// Keys with a tag above this are left out.
    tag_max: u32,
}

impl Default for DistinctKeys {
    fn default() -> Self {
        let keys = HashedKeyMap::with_capacity_and_hasher(KEYS_MAX, BuildHasherDefault::default());
        DistinctKeys { keys, tag_max: u32::MAX }
    }
}

impl DistinctKeys {
    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.capacity() * (size_of::<(u32, DistinctKey)>() + 1)
    }

    /// How many sampled keys a key of the table represents.
    pub(super) fn scale(&self) -> f64 {
        (f64::from(u32::MAX) + 1.0) / (f64::from(self.tag_max) + 1.0)
    }

    /// Bytes of the keys that were used in the last hour, in the table.
    pub(super) fn used_bytes(&self, now: u32) -> f64 {
        let used = self.keys.values().filter(|key| is_recent(key, now));
        used.map(|key| f64::from(key.bytes)).sum()
    }

    /// Keeps only the keys that are sampled at one in 2^`level_min`.
    pub(super) fn retain_level(&mut self, level_min: u8) {
        self.keys.retain(|_, key| key.level >= level_min);
    }

    /// A read; whether it would have hit if nothing were ever evicted. `None` for a key that is left out.
    pub(super) fn get(&mut self, tag: u32, now: u32) -> Option<bool> {
        if tag > self.tag_max {
            return None;
        }
        let Some(key) = self.keys.get_mut(&tag) else {
            return Some(false);
        };
        let is_expired = key.expires_at != 0 && key.expires_at <= now;
        let is_hit = !key.is_deleted && !is_expired && is_recent(key, now);
        key.last_used_at = now;
        Some(is_hit)
    }

    /// The key has an item, which was stored or found.
    pub(super) fn set(&mut self, key: SampledKey, stored: StoredItem, now: u32) {
        if key.tag > self.tag_max {
            return;
        }
        if self.keys.len() >= KEYS_MAX && !self.keys.contains_key(&key.tag) {
            self.make_room(now);
        }
        if key.tag <= self.tag_max {
            let StoredItem { bytes, expires_at } = stored;
            let level = key.level;
            let entry =
                DistinctKey { bytes, expires_at, last_used_at: now, level, is_deleted: false };
            self.keys.insert(key.tag, entry);
        }
    }

    /// The item has another expiry.
    pub(super) fn touch(&mut self, tag: u32, expires_at: u32) {
        if let Some(key) = self.keys.get_mut(&tag) {
            key.expires_at = expires_at;
        }
    }

    /// The item was deleted.
    pub(super) fn delete(&mut self, tag: u32) {
        if let Some(key) = self.keys.get_mut(&tag) {
            key.is_deleted = true;
        }
    }

    fn make_room(&mut self, now: u32) {
        self.keys.retain(|_, key| is_recent(key, now));
        if self.keys.len() >= KEYS_MAX {
            self.tag_max /= 2;
            self.keys.retain(|tag, _| *tag <= self.tag_max);
        }
    }
}

fn is_recent(key: &DistinctKey, now: u32) -> bool {
    now.saturating_sub(key.last_used_at) < WINDOW_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_many_keys_are_estimated_in_a_fixed_memory() {
        let mut distinct = DistinctKeys::default();
        for number in 0..100_000_u32 {
            let key = SampledKey { tag: number.wrapping_mul(0x9e37_79b1), level: 0 };
            distinct.set(key, StoredItem { bytes: 100, expires_at: 0 }, 10);
        }
        assert!(distinct.keys.len() <= KEYS_MAX);
        let bytes = distinct.used_bytes(20) * distinct.scale();
        assert!((8.5e6..11.5e6).contains(&bytes), "{bytes}");
        assert!(distinct.used_bytes(10 + WINDOW_S) < 1.0);
    }

    #[test]
    fn what_expired_or_was_deleted_misses_with_any_memory() {
        let mut distinct = DistinctKeys::default();
        let key = SampledKey { tag: 1, level: 0 };
        assert_eq!(distinct.get(1, 5), Some(false));
        distinct.set(key, StoredItem { bytes: 100, expires_at: 10 }, 5);
        assert_eq!(distinct.get(1, 9), Some(true));
        assert_eq!(distinct.get(1, 10), Some(false));
        distinct.touch(1, 20);
        assert_eq!(distinct.get(1, 11), Some(true));
        distinct.delete(1);
        assert_eq!(distinct.get(1, 12), Some(false));
    }
}
