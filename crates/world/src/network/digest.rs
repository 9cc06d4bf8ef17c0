//! A number that stands for all bytes that travelled, in their order.

use rapidhash::v3::rapidhash_v3;

/// An odd factor, so that the digest depends on the order of what travelled.
const DIGEST_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// A hash of bytes.
#[derive(Debug, Default)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0 = (self.0.rotate_left(1) ^ rapidhash_v3(bytes)).wrapping_mul(DIGEST_FACTOR);
    }

    pub(super) fn value(&self) -> u64 {
        self.0
    }
}
