//! The memory that kept items take in a process, as both the client and the simulator count it.

use std::mem::size_of;

/// A reference to a shared slice, as tables of the client hold keys.
const KEY_REFERENCE_BYTES: usize = size_of::<std::sync::Arc<[u8]>>();

/// An entry in a table of the client: a value and when it expires. The client asserts that its type has this size.
pub const ENTRY_BYTES: usize = 64;

/// The reference counters of a shared slice.
const SHARED_COUNTERS_BYTES: usize = 16;

/// The tables of a near cache, by item: a map from key to slot, the slots, and the links of the policy. Tables double when
/// they are full, so that an item takes up to twice its entry, and in the map, which is at most 7/8 full, 16/7.
const TABLES_BYTES: usize = (KEY_REFERENCE_BYTES + 8 + 1) * 16 / 7
    + 2 * (KEY_REFERENCE_BYTES + ENTRY_BYTES + 8 + 8 + 4 + 4);

/// The list and the table of a fixed set, by key.
const FIXED_TABLES_BYTES: usize =
    KEY_REFERENCE_BYTES + (KEY_REFERENCE_BYTES + ENTRY_BYTES + 1) * 16 / 7;

/// The memory of a key or a value of this length: reference counters, bytes, the allocator's header, rounded up to 16 bytes.
pub const fn slice_bytes(length: usize) -> usize {
    let allocated_bytes = (SHARED_COUNTERS_BYTES + length + 8).next_multiple_of(16);
    if allocated_bytes < 32 { 32 } else { allocated_bytes }
}

/// The memory of an item of a near cache.
pub const fn near_item_bytes(key_length: usize, value_length: usize) -> usize {
    slice_bytes(key_length) + slice_bytes(value_length) + TABLES_BYTES
}

/// The memory of a key of the fixed set, without its value.
pub const fn fixed_key_bytes(key_length: usize) -> usize {
    slice_bytes(key_length) + FIXED_TABLES_BYTES
}

/// The memory of an item of the fixed set.
pub const fn fixed_item_bytes(key_length: usize, value_length: usize) -> usize {
    fixed_key_bytes(key_length) + slice_bytes(value_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_takes_more_than_its_key_and_value_and_less_than_400_bytes_more() {
        for (key_length, value_length) in [(1, 0), (20, 100), (250, 1 << 20)] {
            let content_bytes = key_length + value_length;
            for bytes in [
                near_item_bytes(key_length, value_length),
                fixed_item_bytes(key_length, value_length),
            ] {
                assert!((content_bytes + 200..content_bytes + 400).contains(&bytes), "{bytes}");
            }
        }
    }
}
