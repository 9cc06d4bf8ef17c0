//! Growing and shrinking by one bucket: split, merge, and clearing segments of overflow lines.
//!
//! The order makes readers safe. A split copies to the new bucket, publishes the count, and clears the old bucket
//! last; a merge copies to the lower bucket, publishes, and clears the upper last. So an item is always in the
//! bucket to which the count, as the reader knows it, points; and a reader with an old count that comes after the
//! clearing finds the version or the count changed. Both hold two locks, lower first.

use super::bucket::BUCKETS_MAX;
use super::{Bucket, Entry, Index, Keys, SegmentSource, bucket_of};
use crate::memory::{LineId, SegmentId};
use crate::sync::{AtomicUsize, Mutex, Ordering, if_free};

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// One bucket more or less, or overflow lines moved.
    Done,
    /// Nothing to do.
    Idle,
    /// Another worker is resizing.
    Busy,
    /// A line or segment was needed and not available.
    NoRoom,
}

/// Lines of the next segment that each split clears: all at once take milliseconds if the kernel has to provide the
/// memory first. So the last eighth of a segment is filled while the next one is cleared.
const LINES_CLEARED: u64 = 8;

/// Overflow lines examined in one step of draining.
const DRAIN_LINES: u64 = 32;

/// State that only the resizing worker touches.
pub(super) struct Resize {
    state: Mutex<State>,
    /// Segments taken and not yet in use: 0 or 1.
    ahead: AtomicUsize,
}

struct State {
    /// Entries of the directory that are in use.
    segments: usize,
    /// The segment that will be added next.
    next: Option<Clearing>,
    /// Where the draining of an overflow segment continues.
    drain_from: u64,
    kept: Vec<Entry>,
    moved: Vec<Entry>,
}

/// A segment whose lines are being cleared. It held items before; nothing refers to it as lines yet.
struct Clearing {
    segment: SegmentId,
    /// Lines that are clear.
    cleared: u64,
}

impl Resize {
    pub(super) fn new() -> Self {
        let state = State {
            segments: 1,
            next: None,
            drain_from: 0,
            kept: Vec::new(),
            moved: Vec::new(),
        };
        Resize {
            state: Mutex::new(state),
            ahead: AtomicUsize::new(0),
        }
    }

    /// Segments taken and not yet in use.
    pub(super) fn ahead(&self) -> usize {
        self.ahead.load(Ordering::Relaxed)
    }
}

impl Index {
    /// Splits the next bucket in order.
    pub(crate) fn split(&self, keys: &dyn Keys, source: &dyn SegmentSource) -> Step {
        let Some(mut state) = if_free(self.resize.state.try_lock()) else {
            return Step::Busy;
        };
        let state = &mut *state;
        let new = self.buckets.load(Ordering::Relaxed);
        let old = new - (1 << new.ilog2());
        if new >= BUCKETS_MAX || !self.prepare(new, state, source) {
            return Step::NoRoom;
        }
        let mut lower = Bucket::lock(self, old);
        lower
            .entries()
            .for_each(|entry| keys.prefetch(entry.item()));
        let mut upper = Bucket::lock(self, new);
        state.kept.clear();
        state.moved.clear();
        for entry in lower.entries() {
            let stays = bucket_of(keys.hash_of(entry.item()), new + 1) == old;
            if stays {
                &mut state.kept
            } else {
                &mut state.moved
            }
            .push(entry);
        }
        for entry in &state.moved {
            if upper.insert(*entry, source).is_err() {
                upper.rewrite(&[]);
                return Step::NoRoom;
            }
        }
        // Release: a thread that sees the count sees the new bucket filled.
        self.buckets.store(new + 1, Ordering::Release);
        lower.rewrite(&state.kept);
        Step::Done
    }

    /// Merges the last bucket into the one it was split from.
    pub(crate) fn merge(&self, source: &dyn SegmentSource) -> Step {
        let Some(mut state) = if_free(self.resize.state.try_lock()) else {
            return Step::Busy;
        };
        let last = self.buckets.load(Ordering::Relaxed) - 1;
        if last < 1 << self.per_segment_shift {
            return Step::Idle;
        }
        if let Some(next) = state.next.take() {
            self.resize.ahead.store(0, Ordering::Relaxed);
            source.give(next.segment);
        }
        let mut lower = Bucket::lock(self, last - (1 << last.ilog2()));
        let mut upper = Bucket::lock(self, last);
        state.kept.clear();
        state.kept.extend(lower.entries());
        state.moved.clear();
        state.moved.extend(upper.entries());
        for entry in &state.moved {
            if lower.insert(*entry, source).is_err() {
                lower.rewrite(&state.kept);
                return Step::NoRoom;
            }
        }
        self.buckets.store(last, Ordering::Release);
        upper.rewrite(&[]);
        drop((lower, upper));
        self.retire_segments(last, &mut state, source);
        Step::Done
    }

    /// Clears part of the emptiest segment of overflow lines if that would free it.
    pub(crate) fn tidy(&self, source: &dyn SegmentSource) -> Step {
        let Some(mut state) = if_free(self.resize.state.try_lock()) else {
            return Step::Busy;
        };
        if self.drain_overflow(&mut state.drain_from, DRAIN_LINES, source) {
            Step::Done
        } else {
            Step::Idle
        }
    }

    /// Makes sure that the segment of bucket `new` exists, and prepares the next one before it is needed.
    fn prepare(&self, new: usize, state: &mut State, source: &dyn SegmentSource) -> bool {
        let lines = 1 << self.per_segment_shift;
        let unused = ((state.segments << self.per_segment_shift) - new) as u64;
        if unused > lines / LINES_CLEARED {
            return true;
        }
        let Some(entry) = self.directory.get(state.segments) else {
            return unused > 0;
        };
        let take = || {
            let segment = source.take()?;
            Some(Clearing {
                segment,
                cleared: 0,
            })
        };
        let Some(mut next) = state.next.take().or_else(take) else {
            return unused > 0;
        };
        if unused > 0 {
            self.clear(&mut next, LINES_CLEARED);
            state.next = Some(next);
            self.resize.ahead.store(1, Ordering::Relaxed);
            return true;
        }
        self.clear(&mut next, lines);
        self.resize.ahead.store(0, Ordering::Relaxed);
        // Release: a reader that still has a larger count from before a merge finds empty lines here.
        entry.store(next.segment.0, Ordering::Release);
        state.segments += 1;
        true
    }

    /// Clears up to `count` further lines.
    fn clear(&self, clearing: &mut Clearing, count: u64) {
        let first = u64::from(clearing.segment.0) << self.per_segment_shift;
        let from = clearing.cleared;
        clearing.cleared = (from + count).min(1 << self.per_segment_shift);
        for id in first + from..first + clearing.cleared {
            let line = self.lines.line(LineId(id));
            line.word.store(0, Ordering::Relaxed);
            line.slots
                .iter()
                .for_each(|slot| slot.store(0, Ordering::Relaxed));
        }
    }

    /// After a merge that emptied the first bucket of a segment: the segment is returned.
    fn retire_segments(&self, last: usize, state: &mut State, source: &dyn SegmentSource) {
        while state.segments << self.per_segment_shift >= last + (1 << self.per_segment_shift) {
            let Some(entry) = self.directory.get(state.segments - 1) else {
                return;
            };
            // The entry stays readable for readers with the old count; the epoch keeps the segment for them.
            source.give(SegmentId(entry.load(Ordering::Relaxed)));
            state.segments -= 1;
        }
    }
}
