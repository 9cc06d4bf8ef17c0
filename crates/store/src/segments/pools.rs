//! The pools of segments that are free, wait for readers, or were returned to the system; behind one short lock.

use std::collections::VecDeque;
use std::sync::PoisonError;

use super::{Budget, SegmentState, Segments};
use crate::memory::SegmentId;
use crate::sync::{MutexGuard, Ordering};

/// Segments that are free, wait for readers, or were returned to the system.
pub(super) struct SegmentPools {
    pub(super) free: Vec<SegmentId>,
    /// Each with the tick at which it was retired.
    pub(super) limbo: VecDeque<(SegmentId, u64)>,
    /// Returned to the system because the limit was lowered.
    pub(super) discarded: Vec<SegmentId>,
    /// Backed ahead of need and not yet used, in the order of use.
    pub(super) backed_ahead: VecDeque<SegmentId>,
    /// Segments from here on were never used.
    pub(super) first_never_used: u32,
    /// Segments that may hold pages: in use, free, in limbo or ready.
    pub(super) backed_count: usize,
}

impl Segments {
    /// Sets the number that the budget allows; free segments beyond it are returned to the system.
    pub(crate) fn set_budget(&self, budget: Budget) {
        self.allowed_count.store(budget.segments, Ordering::Relaxed);
        self.extra_line_segments_max.store(budget.extra_line_segments, Ordering::Relaxed);
        let mut pools = self.lock();
        self.reclaim_limbo(&mut pools);
    }

    pub(super) fn allocate(&self, spare_min: usize, state: SegmentState) -> Option<SegmentId> {
        let mut pools = self.lock();
        // Counted first, because an extra segment of lines raises the allowed number.
        let is_lines = state == SegmentState::Lines;
        self.line_segments_in_use.fetch_add(usize::from(is_lines), Ordering::Relaxed);
        let segment = self.allocate_spare(&mut pools, spare_min, state);
        if is_lines && segment.is_none() {
            self.line_segments_in_use.fetch_sub(1, Ordering::Relaxed);
        }
        segment
    }

    pub(super) fn allocate_spare(
        &self,
        pools: &mut SegmentPools,
        spare_min: usize,
        state: SegmentState,
    ) -> Option<SegmentId> {
        if self.spare_segments() <= spare_min {
            return None;
        }
        if pools.free.is_empty() && !pools.limbo.is_empty() {
            self.reclaim_limbo(pools);
        }
        let id = match pools.free.pop().or_else(|| pools.backed_ahead.pop_front()) {
            Some(id) => id,
            None if pools.backed_count < self.backing_limit() => self.back_segment(pools)?,
            None => return None,
        };
        self.in_use.fetch_add(1, Ordering::Relaxed);
        self.update_reusable(pools);
        let meta = self.meta(id);
        meta.live_bytes.store(0, Ordering::Relaxed);
        meta.used_bytes.store(0, Ordering::Relaxed);
        meta.pins.store(0, Ordering::Relaxed);
        meta.state.store(state as u32, Ordering::Release);
        Some(id)
    }

    pub(super) fn back_segment(&self, pools: &mut SegmentPools) -> Option<SegmentId> {
        let discarded = pools.discarded.pop();
        discarded.inspect(|&id| self.arena.restore(id));
        let id = discarded.or_else(|| {
            let id = SegmentId(pools.first_never_used);
            ((id.0 as usize) < self.metas.len()).then(|| {
                pools.first_never_used += 1;
                id
            })
        })?;
        pools.backed_count += 1;
        Some(id)
    }

    /// Moves segments that no reader can see any more from limbo to the free ones, or returns them to the system.
    pub(super) fn reclaim_limbo(&self, pools: &mut SegmentPools) {
        let safe_tick = self.epochs.safe_tick();
        let backing_limit = self.backing_limit();
        let mut held_in_limbo = 0;
        for _ in 0..pools.limbo.len() {
            let Some((id, tick)) = pools.limbo.pop_front() else {
                break;
            };
            let meta = self.meta(id);
            // Acquire pairs with the Release of the last hold's end.
            let is_held = meta.holds.load(Ordering::Acquire) != 0;
            held_in_limbo += usize::from(is_held);
            if tick <= safe_tick && !is_held {
                meta.state.store(SegmentState::Free as u32, Ordering::Relaxed);
                pools.free.push(id);
            } else {
                pools.limbo.push_back((id, tick));
            }
        }
        self.held_in_limbo.store(held_in_limbo, Ordering::Relaxed);
        while pools.backed_count > backing_limit {
            let Some(id) = pools.free.pop().or_else(|| pools.backed_ahead.pop_back()) else {
                break;
            };
            self.arena.discard(id);
            pools.discarded.push(id);
            pools.backed_count -= 1;
        }
        self.update_reusable(pools);
    }

    pub(super) fn update_reusable(&self, pools: &SegmentPools) {
        let reusable_count = pools.free.len() + pools.limbo.len();
        self.reusable_count.store(reusable_count, Ordering::Relaxed);
        self.needs_backing.store(self.should_back_ahead(pools), Ordering::Relaxed);
    }

    /// Whether a segment should be backed ahead of need. Not before one was written: an empty store takes no
    /// memory.
    fn should_back_ahead(&self, pools: &SegmentPools) -> bool {
        let ahead_target = self.arena.segments_per_huge_page();
        let is_written = pools.backed_count > 1;
        let has_next = !pools.discarded.is_empty()
            || self.arena.has_huge_pages(SegmentId(pools.first_never_used));
        is_written
            && pools.backed_ahead.len() < ahead_target
            && pools.backed_count < self.backing_limit()
            && has_next
    }

    /// Whether the next segments that were never written are untouched memory: time for
    /// [`Segments::back_memory_ahead`].
    #[inline]
    pub(crate) fn needs_backing(&self) -> bool {
        self.needs_backing.load(Ordering::Relaxed)
    }

    /// Backs one segment ahead of need, if that is wanted; true while more should follow.
    ///
    /// The first byte written to a huge page makes the kernel find and clear all of it, and in a virtual machine
    /// the host too: that takes milliseconds, and is best done by a thread that serves no requests.
    pub(crate) fn back_memory_ahead(&self) -> bool {
        let Some(id) = self.take_unbacked() else {
            return false;
        };
        // Neither free nor in use: no other thread can reach it.
        self.arena.write(self.arena.segment_start(id), &[0]);
        let mut pools = self.lock();
        pools.backed_ahead.push_back(id);
        self.reclaim_limbo(&mut pools);
        self.needs_backing()
    }

    fn take_unbacked(&self) -> Option<SegmentId> {
        let mut pools = self.lock();
        let is_due = self.should_back_ahead(&pools);
        let id = is_due.then(|| self.back_segment(&mut pools)).flatten();
        self.update_reusable(&pools);
        id
    }

    /// Segments that are backed and not yet used.
    pub(crate) fn backed_ahead_count(&self) -> usize {
        self.lock().backed_ahead.len()
    }

    /// Tries to reclaim segments from limbo.
    pub(crate) fn reclaim_limbo_now(&self) {
        self.reclaim_limbo(&mut self.lock());
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SegmentPools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
