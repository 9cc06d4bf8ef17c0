//! Overflow lines: an eighth to a quarter of the index, allocated from segments of their own.
//!
//! A line is returned at once and may serve another bucket while a reader still reads it: it consists of atomics
//! only, and the reader's own bucket has changed its version by then. Only a whole segment waits for the epoch.
//! Lines are taken from the fullest segment, so that the emptiest can be cleared and returned.

use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;

use super::bucket::{link_of, with_link};
use super::{Index, SegmentSource};
use crate::memory::{Line, LineId, Lines, SegmentId};
use crate::sync::{Mutex, MutexGuard, Ordering};

/// One segment of overflow lines.
struct OverflowSegment {
    segment: SegmentId,
    used_lines: usize,
    /// Lines from here on were never allocated.
    allocated_end: usize,
    /// Returned lines, linked through their control words.
    free_list_head: Option<LineId>,
    /// Its lines are being moved away; none is allocated from it.
    is_draining: bool,
}

/// One segment of overflow lines, as it is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverflowSnapshot {
    pub(crate) segment: u32,
    pub(crate) used_lines: u32,
    /// Lines from here on were never allocated.
    pub(crate) allocated_end: u32,
    /// The first free line; 0 if there is none.
    pub(crate) free_list_head: u64,
}

/// All segments of overflow lines. The lock is held for a few stores and never while waiting for a bucket.
pub(super) struct Overflow {
    segments: Mutex<Vec<OverflowSegment>>,
    segment_count: AtomicUsize,
    lines_per_segment: usize,
}

impl Overflow {
    pub(super) fn new(lines_per_segment: usize) -> Self {
        Overflow {
            segments: Mutex::new(Vec::new()),
            segment_count: AtomicUsize::new(0),
            lines_per_segment,
        }
    }

    /// What [`Overflow::from_snapshot`] needs.
    pub(super) fn snapshot(&self) -> Vec<OverflowSnapshot> {
        let segments = self.lock();
        let to_snapshot = |overflow_segment: &OverflowSegment| OverflowSnapshot {
            segment: overflow_segment.segment.0,
            used_lines: overflow_segment.used_lines as u32,
            allocated_end: overflow_segment.allocated_end as u32,
            free_list_head: overflow_segment.free_list_head.map_or(0, |line| line.0),
        };
        segments.iter().map(to_snapshot).collect()
    }

    pub(super) fn from_snapshot(lines_per_segment: usize, snapshot: &[OverflowSnapshot]) -> Self {
        let restore_segment = |overflow: &OverflowSnapshot| OverflowSegment {
            segment: SegmentId(overflow.segment),
            used_lines: overflow.used_lines as usize,
            allocated_end: overflow.allocated_end as usize,
            free_list_head: (overflow.free_list_head != 0)
                .then_some(LineId(overflow.free_list_head)),
            is_draining: false,
        };
        Overflow {
            segments: Mutex::new(snapshot.iter().map(restore_segment).collect()),
            segment_count: AtomicUsize::new(snapshot.len()),
            lines_per_segment,
        }
    }

    pub(super) fn segment_count(&self) -> usize {
        self.segment_count.load(Ordering::Relaxed)
    }

