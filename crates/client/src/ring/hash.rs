//! The hash functions of other clients' placements, with the oddities that their keys were stored under.

use md5::{Digest, Md5};

/// First little-endian word of the md5: ketama's key hash.
pub(super) fn md5_word(key: &[u8]) -> u32 {
    md5_words(key)[0]
}

/// The md5 of a server's point name as four little-endian words, four points of the continuum.
pub(super) fn md5_words(name: &[u8]) -> [u32; 4] {
    let digest: [u8; 16] = Md5::digest(name).into();
    let mut words = [0; 4];
    for (word, word_bytes) in words.iter_mut().zip(digest.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*word_bytes);
    }
    words
}

/// Jenkins' one-at-a-time hash as libmemcached compiles it: bytes above 127 are added as negative numbers.
pub(super) fn one_at_a_time(key: &[u8]) -> u32 {
    let mut hash: u32 = 0;
    for &byte in key {
        hash = hash.wrapping_add(i32::from(byte as i8) as u32);
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// Fifteen middle bits of crc32: what the oldest memcached clients hash with.
pub(super) fn crc_middle(key: &[u8]) -> u32 {
    (crc32fast::hash(key) >> 16) & 0x7fff
}

/// Java's `String.hashCode` of the key, over UTF-16 units.
pub(super) fn java_string(key: &[u8]) -> u32 {
    let add_unit = |hash: u32, unit: u16| hash.wrapping_mul(31).wrapping_add(u32::from(unit));
    String::from_utf8_lossy(key).encode_utf16().fold(0, add_unit)
}

/// murmur3 of the low byte of each character, seed 0: pymemcache hashes a `str`, not its UTF-8 bytes.
pub(super) fn murmur3_of_chars(text: &str) -> u32 {
    if text.is_ascii() {
        return murmur3(text.as_bytes());
    }
    murmur3(&text.chars().map(|c| c as u32 as u8).collect::<Vec<u8>>())
}

/// Austin Appleby's `MurmurHash3` (x86, 32 bits), seed 0.
fn murmur3(bytes: &[u8]) -> u32 {
    let mix = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, tail) = bytes.as_chunks::<4>();
    let mut hash: u32 = 0;
    for word in words {
        hash ^= mix(u32::from_le_bytes(*word));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !tail.is_empty() {
        hash ^= mix(tail.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)));
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// xxh3 with seed 0, the hash that memcached's proxy hands to its jump hash.
pub(super) fn xxh3(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm" (2014): a bucket below `bucket_count`.
pub(super) fn jump_bucket(mut hash: u64, bucket_count: usize) -> usize {
    let (mut bucket, mut next_bucket) = (0, 0);
    while next_bucket < bucket_count as i64 {
        bucket = next_bucket;
        hash = hash.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let step = (1u64 << 31) as f64 / ((hash >> 33) + 1) as f64;
        next_bucket = ((bucket + 1) as f64 * step) as i64;
    }
    bucket as usize
}
