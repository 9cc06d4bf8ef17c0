//! The table of segments after a restart: what each segment of items was, and which hold lines.

use super::{Queue, SegmentState, Segments};
use crate::memory::SegmentId;
use crate::memory::arena::ITEM_ALIGN;
use crate::sync::Ordering;

/// Counters that only grow stay below this, far beyond what a server reaches, so that no sum of them overflows.
const COUNTER_MAX: u64 = 1 << 60;
/// The same for uniques, which begin at a number from the clock.
const UNIQUE_MAX: u64 = 1 << 63;

/// A sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ItemSegment {
    pub(crate) id: u32,
    pub(crate) queue: Queue,
    pub(crate) used_bytes: u32,
    pub(crate) expires_at_s: u32,
    pub(crate) queue_position: u64,
    pub(crate) sequence: u64,
    pub(crate) generation: u64,
    pub(crate) base_time: u32,
}

/// The table, and the counters from which uniques and positions are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SegmentsSnapshot {
    pub(crate) next_sequence: u64,
    pub(crate) halved_counted_unique: u64,
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
        for (index, (meta, identity)) in self.metas.iter().zip(&self.identities).enumerate() {
            let view = self.view(SegmentId(index as u32));
            if view.has_state(SegmentState::Open) || view.has_state(SegmentState::Sweeping) {
                return None;
            }
            let segment_live_bytes = bytes_in_use(view.id, view.live_bytes, view.is_pinned)?;
            if !view.has_state(SegmentState::Sealed) || segment_live_bytes == 0 {
                continue;
            }
            live_bytes.push(segment_live_bytes as u32);
            item_segments.push(ItemSegment {
                id: view.id.0,
                queue: view.queue,
                used_bytes: meta.used_bytes.load(Ordering::Relaxed),
                expires_at_s: view.expires_at_s,
                queue_position: view.queue_position,
                sequence: identity.sequence.load(Ordering::Relaxed),
                generation: view.generation,
                base_time: identity.base_time.load(Ordering::Relaxed),
            });
        }
        let snapshot = SegmentsSnapshot {
            next_sequence: self.next_sequence.load(Ordering::Relaxed),
            halved_counted_unique: self.halved_counted_unique.load(Ordering::Relaxed),
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
        let sequence_max = UNIQUE_MAX / 2 / self.addresses_per_segment();
        if snapshot.next_sequence > sequence_max
            || snapshot.halved_counted_unique > UNIQUE_MAX / 2
            || snapshot.next_queue_position > COUNTER_MAX
        {
            return Err("a counter is out of range");
        }
        self.next_sequence.store(snapshot.next_sequence, Ordering::Relaxed);
        self.halved_counted_unique.store(snapshot.halved_counted_unique, Ordering::Relaxed);
        self.next_queue_position.store(snapshot.next_queue_position, Ordering::Relaxed);
        if !snapshot.item_segments.is_sorted_by_key(|segment| segment.id) {
            return Err("the segments are not in order");
        }
        for segment in &snapshot.item_segments {
            self.restore_item_segment(segment, snapshot)?;
        }
        for id in line_segments {
            self.claim_segment(id, SegmentState::Lines)?;
            self.line_segments_in_use.fetch_add(1, Ordering::Relaxed);
        }
        let mut pools = self.lock();
        for (id, meta) in (0..).zip(&self.metas) {
            if meta.state.load(Ordering::Relaxed) != SegmentState::Free as u32 {
                pools.first_never_used = id + 1;
            }
        }
        let is_free = |id: &u32| self.view(SegmentId(*id)).has_state(SegmentState::Free);
        pools.free = (0..pools.first_never_used).rev().filter(is_free).map(SegmentId).collect();
        pools.backed_count = pools.first_never_used as usize;
        self.update_reusable(&pools);
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
        if segment.sequence >= snapshot.next_sequence
            || segment.queue_position >= snapshot.next_queue_position
        {
            return Err("a segment is younger than the last one");
        }
        if segment.generation > self.flushes.generation() {
            return Err("a segment is from after the last flush");
        }
        let id = self.claim_segment(segment.id, SegmentState::Sealed)?;
        let (meta, identity) = (self.meta(id), self.identity(id));
        meta.is_in_main_queue.store(u32::from(segment.queue == Queue::Main), Ordering::Relaxed);
        meta.used_bytes.store(segment.used_bytes, Ordering::Relaxed);
        meta.expires_at_s.store(segment.expires_at_s, Ordering::Relaxed);
        meta.queue_position.store(segment.queue_position, Ordering::Relaxed);
        identity.sequence.store(segment.sequence, Ordering::Relaxed);
        identity.generation.store(segment.generation, Ordering::Relaxed);
        identity.base_time.store(segment.base_time, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a segment of an unused table.
    fn claim_segment(&self, id: u32, state: SegmentState) -> Result<SegmentId, &'static str> {
        let meta = self.metas.get(id as usize);
        let meta = meta.ok_or("a segment is outside of the memory")?;
        if meta.state.swap(state as u32, Ordering::Relaxed) != SegmentState::Free as u32 {
            return Err("a segment has two uses");
        }
        self.in_use.fetch_add(1, Ordering::Relaxed);
        Ok(SegmentId(id))
    }

    /// Sets the live bytes of a restored segment: from here on it may be swept, and one without any is free.
    pub(crate) fn restore_live_bytes(&self, id: SegmentId, live_bytes: u32) {
        self.meta(id).live_bytes.store(live_bytes, Ordering::SeqCst);
        self.reclassify(id);
    }
}
