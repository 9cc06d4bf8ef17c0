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

mod hold;
mod lifecycle;
mod pools;
mod ranking;
mod snapshot;
mod view;
mod young;

use pools::SegmentPools;
pub(crate) use ranking::Candidates;
use ranking::Ranking;
pub(crate) use snapshot::{ItemSegment, SegmentsSnapshot};
pub(crate) use view::SegmentView;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::flush::Flushes;
use crate::memory::arena::ITEM_ALIGN;
use crate::memory::{Addr, Arena, Epochs, SegmentId};
use crate::request::Seconds;
use crate::sparse_segments::{SparseList, is_sparse};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering};

/// Segments that only sweeps, and writers that found none, may take.
pub(crate) const SEGMENTS_FOR_EVICTION: usize = 2;

/// The state of a segment in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum SegmentState {
    /// Unused; its bytes have no meaning.
    Free,
    /// A worker appends to it.
    Open,
    /// Full or old; only read, and a candidate for eviction and compaction.
    Sealed,
    /// A sweep walks it.
    Sweeping,
    /// Nothing in the index names it; readers may still be in it.
    Limbo,
    /// Lines of the index or of the ghost.
    Lines,
}

/// The policy's queue of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// New items.
    Small,
    /// Promoted items.
    Main,
}

/// The changing state of a segment; on lines of its own, because many threads count it down.
#[repr(align(64))]
pub(crate) struct SegmentMeta {
    state: AtomicU32,
    is_in_main_queue: AtomicU32,
    /// Bytes of records that are still named.
    live_bytes: AtomicU32,
    /// Bytes appended; written when sealed.
    used_bytes: AtomicU32,
    /// Pieces of values that are not committed yet: such a segment is not swept.
    pins: AtomicU32,
    /// References held beyond the epoch: such a segment is not reused.
    holds: AtomicU32,
    /// The last second at which anything in it is alive; `u32::MAX` if something never expires.
    expires_at_s: AtomicU32,
    /// Position in the queue: smaller is older.
    queue_position: AtomicU64,
}

/// What readers need of a segment; written when it is opened, so that reading it is cheap. It never crosses the border
/// of a cache line.
#[repr(align(32))]
struct SegmentIdentity {
    /// Number of the opening, from 1: with the offset it makes the CAS unique.
    sequence: AtomicU64,
    /// The number of flushes before it was opened.
    generation: AtomicU64,
    /// The second from which expiry and accesses are counted.
    base_time: AtomicU32,
    /// From which byte of `entered_bytes` on the uses of its first item count; 0 if all of them do.
    uses_count_from: AtomicU64,
}

/// The maximum number of segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Segments of all kinds.
    pub(crate) segments: usize,
    /// Segments of lines, in addition to those.
    pub(crate) extra_line_segments: usize,
}

