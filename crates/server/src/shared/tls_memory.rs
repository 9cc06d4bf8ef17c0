//! How much memory TLS keeps for handshakes and for open connections.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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
        let held_bytes =
            self.handshake_bytes.load(Ordering::Relaxed) + self.open_bytes.load(Ordering::Relaxed);
        held_bytes.max(0) as u64
    }

    /// Bytes of a share.
    pub(crate) fn of_share(&self, share: Share) -> &AtomicI64 {
        match share {
            Share::Handshakes => &self.handshake_bytes,
            Share::Open => &self.open_bytes,
        }
    }
}
