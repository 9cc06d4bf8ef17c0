//! The table of segments: which are free, open, sealed or waiting for readers, and their live bytes.
//!
//! The states of a segment are free -> open -> sealed -> (sweeping) -> limbo -> free; index and ghost take whole
//! segments from the same table. The thread that unlinks an item subtracts its live bytes; the one that brings a sealed
//! segment to zero retires it. Taking and returning a segment takes one short lock, once in 64 KiB to 1 MiB written;
//! everything else here is atomics.
//!
//! Words: segments in *limbo* are referred to by nothing, but readers may still see them; *spare* ones may still be
//! taken within `-m`; *backed* ones have memory that the system has provided. New items are in segments of the
//! *small queue*, items used again in those of the *main queue*, as in S3-FIFO, and a *queue position* is the place
//! of a segment in its queue. The *identity* of a segment is what its opening sets: its *sequence* (the number of
//! the opening, of which its CAS uniques are made), its *generation* (`flush`) and its *base time*, the second from
//! which expiry and last access of its items are counted.
//!
//! What belongs together is a type of its own: the `table` of states and identities, the `pools` of unused segments, the
//! `usage` of the budget, the `ranking` of victims, `uniques`, the bytes of new items (`young`), and how many segments are
//! held. [`Segments`] has what needs several of them: the life of a segment.

mod hold;
mod lifecycle;
mod pools;
mod ranking;
mod snapshot;
mod table;
mod uniques;
mod usage;
mod young;

use hold::HeldSegments;
use pools::Pools;
pub(crate) use ranking::Candidates;
use ranking::Ranking;
pub(crate) use snapshot::SegmentsSnapshot;
use table::SegmentTable;
pub(crate) use table::{ItemSegment, Queue, SegmentState, SegmentView};
use uniques::Uniques;
pub(crate) use uniques::UniquesSnapshot;
pub(crate) use usage::Budget;
use usage::SegmentUsage;
use young::EnteredBytes;

use std::sync::Arc;

use crate::flush::Flushes;
use crate::memory::{Addr, Arena, Epochs};
use crate::request::Seconds;
use crate::sparse_segments::{SparseList, is_sparse};
use crate::sync::{AtomicU64, Ordering};

/// Segments that only sweeps, and writers that found none, may take.
pub(crate) const SEGMENTS_FOR_EVICTION: usize = 2;

/// All segments.
pub(crate) struct Segments {
    pub(crate) arena: Arc<Arena>,
    pub(crate) epochs: Epochs,
    table: SegmentTable,
    pub(crate) pools: Pools,
    pub(crate) usage: SegmentUsage,
    pub(crate) held: HeldSegments,
    pub(crate) uniques: Uniques,
    pub(crate) entered: EnteredBytes,
    /// Which items are dead, given the generation of their segment.
    pub(crate) flushes: Flushes,
    next_queue_position: AtomicU64,
    sparse: SparseList,
    pub(crate) ranking: Ranking,
}

impl Segments {
    /// The table of the segments of `arena`, all free.
    pub(crate) fn new(
        arena: Arc<Arena>,
        workers: usize,
        budget: Budget,
        item_bytes_max: u32,
        flushes: Flushes,
    ) -> Self {
        let (segment_count, segment_bytes) = (arena.segment_count(), arena.segment_bytes());
        Segments {
            epochs: Epochs::new(workers),
            table: SegmentTable::new(segment_count),
            pools: Pools::new(Arc::clone(&arena)),
            usage: SegmentUsage::new(segment_count, budget),
            held: HeldSegments::new(item_bytes_max as usize, segment_bytes),
            uniques: Uniques::new(segment_bytes),
            entered: EnteredBytes::new(arena.segment_shift()),
            flushes,
            next_queue_position: AtomicU64::new(1),
            sparse: SparseList::new(segment_count),
            ranking: Ranking::new(arena.segment_shift()),
            arena,
        }
    }

    /// A view of every segment, for the audit.
    #[cfg(any(test, feature = "strict"))]
    pub(crate) fn list_segments(&self) -> impl Iterator<Item = SegmentView> + '_ {
        let used_count = self.pools.lock().used_count();
        self.table.ids().take(used_count).map(|id| self.table.view(id))
    }

    /// Whether the next segments opened would be memory that was never written, while sparse ones could be emptied
    /// instead. `reusable_min` is how many written ones should be ready.
    #[inline]
    pub(crate) fn should_sweep_sparse(&self, reusable_min: usize) -> bool {
        let reusable = self.pools.reusable_count();
        !self.sparse.is_empty()
            && reusable < reusable_min
            && self.usage.in_use() + reusable < self.usage.limit()
    }

    /// Takes a segment from the list of sparse ones; `None` if none is still sparse.
    pub(crate) fn pop_sparse(&self) -> Option<SegmentView> {
        while let Some(id) = self.sparse.pop() {
            let view = self.table.view(id);
            if view.has_state(SegmentState::Sealed)
                && !view.is_pinned
                && is_sparse(view.live_bytes, view.used_bytes)
            {
                return Some(view);
            }
        }
        None
    }

    /// The first segments in each order, at second `now`, where the last swept segment had `last_swept_position`.
    pub(crate) fn candidates(&self, now: u32, last_swept_position: u64) -> Candidates {
        let living_generation_min = self.flushes.living_generation_min();
        self.ranking.candidates(&self.table, living_generation_min, now, last_swept_position)
    }

    /// The oldest segment, if it is from before the flushes of prefixes that should be forgotten.
    pub(crate) fn outdated(&self) -> Option<SegmentView> {
        let awaited_generation = self.flushes.awaited_generation()?;
        let id = self.ranking.oldest_before(awaited_generation)?;
        Some(self.table.view(id))
    }

    /// The lowest generation of a segment that may hold items or may still be read.
    pub(crate) fn oldest_generation(&self) -> u64 {
        // Under the lock no segment is taken, so one that is free here is opened with a later generation.
        let lists = self.pools.lock();
        let oldest = self.table.oldest_generation(lists.used_count());
        oldest.unwrap_or_else(|| self.flushes.generation())
    }

    /// When the oldest segment with live items was opened.
    pub(crate) fn oldest_opening(&self) -> Option<Seconds> {
        let used_count = self.pools.lock().used_count();
        self.table.oldest_opening(used_count)
    }

    /// The queue of the segment of an address, and its position there.
    pub(crate) fn queue_and_position(&self, addr: Addr) -> (Queue, u64) {
        let meta = self.table.meta(self.arena.segment_of(addr));
        let queue_position = if meta.has_state(SegmentState::Open) {
            u64::MAX
        } else {
            meta.queue_position.load(Ordering::Relaxed)
        };
        (meta.queue(), queue_position)
    }

    /// Generation and base time of the segment of an address.
    #[inline]
    pub(crate) fn generation_and_base_time(&self, addr: Addr) -> (u64, Seconds) {
        let identity = self.table.identity(self.arena.segment_of(addr));
        let base_time = identity.base_time.load(Ordering::Relaxed);
        (identity.generation.load(Ordering::Relaxed), Seconds(base_time))
    }

    /// The CAS unique of an address.
    pub(crate) fn implied_unique(&self, addr: Addr) -> u64 {
        let identity = self.table.identity(self.arena.segment_of(addr));
        let sequence = identity.sequence.load(Ordering::Relaxed);
        self.uniques.implied(sequence, self.arena.offset_of(addr))
    }
}

#[cfg(all(test, loom))]
mod interleaved;
