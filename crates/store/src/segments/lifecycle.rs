//! The life of a segment from free to limbo: taking, sealing, sweeping, and the count of live bytes that ends it.
//!
//! The thread that brings a sealed segment to zero retires it; a sweep retires its own.

use super::pools::PoolLists;
use super::table::{Queue, SegmentState};
use super::{Budget, Segments};
use crate::memory::{Addr, SegmentId};
use crate::request::Seconds;
use crate::sparse_segments::is_sparse;
use crate::sync::{Ordering, loom_seq_cst_fence};

impl Segments {
    /// Takes a segment if more than `spare_min` are spare; open, with its identity set.
    pub(crate) fn open(
        &self,
        spare_min: usize,
        queue: Queue,
        base_time: Seconds,
    ) -> Option<SegmentId> {
        let id = self.allocate(&mut self.pools.lock(), spare_min, SegmentState::Open)?;
        let (meta, identity) = (self.table.meta(id), self.table.identity(id));
        meta.set_queue(queue);
        meta.expires_at_s.store(0, Ordering::Relaxed);
        identity.sequence.store(self.uniques.take_sequence(), Ordering::Relaxed);
        // Readers see both through the slot that publishes an item of the segment.
        identity.generation.store(self.flushes.generation(), Ordering::Relaxed);
        identity.base_time.store(base_time.0, Ordering::Relaxed);
        identity.uses_count_from.store(0, Ordering::Relaxed);
        Some(id)
    }

    /// Takes a segment for lines if more than `spare_min` are spare.
    pub(crate) fn allocate_index_segment(&self, spare_min: usize) -> Option<SegmentId> {
        let mut lists = self.pools.lock();
        // Counted first, because an extra segment of lines raises the allowed number.
        self.usage.begin_lines();
        let segment = self.allocate(&mut lists, spare_min, SegmentState::Lines);
        if segment.is_none() {
            self.usage.end_lines();
        }
        segment
    }

    fn allocate(
        &self,
        lists: &mut PoolLists,
        spare_min: usize,
        state: SegmentState,
    ) -> Option<SegmentId> {
        if self.usage.spare() <= spare_min {
            return None;
        }
        if lists.must_reclaim() {
            self.reclaim_limbo(lists);
        }
        let id = self.pools.take(lists, &self.usage)?;
        self.usage.begin_use();
        let meta = self.table.meta(id);
        meta.live_bytes.store(0, Ordering::Relaxed);
        meta.used_bytes.store(0, Ordering::Relaxed);
        meta.pins.store(0, Ordering::Relaxed);
        meta.state.store(state as u32, Ordering::Release);
        Some(id)
    }

    /// Closes an open segment of which `used_bytes` bytes were written. `queue_position` is its position in its queue;
    /// `None` is the young end.
    pub(crate) fn seal(
        &self,
        id: SegmentId,
        used_bytes: usize,
        expires_at_s: u32,
        queue_position: Option<u64>,
    ) {
        let meta = self.table.meta(id);
        meta.used_bytes.store(used_bytes as u32, Ordering::SeqCst);
        meta.expires_at_s.store(expires_at_s, Ordering::Relaxed);
        let queue_position = queue_position
            .unwrap_or_else(|| self.next_queue_position.fetch_add(1, Ordering::Relaxed));
        meta.queue_position.store(queue_position, Ordering::Relaxed);
        // SeqCst with `count_dead`: either it sees the seal, or we see its count.
        meta.state.store(SegmentState::Sealed as u32, Ordering::SeqCst);
        self.reclassify(id);
    }

    /// Starts a sweep; false if another thread has started one, or if an upload still writes into it.
    pub(crate) fn start_sweep(&self, id: SegmentId) -> bool {
        // Acquire pairs with the seal: the walk sees the bytes.
        let mut is_claimed =
            self.table.change_state(id, SegmentState::Sealed, SegmentState::Sweeping);
        if is_claimed && self.table.meta(id).pins.load(Ordering::SeqCst) != 0 {
            self.end_sweep(id);
            is_claimed = false;
        }
        // Also if another thread was faster: the next choice must not get the same segment.
        self.ranking.update(&self.table, id);
        is_claimed
    }

    /// Ends a sweep, whether or not it has handled every record. A thread that unlinked one meanwhile may still have to
    /// count it: the last one retires the segment. So none is reused while a slot names something in it, regardless of
    /// what the sweep assumes.
    pub(crate) fn end_sweep(&self, id: SegmentId) {
        self.table.meta(id).state.store(SegmentState::Sealed as u32, Ordering::SeqCst);
        self.reclassify(id);
    }

