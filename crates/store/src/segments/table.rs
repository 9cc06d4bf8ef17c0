//! What each segment is: its state and counts, and the identity that its opening gives it.

use crate::memory::SegmentId;
use crate::request::Seconds;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The state of a segment.
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
pub(super) struct SegmentMeta {
    pub(super) state: AtomicU32,
    is_in_main_queue: AtomicU32,
    /// Bytes of records that the index still refers to.
    pub(super) live_bytes: AtomicU32,
    /// Bytes appended; written when sealed.
    pub(super) used_bytes: AtomicU32,
    /// Pieces of values that are not committed yet: such a segment is not swept.
    pub(super) pins: AtomicU32,
    /// References held beyond the epoch: such a segment is not reused.
    pub(super) holds: AtomicU32,
    /// The last second at which anything in it is alive; `u32::MAX` if something never expires.
    pub(super) expires_at_s: AtomicU32,
    /// Position in the queue: smaller is older.
    pub(super) queue_position: AtomicU64,
}

impl SegmentMeta {
    fn new() -> Self {
        SegmentMeta {
            state: AtomicU32::new(SegmentState::Free as u32),
            is_in_main_queue: AtomicU32::new(0),
            live_bytes: AtomicU32::new(0),
            used_bytes: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            expires_at_s: AtomicU32::new(0),
            queue_position: AtomicU64::new(0),
        }
    }

    pub(super) fn has_state(&self, state: SegmentState) -> bool {
        self.state.load(Ordering::Relaxed) == state as u32
    }

    pub(super) fn queue(&self) -> Queue {
        match self.is_in_main_queue.load(Ordering::Relaxed) {
            0 => Queue::Small,
            _ => Queue::Main,
        }
    }

    pub(super) fn set_queue(&self, queue: Queue) {
        self.is_in_main_queue.store(u32::from(queue == Queue::Main), Ordering::Relaxed);
    }
}

/// What readers need of a segment; written when it is opened, so that reading it is cheap. It never crosses the border
/// of a cache line.
#[repr(align(32))]
pub(super) struct SegmentIdentity {
    /// Number of the opening, from 1: with the offset it makes the CAS unique.
    pub(super) sequence: AtomicU64,
    /// The number of flushes before it was opened.
    pub(super) generation: AtomicU64,
    /// The second from which expiry and accesses are counted.
    pub(super) base_time: AtomicU32,
    /// From which entered byte on the uses of its first item count (`young`); 0 if all of them do.
    pub(super) uses_count_from: AtomicU64,
}

impl SegmentIdentity {
    fn new() -> Self {
        SegmentIdentity {
            sequence: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            base_time: AtomicU32::new(0),
            uses_count_from: AtomicU64::new(0),
        }
    }
}

/// A copy of the numbers of one segment, which may be slightly out of date, as the choice of a victim uses them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentView {
    pub(crate) id: SegmentId,
    state: u32,
    pub(crate) queue: Queue,
    pub(crate) live_bytes: usize,
    pub(crate) used_bytes: usize,
    pub(crate) expires_at_s: u32,
    pub(crate) queue_position: u64,
    pub(crate) generation: u64,
    pub(crate) is_pinned: bool,
}

impl SegmentView {
    pub(crate) fn has_state(&self, state: SegmentState) -> bool {
        self.state == state as u32
    }
}

/// A sealed segment as it is after a restart, beside its live bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ItemSegment {
    pub(crate) id: u32,
    pub(crate) queue: Queue,
    pub(crate) used_bytes: u32,
    pub(crate) expires_at_s: u32,
    pub(crate) queue_position: u64,
    pub(crate) sequence: u64,
    pub(crate) generation: u64,
    pub(crate) base_time: u32,
}

/// State and identity of every segment, by its number.
pub(super) struct SegmentTable {
    metas: Box<[SegmentMeta]>,
    identities: Box<[SegmentIdentity]>,
}

impl SegmentTable {
    /// A table of free segments.
    pub(super) fn new(segment_count: usize) -> Self {
        SegmentTable {
            metas: (0..segment_count).map(|_| SegmentMeta::new()).collect(),
            identities: (0..segment_count).map(|_| SegmentIdentity::new()).collect(),
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "addresses come from the arena, whose segments these are"
    )]
    #[inline]
    pub(super) fn meta(&self, id: SegmentId) -> &SegmentMeta {
        &self.metas[id.0 as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "addresses come from the arena, whose segments these are"
    )]
    #[inline]
    pub(super) fn identity(&self, id: SegmentId) -> &SegmentIdentity {
        &self.identities[id.0 as usize]
    }

