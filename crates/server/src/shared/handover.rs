//! A handover to a successor, as the serving threads see it.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use glasscache_store::UncommittedBytes;

use crate::shared::control_channel::{ControlChannel, FrameKind};

/// A handover that has begun.
pub(crate) struct Handover {
    pub(crate) channel: ControlChannel,
    /// Held while a worker sends a frame.
    pub(crate) sender: Mutex<()>,
    /// What connections are uploading, which stays behind.
    pub(crate) uncommitted: Mutex<UncommittedBytes>,
    /// Connections whose output stays in the memory of the store, so that only the successor could send it.
    pub(crate) closed_early: AtomicUsize,
    /// How long pending output may take to be sent on connections that cannot be handed over.
    pub(crate) drain: Duration,
}

impl Handover {
    /// Ends it, and with it the send of a worker that waits for the successor to read; tells the successor the reason
    /// unless there is such a worker.
    pub(crate) fn refuse(&self, reason: &str) {
        if let Ok(_sender) = self.sender.try_lock() {
            let _ = self
                .channel
                .send(FrameKind::Refused, reason.as_bytes(), &[]);
        }
        self.channel.shut_down();
    }
}
