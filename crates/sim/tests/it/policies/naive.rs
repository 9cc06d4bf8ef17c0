//! Naive implementations of the policies: lists that are searched from end to end.

use std::collections::HashSet;

use super::expiry::Cache;
use glasscache_sim::policy::PolicyKind;

/// Misses of LRU.
pub(crate) fn lru(keys: &[u64], capacity: usize) -> u64 {
    let (mut cache, mut misses) = (Vec::new(), 0);
    for key in keys {
        if let Some(index) = cache.iter().position(|cached| cached == key) {
            cache.remove(index);
        } else {
            misses += 1;
            if cache.len() == capacity {
                cache.remove(0);
            }
        }
        cache.push(*key);
    }
    misses
}

/// Misses of FIFO.
pub(crate) fn fifo(keys: &[u64], capacity: usize) -> u64 {
    let (mut cache, mut misses) = (Vec::new(), 0);
    for key in keys {
        if !cache.contains(key) {
            misses += 1;
            if cache.len() == capacity {
                cache.remove(0);
            }
            cache.push(*key);
        }
    }
    misses
}

/// Misses of FIFO with a second chance.
pub(crate) fn clock(keys: &[u64], capacity: usize) -> u64 {
    let (mut cache, mut misses): (Vec<(u64, bool)>, u64) = (Vec::new(), 0);
    for &key in keys {
        if let Some((_, was_used)) = cache.iter_mut().find(|(cached_key, _)| *cached_key == key) {
            *was_used = true;
            continue;
        }
        misses += 1;
        while cache.len() == capacity {
            let (oldest, was_used) = cache.remove(0);
            if was_used {
                cache.push((oldest, false));
            }
        }
        cache.push((key, false));
    }
    misses
}

/// Misses of SIEVE; the newest object is at the front, as in the paper, and the hand moves towards it.
pub(crate) fn sieve(keys: &[u64], capacity: usize) -> u64 {
    let (mut cache, mut misses): (Vec<(u64, bool)>, u64) = (Vec::new(), 0);
    let mut hand: Option<u64> = None;
    for &key in keys {
        if let Some((_, was_used)) = cache.iter_mut().find(|(cached_key, _)| *cached_key == key) {
            *was_used = true;
            continue;
        }
        misses += 1;
        if cache.len() == capacity {
            let hand_index = cache.iter().position(|&(cached_key, _)| Some(cached_key) == hand);
            let mut index = hand_index.unwrap_or(cache.len() - 1);
            while cache[index].1 {
                cache[index].1 = false;
                index = if index == 0 { cache.len() - 1 } else { index - 1 };
            }
            hand = index.checked_sub(1).map(|newer_index| cache[newer_index].0);
            cache.remove(index);
        }
        cache.insert(0, (key, false));
    }
    misses
}

/// Misses of LFU; of the least used, the first that reached that number is evicted.
pub(crate) fn lfu(keys: &[u64], capacity: usize) -> u64 {
    // (key, uses, number of the request since which it has that many)
    let (mut cache, mut misses): (Vec<(u64, u64, usize)>, u64) = (Vec::new(), 0);
    for (request_number, &key) in keys.iter().enumerate() {
        if let Some((_, uses, used_since)) =
            cache.iter_mut().find(|(cached_key, ..)| *cached_key == key)
        {
            (*uses, *used_since) = (*uses + 1, request_number);
            continue;
        }
        misses += 1;
        if cache.len() == capacity {
            let victim =
                *cache.iter().min_by_key(|(_, uses, used_since)| (*uses, *used_since)).unwrap();
            cache.retain(|cached| *cached != victim);
        }
        cache.push((key, 1, request_number));
    }
    misses
}

/// Misses of Belady in which every miss stores.
pub(crate) fn belady(keys: &[u64], capacity: usize) -> u64 {
    let (mut cache, mut misses): (Vec<u64>, u64) = (Vec::new(), 0);
    for (request_number, &key) in keys.iter().enumerate() {
        if cache.contains(&key) {
            continue;
        }
        misses += 1;
        if cache.len() == capacity {
            let next_use_of = |cached: &u64| {
                keys[request_number..].iter().position(|later_key| later_key == cached)
            };
            let victim = *cache
                .iter()
                .max_by_key(|&cached| next_use_of(cached).unwrap_or(usize::MAX))
                .unwrap();
            cache.retain(|cached| *cached != victim);
        }
        cache.push(key);
    }
    misses
}

