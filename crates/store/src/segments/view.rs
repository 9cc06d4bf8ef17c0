//! A copy of the numbers of each segment, which may be slightly out of date.

use super::{Queue, SegmentMeta, SegmentState, Segments};
use crate::memory::{Addr, SegmentId};
use crate::sync::Ordering;

/// The numbers of one segment, as the choice of a victim uses them.
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

impl Segments {
    /// A view of every segment, for the audit.
    #[cfg(any(test, feature = "strict"))]
    pub(crate) fn list_segments(&self) -> impl Iterator<Item = SegmentView> + '_ {
        let first_unused = self.lock().first_never_used;
        (0..first_unused).map(|id| self.view(SegmentId(id)))
    }

    pub(super) fn view(&self, id: SegmentId) -> SegmentView {
        let (meta, identity) = (self.meta(id), self.identity(id));
        SegmentView {
            id,
            state: meta.state.load(Ordering::Relaxed),
            queue: queue_of(meta),
            live_bytes: meta.live_bytes.load(Ordering::Relaxed) as usize,
            used_bytes: meta.used_bytes.load(Ordering::Relaxed) as usize,
            expires_at_s: meta.expires_at_s.load(Ordering::Relaxed),
            queue_position: meta.queue_position.load(Ordering::Relaxed),
            generation: identity.generation.load(Ordering::Relaxed),
            is_pinned: meta.pins.load(Ordering::Relaxed) != 0,
        }
    }

    /// The queue of the segment of an address, and its position there.
    pub(crate) fn queue_and_position(&self, addr: Addr) -> (Queue, u64) {
        let meta = self.meta(self.arena.segment_of(addr));
        let queue_position = match meta.state.load(Ordering::Relaxed) {
            state if state == SegmentState::Open as u32 => u64::MAX,
            _ => meta.queue_position.load(Ordering::Relaxed),
        };
        (queue_of(meta), queue_position)
    }
}

fn queue_of(meta: &SegmentMeta) -> Queue {
    if meta.is_in_main_queue.load(Ordering::Relaxed) == 0 { Queue::Small } else { Queue::Main }
}
