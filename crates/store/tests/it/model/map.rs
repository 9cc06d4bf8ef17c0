//! The map with which the store is compared, and the input of both.

use std::collections::HashMap;

use glasscache_store::{CasUnique, Expiry, Seconds, Worker};

/// A small generator (splitmix64), so that a seed is a whole run; with a program its bytes choose first.
pub(crate) struct Rng {
    state: u64,
    program: std::vec::IntoIter<u8>,
}

#[allow(dead_code, reason = "the fuzz target runs programs, the test seeds")]
impl Rng {
    /// A run determined by its seed.
    pub(crate) fn from_seed(seed: u64) -> Rng {
        Rng { state: seed, program: Vec::new().into_iter() }
    }

    /// A run determined by a program's bytes.
    pub(crate) fn from_program(bytes: &[u8]) -> Rng {
        Rng { state: 1, program: Vec::from(bytes).into_iter() }
    }

    /// Whether the program is at its end.
    pub(crate) fn is_at_end(&self) -> bool {
        self.program.as_slice().is_empty()
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`: the program's next byte or two, or the generator's.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let Some(first_byte) = self.program.next() else {
            return self.next() % bound;
        };
        let second_byte = if bound > 256 { self.program.next() } else { None };
        // Beyond 65,536 the lower digits do not matter.
        let scale = bound.div_ceil(1 << 16);
        let number = match second_byte {
            Some(second_byte) => u64::from(u16::from_be_bytes([first_byte, second_byte])),
            None => u64::from(first_byte),
        };
        number * scale % bound
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Vec<u8>,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    /// As it was last seen; an item whose unique was never exposed may have a higher one by now.
    pub(crate) unique: CasUnique,
    pub(crate) is_unique_exposed: bool,
}

impl Entry {
    /// Whether this can be the item's unique.
    pub(crate) fn allows_unique(&self, unique: CasUnique) -> bool {
        unique == self.unique || !self.is_unique_exposed && unique > self.unique
    }
}

pub(crate) struct Model {
    pub(crate) entries: HashMap<Vec<u8>, Entry>,
    pub(crate) now: Seconds,
    pub(crate) may_evict: bool,
}

impl Model {
    pub(crate) fn live_entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now;
        if self
            .entries
            .get(key)
            .is_some_and(|entry| matches!(entry.expiry, Expiry::At(second) if second <= now))
        {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// Reads the unique of a key, which from then on must stay.
    pub(crate) fn read_unique(&mut self, worker: &Worker, key: &[u8]) {
        let found = stored_item(worker, key, self.now);
        if let (Some(entry), Some((_, _, unique, _))) = (self.live_entry(key), found) {
            assert!(entry.allows_unique(unique), "a unique that was read changed");
            (entry.unique, entry.is_unique_exposed) = (unique, true);
        }
    }

    /// Under eviction the store may have evicted it: then the model removes it too.
    pub(crate) fn remove_if_evicted(&mut self, worker: &Worker, key: &[u8]) {
        let hash = worker.store().hash(key);
        let now = self.now;
        let is_stored = worker.peek(key, hash, now).is_some();
        if self.live_entry(key).is_some() && !is_stored {
            assert!(
                self.may_evict,
                "lost {:?} at {:?} although memory is free: {:?}",
                self.entries[key],
                self.now,
                worker.store().counters()
            );
            self.entries.remove(key);
        }
    }
}

pub(crate) fn random_value(rng: &mut Rng, value_bytes_max: usize) -> Vec<u8> {
    let value_bytes = match rng.below(20) {
        0 => 0,
        1..=9 => rng.below(40),
        10..=15 => rng.below(400),
        16..=18 => rng.below(6000),
        _ => rng.below(value_bytes_max as u64),
    };
    let seed = rng.next();
    (0..value_bytes).map(|index| (seed.wrapping_mul(index + 1) >> 32) as u8).collect()
}

pub(crate) fn random_expiry(rng: &mut Rng, now: Seconds) -> Expiry {
    match rng.below(6) {
        0 => Expiry::At(Seconds(now.0 + 1 + rng.below(5) as u32)),
        1 => Expiry::At(Seconds(now.0 + rng.below(1000) as u32)),
        2 => Expiry::At(Seconds(now.0 + rng.below(3_000_000) as u32)),
        _ => Expiry::Never,
    }
}

pub(crate) fn stored_item(
    worker: &Worker,
    key: &[u8],
    now: Seconds,
) -> Option<(Vec<u8>, u32, CasUnique, Expiry)> {
    let item = worker.peek(key, worker.store().hash(key), now)?;
    assert_eq!(item.key(), key);
    let value: Vec<u8> = item.pieces().flatten().copied().collect();
    assert_eq!(value.len(), item.value_bytes() as usize);
    Some((value, item.flags(), item.unique(), item.expiry()))
}
