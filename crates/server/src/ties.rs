//! What one connection ties up of what all share, how many wait for it, and how many are to be closed for it (`shed`
//! decides who).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use glasscache_store::Seconds;

/// What of the shared memory one connection ties up.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    /// Its last upload's number and one; 0 before the first. Numbers are never used again.
    upload: AtomicU64,
    /// The second in which a value held for it moved last; 0 while none is.
    held: AtomicU32,
    is_condemned: AtomicBool,
}

impl Ties {
    pub(crate) fn note_upload(&self, id: u64) {
        self.upload.store(id + 1, Ordering::Relaxed);
    }

    /// Whether values are held for its socket, which took something now.
    pub(crate) fn note_held(&self, is_held: bool, now: Seconds) {
        let second = if is_held { now.0 } else { 0 };
        self.held.store(second, Ordering::Relaxed);
    }

    /// Whether its last upload is the one with this number.
    pub(crate) fn owns_upload(&self, id: u64) -> bool {
        self.upload.load(Ordering::Relaxed) == id + 1
    }

    /// The second in which a value held for it moved last; 0 while none is.
    pub(crate) fn held_since(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    /// Marks it to be closed; false if it was marked before.
    pub(crate) fn condemn(&self) -> bool {
        !self.is_condemned.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_condemned(&self) -> bool {
        self.is_condemned.load(Ordering::Relaxed)
    }
}

/// Connections that wait for room, and how often some was made.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    parked: AtomicUsize,
    made: AtomicU64,
}

impl Parking {
    pub(crate) fn enter(&self) {
        self.parked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, connections: usize) {
        self.parked.fetch_sub(connections, Ordering::Relaxed);
    }

    /// Notes that room was made, and says whether somebody waits for it. Who comes to wait in this moment looks again
    /// without being told.
    pub(crate) fn note_room(&self) -> bool {
        let has_waiting = self.parked.load(Ordering::Relaxed) > 0;
        if has_waiting {
            // Release pairs with the Acquire of `made`: the room is seen.
            self.made.fetch_add(1, Ordering::Release);
        }
        has_waiting
    }

    /// How often room was made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }
}

/// Connections condemned and not yet closed.
#[derive(Debug, Default)]
pub(crate) struct Condemned(AtomicUsize);

impl Condemned {
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire pairs with the Release of `add`: the mark on the connection is seen.
        self.0.load(Ordering::Acquire) == 0
    }

    /// One more is to be closed, and is marked.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// One of them is closed.
    pub(crate) fn closed(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