    /// Moves a fully live segment to the young end of a queue instead of copying it there.
    pub(crate) fn requeue(&self, id: SegmentId, queue: Queue) {
        let meta = self.table.meta(id);
        meta.set_queue(queue);
        self.table.identity(id).uses_count_from.store(0, Ordering::Relaxed);
        meta.queue_position
            .store(self.next_queue_position.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.end_sweep(id);
    }

    /// Puts a segment that is neither open nor sealed in limbo.
    pub(super) fn retire(&self, id: SegmentId) {
        self.ranking.update(&self.table, id);
        let mut lists = self.pools.lock();
        self.table.meta(id).state.store(SegmentState::Limbo as u32, Ordering::Relaxed);
        let tick = self.epochs.retire();
        lists.add_to_limbo(id, tick);
        self.usage.end_use();
        self.reclaim_limbo(&mut lists);
    }

    /// Returns a segment of lines that nothing refers to any more.
    pub(crate) fn free_index_segment(&self, id: SegmentId) {
        self.usage.end_lines();
        self.retire(id);
    }

    /// Sets the number that the budget allows; free segments beyond it are returned to the system.
    pub(crate) fn set_budget(&self, budget: Budget) {
        self.usage.set_budget(budget);
        self.reclaim_limbo_now();
    }

    /// Tries to reclaim segments from limbo.
    pub(crate) fn reclaim_limbo_now(&self) {
        self.reclaim_limbo(&mut self.pools.lock());
    }

    fn reclaim_limbo(&self, lists: &mut PoolLists) {
        self.pools.reclaim_limbo(lists, self.epochs.safe_tick(), &self.table, &self.usage);
    }

    /// Backs one segment ahead of need, if that is wanted; true while more should follow.
    ///
    /// The first byte written to a huge page makes the kernel find and clear all of it, and in a virtual machine
    /// the host too: that takes milliseconds, and is best done by a thread that serves no requests.
    pub(crate) fn back_memory_ahead(&self) -> bool {
        let is_backed = self.pools.back_ahead(&self.usage);
        if is_backed {
            self.reclaim_limbo_now();
        }
        is_backed && self.pools.needs_backing()
    }

    /// Retires a sealed segment that is dead, lists one that is nearly dead, and ranks it.
    pub(super) fn reclassify(&self, id: SegmentId) {
        loom_seq_cst_fence();
        let meta = self.table.meta(id);
        let live_bytes = meta.live_bytes.load(Ordering::SeqCst) as usize;
        if meta.state.load(Ordering::SeqCst) != SegmentState::Sealed as u32
            || meta.pins.load(Ordering::SeqCst) != 0
        {
            return;
        }
        if live_bytes > 0 {
            if is_sparse(live_bytes, meta.used_bytes.load(Ordering::Relaxed) as usize) {
                self.sparse.add(id);
            }
            self.ranking.update(&self.table, id);
        } else if self.table.change_state(id, SegmentState::Sealed, SegmentState::Limbo) {
            self.retire(id);
        }
    }

    /// Counts a record as live, before it is published.
    pub(crate) fn count_live(&self, addr: Addr, bytes: usize) {
        self.table
            .meta(self.arena.segment_of(addr))
            .live_bytes
            .fetch_add(bytes as u32, Ordering::SeqCst);
    }

    /// Counts a record as dead, after nothing names it any more.
    pub(crate) fn count_dead(&self, addr: Addr, bytes: usize) {
        let id = self.arena.segment_of(addr);
        let live_before =
            self.table.meta(id).live_bytes.fetch_sub(bytes as u32, Ordering::SeqCst) as usize;
        strict_assert!(live_before >= bytes, "live bytes below zero");
        loom_seq_cst_fence();
        let live_after = live_before - bytes;
        // While the segment is open `used_bytes` is 0, so nothing is recorded before the seal, which checks for itself.
        let used_bytes = self.table.meta(id).used_bytes.load(Ordering::SeqCst) as usize;
        let must_reclassify = live_after == 0
            || self.ranking.changes_level(live_before, live_after)
            || (is_sparse(live_after, used_bytes) && !is_sparse(live_before, used_bytes));
        if used_bytes != 0 && must_reclassify {
            self.reclassify(id);
        }
    }
}
