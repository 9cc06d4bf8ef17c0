//! Pins, by which uploads keep a segment from being swept, and holds, by which slow readers keep it from being reused.
//!
//! A *held* value stays where it lies until a slow reader has been sent it, instead of being copied.

use super::Segments;
use crate::memory::Addr;
use crate::sync::Ordering;

/// At most one in this many segments may be held beyond the epoch, because the rest must stay evictable.
const HELD_DIVISOR: usize = 8;
/// More may be held by one item of the largest size, if it takes at most one in this many segments.
const LARGEST_ITEM_DIVISOR: usize = 2;

impl Segments {
    /// Keeps the segment from being swept while a value is not committed.
    pub(crate) fn pin(&self, addr: Addr) {
        self.meta(self.arena.segment_of(addr)).pins.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a [`Segments::pin`].
    pub(crate) fn unpin(&self, addr: Addr) {
        let id = self.arena.segment_of(addr);
        if self.meta(id).pins.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.reclassify(id);
        }
    }

    /// Keeps the segment from being reused; false (and nothing changed) if too many are held already.
    pub(crate) fn hold(&self, addr: Addr) -> bool {
        let meta = self.meta(self.arena.segment_of(addr));
        if meta.holds.fetch_add(1, Ordering::AcqRel) == 0 {
            let held_count = self.held_count.fetch_add(1, Ordering::Relaxed) + 1;
            if held_count > self.held_segments_max() {
                self.unhold(addr);
                return false;
            }
        }
        true
    }

    /// Ends a [`Segments::hold`].
    pub(crate) fn unhold(&self, addr: Addr) {
        // Release pairs with the Acquire in `settle`: the holder has finished reading.
        if self.meta(self.arena.segment_of(addr)).holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.held_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether more than three quarters of the allowed holds are used.
    pub(crate) fn holds_are_scarce(&self) -> bool {
        self.held_segments() * 4 > self.held_segments_max() * 3
    }

    fn held_segments_max(&self) -> usize {
        let backing_limit = self.backing_limit();
        let largest_item_allowance =
            self.largest_item_segment_count.min(backing_limit / LARGEST_ITEM_DIVISOR);
        (backing_limit / HELD_DIVISOR).max(largest_item_allowance).max(1)
    }

    /// Segments held beyond the epoch.
    pub(crate) fn held_segments(&self) -> usize {
        self.held_count.load(Ordering::Relaxed)
    }
}
