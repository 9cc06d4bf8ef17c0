//! The young part of the small queue, in which uses of an item do not count.
//!
//! An item is young until a certain number of bytes was written for new items after it. Only its segment knows its age:
//! whenever a sixteenth of a segment has been filled, the segment records where its last item stands among all new bytes,
//! and the others stand as far before that as in the segment. That is exact where one segment is filled at a time; where
//! several are, an item is taken for younger than it is, by what was written into the others. A write seldom touches the
//! counter that all workers share.

use super::Segments;
use crate::memory::{Addr, SegmentId};
use crate::sync::Ordering;

/// Binary logarithm of the number of parts of a segment in which the bytes of new items are counted.
const PARTS_BITS: u32 = 4;

impl Segments {
    /// Records where the items of a segment for new ones stand, of which `used_bytes` bytes are filled: each is young until
    /// `young_bytes` bytes were written after it; with 0 none is.
    pub(crate) fn record_age(&self, id: SegmentId, used_bytes: usize, young_bytes: u64) {
        let uses_count_from = match young_bytes {
            0 => 0,
            _ => (self.entered_bytes.load(Ordering::Relaxed) + young_bytes)
                .saturating_sub(used_bytes as u64)
                .max(1),
        };
        // Readers see it through the slot that publishes an item of the segment.
        self.identity(id).uses_count_from.store(uses_count_from, Ordering::Relaxed);
    }

    /// Counts the bytes of a new item, which end at `used_bytes` of its segment; whether they fill a part of it.
    #[inline]
    pub(crate) fn count_entered(&self, used_bytes: usize, bytes: usize) -> bool {
        // Shifts instead of divisions, because every write comes here.
        let part_shift = self.arena.segment_shift() - PARTS_BITS;
        let parts = (used_bytes >> part_shift) - ((used_bytes - bytes) >> part_shift);
        if parts > 0 {
            self.entered_bytes.fetch_add((parts << part_shift) as u64, Ordering::Relaxed);
        }
        parts > 0
    }

    /// Whether the item at `addr` is in the young part of the small queue.
    #[inline]
    pub(crate) fn is_young(&self, addr: Addr) -> bool {
        let identity = self.identity(self.arena.segment_of(addr));
        let uses_count_from = identity.uses_count_from.load(Ordering::Relaxed);
        uses_count_from != 0
            && uses_count_from + self.arena.offset_of(addr) as u64
                > self.entered_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the segments that items may have.
    pub(crate) fn item_bytes_max(&self) -> u64 {
        let lines = self.line_segments_in_use.load(Ordering::Relaxed);
        (self.backing_limit().saturating_sub(lines) * self.arena.segment_bytes()) as u64
    }
}
