//! The pools of segments that are free, wait for readers, or were returned to the system; behind one short lock.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use super::table::{SegmentState, SegmentTable};
use super::usage::SegmentUsage;
use crate::memory::{Arena, SegmentId};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering};

/// The pools, and what other threads see of them without the lock.
pub(crate) struct Pools {
    arena: Arc<Arena>,
    lists: Mutex<PoolLists>,
    /// Free segments and those in limbo, which were written before and cost no page fault.
    reusable_count: AtomicUsize,
    /// Whether fewer segments are backed ahead of need than there should be.
    needs_backing: AtomicBool,
}

/// Segments that are free, wait for readers, or were returned to the system.
#[derive(Default)]
pub(super) struct PoolLists {
    free: Vec<SegmentId>,
    /// Each with the tick at which it was retired.
    limbo: VecDeque<(SegmentId, u64)>,
    /// Returned to the system because the limit was lowered.
    discarded: Vec<SegmentId>,
    /// Backed ahead of need and not yet used, in the order of use.
    backed_ahead: VecDeque<SegmentId>,
    /// Segments from here on were never used.
    first_never_used: u32,
    /// Segments that may hold pages: in use, free, in limbo or ready.
    backed_count: usize,
}

impl PoolLists {
    /// The number of segments that were ever used: those with smaller numbers.
    pub(super) fn used_count(&self) -> usize {
        self.first_never_used as usize
    }

    /// Puts a segment in limbo that was retired at `tick`.
    pub(super) fn add_to_limbo(&mut self, id: SegmentId, tick: u64) {
        self.limbo.push_back((id, tick));
    }

    /// Whether the next segment has to come from limbo, if it can.
    pub(super) fn must_reclaim(&self) -> bool {
        self.free.is_empty() && !self.limbo.is_empty()
    }

    /// The number of segments that are free or wait for readers.
    pub(super) fn reusable_count(&self) -> usize {
        self.free.len() + self.limbo.len()
    }
}

impl Pools {
    /// The pools of an arena of which no segment was used.
    pub(super) fn new(arena: Arc<Arena>) -> Self {
        Pools {
            arena,
            lists: Mutex::new(PoolLists::default()),
            reusable_count: AtomicUsize::new(0),
            needs_backing: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PoolLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Segments that were written before and are free, or will be.
    #[inline]
    pub(super) fn reusable_count(&self) -> usize {
        self.reusable_count.load(Ordering::Relaxed)
    }

    /// Whether the next segments that were never written are untouched memory: time for
    /// [`super::Segments::back_memory_ahead`].
    #[inline]
    pub(crate) fn needs_backing(&self) -> bool {
        self.needs_backing.load(Ordering::Relaxed)
    }

    /// Segments that are backed and not yet used.
    pub(crate) fn backed_ahead_count(&self) -> usize {
        self.lock().backed_ahead.len()
    }

    /// Takes a segment for use; `None` if none is free and no more may be backed.
    pub(super) fn take(&self, lists: &mut PoolLists, usage: &SegmentUsage) -> Option<SegmentId> {
        let id = match lists.free.pop().or_else(|| lists.backed_ahead.pop_front()) {
            Some(id) => id,
            None if lists.backed_count < usage.limit() => self.back_segment(lists)?,
            None => return None,
        };
        self.update_counts(lists, usage);
        Some(id)
    }

    fn back_segment(&self, lists: &mut PoolLists) -> Option<SegmentId> {
        let discarded = lists.discarded.pop();
        discarded.inspect(|&id| self.arena.restore(id));
        let id = discarded.or_else(|| {
            let id = SegmentId(lists.first_never_used);
            ((id.0 as usize) < self.arena.segment_count()).then(|| {
                lists.first_never_used += 1;
                id
            })
        })?;
        lists.backed_count += 1;
        Some(id)
    }

    /// Moves segments that no reader has seen since `safe_tick`, and that are not held, from limbo to the free ones, or
    /// returns them to the system.
    pub(super) fn reclaim_limbo(
        &self,
        lists: &mut PoolLists,
        safe_tick: u64,
        table: &SegmentTable,
        usage: &SegmentUsage,
    ) {
        let limit = usage.limit();
        let mut held_in_limbo = 0;
        for _ in 0..lists.limbo.len() {
            let Some((id, tick)) = lists.limbo.pop_front() else {
                break;
            };
            let meta = table.meta(id);
            // Acquire pairs with the Release of the last hold's end.
            let is_held = meta.holds.load(Ordering::Acquire) != 0;
            held_in_limbo += usize::from(is_held);
            if tick <= safe_tick && !is_held {
                meta.state.store(SegmentState::Free as u32, Ordering::Relaxed);
                lists.free.push(id);
            } else {
                lists.limbo.push_back((id, tick));
            }
        }
        usage.set_held_in_limbo(held_in_limbo);
        while lists.backed_count > limit {
            let Some(id) = lists.free.pop().or_else(|| lists.backed_ahead.pop_back()) else {
                break;
            };
            self.arena.discard(id);
            lists.discarded.push(id);
            lists.backed_count -= 1;
        }
        self.update_counts(lists, usage);
    }

    fn update_counts(&self, lists: &PoolLists, usage: &SegmentUsage) {
        self.reusable_count.store(lists.reusable_count(), Ordering::Relaxed);
        self.needs_backing.store(self.should_back_ahead(lists, usage), Ordering::Relaxed);
    }

    /// Whether a segment should be backed ahead of need. Not before one was written: an empty store takes no
    /// memory.
    fn should_back_ahead(&self, lists: &PoolLists, usage: &SegmentUsage) -> bool {
        let ahead_target = self.arena.segments_per_huge_page();
        let is_written = lists.backed_count > 1;
        let has_next = !lists.discarded.is_empty()
            || self.arena.has_huge_pages(SegmentId(lists.first_never_used));
        is_written
            && lists.backed_ahead.len() < ahead_target
            && lists.backed_count < usage.limit()
            && has_next
    }

    /// Backs one segment ahead of need, if that is wanted; false if it is not.
    pub(super) fn back_ahead(&self, usage: &SegmentUsage) -> bool {
        let Some(id) = self.take_unbacked(usage) else {
            return false;
        };
        // Neither free nor in use: no other thread can reach it.
        self.arena.write(self.arena.segment_start(id), &[0]);
        self.lock().backed_ahead.push_back(id);
        true
    }

    fn take_unbacked(&self, usage: &SegmentUsage) -> Option<SegmentId> {
        let mut lists = self.lock();
        let is_due = self.should_back_ahead(&lists, usage);
        let id = is_due.then(|| self.back_segment(&mut lists)).flatten();
        self.update_counts(&lists, usage);
        id
    }

    /// Fills the pools of a restored table: what is free before the last segment in use may be used again.
    pub(super) fn restore(&self, table: &SegmentTable, usage: &SegmentUsage) {
        let is_free = |id: &SegmentId| table.meta(*id).has_state(SegmentState::Free);
        let used_count = table.ids().rev().find(|id| !is_free(id)).map_or(0, |id| id.0 + 1);
        let mut lists = self.lock();
        lists.first_never_used = used_count;
        lists.free = (0..used_count).rev().map(SegmentId).filter(is_free).collect();
        lists.backed_count = used_count as usize;
        self.update_counts(&lists, usage);
    }
}
