//! Watchers that requested heartbeats: every few milliseconds they are sent their pending lines and a heartbeat, so
//! that they know that they have received every line, and many lines cost one packet.

use std::time::{Duration, Instant};

use rustix::event::Timespec;

use super::{Cause, Worker};
use crate::shared::watchers::HEARTBEAT_INTERVAL;

/// The connections of a worker that are sent heartbeats.
pub(super) struct Heartbeats {
    slot_keys: Vec<u64>,
    last_sent: Instant,
}

impl Heartbeats {
    pub(super) fn new() -> Heartbeats {
        Heartbeats {
            slot_keys: Vec::new(),
            last_sent: Instant::now(),
        }
    }

    /// Adds a connection that is not among them yet.
    pub(super) fn add(&mut self, slot_key: u64) {
        if !self.slot_keys.contains(&slot_key) {
            self.slot_keys.push(slot_key);
        }
    }

    pub(super) fn remove(&mut self, slot_key: u64) {
        self.slot_keys.retain(|&other| other != slot_key);
    }

    /// How long the worker may sleep at most; `None` if it has no such watcher.
    pub(super) fn sleep(&self) -> Option<Timespec> {
        if self.slot_keys.is_empty() {
            return None;
        }
        let time_left = HEARTBEAT_INTERVAL.saturating_sub(self.last_sent.elapsed());
        // Rounded up: an iteration that comes a little early would only sleep again.
        let time_left = time_left + Duration::from_micros(50);
        Some(Timespec {
            tv_sec: 0,
            tv_nsec: time_left.subsec_nanos().into(),
        })
    }
}

impl Worker {
    /// Sends heartbeats if they are due.
    pub(super) fn send_heartbeats(&mut self, now: Instant) {
        if self.heartbeats.slot_keys.is_empty()
            || now.saturating_duration_since(self.heartbeats.last_sent) < HEARTBEAT_INTERVAL
        {
            return;
        }
        self.heartbeats.last_sent = now;
        for slot_key in self.heartbeats.slot_keys.clone() {
            let connection = self.connections.get_mut(slot_key);
            // One that does not take what it was sent gets the next heartbeat with what it missed.
            if connection.is_some_and(|connection| !connection.has_pending_output()) {
                self.serve(slot_key, Cause::Writable);
            }
        }
    }
}
