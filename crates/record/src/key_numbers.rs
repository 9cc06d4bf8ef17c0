//! Numbers for keys, in the order in which they come: what is looked up for every read of a log.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use rapidhash::fast::{RapidHasher, SeedableState};

/// Keys, each with its number.
#[derive(Default)]
pub(crate) struct KeyNumbers {
    /// The number of the key of each hash. Where two keys have one hash, the second is under the next hash that is free.
    number_by_hash: HashMap<u64, u32, HashesAsTheyAre>,
    hash_state: KeyHashState,
    /// The keys one after the other, and where each ends.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyNumbers {
    /// The number of a key that has one.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let mut hash = self.hash_state.hash_of(key);
        loop {
            let number = *self.number_by_hash.get(&hash)?;
            if self.key(number as usize) == Some(key) {
                return Some(number);
            }
            hash = hash.wrapping_add(1);
        }
    }

    /// Numbers a key that has no number yet.
    pub(crate) fn push(&mut self, key: &[u8]) -> u32 {
        let number = self.ends.len() as u32;
        self.text.extend_from_slice(key);
        self.ends.push(self.text.len());
        let mut hash = self.hash_state.hash_of(key);
        while self.number_by_hash.contains_key(&hash) {
            hash = hash.wrapping_add(1);
        }
        self.number_by_hash.insert(hash, number);
        number
    }

    fn key(&self, number: usize) -> Option<&[u8]> {
        let start = if number == 0 { 0 } else { *self.ends.get(number - 1)? };
        self.text.get(start..*self.ends.get(number)?)
    }
}

/// Hashes keys with a seed that is random: an application's users may choose keys.
struct KeyHashState(SeedableState<'static>);

impl Default for KeyHashState {
    fn default() -> Self {
        Self(SeedableState::new(RandomState::new().hash_one(())))
    }
}

impl KeyHashState {
    #[inline]
    fn hash_of(&self, key: &[u8]) -> u64 {
        let mut hasher: RapidHasher<'_> = self.0.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// For a map whose keys are hashes already.
#[derive(Default)]
struct HashesAsTheyAre;

impl BuildHasher for HashesAsTheyAre {
    type Hasher = SameHash;

    fn build_hasher(&self) -> SameHash {
        SameHash(0)
    }
}

struct SameHash(u64);

impl Hasher for SameHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_the_number_of_its_first_use() {
        let mut keys = KeyNumbers::default();
        for number in 0..3000_u32 {
            let key = number.to_string();
            assert_eq!(keys.find(key.as_bytes()), None);
            assert_eq!(keys.push(key.as_bytes()), number);
        }
        assert_eq!(keys.push(b""), 3000);
        assert_eq!(keys.find(b""), Some(3000));
        for number in 0..3000_u32 {
            assert_eq!(keys.find(number.to_string().as_bytes()), Some(number));
        }
        assert_eq!(keys.find(b"3000"), None);
    }

    #[test]
    fn keys_of_one_hash_have_numbers_of_their_own() {
        let mut keys = KeyNumbers::default();
        keys.push(b"first");
        // As if the hash of the first were that of all others too.
        let first_hash = keys.hash_state.hash_of(b"second");
        keys.number_by_hash.insert(first_hash, 0);
        keys.number_by_hash.insert(first_hash.wrapping_add(1), 0);
        assert_eq!(keys.find(b"second"), None);
        assert_eq!(keys.push(b"second"), 1);
        assert_eq!((keys.find(b"first"), keys.find(b"second")), (Some(0), Some(1)));
    }
}
