//! The misses of an exact LRU over the same requests: the reference for a server with as many user bytes.

use super::Trace;
use crate::load::KEY_BYTES;

/// Misses of an exact LRU of `capacity_bytes` user bytes over the same requests, all copies interleaved.
pub fn lru_misses(trace: &Trace, capacity_bytes: u64) -> u64 {
    let mut lru = Lru::new(trace.value_bytes.len(), capacity_bytes);
    let mut misses = 0;
    for &pair in &trace.requests {
        for copy in 0..trace.copies {
            let slot = trace.slot_id(copy, pair as usize) as usize;
            misses += u64::from(!lru.access(slot, &trace.value_bytes));
        }
    }
    misses
}

/// A list through all slots, most recently used first; slot `count` is its head and its end.
struct Lru {
    newer: Vec<u32>,
    older: Vec<u32>,
    is_resident: Vec<bool>,
    free_bytes: u64,
}

impl Lru {
    fn new(count: usize, capacity_bytes: u64) -> Self {
        let head = count as u32;
        Self {
            newer: vec![head; count + 1],
            older: vec![head; count + 1],
            is_resident: vec![false; count],
            free_bytes: capacity_bytes,
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "slots are below the count that sized every vector"
    )]
    fn access(&mut self, slot: usize, value_bytes: &[u32]) -> bool {
        let was_resident = self.is_resident[slot];
        let head = self.is_resident.len();
        if was_resident {
            self.unlink(slot);
        } else {
            let bytes = u64::from(value_bytes[slot]) + KEY_BYTES as u64;
            while self.free_bytes < bytes {
                let victim = self.newer[head] as usize;
                if victim == head {
                    return false;
                }
                self.unlink(victim);
                self.is_resident[victim] = false;
                self.free_bytes += u64::from(value_bytes[victim]) + KEY_BYTES as u64;
            }
            self.free_bytes -= bytes;
            self.is_resident[slot] = true;
        }
        let newest = self.older[head] as usize;
        self.older[slot] = newest as u32;
        self.newer[slot] = head as u32;
        self.newer[newest] = slot as u32;
        self.older[head] = slot as u32;
        was_resident
    }

    #[expect(clippy::indexing_slicing, reason = "links hold slots or the head")]
    fn unlink(&mut self, slot: usize) {
        let (newer, older) = (self.newer[slot] as usize, self.older[slot] as usize);
        self.older[newer] = older as u32;
        self.newer[older] = newer as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::test_trace as trace;
    use super::*;

    #[test]
    fn lru_evicts_the_least_recently_used() {
        // Room for two items of 100 bytes: 2 pushes 1 out, since 0 was used again.
        let requests = [0, 1, 0, 2, 0, 1];
        assert_eq!(lru_misses(&trace(&requests, 1), 200), 4);
        assert_eq!(lru_misses(&trace(&requests, 2), 400), 8);
        assert_eq!(lru_misses(&trace(&requests, 1), 300), 3);
        assert_eq!(lru_misses(&trace(&requests, 1), 50), 6);
    }
}