/// Misses and missed bytes of LRU or FIFO over (key, size) objects; what is larger than the cache is not stored.
pub(crate) fn count_misses_and_bytes(
    requests: &[(u64, u32)],
    capacity: u64,
    is_lru: bool,
) -> (u64, u64) {
    let (mut cache, mut misses, mut missed_bytes): (Vec<(u64, u64)>, u64, u64) = (Vec::new(), 0, 0);
    for &(key, size) in requests {
        let bytes = u64::from(size.max(1));
        let object = (key, bytes);
        if let Some(index) = cache.iter().position(|cached| *cached == object) {
            if is_lru {
                cache.remove(index);
                cache.push(object);
            }
            continue;
        }
        misses += 1;
        missed_bytes += bytes;
        if bytes > capacity {
            continue;
        }
        while cache.iter().map(|&(_, cached_bytes)| cached_bytes).sum::<u64>() + bytes > capacity {
            cache.remove(0);
        }
        cache.push(object);
    }
    (misses, missed_bytes)
}

/// A cache without bound.
#[derive(Default)]
pub(crate) struct UnboundedCache(HashSet<u64>);

impl Cache for UnboundedCache {
    fn request(&mut self, key: u64) -> bool {
        !self.0.insert(key)
    }

    fn remove(&mut self, key: u64) {
        self.0.remove(&key);
    }
}

/// A key with its uses since it was stored or last inspected.
struct Entry {
    key: u64,
    uses: u32,
}

/// A list of keys, oldest first, and the policy that evicts from it.
struct ListCache {
    policy: PolicyKind,
    capacity: usize,
    entries: Vec<Entry>,
    /// Index of the key that SIEVE inspects next.
    hand: usize,
}

impl Cache for ListCache {
    fn request(&mut self, key: u64) -> bool {
        if let Some(index) = self.entries.iter().position(|entry| entry.key == key) {
            self.entries[index].uses += 1;
            if matches!(self.policy, PolicyKind::Lru | PolicyKind::Lfu) {
                let entry = self.entries.remove(index);
                self.entries.push(entry);
            }
            return true;
        }
        while self.entries.len() == self.capacity {
            self.evict();
        }
        self.entries.push(Entry { key, uses: 0 });
        false
    }

    fn remove(&mut self, key: u64) {
        if let Some(index) = self.entries.iter().position(|entry| entry.key == key) {
            self.remove_at(index);
        }
    }
}

impl ListCache {
    /// Removes a key; SIEVE's hand stays at its key, or moves to the next one.
    fn remove_at(&mut self, index: usize) {
        self.entries.remove(index);
        if index < self.hand {
            self.hand -= 1;
        }
        if self.hand == self.entries.len() {
            self.hand = 0;
        }
    }

    fn evict(&mut self) {
        match self.policy {
            PolicyKind::Clock if self.entries[0].uses > 0 => {
                let Entry { key, .. } = self.entries.remove(0);
                self.entries.push(Entry { key, uses: 0 });
            }
            PolicyKind::Sieve if self.entries[self.hand].uses > 0 => {
                self.entries[self.hand].uses = 0;
                self.hand = (self.hand + 1) % self.entries.len();
            }
            PolicyKind::Sieve => self.remove_at(self.hand),
            PolicyKind::Lfu => {
                // The list is in the order in which keys reached their number of uses.
                let uses = self.entries.iter().map(|entry| entry.uses);
                let fewest_uses = uses.min().unwrap_or(0);
                let index = self.entries.iter().position(|entry| entry.uses == fewest_uses);
                self.entries.remove(index.unwrap_or(0));
            }
            _ => {
                self.entries.remove(0);
            }
        }
    }
}

/// Caches of lists, from which keys can be removed.
pub(crate) fn removable_caches(capacity: usize) -> Vec<(PolicyKind, Box<dyn Cache>)> {
    let policies =
        [PolicyKind::Lru, PolicyKind::Fifo, PolicyKind::Clock, PolicyKind::Sieve, PolicyKind::Lfu];
    let boxed_cache = |policy| {
        let cache = ListCache { policy, capacity, entries: Vec::new(), hand: 0 };
        (policy, Box::new(cache) as Box<dyn Cache>)
    };
    policies.into_iter().map(boxed_cache).collect()
}
