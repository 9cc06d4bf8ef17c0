//! The misses of an exact LRU over the same requests: the reference for a server with as many user bytes
//! (bytes of keys and values). A sized key is a key with one of its sizes, which counts as a key of its own.

use super::trace::Trace;
use crate::load::KEY_BYTES;

/// Misses of an exact LRU of `capacity_bytes` user bytes over the same requests, all copies interleaved.
pub(crate) fn count_lru_misses(trace: &Trace, capacity_bytes: u64) -> u64 {
    let mut lru = Lru::new(trace.value_bytes.len(), capacity_bytes);
    let mut misses = 0;
    for &sized_key_index in &trace.requested_sized_keys {
        for keyspace_copy in 0..trace.copies {
            let key_id = trace.key_id(keyspace_copy, sized_key_index as usize) as usize;
            misses += u64::from(!lru.access(key_id, &trace.value_bytes));
        }
    }
    misses
}

/// A list through all keys, most recently used first; key `key_count` is the sentinel between its ends.
struct Lru {
    newer: Vec<u32>,
    older: Vec<u32>,
    is_resident: Vec<bool>,
    free_bytes: u64,
}

impl Lru {
    fn new(key_count: usize, capacity_bytes: u64) -> Self {
        let sentinel = key_count as u32;
        Self {
            newer: vec![sentinel; key_count + 1],
            older: vec![sentinel; key_count + 1],
            is_resident: vec![false; key_count],
            free_bytes: capacity_bytes,
        }
    }

    /// Uses a key, which becomes the newest if it fits; returns whether it was resident.
    #[expect(
        clippy::indexing_slicing,
        reason = "key ids are below the count that sized every vector"
    )]
    fn access(&mut self, key_id: usize, value_bytes: &[u32]) -> bool {
        let was_resident = self.is_resident[key_id];
        let sentinel = self.is_resident.len();
        if was_resident {
            self.unlink(key_id);
        } else {
            let item_bytes = u64::from(value_bytes[key_id]) + KEY_BYTES as u64;
            while self.free_bytes < item_bytes {
                let victim = self.newer[sentinel] as usize;
                if victim == sentinel {
                    return false;
                }
                self.unlink(victim);
                self.is_resident[victim] = false;
                self.free_bytes += u64::from(value_bytes[victim]) + KEY_BYTES as u64;
            }
            self.free_bytes -= item_bytes;
            self.is_resident[key_id] = true;
        }
        let newest = self.older[sentinel] as usize;
        self.older[key_id] = newest as u32;
        self.newer[key_id] = sentinel as u32;
        self.newer[newest] = key_id as u32;
        self.older[sentinel] = key_id as u32;
        was_resident
    }

    #[expect(clippy::indexing_slicing, reason = "links hold key ids or the sentinel")]
    fn unlink(&mut self, key_id: usize) {
        let (newer, older) = (self.newer[key_id] as usize, self.older[key_id] as usize);
        self.older[newer] = older as u32;
        self.newer[older] = newer as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::test_trace;
    use super::*;

    #[test]
    fn lru_evicts_the_least_recently_used() {
        // Room for two items of 100 bytes: 2 pushes 1 out, since 0 was used again.
        let requests = [0, 1, 0, 2, 0, 1];
        assert_eq!(count_lru_misses(&test_trace(&requests, 1), 200), 4);
        assert_eq!(count_lru_misses(&test_trace(&requests, 2), 400), 8);
        assert_eq!(count_lru_misses(&test_trace(&requests, 1), 300), 3);
        assert_eq!(count_lru_misses(&test_trace(&requests, 1), 50), 6);
    }
}