/// All segments.
pub(crate) struct Segments {
    arena: Arc<Arena>,
    epochs: Epochs,
    metas: Box<[SegmentMeta]>,
    identities: Box<[SegmentIdentity]>,
    pools: Mutex<SegmentPools>,
    /// The sequence of the next segment that is opened.
    next_sequence: AtomicU64,
    /// The last unique that was counted and not derived from an address, halved.
    halved_counted_unique: AtomicU64,
    next_queue_position: AtomicU64,
    /// Bytes that were written for new items.
    entered_bytes: AtomicU64,
    /// Which items are dead, given the generation of their segment.
    pub(crate) flushes: Flushes,
    /// Segments of all kinds that the budget allows now, without the extra ones for lines.
    allowed_count: AtomicUsize,
    /// Segments of lines that the budget allows in addition.
    extra_line_segments_max: AtomicUsize,
    line_segments_in_use: AtomicUsize,
    /// Segments that are open, sealed, swept or hold lines.
    in_use: AtomicUsize,
    /// Segments with at least one hold.
    held_count: AtomicUsize,
    /// Segments that the largest item may occupy, shared with pieces of others.
    largest_item_segment_count: usize,
    /// Segments in limbo that are held, as last counted.
    held_in_limbo: AtomicUsize,
    /// Free segments and those in limbo, which were written before and cost no page fault.
    reusable_count: AtomicUsize,
    /// Whether fewer segments are backed ahead of need than there should be.
    needs_backing: AtomicBool,
    sparse: SparseList,
    /// Sealed segments in the orders in which victims are chosen.
    ranking: Mutex<Ranking>,
    /// The number of changes of the ranking so far.
    ranking_version: AtomicU64,
    /// Segments examined by choices.
    #[cfg(test)]
    examined: AtomicU64,
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
        let new_meta = || SegmentMeta {
            state: AtomicU32::new(SegmentState::Free as u32),
            is_in_main_queue: AtomicU32::new(0),
            live_bytes: AtomicU32::new(0),
            used_bytes: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            expires_at_s: AtomicU32::new(0),
            queue_position: AtomicU64::new(0),
        };
        let new_identity = || SegmentIdentity {
            sequence: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            base_time: AtomicU32::new(0),
            uses_count_from: AtomicU64::new(0),
        };
        let segment_count = arena.segment_count();
        let pools = SegmentPools {
            free: Vec::new(),
            limbo: VecDeque::new(),
            discarded: Vec::new(),
            backed_ahead: VecDeque::new(),
            first_never_used: 0,
            backed_count: 0,
        };
        Segments {
            epochs: Epochs::new(workers),
            metas: (0..segment_count).map(|_| new_meta()).collect(),
            identities: (0..segment_count).map(|_| new_identity()).collect(),
            pools: Mutex::new(pools),
            next_sequence: AtomicU64::new(1),
            halved_counted_unique: AtomicU64::new(0),
            next_queue_position: AtomicU64::new(1),
            entered_bytes: AtomicU64::new(0),
            flushes,
            allowed_count: AtomicUsize::new(budget.segments.min(segment_count)),
            extra_line_segments_max: AtomicUsize::new(budget.extra_line_segments),
            line_segments_in_use: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            held_count: AtomicUsize::new(0),
            largest_item_segment_count: 2
                * (item_bytes_max as usize).div_ceil(arena.segment_bytes())
                + 2,
            held_in_limbo: AtomicUsize::new(0),
            reusable_count: AtomicUsize::new(0),
            needs_backing: AtomicBool::new(false),
            sparse: SparseList::new(segment_count),
            ranking: Mutex::new(Ranking::default()),
            ranking_version: AtomicU64::new(1),
            #[cfg(test)]
            examined: AtomicU64::new(0),
            arena,
        }
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// The number of segments that may still be taken before the budget is used up. Includes limbo, which drains by
    /// itself, but not held segments.
    pub(crate) fn spare_segments(&self) -> usize {
        let unavailable =
            self.in_use.load(Ordering::Relaxed) + self.held_in_limbo.load(Ordering::Relaxed);
        self.backing_limit().saturating_sub(unavailable)
    }

    /// Segments that hold items or lines.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// The maximum number of segments now, including the extra ones that hold lines.
    pub(crate) fn backing_limit(&self) -> usize {
        let extra_max = self.extra_line_segments_max.load(Ordering::Relaxed);
        let extra_in_use = self.line_segments_in_use.load(Ordering::Relaxed).min(extra_max);
        (self.allowed_count.load(Ordering::Relaxed) + extra_in_use).min(self.metas.len())
    }

    /// Takes a segment if more than `spare_min` are spare; open, with its identity set.
    pub(crate) fn open(
        &self,
        spare_min: usize,
        queue: Queue,
        base_time: Seconds,
    ) -> Option<SegmentId> {
        let id = self.allocate(spare_min, SegmentState::Open)?;
        let (meta, identity) = (self.meta(id), self.identity(id));
        meta.is_in_main_queue.store(u32::from(queue == Queue::Main), Ordering::Relaxed);
        meta.expires_at_s.store(0, Ordering::Relaxed);
        identity
            .sequence
            .store(self.next_sequence.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        // Readers see both through the slot that publishes an item of the segment.
        identity.generation.store(self.flushes.generation(), Ordering::Relaxed);
        identity.base_time.store(base_time.0, Ordering::Relaxed);
        identity.uses_count_from.store(0, Ordering::Relaxed);
        Some(id)
    }

    /// Takes a segment for lines if more than `spare_min` are spare.
    pub(crate) fn allocate_index_segment(&self, spare_min: usize) -> Option<SegmentId> {
        self.allocate(spare_min, SegmentState::Lines)
    }

    /// Whether the next segments opened would be memory that was never written, while sparse ones could be emptied
    /// instead. `reusable_min` is how many written ones should be ready.
    #[inline]
    pub(crate) fn should_sweep_sparse(&self, reusable_min: usize) -> bool {
        let reusable = self.reusable_count.load(Ordering::Relaxed);
        !self.sparse.is_empty()
            && reusable < reusable_min
            && self.in_use() + reusable < self.backing_limit()
    }

    /// Takes a segment from the list of sparse ones; `None` if none is still sparse.
    pub(crate) fn pop_sparse(&self) -> Option<SegmentView> {
        while let Some(id) = self.sparse.pop() {
            let view = self.view(id);
            if view.has_state(SegmentState::Sealed)
                && !view.is_pinned
                && is_sparse(view.live_bytes, view.used_bytes)
            {
                return Some(view);
            }
        }
        None
    }

    /// Returns a segment of lines that nothing refers to any more.
    pub(crate) fn free_index_segment(&self, id: SegmentId) {
        self.line_segments_in_use.fetch_sub(1, Ordering::Relaxed);
        self.retire(id);
    }

    /// The generation of a segment that is opened now.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.flushes.generation()
    }

