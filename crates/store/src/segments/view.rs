//! A copy of the numbers of each segment, which may be slightly out of date.

use super::{Meta, Queue, Segments, State};
use crate::memory::{Addr, SegmentId};
use crate::sync::Ordering;

/// One segment as a choice sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) id: SegmentId,
    state: u32,
    pub(crate) queue: Queue,
    pub(crate) live: usize,
    pub(crate) used: usize,
    pub(crate) expires: u32,
    pub(crate) order: u64,
    pub(crate) generation: u64,
    pub(crate) is_pinned: bool,
}

impl View {
    pub(crate) fn is(&self, state: State) -> bool {
        self.state == state as u32
    }
}

impl Segments {
    /// A view of every segment, for the audit.
    #[cfg(any(test, feature = "strict"))]
    pub(crate) fn each(&self) -> impl Iterator<Item = View> + '_ {
        let first_unused = self.lock().fresh;
        (0..first_unused).map(|id| self.view(SegmentId(id)))
    }

    pub(super) fn view(&self, id: SegmentId) -> View {
        let (meta, origin) = (self.meta(id), self.origin(id));
        View {
            id,
            state: meta.state.load(Ordering::Relaxed),
            queue: queue_of(meta),
            live: meta.live.load(Ordering::Relaxed) as usize,
            used: meta.used.load(Ordering::Relaxed) as usize,
            expires: meta.expires.load(Ordering::Relaxed),
            order: meta.order.load(Ordering::Relaxed),
            generation: origin.generation.load(Ordering::Relaxed),
            is_pinned: meta.pins.load(Ordering::Relaxed) != 0,
        }
    }

    /// Queue and age of the segment of an address.
    pub(crate) fn queue_and_order(&self, addr: Addr) -> (Queue, u64) {
        let meta = self.meta(self.arena.segment_of(addr));
        let order = match meta.state.load(Ordering::Relaxed) {
            open if open == State::Open as u32 => u64::MAX,
            _ => meta.order.load(Ordering::Relaxed),
        };
        (queue_of(meta), order)
    }
}

fn queue_of(meta: &Meta) -> Queue {
    if meta.is_main.load(Ordering::Relaxed) == 0 {
        Queue::Small
    } else {
        Queue::Main
    }
}
