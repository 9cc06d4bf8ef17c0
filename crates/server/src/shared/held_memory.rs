//! What one connection holds of the memory that all connections share, the number of connections that wait for such
//! memory, and the number that are marked for close (`stalled` decides which).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use glasscache_store::Seconds;

/// A connection that moves fewer bytes than this since its last progress made none: a peer that reads a byte a
/// second holds its memory as long as one that reads nothing.
const PROGRESS_BYTES: u64 = 4 << 10;

/// States of a connection with regard to its close.
const CLOSE_STATE_OPEN: u8 = 0;
const CLOSE_STATE_MARKED: u8 = 1;
const CLOSE_STATE_CLOSED: u8 = 2;

/// What one connection holds of the memory that all connections share.
#[derive(Debug, Default)]
pub(crate) struct HeldMemory {
    /// The number of its last upload plus one; 0 before the first. Numbers are never reused.
    last_upload_plus_one: AtomicU64,
    /// Bytes of values, replies and input that it holds in memory, copied or in place.
    bytes: AtomicU64,
    /// Bytes received so far of an incomplete command.
    received_bytes: AtomicU64,
    /// The second of its last progress while it holds any; 0 while it holds none.
    last_progress_s: AtomicU32,
    /// Bytes moved since its last progress.
    moved_bytes: AtomicU64,
    /// Whether it waits for memory itself.
    is_waiting: AtomicBool,
    close_state: AtomicU8,
}

/// The memory that a connection holds, and since when it made no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeldMemorySnapshot {
    /// The second of its last progress.
    pub(crate) last_progress_s: u32,
    pub(crate) bytes: u64,
    /// Bytes received so far of an incomplete command; `bytes` may include a reservation for all of it.
    pub(crate) received_bytes: u64,
    /// Whether it waits for memory itself.
    pub(crate) is_waiting: bool,
}

impl HeldMemory {
    pub(crate) fn record_upload(&self, id: u64) {
        self.last_upload_plus_one.store(id + 1, Ordering::Relaxed);
    }

    /// Records the memory that the connection holds after it was served, the bytes received of an incomplete command,
    /// and the bytes moved meanwhile. Only its worker calls this.
    pub(crate) fn record_held_bytes(
        &self,
        bytes: u64,
        received_bytes: u64,
        newly_moved_bytes: u64,
        is_waiting: bool,
        now: Seconds,
    ) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.received_bytes.store(received_bytes, Ordering::Relaxed);
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
        let moved_bytes =
            self.moved_bytes.load(Ordering::Relaxed).saturating_add(newly_moved_bytes);
        if bytes == 0 {
            self.last_progress_s.store(0, Ordering::Relaxed);
        } else if moved_bytes >= PROGRESS_BYTES || self.last_progress_s.load(Ordering::Relaxed) == 0
        {
            self.last_progress_s.store(now.0.max(1), Ordering::Relaxed);
            self.moved_bytes.store(0, Ordering::Relaxed);
        } else {
            self.moved_bytes.store(moved_bytes, Ordering::Relaxed);
        }
    }

    /// The memory that it holds; `None` if none.
    pub(crate) fn snapshot(&self) -> Option<HeldMemorySnapshot> {
        let snapshot = HeldMemorySnapshot {
            last_progress_s: self.last_progress_s.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            is_waiting: self.is_waiting.load(Ordering::Relaxed),
        };
        (snapshot.last_progress_s != 0).then_some(snapshot)
    }

    /// Whether its last upload is the one with this number.
    pub(crate) fn owns_upload(&self, id: u64) -> bool {
        self.last_upload_plus_one.load(Ordering::Relaxed) == id + 1
    }

    pub(crate) fn is_marked_for_close(&self) -> bool {
        self.close_state.load(Ordering::Relaxed) == CLOSE_STATE_MARKED
    }
}

/// Connections that wait for memory, and the number of releases.
#[derive(Debug, Default)]
pub(crate) struct ParkedConnections {
    parked_count: AtomicUsize,
    releases: AtomicU64,
}

impl ParkedConnections {
    pub(crate) fn add(&self) {
        self.parked_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, connection_count: usize) {
        self.parked_count.fetch_sub(connection_count, Ordering::Relaxed);
    }

    /// Records that memory was released, and returns whether a connection waits for it. A connection that begins to
    /// wait at this moment checks again by itself.
    pub(crate) fn record_release(&self) -> bool {
        let is_any_parked = self.parked_count.load(Ordering::Relaxed) > 0;
        if is_any_parked {
            // Release pairs with the Acquire of `releases()`: the released memory is visible.
            self.releases.fetch_add(1, Ordering::Release);
        }
        is_any_parked
    }

    /// The number of releases.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }
}

/// How many connections are marked for close and not yet closed.
#[derive(Debug, Default)]
pub(crate) struct MarkedForClose(AtomicUsize);

impl MarkedForClose {
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire pairs with the Release of `mark`: the mark on the connection is visible.
        self.0.load(Ordering::Acquire) == 0
    }

    /// Marks an open connection for close; false if it is already marked or closed.
    pub(crate) fn mark(&self, held_memory: &HeldMemory) -> bool {
        // Counted first, so that the count is never below the visible marks.
        self.0.fetch_add(1, Ordering::Release);
        let exchange_result = held_memory.close_state.compare_exchange(
            CLOSE_STATE_OPEN,
            CLOSE_STATE_MARKED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if exchange_result.is_err() {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
        exchange_result.is_ok()
    }

    /// Records that a connection is closed, marked or not; it cannot be marked any more.
    pub(crate) fn record_close(&self, held_memory: &HeldMemory) {
        if held_memory.close_state.swap(CLOSE_STATE_CLOSED, Ordering::AcqRel) == CLOSE_STATE_MARKED
        {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_marked_while_it_closes_leaves_no_count_behind() {
        let (marked_for_close, first, second) =
            (MarkedForClose::default(), HeldMemory::default(), HeldMemory::default());
        marked_for_close.record_close(&first);
        assert!(!marked_for_close.mark(&first));
        assert!(marked_for_close.is_empty());
        assert!(marked_for_close.mark(&second) && !marked_for_close.mark(&second));
        assert!(!marked_for_close.is_empty() && second.is_marked_for_close());
        marked_for_close.record_close(&second);
        assert!(marked_for_close.is_empty());
    }

    #[test]
    fn reserved_memory_is_held_and_not_received() {
        let held_memory = HeldMemory::default();
        held_memory.record_held_bytes(60_000, 30_000, 30_000, false, Seconds(5));
        let snapshot = held_memory.snapshot().unwrap();
        assert_eq!((snapshot.bytes, snapshot.received_bytes), (60_000, 30_000));
    }

    #[test]
    fn a_few_bytes_from_time_to_time_are_not_progress() {
        let held_memory = HeldMemory::default();
        held_memory.record_held_bytes(1000, 0, 0, false, Seconds(5));
        held_memory.record_held_bytes(900, 0, 100, false, Seconds(6));
        assert_eq!(held_memory.snapshot().map(|snapshot| snapshot.last_progress_s), Some(5));
        held_memory.record_held_bytes(800, 0, PROGRESS_BYTES, false, Seconds(7));
        assert_eq!(held_memory.snapshot().map(|snapshot| snapshot.last_progress_s), Some(7));
        held_memory.record_held_bytes(0, 0, 800, false, Seconds(8));
        assert_eq!(held_memory.snapshot(), None);
    }
}
