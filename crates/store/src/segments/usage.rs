//! The number of segments in use, and its limits.

use crate::sync::{AtomicUsize, Ordering};

/// The maximum number of segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Segments of all kinds.
    pub(crate) segments: usize,
    /// Segments of lines, in addition to those.
    pub(crate) extra_line_segments: usize,
}

/// The number of segments in use, and its limits.
pub(crate) struct SegmentUsage {
    /// All segments.
    segment_count: usize,
    /// Segments of all kinds that the budget allows now, without the extra ones for lines.
    allowed_count: AtomicUsize,
    /// Segments of lines that the budget allows in addition.
    extra_line_segments_max: AtomicUsize,
    line_segments: AtomicUsize,
    /// Segments that are open, sealed, swept or hold lines.
    in_use: AtomicUsize,
    /// Segments in limbo that are held, as last counted.
    held_in_limbo: AtomicUsize,
}

impl SegmentUsage {
    /// The usage of `segment_count` segments, none of which is used.
    pub(super) fn new(segment_count: usize, budget: Budget) -> Self {
        SegmentUsage {
            segment_count,
            allowed_count: AtomicUsize::new(budget.segments.min(segment_count)),
            extra_line_segments_max: AtomicUsize::new(budget.extra_line_segments),
            line_segments: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            held_in_limbo: AtomicUsize::new(0),
        }
    }

    /// Sets the number that the budget allows.
    pub(super) fn set_budget(&self, budget: Budget) {
        self.allowed_count.store(budget.segments, Ordering::Relaxed);
        self.extra_line_segments_max.store(budget.extra_line_segments, Ordering::Relaxed);
    }

    /// The maximum number of segments now, including the extra ones that hold lines.
    pub(crate) fn limit(&self) -> usize {
        let extra_max = self.extra_line_segments_max.load(Ordering::Relaxed);
        let extra_in_use = self.line_segments.load(Ordering::Relaxed).min(extra_max);
        (self.allowed_count.load(Ordering::Relaxed) + extra_in_use).min(self.segment_count)
    }

    /// The maximum number of segments that hold items.
    pub(super) fn item_segments_max(&self) -> usize {
        self.limit().saturating_sub(self.line_segments.load(Ordering::Relaxed))
    }

    /// Segments that hold items or lines.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// The number of segments that may still be taken before the budget is used up. It includes limbo, which drains by
    /// itself, but no held segments.
    pub(crate) fn spare(&self) -> usize {
        self.limit().saturating_sub(self.in_use() + self.held_in_limbo.load(Ordering::Relaxed))
    }

    pub(super) fn begin_use(&self) {
        self.in_use.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_use(&self) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a segment of lines, which may raise the limit, before it is taken.
    pub(super) fn begin_lines(&self) {
        self.line_segments.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_lines(&self) {
        self.line_segments.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records how many segments in limbo are held.
    pub(super) fn set_held_in_limbo(&self, held_in_limbo: usize) {
        self.held_in_limbo.store(held_in_limbo, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn segments_of_lines_raise_the_limit_by_the_extra_ones_only() {
        let usage = SegmentUsage::new(10, Budget { segments: 8, extra_line_segments: 1 });
        assert_eq!((usage.limit(), usage.item_segments_max()), (8, 8));
        usage.begin_lines();
        assert_eq!((usage.limit(), usage.item_segments_max()), (9, 8));
        usage.begin_lines();
        assert_eq!((usage.limit(), usage.item_segments_max()), (9, 7));
        usage.end_lines();
        usage.end_lines();
        assert_eq!((usage.limit(), usage.item_segments_max()), (8, 8));
    }

    #[test]
    fn held_segments_in_limbo_are_not_spare() {
        let usage = SegmentUsage::new(4, Budget { segments: 9, extra_line_segments: 9 });
        assert_eq!(usage.spare(), 4, "there are no more");
        usage.begin_use();
        usage.begin_use();
        usage.end_use();
        assert_eq!((usage.in_use(), usage.spare()), (1, 3));
        usage.set_held_in_limbo(2);
        assert_eq!(usage.spare(), 1);
        usage.set_budget(Budget { segments: 2, extra_line_segments: 0 });
        assert_eq!((usage.limit(), usage.spare()), (2, 0));
    }
}
