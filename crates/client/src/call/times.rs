//! When a call began, had its connection and its reply, and ended.

use std::time::{Duration, Instant};

/// The times of one call.
#[derive(Debug, Clone, Copy)]
pub struct CallTimes {
    pub(super) started: Instant,
    pub(super) connected_at: Instant,
    /// When the reply was complete, if its caller worked on it before the end.
    pub(super) arrived_at: Option<Instant>,
    pub(super) finished_at: Instant,
}

impl CallTimes {
    /// Those of a call whose time began to run at `started`.
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            connected_at: started,
            arrived_at: None,
            finished_at: started,
        }
    }

    /// How long the call waited for its connection.
    pub fn wait_time(&self) -> Duration {
        self.connected_at.saturating_duration_since(self.started)
    }

    /// How long network and server took, once the call is finished.
    pub fn wire_time(&self) -> Duration {
        let arrived_at = self.arrived_at.unwrap_or(self.finished_at);
        arrived_at.saturating_duration_since(self.connected_at)
    }

    /// How long the caller worked on the reply between [`Call::note_arrival`](super::Call::note_arrival) and the end.
    pub fn reading_time(&self) -> Duration {
        let arrived_at = self.arrived_at.unwrap_or(self.finished_at);
        self.finished_at.saturating_duration_since(arrived_at)
    }
}
