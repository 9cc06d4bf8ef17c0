//! What one connection ties up of what all share, how many wait for uploads, and how many connections are marked for
//! close (`shed` decides which).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use glasscache_store::Seconds;

/// Whoever moves fewer bytes than this since its last progress made none: a peer that takes a byte a second holds
/// its memory as surely as one that takes nothing.
const PROGRESS_BYTES: u64 = 4 << 10;

/// States of a connection in regard of its close.
const OPEN: u8 = 0;
const CONDEMNED: u8 = 1;
const CLOSED: u8 = 2;

/// What of the shared memory one connection ties up.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    /// Its last upload's number and one; 0 before the first. Numbers are never used again.
    upload: AtomicU64,
    /// Bytes of values, replies and input that it holds in memory, copied or where they lie.
    bytes: AtomicU64,
    /// The second of its last progress while it holds any; 0 while it holds none.
    since: AtomicU32,
    /// Bytes moved since then.
    moved: AtomicU64,
    /// It waits for room itself.
    waits: AtomicBool,
    state: AtomicU8,
}

/// What a connection holds, and since when it made no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tied {
    /// The second of its last progress.
    pub(crate) since: u32,
    pub(crate) bytes: u64,
    /// It waits for room itself.
    pub(crate) waits: bool,
}

impl Ties {
    pub(crate) fn note_upload(&self, id: u64) {
        self.upload.store(id + 1, Ordering::Relaxed);
    }

    /// Notes what the connection holds after it was served, and how much it moved meanwhile. Only its worker calls this.
    pub(crate) fn note_held(&self, bytes: u64, moved: u64, waits: bool, now: Seconds) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.waits.store(waits, Ordering::Relaxed);
        let moved = self.moved.load(Ordering::Relaxed).saturating_add(moved);
        if bytes == 0 {
            self.since.store(0, Ordering::Relaxed);
        } else if moved >= PROGRESS_BYTES || self.since.load(Ordering::Relaxed) == 0 {
            self.since.store(now.0.max(1), Ordering::Relaxed);
            self.moved.store(0, Ordering::Relaxed);
        } else {
            self.moved.store(moved, Ordering::Relaxed);
        }
    }

    /// What it holds; `None` where that is nothing.
    pub(crate) fn tied(&self) -> Option<Tied> {
        let tied = Tied {
            since: self.since.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
        };
        (tied.since != 0).then_some(tied)
    }

    /// Whether its last upload is the one with this number.
    pub(crate) fn owns_upload(&self, id: u64) -> bool {
        self.upload.load(Ordering::Relaxed) == id + 1
    }

    pub(crate) fn is_condemned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CONDEMNED
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

/// How many connections are marked for close and not yet closed.
#[derive(Debug, Default)]
pub(crate) struct Condemned(AtomicUsize);

impl Condemned {
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire pairs with the Release of `mark`: the mark on the connection is seen.
        self.0.load(Ordering::Acquire) == 0
    }

    /// Marks an open connection for close; false if it is marked or closed already.
    pub(crate) fn mark(&self, ties: &Ties) -> bool {
        // Counted first, so that the count never falls below the marks that can be seen.
        self.0.fetch_add(1, Ordering::Release);
        let marked =
            ties.state
                .compare_exchange(OPEN, CONDEMNED, Ordering::AcqRel, Ordering::Relaxed);
        if marked.is_err() {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
        marked.is_ok()
    }

    /// A connection is closed, whether it was marked or not; nobody can mark it any more.
    pub(crate) fn close(&self, ties: &Ties) {
        if ties.state.swap(CLOSED, Ordering::AcqRel) == CONDEMNED {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_marked_while_it_closes_leaves_no_count_behind() {
        let (condemned, one, two) = (Condemned::default(), Ties::default(), Ties::default());
        condemned.close(&one);
        assert!(!condemned.mark(&one));
        assert!(condemned.is_empty());
        assert!(condemned.mark(&two) && !condemned.mark(&two));
        assert!(!condemned.is_empty() && two.is_condemned());
        condemned.close(&two);
        assert!(condemned.is_empty());
    }

    #[test]
    fn a_few_bytes_now_and_then_are_no_progress() {
        let ties = Ties::default();
        ties.note_held(1000, 0, false, Seconds(5));
        ties.note_held(900, 100, false, Seconds(6));
        assert_eq!(ties.tied().map(|tied| tied.since), Some(5));
        ties.note_held(800, PROGRESS_BYTES, false, Seconds(7));
        assert_eq!(ties.tied().map(|tied| tied.since), Some(7));
        ties.note_held(0, 800, false, Seconds(8));
        assert_eq!(ties.tied(), None);
    }
}
