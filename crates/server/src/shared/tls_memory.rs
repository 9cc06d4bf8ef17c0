//! How much memory TLS keeps for handshakes and for open connections.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Open connections may take all but this part of the limit.
const OPEN_REST_DIVISOR: u64 = 8;

/// Handshakes may always take this part of the limit.
const HANDSHAKE_DIVISOR_MIN: u64 = 32;

/// Requests leave this part of the limit to handshakes, while open connections leave as much.
const HANDSHAKE_DIVISOR_KEPT: u64 = 8;

/// Whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    Handshakes,
    Open,
}

/// What TLS keeps.
#[derive(Debug, Default)]
pub(crate) struct TlsMemory {
    pub(crate) handshake_bytes: AtomicI64,
    pub(crate) open_bytes: AtomicI64,
    /// Connections that found no memory for their handshake or after it, since the start.
    pub(crate) refused: AtomicU64,
    /// Connections that had not sent a request and were closed for newer ones, since the start.
    pub(crate) displaced: AtomicU64,
}

impl TlsMemory {
    /// Bytes of both shares.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes_of(Share::Handshakes) + self.bytes_of(Share::Open)
    }

    /// What is left of the share of open connections.
    pub(crate) fn open_rest_bytes(&self, limit_bytes: u64) -> u64 {
        let share_bytes = limit_bytes - limit_bytes / OPEN_REST_DIVISOR;
        share_bytes.saturating_sub(self.bytes_of(Share::Open))
    }

    /// What handshakes may take in any case.
    pub(crate) fn least_handshake_bytes(limit_bytes: u64) -> u64 {
        limit_bytes / HANDSHAKE_DIVISOR_MIN
    }

    /// What requests leave to TLS, once it is in use: what open connections take, and for handshakes an eighth of the
    /// limit as far as open connections leave that.
    pub(crate) fn bytes_left_by_requests(&self, limit_bytes: u64) -> u64 {
        let held_bytes = self.held_bytes();
        if held_bytes == 0 {
            return 0;
        }
        let kept_bytes = self
            .open_rest_bytes(limit_bytes)
            .min(limit_bytes / HANDSHAKE_DIVISOR_KEPT)
            .max(TlsMemory::least_handshake_bytes(limit_bytes));
        held_bytes.max(self.bytes_of(Share::Open) + kept_bytes)
    }

    /// Bytes of a share.
    pub(crate) fn bytes_of(&self, share: Share) -> u64 {
        self.of_share(share).load(Ordering::Relaxed).max(0) as u64
    }

    /// The counter of a share.
    pub(crate) fn of_share(&self, share: Share) -> &AtomicI64 {
        match share {
            Share::Handshakes => &self.handshake_bytes,
            Share::Open => &self.open_bytes,
        }
    }
}
