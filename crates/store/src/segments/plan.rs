//! The plan: which segments are free, wait for readers, or were returned to the system; behind one short lock.

use std::collections::VecDeque;
use std::sync::PoisonError;

use super::{Budget, Segments, State};
use crate::memory::SegmentId;
use crate::sync::{MutexGuard, Ordering};

/// Free and waiting segments.
pub(super) struct Plan {
    pub(super) free: Vec<SegmentId>,
    pub(super) limbo: VecDeque<(SegmentId, u64)>,
    /// Returned to the system because the limit was lowered.
    pub(super) parked: Vec<SegmentId>,
    /// Backed ahead of need and not yet used, in the order of use.
    pub(super) ready: VecDeque<SegmentId>,
    /// Segments from here on were never used.
    pub(super) fresh: u32,
    /// Segments that may hold pages: in use, free, in limbo or ready.
    pub(super) backed: usize,
}

impl Segments {
    /// Sets the number that the budget allows; free segments beyond it are returned to the system.
    pub(crate) fn set_allowed(&self, budget: Budget) {
        self.allowed.store(budget.segments, Ordering::Relaxed);
        self.index_extra
            .store(budget.index_extra, Ordering::Relaxed);
        let mut pools = self.lock();
        self.settle(&mut pools);
    }

    pub(super) fn take(&self, spare_min: usize, state: State) -> Option<SegmentId> {
        let mut pools = self.lock();
        // Counted first, because a separate segment of lines raises the allowed number.
        let is_lines = state == State::Lines;
        self.lines
            .fetch_add(usize::from(is_lines), Ordering::Relaxed);
        let segment = self.take_spare(&mut pools, spare_min, state);
        if is_lines && segment.is_none() {
            self.lines.fetch_sub(1, Ordering::Relaxed);
        }
        segment
    }

    pub(super) fn take_spare(
        &self,
        pools: &mut Plan,
        spare_min: usize,
        state: State,
    ) -> Option<SegmentId> {
        if self.spare() <= spare_min {
            return None;
        }
        if pools.free.is_empty() && !pools.limbo.is_empty() {
            self.settle(pools);
        }
        let id = match pools.free.pop().or_else(|| pools.ready.pop_front()) {
            Some(id) => id,
            None if pools.backed < self.allowed() => self.back_one(pools)?,
            None => return None,
        };
        self.in_use.fetch_add(1, Ordering::Relaxed);
        self.count_idle(pools);
        let meta = self.meta(id);
        meta.live.store(0, Ordering::Relaxed);
        meta.used.store(0, Ordering::Relaxed);
        meta.pins.store(0, Ordering::Relaxed);
        meta.state.store(state as u32, Ordering::Release);
        Some(id)
    }

    pub(super) fn back_one(&self, pools: &mut Plan) -> Option<SegmentId> {
        let parked = pools.parked.pop();
        parked.inspect(|&id| self.arena.restore(id));
        let id = parked.or_else(|| {
            let id = SegmentId(pools.fresh);
            ((id.0 as usize) < self.metas.len()).then(|| {
                pools.fresh += 1;
                id
            })
        })?;
        pools.backed += 1;
        Some(id)
    }

    /// Moves segments that no reader can see any more from limbo to the free ones, or returns them to the system.
    pub(super) fn settle(&self, pools: &mut Plan) {
        let safe = self.epochs.safe_tick();
        let allowed = self.allowed();
        let mut stuck = 0;
        for _ in 0..pools.limbo.len() {
            let Some((id, tick)) = pools.limbo.pop_front() else {
                break;
            };
            let meta = self.meta(id);
            // Acquire pairs with the Release of the last hold's end.
            let is_held = meta.holds.load(Ordering::Acquire) != 0;
            stuck += usize::from(is_held);
            if tick <= safe && !is_held {
                meta.state.store(State::Free as u32, Ordering::Relaxed);
                pools.free.push(id);
            } else {
                pools.limbo.push_back((id, tick));
            }
        }
        self.stuck.store(stuck, Ordering::Relaxed);
        while pools.backed > allowed {
            let Some(id) = pools.free.pop().or_else(|| pools.ready.pop_back()) else {
                break;
            };
            self.arena.discard(id);
            pools.parked.push(id);
            pools.backed -= 1;
        }
        self.count_idle(pools);
    }

    pub(super) fn count_idle(&self, pools: &Plan) {
        let idle = pools.free.len() + pools.limbo.len();
        self.idle.store(idle, Ordering::Relaxed);
        self.needs_backing
            .store(self.lacks_ready(pools), Ordering::Relaxed);
    }

    /// Whether a segment should be backed ahead of need. Not before one was written: an empty store takes no
    /// memory.
    fn lacks_ready(&self, pools: &Plan) -> bool {
        let segments_wanted = self.arena.huge_page_segments();
        let is_written = pools.backed > 1;
        let has_next =
            !pools.parked.is_empty() || self.arena.has_huge_pages(SegmentId(pools.fresh));
        is_written
            && pools.ready.len() < segments_wanted
            && pools.backed < self.allowed()
            && has_next
    }

    /// Whether the next segments that were never written are untouched memory: time for [`Segments::back_memory_ahead`].
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
        self.arena.write(self.arena.start(id), &[0]);
        let mut pools = self.lock();
        pools.ready.push_back(id);
        self.settle(&mut pools);
        self.needs_backing()
    }

    fn take_unbacked(&self) -> Option<SegmentId> {
        let mut pools = self.lock();
        let is_due = self.lacks_ready(&pools);
        let id = is_due.then(|| self.back_one(&mut pools)).flatten();
        self.count_idle(&pools);
        id
    }

    /// Segments that are backed and not yet used.
    pub(crate) fn ready(&self) -> usize {
        self.lock().ready.len()
    }

    /// Tries to reclaim segments from limbo.
    pub(crate) fn settle_now(&self) {
        self.settle(&mut self.lock());
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
