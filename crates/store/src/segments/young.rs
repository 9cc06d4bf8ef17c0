//! The young part of the small queue, in which uses of an item do not count.
//!
//! An item is young until a certain number of bytes was written for new items after it. Only its segment knows its age:
//! whenever a sixteenth of a segment has been filled, the segment records where its last item stands among all new bytes,
//! and the others stand as far before that as in the segment. That is exact where one segment is filled at a time; where
//! several are, an item is taken for younger than it is, by what was written into the others. A write seldom touches the
//! counter that all workers share.

use super::Segments;
use crate::memory::{Addr, SegmentId};
use crate::sync::{AtomicU64, Ordering};

/// Binary logarithm of the number of parts of a segment in which the bytes of new items are counted.
const PARTS_BITS: u32 = 4;

/// Bytes that were written for new items.
pub(crate) struct EnteredBytes {
    bytes: AtomicU64,
    /// Binary logarithm of the bytes of a part of a segment.
    part_shift: u32,
}

impl EnteredBytes {
    pub(super) fn new(segment_shift: u32) -> Self {
        EnteredBytes { bytes: AtomicU64::new(0), part_shift: segment_shift - PARTS_BITS }
    }

    /// Counts the bytes of a new item, which end at `used_bytes` of its segment; whether they fill a part of it.
    #[inline]
    pub(crate) fn count(&self, used_bytes: usize, bytes: usize) -> bool {
        // Shifts instead of divisions, because every write comes here.
        let parts = (used_bytes >> self.part_shift) - ((used_bytes - bytes) >> self.part_shift);
        if parts > 0 {
            self.bytes.fetch_add((parts << self.part_shift) as u64, Ordering::Relaxed);
        }
        parts > 0
    }

    /// From which entered byte on the uses of the first item of a segment count that has `used_bytes` bytes now, if each
    /// item is young until `young_bytes` bytes were written after it; 0 if none is.
    fn uses_count_from(&self, used_bytes: usize, young_bytes: u64) -> u64 {
        if young_bytes == 0 {
            return 0;
        }
        let entered_bytes = self.bytes.load(Ordering::Relaxed);
        (entered_bytes + young_bytes).saturating_sub(used_bytes as u64).max(1)
    }

    /// Whether the item at `offset` is young, of a segment with this [`EnteredBytes::uses_count_from`].
    #[inline]
    fn is_young(&self, uses_count_from: u64, offset: usize) -> bool {
        uses_count_from != 0 && uses_count_from + offset as u64 > self.bytes.load(Ordering::Relaxed)
    }
}

impl Segments {
    /// Records where the items of a segment for new ones stand, of which `used_bytes` bytes are filled: each is young until
    /// `young_bytes` bytes were written after it; with 0 none is.
    pub(crate) fn record_age(&self, id: SegmentId, used_bytes: usize, young_bytes: u64) {
        let uses_count_from = self.entered.uses_count_from(used_bytes, young_bytes);
        // Readers see it through the slot that publishes an item of the segment.
        self.table.identity(id).uses_count_from.store(uses_count_from, Ordering::Relaxed);
    }

    /// Whether the item at `addr` is in the young part of the small queue.
    #[inline]
    pub(crate) fn is_young(&self, addr: Addr) -> bool {
        let identity = self.table.identity(self.arena.segment_of(addr));
        let uses_count_from = identity.uses_count_from.load(Ordering::Relaxed);
        self.entered.is_young(uses_count_from, self.arena.offset_of(addr))
    }

    /// Bytes of the segments that items may have.
    pub(crate) fn item_bytes_max(&self) -> u64 {
        (self.usage.item_segments_max() * self.arena.segment_bytes()) as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_young_until_so_many_bytes_were_written_after_it() {
        let entered = EnteredBytes::new(16);
        assert!(!entered.count(4000, 4000), "less than a part");
        assert!(entered.count(8192, 4192));
        let uses_count_from = entered.uses_count_from(8192, 4096);
        assert!(entered.is_young(uses_count_from, 8192) && entered.is_young(uses_count_from, 4097));
        assert!(!entered.is_young(uses_count_from, 4096));
        assert!(entered.count(12_288, 4096));
        assert!(!entered.is_young(uses_count_from, 8192));
        assert_eq!(entered.uses_count_from(12_288, 0), 0);
        assert!(!entered.is_young(0, 12_288));
    }
}