    /// The lowest generation of a segment that may hold items or may still be read.
    pub(crate) fn oldest_generation(&self) -> u64 {
        // Under the lock no segment is taken, so one that is free here is opened with a later generation.
        let pools = self.lock();
        let is_readable = |meta: &SegmentMeta| {
            let state = meta.state.load(Ordering::SeqCst);
            state != SegmentState::Free as u32 && state != SegmentState::Lines as u32
        };
        let used = self.metas.iter().zip(&self.identities).take(pools.first_never_used as usize);
        used.filter(|(meta, _)| is_readable(meta))
            .map(|(_, identity)| identity.generation.load(Ordering::Acquire))
            .min()
            .unwrap_or_else(|| self.generation())
    }

    /// When the oldest segment with live items was opened.
    pub(crate) fn oldest_opening(&self) -> Option<Seconds> {
        let first_never_used = self.lock().first_never_used as usize;
        let used = self.metas.iter().zip(&self.identities).take(first_never_used);
        let has_items = |meta: &SegmentMeta| {
            let state = meta.state.load(Ordering::Relaxed);
            (state == SegmentState::Open as u32 || state == SegmentState::Sealed as u32)
                && meta.live_bytes.load(Ordering::Relaxed) > 0
        };
        used.filter(|(meta, _)| has_items(meta))
            .map(|(_, identity)| Seconds(identity.base_time.load(Ordering::Relaxed)))
            .min()
    }

    /// Generation and base time of the segment of an address.
    #[inline]
    pub(crate) fn generation_and_base_time(&self, addr: Addr) -> (u64, Seconds) {
        let identity = self.identity(self.arena.segment_of(addr));
        let base_time = identity.base_time.load(Ordering::Relaxed);
        (identity.generation.load(Ordering::Relaxed), Seconds(base_time))
    }

    /// The CAS unique of an address: larger for records appended later to the same segment, and for segments opened
    /// later. These are the even numbers.
    pub(crate) fn implied_unique(&self, addr: Addr) -> u64 {
        let sequence = self.identity(self.arena.segment_of(addr)).sequence.load(Ordering::Relaxed);
        let address_index = (self.arena.offset_of(addr) / ITEM_ALIGN) as u64;
        2 * (sequence * self.addresses_per_segment() + address_index)
    }

    /// A CAS unique above `old` for an item whose address gives a smaller one: an odd number, which no address
    /// gives and which was never used before, so that a unique sent to a client never returns for another value.
    ///
    /// Above a unique that a client chose beyond all of ours it is the next number, because the client is
    /// responsible for those.
    pub(crate) fn next_counted_unique(&self, old: u64) -> u64 {
        let halved_implied_max =
            self.next_sequence.load(Ordering::Relaxed) * self.addresses_per_segment();
        if old / 2 > halved_implied_max.max(self.halved_counted_unique.load(Ordering::Relaxed)) {
            return old.wrapping_add(1).max(1);
        }
        self.halved_counted_unique.fetch_max(old / 2, Ordering::Relaxed);
        2 * (self.halved_counted_unique.fetch_add(1, Ordering::Relaxed) + 1) + 1
    }

    /// A number above every unique so far, but for those that clients chose.
    pub(crate) fn uniques_end(&self) -> u64 {
        let sequence = self.next_sequence.load(Ordering::Relaxed);
        let counted = self.halved_counted_unique.load(Ordering::Relaxed);
        2 * (sequence * self.addresses_per_segment()).max(counted + 1)
    }

    /// No unique below `start` is given from now on; no segment has been opened.
    pub(crate) fn begin_uniques_at(&self, start: u64) {
        let sequence = (start / 2).div_ceil(self.addresses_per_segment());
        self.next_sequence.fetch_max(sequence, Ordering::Relaxed);
        self.halved_counted_unique.fetch_max(start / 2, Ordering::Relaxed);
    }

    /// Addresses of a segment that a record can have.
    fn addresses_per_segment(&self) -> u64 {
        (self.arena.segment_bytes() / ITEM_ALIGN) as u64
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "addresses come from the arena, whose segments these are"
    )]
    #[inline]
    fn meta(&self, id: SegmentId) -> &SegmentMeta {
        &self.metas[id.0 as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "addresses come from the arena, whose segments these are"
    )]
    #[inline]
    fn identity(&self, id: SegmentId) -> &SegmentIdentity {
        &self.identities[id.0 as usize]
    }
}

#[cfg(all(test, loom))]
mod interleaved;
