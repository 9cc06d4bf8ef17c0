//! Overflow lines: an eighth to a quarter of the index, allocated from segments of their own.
//!
//! A line is returned at once and may serve another bucket while a reader still reads it: it consists of atomics
//! only, and the reader's own bucket has changed its version by then. Only a whole segment waits for the epoch.
//! Lines are taken from the fullest segment, so that the emptiest can be cleared and returned.

use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;

use super::bucket::{link_of, with_link};
use super::{Index, Supply};
use crate::memory::{Line, LineId, Lines, SegmentId};
use crate::sync::{Mutex, MutexGuard, Ordering};

/// One segment of overflow lines.
struct Pool {
    segment: SegmentId,
    used: usize,
    /// Lines from here on were never allocated.
    fresh: usize,
    /// Returned lines, linked through their words.
    free: Option<LineId>,
    /// Its lines are being moved away; none is allocated from it.
    draining: bool,
}

/// All segments of overflow lines. The lock is held for a few stores and never while waiting for a bucket.
pub(super) struct Overflow {
    pools: Mutex<Vec<Pool>>,
    segments: AtomicUsize,
    per_segment: usize,
}

impl Overflow {
    pub(super) fn new(per_segment: usize) -> Self {
        Overflow {
            pools: Mutex::new(Vec::new()),
            segments: AtomicUsize::new(0),
            per_segment,
        }
    }

    pub(super) fn segments(&self) -> usize {
        self.segments.load(Ordering::Relaxed)
    }

    /// A line with unknown content.
    pub(super) fn take<'i>(
        &self,
        lines: &'i Lines,
        supply: &dyn Supply,
    ) -> Option<(LineId, &'i Line)> {
        let mut pools = self.lock();
        let room = |pool: &Pool| !pool.draining && pool.used < self.per_segment;
        if !pools.iter().any(room) {
            let segment = supply.take()?;
            pools.push(Pool {
                segment,
                used: 0,
                fresh: 0,
                free: None,
                draining: false,
            });
            self.segments.store(pools.len(), Ordering::Relaxed);
        }
        let pool = pools
            .iter_mut()
            .filter(|pool| room(pool))
            .max_by_key(|pool| pool.used)?;
        pool.used += 1;
        let id = if let Some(id) = pool.free {
            pool.free = link_of(lines.line(id).word.load(Ordering::Relaxed));
            id
        } else {
            pool.fresh += 1;
            LineId(self.first_line(pool.segment) + pool.fresh as u64 - 1)
        };
        Some((id, lines.line(id)))
    }

    /// Returns a line.
    pub(super) fn give(&self, lines: &Lines, id: LineId) {
        let mut pools = self.lock();
        let segment = self.segment_of(id);
        if let Some(pool) = pools.iter_mut().find(|pool| pool.segment == segment) {
            // A reader that strays here walks the list of free lines: bounded, and its miss is not accepted.
            lines
                .line(id)
                .word
                .store(with_link(0, pool.free), Ordering::Release);
            pool.free = Some(id);
            pool.used -= 1;
        }
    }

    /// Returns a segment whose lines are all free, if the others have free lines to spare.
    fn release_empty(&self, supply: &dyn Supply) -> bool {
        let mut pools = self.lock();
        let Some(at) = pools.iter().position(|pool| pool.used == 0) else {
            return false;
        };
        let spare: usize = pools.iter().map(|pool| self.per_segment - pool.used).sum();
        if spare < self.per_segment + self.per_segment / 4
            && !pools.get(at).is_some_and(|pool| pool.draining)
        {
            return false;
        }
        let pool = pools.swap_remove(at);
        self.segments.store(pools.len(), Ordering::Relaxed);
        supply.give(pool.segment);
        true
    }

    /// Marks the emptiest segment for draining if the others could take all its lines one and a half times; returns
    /// the lines allocated from it so far.
    fn draining(&self) -> Option<std::ops::Range<u64>> {
        let mut pools = self.lock();
        if !pools.iter().any(|pool| pool.draining) {
            let spare: usize = pools.iter().map(|pool| self.per_segment - pool.used).sum();
            if spare < 2 * self.per_segment {
                return None;
            }
            pools.iter_mut().min_by_key(|pool| pool.used)?.draining = true;
        }
        let pool = pools.iter().find(|pool| pool.draining)?;
        let first = self.first_line(pool.segment);
        Some(first..first + pool.fresh as u64)
    }

    fn first_line(&self, segment: SegmentId) -> u64 {
        u64::from(segment.0) * self.per_segment as u64
    }

    fn segment_of(&self, id: LineId) -> SegmentId {
        SegmentId((id.0 / self.per_segment as u64) as u32)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Moves overflow lines together and returns emptied segments; true if something was done.
    ///
    /// Examines `lines` lines of the segment being drained, so that a call is bounded. Only one worker does this at
    /// a time: the caller holds the resize lock.
    pub(super) fn drain_overflow(&self, from: &mut u64, lines: u64, supply: &dyn Supply) -> bool {
        if self.overflow.release_empty(supply) {
            *from = 0;
            return true;
        }
        let Some(range) = self.overflow.draining() else {
            return false;
        };
        if !range.contains(from) {
            *from = range.start;
        }
        for id in (*from..range.end).take(lines as usize) {
            *from = id + 1;
            self.move_line(LineId(id), supply);
        }
        true
    }

    fn move_line(&self, old: LineId, supply: &dyn Supply) {
        let owner = super::bucket::owner_of(self.lines.line(old).word.load(Ordering::Acquire));
        // A free line has no owner in its word and looks like one of bucket 0: not found in that chain.
        if owner >= self.buckets() {
            return;
        }
        let Some((new, _)) = self.overflow.take(&self.lines, supply) else {
            return;
        };
        let moved = super::Bucket::lock(self, owner).relocate(old, new);
        self.overflow
            .give(&self.lines, if moved { old } else { new });
    }
}
