//! The bucket of a hash in a linear hash table, and the order in which a walk visits the buckets.

use crate::request::KeyHash;

/// The bucket of a hash among `bucket_count` (not 0) of a linear hash table.
#[inline]
pub(crate) fn bucket_of(hash: KeyHash, bucket_count: usize) -> usize {
    let level = usize::BITS - 1 - bucket_count.leading_zeros();
    let bucket = hash.0 as usize & ((2 << level) - 1);
    if bucket < bucket_count { bucket } else { bucket & ((1 << level) - 1) }
}

/// Where a walk continues after the bucket of `cursor` among `bucket_count`; `None` at the end.
///
/// The walk is in the order of the reversed hash, in which a bucket and the one split from it are neighbours:
/// whatever splits or merges meanwhile, no item is skipped (as in Redis's SCAN, for linear hashing).
pub(crate) fn next_cursor(cursor: u64, bucket_count: usize) -> Option<u64> {
    let level = usize::BITS - 1 - bucket_count.leading_zeros();
    let bucket = bucket_of(KeyHash(cursor.reverse_bits()), bucket_count);
    let split_buckets = bucket_count - (1 << level);
    let bits = if bucket < split_buckets || bucket >= 1 << level { level + 1 } else { level };
    if bits == 0 {
        return None;
    }
    let cursor_step = 1u64 << (u64::BITS - bits);
    (cursor & !(cursor_step - 1)).checked_add(cursor_step)
}