    /// A line with unknown content.
    pub(super) fn allocate_line<'i>(
        &self,
        lines: &'i Lines,
        source: &dyn SegmentSource,
    ) -> Option<(LineId, &'i Line)> {
        let mut segments = self.lock();
        let has_room = |overflow_segment: &OverflowSegment| {
            !overflow_segment.is_draining && overflow_segment.used_lines < self.lines_per_segment
        };
        if !segments.iter().any(has_room) {
            let segment = source.allocate_segment()?;
            segments.push(OverflowSegment {
                segment,
                used_lines: 0,
                allocated_end: 0,
                free_list_head: None,
                is_draining: false,
            });
            self.segment_count.store(segments.len(), Ordering::Relaxed);
        }
        let overflow_segment = segments
            .iter_mut()
            .filter(|overflow_segment| has_room(overflow_segment))
            .max_by_key(|overflow_segment| overflow_segment.used_lines)?;
        overflow_segment.used_lines += 1;
        let id = if let Some(id) = overflow_segment.free_list_head {
            overflow_segment.free_list_head =
                link_of(lines.line(id).control_word.load(Ordering::Relaxed));
            id
        } else {
            overflow_segment.allocated_end += 1;
            LineId(
                self.first_line_of(overflow_segment.segment)
                    + overflow_segment.allocated_end as u64
                    - 1,
            )
        };
        Some((id, lines.line(id)))
    }

    /// Frees a line.
    pub(super) fn free_line(&self, lines: &Lines, id: LineId) {
        let mut segments = self.lock();
        let segment = self.segment_of(id);
        if let Some(overflow_segment) =
            segments.iter_mut().find(|overflow_segment| overflow_segment.segment == segment)
        {
            // A reader that strays here walks the list of free lines: bounded, and its miss is not accepted.
            lines
                .line(id)
                .control_word
                .store(with_link(0, overflow_segment.free_list_head), Ordering::Release);
            overflow_segment.free_list_head = Some(id);
            overflow_segment.used_lines -= 1;
        }
    }

    /// Returns a segment whose lines are all free, if the others have free lines to spare.
    fn release_empty(&self, source: &dyn SegmentSource) -> bool {
        let mut segments = self.lock();
        let Some(empty_index) =
            segments.iter().position(|overflow_segment| overflow_segment.used_lines == 0)
        else {
            return false;
        };
        let free_lines: usize = segments
            .iter()
            .map(|overflow_segment| self.lines_per_segment - overflow_segment.used_lines)
            .sum();
        if free_lines < self.lines_per_segment + self.lines_per_segment / 4
            && !segments
                .get(empty_index)
                .is_some_and(|overflow_segment| overflow_segment.is_draining)
        {
            return false;
        }
        let overflow_segment = segments.swap_remove(empty_index);
        self.segment_count.store(segments.len(), Ordering::Relaxed);
        source.free_segment(overflow_segment.segment);
        true
    }

    /// Marks the emptiest segment for draining if the others could take all its lines one and a half times; returns
    /// the lines allocated from it so far.
    fn begin_or_continue_drain(&self) -> Option<std::ops::Range<u64>> {
        let mut segments = self.lock();
        if !segments.iter().any(|overflow_segment| overflow_segment.is_draining) {
            let free_lines: usize = segments
                .iter()
                .map(|overflow_segment| self.lines_per_segment - overflow_segment.used_lines)
                .sum();
            if free_lines < 2 * self.lines_per_segment {
                return None;
            }
            segments
                .iter_mut()
                .min_by_key(|overflow_segment| overflow_segment.used_lines)?
                .is_draining = true;
        }
        let overflow_segment =
            segments.iter().find(|overflow_segment| overflow_segment.is_draining)?;
        let first_line = self.first_line_of(overflow_segment.segment);
        Some(first_line..first_line + overflow_segment.allocated_end as u64)
    }

    fn first_line_of(&self, segment: SegmentId) -> u64 {
        u64::from(segment.0) * self.lines_per_segment as u64
    }

    fn segment_of(&self, id: LineId) -> SegmentId {
        SegmentId((id.0 / self.lines_per_segment as u64) as u32)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OverflowSegment>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Moves overflow lines together and returns emptied segments; true if something was done.
    ///
    /// Examines `examined_max` lines of the segment being drained, so that a call is bounded. Only one worker does this at
    /// a time: the caller holds the resize lock.
    pub(super) fn drain_overflow_lines(
        &self,
        next_line: &mut u64,
        examined_max: u64,
        source: &dyn SegmentSource,
    ) -> bool {
        if self.overflow.release_empty(source) {
            *next_line = 0;
            return true;
        }
        let Some(allocated_lines) = self.overflow.begin_or_continue_drain() else {
            return false;
        };
        if !allocated_lines.contains(next_line) {
            *next_line = allocated_lines.start;
        }
        for id in (*next_line..allocated_lines.end).take(examined_max as usize) {
            *next_line = id + 1;
            self.move_line(LineId(id), source);
        }
        true
    }

    fn move_line(&self, old: LineId, source: &dyn SegmentSource) {
        let bucket_number =
            super::bucket::owner_of(self.lines.line(old).control_word.load(Ordering::Acquire));
        // A free line has no owner in its control word and looks like one of bucket 0: not found in that chain.
        if bucket_number >= self.bucket_count() {
            return;
        }
        let Some((new, _)) = self.overflow.allocate_line(&self.lines, source) else {
            return;
        };
        let is_moved = super::LockedBucket::lock(self, bucket_number).relocate(old, new);
        self.overflow.free_line(&self.lines, if is_moved { old } else { new });
    }
}
