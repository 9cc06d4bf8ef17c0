//! Numbers for keys, in the order in which they come: what is looked up for every read of a log.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use hashbrown::HashTable;
use rapidhash::fast::{RapidHasher, SeedableState};

/// Keys, each with its number.
#[derive(Default)]
pub(crate) struct KeyNumbers {
    numbers: HashTable<u32>,
    hash_state: KeyHashState,
    keys: KeyTexts,
}

/// Keys one after the other, and where each ends.
#[derive(Default)]
struct KeyTexts {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyNumbers {
    /// The number of a key that has one.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hash_state.hash_of(key);
        self.numbers.find(hash, |&number| self.keys.get(number) == key).copied()
    }

    /// Numbers a key that has no number yet.
    pub(crate) fn push(&mut self, key: &[u8]) -> u32 {
        let (number, hash) = (self.keys.push(key), self.hash_state.hash_of(key));
        let hash_of_number = |&number: &u32| self.hash_state.hash_of(self.keys.get(number));
        self.numbers.insert_unique(hash, number, hash_of_number);
        number
    }
}

impl KeyTexts {
    fn push(&mut self, key: &[u8]) -> u32 {
        let number = self.ends.len() as u32;
        self.text.extend_from_slice(key);
        self.ends.push(self.text.len());
        number
    }

    fn get(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.text[start..self.ends[number]]
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
        // As if the first had the hash of the second.
        let second_hash = keys.hash_state.hash_of(b"second");
        keys.numbers.insert_unique(second_hash, 0, |_| second_hash);
        keys.numbers.insert_unique(second_hash, 0, |_| second_hash);
        assert_eq!(keys.find(b"second"), None);
        assert_eq!(keys.push(b"second"), 1);
        assert_eq!((keys.find(b"first"), keys.find(b"second")), (Some(0), Some(1)));
    }
}
