//! Growing and shrinking by one bucket: split, merge, and clearing segments of overflow lines.
//!
//! The order makes readers safe. A split copies to the new bucket, publishes the count, and clears the old bucket
//! last; a merge copies to the old bucket, publishes, and clears the new one last. So an item is always in the
//! bucket to which the count, as the reader knows it, points; and a reader with an old count that comes after the
//! clearing finds the version or the count changed. Both hold two locks, that of the old bucket first.

use super::bucket::BUCKETS_MAX;
use super::{Entry, Index, ItemHashes, LockedBucket, SegmentSource, bucket_of};
use crate::memory::{LineId, SegmentId};
use crate::sync::{AtomicUsize, Mutex, Ordering, guard_if_free};

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResizeOutcome {
    /// There is one bucket more or less, or overflow lines were moved.
    Done,
    /// There was nothing to do.
    Idle,
    /// Another worker is resizing.
    Busy,
    /// A line or segment was needed and not available.
    NoRoom,
}

/// Lines of the next segment that each split clears: clearing all at once takes milliseconds if the kernel has to
/// provide the memory first. So the last eighth of a segment is filled while the next one is cleared.
const LINES_CLEARED_PER_SPLIT: u64 = 8;

/// Overflow lines examined in one step of draining.
const DRAIN_LINES_PER_STEP: u64 = 32;

/// State that only the resizing worker touches.
pub(super) struct ResizeControl {
    state: Mutex<ResizeState>,
    /// Segments taken and not yet in use: 0 or 1.
    segments_ahead: AtomicUsize,
}

struct ResizeState {
    /// Entries of the directory that are in use.
    directory_len: usize,
    /// The segment that will be added next.
    next_segment: Option<ClearingSegment>,
    /// Where the draining of an overflow segment continues.
    next_drain_line: u64,
    kept_entries: Vec<Entry>,
    moved_entries: Vec<Entry>,
}

/// A segment whose lines are being cleared. It held items before; nothing refers to it as lines yet.
struct ClearingSegment {
    segment: SegmentId,
    /// Lines that are clear.
    cleared_lines: u64,
}

impl ResizeControl {
    /// For an index of `directory_len` segments of buckets.
    pub(super) fn new(directory_len: usize) -> Self {
        let state = ResizeState {
            directory_len,
            next_segment: None,
            next_drain_line: 0,
            kept_entries: Vec::new(),
            moved_entries: Vec::new(),
        };
        ResizeControl { state: Mutex::new(state), segments_ahead: AtomicUsize::new(0) }
    }

    /// Segments taken and not yet in use.
    pub(super) fn segments_ahead(&self) -> usize {
        self.segments_ahead.load(Ordering::Relaxed)
    }
}

impl Index {
    /// Splits the next bucket in order.
    pub(crate) fn split(
        &self,
        item_hashes: &dyn ItemHashes,
        source: &dyn SegmentSource,
    ) -> ResizeOutcome {
        let Some(mut state) = guard_if_free(self.resize.state.try_lock()) else {
            return ResizeOutcome::Busy;
        };
        let state = &mut *state;
        let new_bucket = self.bucket_count.load(Ordering::Relaxed);
        let old_bucket = new_bucket - (1 << new_bucket.ilog2());
        if new_bucket >= BUCKETS_MAX || !self.prepare_segment(new_bucket, state, source) {
            return ResizeOutcome::NoRoom;
        }
        let mut old_bucket_guard = LockedBucket::lock(self, old_bucket);
        old_bucket_guard.entries().for_each(|entry| item_hashes.prefetch(entry.item_addr()));
        let mut new_bucket_guard = LockedBucket::lock(self, new_bucket);
        state.kept_entries.clear();
        state.moved_entries.clear();
        for entry in old_bucket_guard.entries() {
            let is_in_old_bucket =
                bucket_of(item_hashes.hash_of(entry.item_addr()), new_bucket + 1) == old_bucket;
            if is_in_old_bucket { &mut state.kept_entries } else { &mut state.moved_entries }
                .push(entry);
        }
        for entry in &state.moved_entries {
            if new_bucket_guard.insert(*entry, source).is_err() {
                new_bucket_guard.rewrite(&[]);
                return ResizeOutcome::NoRoom;
            }
        }
        // Release: a thread that sees the count sees the new bucket filled.
        self.bucket_count.store(new_bucket + 1, Ordering::Release);
        old_bucket_guard.rewrite(&state.kept_entries);
        ResizeOutcome::Done
    }