    /// The number of every segment.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = SegmentId> {
        (0..self.metas.len() as u32).map(SegmentId)
    }

    pub(super) fn view(&self, id: SegmentId) -> SegmentView {
        let (meta, identity) = (self.meta(id), self.identity(id));
        SegmentView {
            id,
            state: meta.state.load(Ordering::Relaxed),
            queue: meta.queue(),
            live_bytes: meta.live_bytes.load(Ordering::Relaxed) as usize,
            used_bytes: meta.used_bytes.load(Ordering::Relaxed) as usize,
            expires_at_s: meta.expires_at_s.load(Ordering::Relaxed),
            queue_position: meta.queue_position.load(Ordering::Relaxed),
            generation: identity.generation.load(Ordering::Relaxed),
            is_pinned: meta.pins.load(Ordering::Relaxed) != 0,
        }
    }

    /// Changes the state of a segment; false if it is not in `from`.
    pub(super) fn change_state(&self, id: SegmentId, from: SegmentState, to: SegmentState) -> bool {
        let state = &self.meta(id).state;
        state.compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// The lowest generation of a segment that may hold items or may still be read, among the first `used_count`.
    pub(super) fn oldest_generation(&self, used_count: usize) -> Option<u64> {
        let is_readable = |meta: &SegmentMeta| {
            let state = meta.state.load(Ordering::SeqCst);
            state != SegmentState::Free as u32 && state != SegmentState::Lines as u32
        };
        let used = self.metas.iter().zip(&self.identities).take(used_count);
        used.filter(|(meta, _)| is_readable(meta))
            .map(|(_, identity)| identity.generation.load(Ordering::Acquire))
            .min()
    }

    /// When the oldest segment with live items was opened, among the first `used_count`.
    pub(super) fn oldest_opening(&self, used_count: usize) -> Option<Seconds> {
        let has_items = |meta: &SegmentMeta| {
            (meta.has_state(SegmentState::Open) || meta.has_state(SegmentState::Sealed))
                && meta.live_bytes.load(Ordering::Relaxed) > 0
        };
        let used = self.metas.iter().zip(&self.identities).take(used_count);
        used.filter(|(meta, _)| has_items(meta))
            .map(|(_, identity)| Seconds(identity.base_time.load(Ordering::Relaxed)))
            .min()
    }

    /// What a sealed segment is after a restart.
    pub(super) fn item_segment(&self, view: &SegmentView) -> ItemSegment {
        let identity = self.identity(view.id);
        ItemSegment {
            id: view.id.0,
            queue: view.queue,
            used_bytes: view.used_bytes as u32,
            expires_at_s: view.expires_at_s,
            queue_position: view.queue_position,
            sequence: identity.sequence.load(Ordering::Relaxed),
            generation: view.generation,
            base_time: identity.base_time.load(Ordering::Relaxed),
        }
    }

    /// Takes a segment of an unused table.
    pub(super) fn claim(&self, id: u32, state: SegmentState) -> Result<SegmentId, &'static str> {
        let meta = self.metas.get(id as usize);
        let meta = meta.ok_or("a segment is outside of the memory")?;
        if meta.state.swap(state as u32, Ordering::Relaxed) != SegmentState::Free as u32 {
            return Err("a segment has two uses");
        }
        Ok(SegmentId(id))
    }

    /// Takes a sealed segment of an unused table: the inverse of [`SegmentTable::item_segment`].
    pub(super) fn restore(&self, segment: &ItemSegment) -> Result<(), &'static str> {
        let id = self.claim(segment.id, SegmentState::Sealed)?;
        let (meta, identity) = (self.meta(id), self.identity(id));
        meta.set_queue(segment.queue);
        meta.used_bytes.store(segment.used_bytes, Ordering::Relaxed);
        meta.expires_at_s.store(segment.expires_at_s, Ordering::Relaxed);
        meta.queue_position.store(segment.queue_position, Ordering::Relaxed);
        identity.sequence.store(segment.sequence, Ordering::Relaxed);
        identity.generation.store(segment.generation, Ordering::Relaxed);
        identity.base_time.store(segment.base_time, Ordering::Relaxed);
        Ok(())
    }
}
