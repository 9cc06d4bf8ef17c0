//! The life of a segment from open to limbo: sealing, sweeping, and the count of live bytes that ends it.
//!
//! The thread that brings a sealed segment to zero retires it; a sweep retires its own.

use super::{Queue, SegmentState, Segments};
use crate::memory::{Addr, SegmentId};
use crate::sparse_segments::is_sparse;
use crate::sync::{Ordering, loom_seq_cst_fence};

impl Segments {
    /// Closes an open segment of which `used_bytes` bytes were written. `queue_position` is its position in its queue;
    /// `None` is the young end.
    pub(crate) fn seal(
        &self,
        id: SegmentId,
        used_bytes: usize,
        expires_at_s: u32,
        queue_position: Option<u64>,
    ) {
        let meta = self.meta(id);
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
        let mut is_claimed = self.change_state(id, SegmentState::Sealed, SegmentState::Sweeping);
        if is_claimed && self.meta(id).pins.load(Ordering::SeqCst) != 0 {
            self.stop_sweep(id);
            is_claimed = false;
        }
        // Also if another thread was faster: the next choice must not get the same segment.
        self.rank(id);
        is_claimed
    }

    /// Restores a segment that could not be swept to its end.
    pub(crate) fn stop_sweep(&self, id: SegmentId) {
        self.meta(id).state.store(SegmentState::Sealed as u32, Ordering::SeqCst);
        self.reclassify(id);
    }

    /// Ends a sweep that has handled every record. A thread that unlinked one meanwhile may still have to count it: the
    /// last one retires the segment. So none is reused while a slot names something in it, regardless of what the sweep
    /// assumes.
    pub(crate) fn finish_sweep(&self, id: SegmentId) {
        self.stop_sweep(id);
    }

    /// Moves a fully live segment to the young end of a queue instead of copying it there.
    pub(crate) fn requeue(&self, id: SegmentId, queue: Queue) {
        let meta = self.meta(id);
        meta.is_in_main_queue.store(u32::from(queue == Queue::Main), Ordering::Relaxed);
        self.identity(id).uses_count_from.store(0, Ordering::Relaxed);
        meta.queue_position
            .store(self.next_queue_position.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.stop_sweep(id);
    }

    /// Puts a segment that is neither open nor sealed in limbo.
    pub(super) fn retire(&self, id: SegmentId) {
        self.rank(id);
        let mut pools = self.lock();
        self.meta(id).state.store(SegmentState::Limbo as u32, Ordering::Relaxed);
        let tick = self.epochs.retire();
        pools.limbo.push_back((id, tick));
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        self.reclaim_limbo(&mut pools);
    }

    /// Retires a sealed segment that is dead, lists one that is nearly dead, and ranks it.
    pub(super) fn reclassify(&self, id: SegmentId) {
        loom_seq_cst_fence();
        let meta = self.meta(id);
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
            self.rank(id);
        } else if self.change_state(id, SegmentState::Sealed, SegmentState::Limbo) {
            self.retire(id);
        }
    }

    fn change_state(&self, id: SegmentId, from: SegmentState, to: SegmentState) -> bool {
        let state = &self.meta(id).state;
        state.compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Counts a record as live, before it is published.
    pub(crate) fn count_live(&self, addr: Addr, bytes: usize) {
        self.meta(self.arena.segment_of(addr)).live_bytes.fetch_add(bytes as u32, Ordering::SeqCst);
    }

    /// Counts a record as dead, after nothing names it any more.
    pub(crate) fn count_dead(&self, addr: Addr, bytes: usize) {
        let id = self.arena.segment_of(addr);
        let live_before =
            self.meta(id).live_bytes.fetch_sub(bytes as u32, Ordering::SeqCst) as usize;
        strict_assert!(live_before >= bytes, "live bytes below zero");
        loom_seq_cst_fence();
        let live_after = live_before - bytes;
        // While the segment is open `used_bytes` is 0, so nothing is recorded before the seal, which checks for itself.
        let used_bytes = self.meta(id).used_bytes.load(Ordering::SeqCst) as usize;
        let must_reclassify = live_after == 0
            || self.changes_level(live_before, live_after)
            || (is_sparse(live_after, used_bytes) && !is_sparse(live_before, used_bytes));
        if used_bytes != 0 && must_reclassify {
            self.reclassify(id);
        }
    }
}