    /// Merges the last bucket into the one it was split from.
    pub(crate) fn merge(&self, source: &dyn SegmentSource) -> ResizeOutcome {
        let Some(mut state) = guard_if_free(self.resize.state.try_lock()) else {
            return ResizeOutcome::Busy;
        };
        let last_bucket = self.bucket_count.load(Ordering::Relaxed) - 1;
        if last_bucket < 1 << self.lines_per_segment_shift {
            return ResizeOutcome::Idle;
        }
        if let Some(next) = state.next_segment.take() {
            self.resize.segments_ahead.store(0, Ordering::Relaxed);
            source.free_segment(next.segment);
        }
        let mut old_bucket_guard =
            LockedBucket::lock(self, last_bucket - (1 << last_bucket.ilog2()));
        let mut new_bucket_guard = LockedBucket::lock(self, last_bucket);
        state.kept_entries.clear();
        state.kept_entries.extend(old_bucket_guard.entries());
        state.moved_entries.clear();
        state.moved_entries.extend(new_bucket_guard.entries());
        for entry in &state.moved_entries {
            if old_bucket_guard.insert(*entry, source).is_err() {
                old_bucket_guard.rewrite(&state.kept_entries);
                return ResizeOutcome::NoRoom;
            }
        }
        self.bucket_count.store(last_bucket, Ordering::Release);
        new_bucket_guard.rewrite(&[]);
        drop((old_bucket_guard, new_bucket_guard));
        self.free_unused_segments(last_bucket, &mut state, source);
        ResizeOutcome::Done
    }

    /// Clears part of the emptiest segment of overflow lines if that would free it.
    pub(crate) fn drain_overflow_step(&self, source: &dyn SegmentSource) -> ResizeOutcome {
        let Some(mut state) = guard_if_free(self.resize.state.try_lock()) else {
            return ResizeOutcome::Busy;
        };
        if self.drain_overflow_lines(&mut state.next_drain_line, DRAIN_LINES_PER_STEP, source) {
            ResizeOutcome::Done
        } else {
            ResizeOutcome::Idle
        }
    }

    /// Makes sure that the segment of bucket `new_bucket` exists, and prepares the next one before it is needed.
    fn prepare_segment(
        &self,
        new_bucket: usize,
        state: &mut ResizeState,
        source: &dyn SegmentSource,
    ) -> bool {
        let lines_per_segment = 1 << self.lines_per_segment_shift;
        let unused_buckets =
            ((state.directory_len << self.lines_per_segment_shift) - new_bucket) as u64;
        if unused_buckets > lines_per_segment / LINES_CLEARED_PER_SPLIT {
            return true;
        }
        let Some(directory_entry) = self.directory.get(state.directory_len) else {
            return unused_buckets > 0;
        };
        let allocate_segment = || {
            let segment = source.allocate_segment()?;
            Some(ClearingSegment { segment, cleared_lines: 0 })
        };
        let Some(mut next) = state.next_segment.take().or_else(allocate_segment) else {
            return unused_buckets > 0;
        };
        if unused_buckets > 0 {
            self.clear_lines(&mut next, LINES_CLEARED_PER_SPLIT);
            state.next_segment = Some(next);
            self.resize.segments_ahead.store(1, Ordering::Relaxed);
            return true;
        }
        self.clear_lines(&mut next, lines_per_segment);
        self.resize.segments_ahead.store(0, Ordering::Relaxed);
        // Release: a reader that still has a larger count from before a merge finds empty lines here.
        directory_entry.store(next.segment.0, Ordering::Release);
        state.directory_len += 1;
        true
    }

    /// Clears up to `count_max` further lines.
    fn clear_lines(&self, clearing: &mut ClearingSegment, count_max: u64) {
        let first_line = u64::from(clearing.segment.0) << self.lines_per_segment_shift;
        let first_uncleared = clearing.cleared_lines;
        clearing.cleared_lines =
            (first_uncleared + count_max).min(1 << self.lines_per_segment_shift);
        for id in first_line + first_uncleared..first_line + clearing.cleared_lines {
            let line = self.lines.line(LineId(id));
            line.control_word.store(0, Ordering::Relaxed);
            line.slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        }
    }

    /// Returns the segments of buckets that merges have emptied.
    fn free_unused_segments(
        &self,
        bucket_count: usize,
        state: &mut ResizeState,
        source: &dyn SegmentSource,
    ) {
        while state.directory_len << self.lines_per_segment_shift
            >= bucket_count + (1 << self.lines_per_segment_shift)
        {
            let Some(directory_entry) = self.directory.get(state.directory_len - 1) else {
                return;
            };
            // The directory's entry stays readable for readers with the old count; the epoch keeps the segment for them.
            source.free_segment(SegmentId(directory_entry.load(Ordering::Relaxed)));
            state.directory_len -= 1;
        }
    }
}
