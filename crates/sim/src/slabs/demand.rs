//! The demand on a memcached: how many chunks of each size its items need.
//!
//! An item needs one chunk of its own size; an item above the largest chunk needs a head and pieces.
//! This does not depend on the classes, so one histogram of chunks serves every plan.

use std::collections::BTreeMap;

use super::classes::{LINE_END_BYTES, PIECE_HEADER_BYTES, SlabConfig};

/// Needed chunks by size, as memcached counts it.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// Needed bytes -> chunks, ascending.
    chunks: BTreeMap<u32, u64>,
    /// Number of items.
    items: u64,
    /// Bytes of the items, headers included.
    item_bytes: u128,
    /// Bytes of the same items in glasscache's segments.
    segment_bytes: u128,
    /// Items above the largest item, which memcached refuses.
    refused_items: u64,
}

impl Demand {
    /// Adds `count` items; for `head_bytes` see [`super::classes::head_bytes`].
    pub fn add(&mut self, config: &SlabConfig, head_bytes: u32, value_bytes: u32, count: u64) {
        let Some(item_bytes) =
            head_bytes.checked_add(value_bytes).and_then(|sum| sum.checked_add(LINE_END_BYTES))
        else {
            self.refused_items += count;
            return;
        };
        if item_bytes > config.item_bytes_max {
            self.refused_items += count;
            return;
        }
        self.items += count;
        self.item_bytes += u128::from(item_bytes) * u128::from(count);
        let key_bytes = head_bytes.saturating_sub(super::classes::head_bytes(0, false));
        let record_bytes = glasscache_store::record_bytes(key_bytes as usize, value_bytes);
        self.segment_bytes += record_bytes as u128 * u128::from(count);
        let chunk_bytes_max = config.slab_chunk_bytes_max;
        if item_bytes <= chunk_bytes_max {
            return self.add_chunks(item_bytes, count);
        }
        self.add_chunks(head_bytes + PIECE_HEADER_BYTES, count);
        let piece_capacity = chunk_bytes_max.saturating_sub(PIECE_HEADER_BYTES).max(1);
        let (full_pieces, last_piece_bytes) = (
            (value_bytes + LINE_END_BYTES) / piece_capacity,
            (value_bytes + LINE_END_BYTES) % piece_capacity,
        );
        self.add_chunks(chunk_bytes_max, u64::from(full_pieces) * count);
        if last_piece_bytes > 0 {
            self.add_chunks(last_piece_bytes + PIECE_HEADER_BYTES, count);
        }
    }

    fn add_chunks(&mut self, chunk_bytes: u32, count: u64) {
        if count > 0 {
            *self.chunks.entry(chunk_bytes).or_default() += count;
        }
    }

    /// Needed chunk sizes, ascending, with the number of chunks of each.
    pub fn chunks(&self) -> impl Iterator<Item = (u32, u64)> {
        self.chunks.iter().map(|(&bytes, &count)| (bytes, count))
    }

    /// How many items there are.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Bytes of all items in memcached's measure.
    pub fn item_bytes(&self) -> u128 {
        self.item_bytes
    }

    /// Bytes of all items in glasscache's segments, the index left out.
    pub fn segment_bytes(&self) -> u128 {
        self.segment_bytes
    }

    /// How many items are larger than memcached accepts.
    pub fn refused_items(&self) -> u64 {
        self.refused_items
    }

    /// Whether there is nothing to plan for.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }
}
