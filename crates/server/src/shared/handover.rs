//! What the serving threads need for a handover to a successor.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use glasscache_store::UncommittedBytes;

use crate::shared::control_channel::{ControlChannel, FrameKind};

/// A handover that has begun.
pub(crate) struct Handover {
    pub(crate) channel: ControlChannel,
    /// Held while a worker sends a frame.
    pub(crate) send_lock: Mutex<()>,
    /// The uncommitted uploads of connections, which are not handed over.
    pub(crate) uncommitted_uploads: Mutex<UncommittedBytes>,
    /// Connections that were closed because their output is in the memory of the store, from which only the successor
    /// could have sent it.
    pub(crate) connections_closed_early: AtomicUsize,
    /// How long pending output may take to be sent on connections that cannot be handed over.
    pub(crate) drain_time: Duration,
}

impl Handover {
    /// Ends the handover, and with it the send of a worker that waits for the successor to read; sends the successor
    /// the reason unless there is such a worker.
    pub(crate) fn abort(&self, reason: &str) {
        if let Ok(_send_guard) = self.send_lock.try_lock() {
            let _ = self.channel.send(FrameKind::Refused, reason.as_bytes(), &[]);
        }
        self.channel.shut_down();
    }
}
