//! The memory that TLS keeps for handshakes and for open connections, each within a share of its own.
//!
//! Handshakes come from peers without any credentials, so they cannot take what logged-in clients need. Open
//! connections keep their keys and a buffer for as long as they are open, so their number is bounded by memory too.
//! Both shares are parts of the limit of `peer_memory`, and what they take is subtracted from its budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::shared::peer_memory::PeerMemory;
use crate::shared::tls_memory::Share;

/// What rustls keeps for an open connection without data in bytes: its state, its keys, and the 4 KiB into which it
/// receives.
pub(crate) const OPEN_BYTES: usize = 7 << 10;

/// What rustls keeps for a handshake in bytes, beside what the client has sent.
pub(crate) const HANDSHAKE_BYTES: usize = 12 << 10;

/// Open connections may take all but this part of the limit.
const OPEN_REST_DIVISOR: u64 = 8;

/// Open connections and requests together may exceed the limit by this part of it: connections that open take memory
/// that requests already have.
const EXCESS_DIVISOR: u64 = 32;

/// Handshakes may take this part of the limit, while open connections leave as much.
const HANDSHAKE_DIVISOR: u64 = 4;

/// Handshakes may always take this part of the limit.
const HANDSHAKE_DIVISOR_MIN: u64 = 32;

/// What open connections and those that are being closed for them may exceed the limit by together.
const DISPLACED_DIVISOR: u64 = 16;

/// Bytes of a share, returned when dropped.
#[derive(Debug)]
pub(crate) struct TlsCharge {
    memory: Arc<PeerMemory>,
    share: Share,
    bytes: usize,
}

impl TlsCharge {
    /// A charge for a handshake, which takes nothing yet. Only one thread makes handshakes.
    pub(crate) fn for_handshake(memory: &Arc<PeerMemory>) -> TlsCharge {
        TlsCharge { memory: Arc::clone(memory), share: Share::Handshakes, bytes: 0 }
    }

    /// Bytes charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges `bytes` of the share of handshakes from now on, if these are available.
    pub(crate) fn try_set(&mut self, bytes: usize) -> bool {
        let limit_bytes = self.memory.limit_bytes();
        let tls = &self.memory.tls;
        let open_bytes = tls.open_bytes.load(Ordering::Relaxed).max(0) as u64;
        let rest_bytes = (limit_bytes - limit_bytes / OPEN_REST_DIVISOR).saturating_sub(open_bytes);
        let share_bytes = rest_bytes
            .min(limit_bytes / HANDSHAKE_DIVISOR)
            .max(limit_bytes / HANDSHAKE_DIVISOR_MIN);
        let handshake_bytes = tls.handshake_bytes.load(Ordering::Relaxed).max(0) as u64;
        let is_granted =
            bytes <= self.bytes || handshake_bytes + (bytes - self.bytes) as u64 <= share_bytes;
        if is_granted {
            self.set(bytes);
        }
        is_granted
    }

    /// Whether one more connection may be open: within the share, and within a little more than what requests and the
    /// others have left of the limit.
    pub(crate) fn has_room_for_open(memory: &PeerMemory) -> bool {
        let limit_bytes = memory.limit_bytes();
        let open_bytes = memory.tls.open_bytes.load(Ordering::Relaxed).max(0) as u64;
        let new_bytes = OPEN_BYTES as u64;
        open_bytes + new_bytes <= limit_bytes - limit_bytes / OPEN_REST_DIVISOR
            && memory.held_bytes() + new_bytes <= limit_bytes + limit_bytes / EXCESS_DIVISOR
    }

    /// Whether a connection may be open although one that is to be closed for it still is: those that are being closed
    /// together may take a little more than the limit.
    pub(crate) fn has_room_for_replacement(memory: &PeerMemory) -> bool {
        let limit_bytes = memory.limit_bytes();
        memory.held_bytes() + OPEN_BYTES as u64 <= limit_bytes + limit_bytes / DISPLACED_DIVISOR
    }

    /// Turns the charge for a handshake into that of an open connection, whose memory was checked.
    pub(crate) fn become_open(&mut self) {
        self.set(0);
        self.share = Share::Open;
        self.set(OPEN_BYTES);
    }

    fn set(&mut self, bytes: usize) {
        let difference = bytes as i64 - std::mem::replace(&mut self.bytes, bytes) as i64;
        self.memory.tls.of_share(self.share).fetch_add(difference, Ordering::Relaxed);
        self.memory.record_change(difference);
        if difference < 0 {
            self.memory.record_release();
        }
    }
}

impl Drop for TlsCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}
