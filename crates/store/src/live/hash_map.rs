//! A map whose keys are seeded hashes of the server's keys, or parts of them: hashing them once more would take a quarter
//! of the time of an event.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map that does not hash its keys again.
pub(super) type HashedKeyMap<K, V> = HashMap<K, V, BuildHasherDefault<SpreadHasher>>;

/// Spreads the bits of a number over the word: the table takes the slot from the lowest bits and a tag from the highest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SpreadHasher(u64);

impl Hasher for SpreadHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
