//! The watchers of a worker: every few milliseconds they are sent their pending lines, and a heartbeat if they
//! requested it, so that many lines cost one packet.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use super::{ServeReason, Worker};
use crate::net::connection::Connection;
use crate::shared::cpu_time::thread_cpu_time;
use crate::shared::watchers::SEND_INTERVAL;

/// The connections of a worker that watch.
pub(super) struct WatchingConnections {
    slot_keys: BTreeSet<u64>,
    last_sent_at: Instant,
}

impl WatchingConnections {
    pub(super) fn new() -> WatchingConnections {
        WatchingConnections { slot_keys: BTreeSet::new(), last_sent_at: Instant::now() }
    }

    /// Adds a connection, if it is not among them yet.
    pub(super) fn add(&mut self, slot_key: u64) {
        self.slot_keys.insert(slot_key);
    }

    pub(super) fn remove(&mut self, slot_key: u64) {
        self.slot_keys.remove(&slot_key);
    }

    /// How long the worker may sleep at most; `None` if it has no watcher.
    pub(super) fn sleep_time(&self) -> Option<Timespec> {
        if self.slot_keys.is_empty() {
            return None;
        }
        let time_left = SEND_INTERVAL.saturating_sub(self.last_sent_at.elapsed());
        // Rounded up: an iteration that comes a little early would only sleep again.
        let time_left = time_left + Duration::from_micros(50);
        Some(Timespec { tv_sec: 0, tv_nsec: time_left.subsec_nanos().into() })
    }
}

impl Worker {
    /// Sends watchers their pending lines and heartbeats if they are due.
    pub(super) fn serve_watchers(&mut self, now: Instant) {
        if self.watching.slot_keys.is_empty()
            || now.saturating_duration_since(self.watching.last_sent_at) < SEND_INTERVAL
        {
            return;
        }
        self.watching.last_sent_at = now;
        let heartbeat_interval = self.shared.watchers.heartbeat_interval();
        let cpu_time_before = thread_cpu_time();
        let served_count =
            self.serve_watchers_where(|watcher| watcher.mode.is_watch_due(now, heartbeat_interval));
        let cpu_time = thread_cpu_time().saturating_sub(cpu_time_before);
        self.shared.watchers.record_heartbeats(served_count, cpu_time);
    }

    /// Sends those watchers of which this is true their pending lines, and returns their number.
    pub(super) fn serve_watchers_where(
        &mut self,
        is_served: impl Fn(&Connection) -> bool,
    ) -> usize {
        let connections = &mut self.connections;
        // One that does not take what it was sent is sent what it missed later.
        let is_served = |slot_key: &u64| {
            connections
                .get_mut(*slot_key)
                .is_some_and(|connection| !connection.has_pending_output() && is_served(connection))
        };
        let slot_keys: Vec<u64> =
            self.watching.slot_keys.iter().copied().filter(is_served).collect();
        for slot_key in &slot_keys {
            self.serve(*slot_key, ServeReason::Resume);
        }
        slot_keys.len()
    }
}
