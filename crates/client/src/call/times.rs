//! When a call began, had its connection and its reply, and ended.

use std::time::{Duration, Instant};

/// The times of one call.
#[derive(Debug, Clone, Copy)]
pub struct CallTimes {
    pub(super) started: Instant,
    pub(super) connected_at: Instant,
    /// When the reply was complete, if its caller worked on it before the end.
    pub(super) reply_received_at: Option<Instant>,
    pub(super) finished_at: Instant,
}

impl CallTimes {
    /// Those of a call whose time began to run at `started`.
    pub(super) fn new(started: Instant) -> Self {
        Self { started, connected_at: started, reply_received_at: None, finished_at: started }
    }

    /// How long the call waited for its connection.
    pub fn wait_time(&self) -> Duration {
        if self.connected_at == self.started {
            return Duration::ZERO; // nearly always, and seen without a subtraction
        }
        self.connected_at.saturating_duration_since(self.started)
    }

    /// How long network and server took, once the call is finished.
    pub fn wire_time(&self) -> Duration {
        let reply_received_at = self.reply_received_at.unwrap_or(self.finished_at);
        reply_received_at.saturating_duration_since(self.connected_at)
    }

    /// How long the caller worked on the reply between [`Call::mark_reply_received`](super::Call::mark_reply_received) and the end.
    pub fn decoding_time(&self) -> Duration {
        self.reply_received_at.map_or(Duration::ZERO, |reply_received_at| {
            self.finished_at.saturating_duration_since(reply_received_at)
        })
    }
}
