//! Pins, by which uploads keep a segment from being swept, and holds, by which slow readers keep it from being reused.
//!
//! A *held* value stays where it lies until a slow reader has been sent it, instead of being copied.

use super::Segments;
use crate::memory::Addr;
use crate::sync::{AtomicUsize, Ordering};

/// At most one in this many segments may be held beyond the epoch, because the rest must stay evictable.
const HELD_DIVISOR: usize = 8;
/// More may be held by one item of the largest size, if it takes at most one in this many segments.
const LARGEST_ITEM_DIVISOR: usize = 2;

/// How many segments are held.
pub(crate) struct HeldSegments {
    /// Segments with at least one hold.
    count: AtomicUsize,
    /// Segments that the largest item may occupy, shared with pieces of others.
    largest_item_segment_count: usize,
}

impl HeldSegments {
    pub(super) fn new(item_bytes_max: usize, segment_bytes: usize) -> Self {
        let largest_item_segment_count = 2 * item_bytes_max.div_ceil(segment_bytes) + 2;
        HeldSegments { count: AtomicUsize::new(0), largest_item_segment_count }
    }

    /// Segments held beyond the epoch.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether more than three quarters of the allowed holds are used, where there may be `limit` segments.
    pub(crate) fn are_scarce(&self, limit: usize) -> bool {
        self.count() * 4 > self.count_max(limit) * 3
    }

    fn count_max(&self, limit: usize) -> usize {
        let largest_item_allowance =
            self.largest_item_segment_count.min(limit / LARGEST_ITEM_DIVISOR);
        (limit / HELD_DIVISOR).max(largest_item_allowance).max(1)
    }

    /// Counts a segment in any case; false if too many are held, where there may be `limit` segments.
    fn add(&self, limit: usize) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) < self.count_max(limit)
    }

    fn remove(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Segments {
    /// Keeps the segment from being swept while a value is not committed.
    pub(crate) fn pin(&self, addr: Addr) {
        self.table.meta(self.arena.segment_of(addr)).pins.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a [`Segments::pin`].
    pub(crate) fn unpin(&self, addr: Addr) {
        let id = self.arena.segment_of(addr);
        if self.table.meta(id).pins.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.reclassify(id);
        }
    }

    /// Keeps the segment from being reused; false (and nothing changed) if too many are held already.
    pub(crate) fn hold(&self, addr: Addr) -> bool {
        let meta = self.table.meta(self.arena.segment_of(addr));
        let is_first = meta.holds.fetch_add(1, Ordering::AcqRel) == 0;
        if is_first && !self.held.add(self.usage.limit()) {
            self.unhold(addr);
            return false;
        }
        true
    }

    /// Ends a [`Segments::hold`].
    pub(crate) fn unhold(&self, addr: Addr) {
        // Release pairs with the Acquire in `reclaim_limbo`: the holder has finished reading.
        let meta = self.table.meta(self.arena.segment_of(addr));
        if meta.holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.held.remove();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Holds one segment after the other until too many are held.
    fn held_count_max(held: &HeldSegments, limit: usize) -> usize {
        let count = (0..=limit).take_while(|_| held.add(limit)).count();
        held.remove();
        assert!(held.count() == count && held.are_scarce(limit));
        (0..count).for_each(|_| held.remove());
        count
    }

    #[test]
    fn an_eighth_of_the_segments_may_be_held_or_one_of_the_largest_items() {
        let held = HeldSegments::new(1 << 20, 1 << 16);
        assert_eq!(held_count_max(&held, 1000), 125);
        assert_eq!(held_count_max(&held, 100), 34, "an item of 16 segments, shared with others");
        assert_eq!(held_count_max(&held, 40), 20, "no more than half");
        assert_eq!(held_count_max(&held, 1), 1);
        assert!(!held.are_scarce(100));
    }
}
