//! The table of segments after a restart: what each segment of items was, and which hold lines.

use super::Segments;
use super::table::{ItemSegment, SegmentState};
use super::uniques::UniquesSnapshot;
use crate::memory::SegmentId;
use crate::memory::arena::ITEM_ALIGN;
use crate::sync::Ordering;

/// Queue positions, which only grow, stay below this, far beyond what a server reaches, so that no sum of them overflows.
const QUEUE_POSITION_MAX: u64 = 1 << 60;

/// The table, and the counters from which uniques and positions are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SegmentsSnapshot {
    pub(crate) uniques: UniquesSnapshot,
    pub(crate) next_queue_position: u64,
    pub(crate) item_segments: Vec<ItemSegment>,
}

impl Segments {
    /// The input of [`Segments::restore`], and the live bytes of each segment of items; `None` while a worker writes, or
    /// `bytes_in_use`, which gets a segment, its live bytes and whether uploads have reserved some, returns `None`.
    pub(crate) fn snapshot(
        &self,
        bytes_in_use: impl Fn(SegmentId, usize, bool) -> Option<usize>,
    ) -> Option<(SegmentsSnapshot, Vec<u32>)> {
        let (mut item_segments, mut live_bytes) = (Vec::new(), Vec::new());
        for id in self.table.ids() {
            let view = self.table.view(id);
            if view.has_state(SegmentState::Open) || view.has_state(SegmentState::Sweeping) {
                return None;
            }
            let segment_live_bytes = bytes_in_use(view.id, view.live_bytes, view.is_pinned)?;
            if !view.has_state(SegmentState::Sealed) || segment_live_bytes == 0 {
                continue;
            }
            live_bytes.push(segment_live_bytes as u32);
            item_segments.push(self.table.item_segment(&view));
        }
        let snapshot = SegmentsSnapshot {
            uniques: self.uniques.snapshot(),
            next_queue_position: self.next_queue_position.load(Ordering::Relaxed),
            item_segments,
        };
        Some((snapshot, live_bytes))
    }

    /// Fills an unused table; `line_segments` are those of the index. The live bytes follow by
    /// [`Segments::restore_live_bytes`].
    pub(crate) fn restore(
        &self,
        snapshot: &SegmentsSnapshot,
        line_segments: impl Iterator<Item = u32>,
    ) -> Result<(), &'static str> {
        if snapshot.next_queue_position > QUEUE_POSITION_MAX
            || !self.uniques.restore(snapshot.uniques)
        {
            return Err("a counter is out of range");
        }
        self.next_queue_position.store(snapshot.next_queue_position, Ordering::Relaxed);
        if !snapshot.item_segments.is_sorted_by_key(|segment| segment.id) {
            return Err("the segments are not in order");
        }
        for segment in &snapshot.item_segments {
            self.restore_item_segment(segment, snapshot)?;
        }
        for id in line_segments {
            self.table.claim(id, SegmentState::Lines)?;
            self.usage.begin_use();
            self.usage.begin_lines();
        }
        self.pools.restore(&self.table, &self.usage);
        Ok(())
    }

    fn restore_item_segment(
        &self,
        segment: &ItemSegment,
        snapshot: &SegmentsSnapshot,
    ) -> Result<(), &'static str> {
        let used_bytes = segment.used_bytes as usize;
        if used_bytes == 0
            || used_bytes > self.arena.segment_bytes()
            || !used_bytes.is_multiple_of(ITEM_ALIGN)
        {
            return Err("the length of a segment is wrong");
        }
        if segment.sequence >= snapshot.uniques.next_sequence
            || segment.queue_position >= snapshot.next_queue_position
        {
            return Err("a segment is younger than the last one");
        }
        if segment.generation > self.flushes.generation() {
            return Err("a segment is from after the last flush");
        }
        self.table.restore(segment)?;
        self.usage.begin_use();
        Ok(())
    }

    /// Sets the live bytes of a restored segment: from here on it may be swept, and one without any is free.
    pub(crate) fn restore_live_bytes(&self, id: SegmentId, live_bytes: u32) {
        self.table.meta(id).live_bytes.store(live_bytes, Ordering::SeqCst);
        self.reclassify(id);
    }
}
