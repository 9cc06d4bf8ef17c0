//! The part of a worker in a handover to a successor (docs/decisions/operation.md, 0104).
//!
//! At the boundary of a command the worker stops, sends copies of its connections to the successor, closes what it has
//! open in the store, and waits. If the successor does not take over, the worker continues as before: nothing was
//! taken from a connection. Otherwise only output is sent, on the connections that cannot be handed over, until their
//! clients have it and have ended them.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::Worker;
use crate::shared::connection_info::CloseReason;
use crate::shared::control_channel::{DESCRIPTORS_MAX, FrameKind};
use crate::shared::fields::FieldWriter;
use crate::shared::handover::Handover;
use crate::shared::lock::lock;

/// Bytes of unparsed input and unsent output that the connections of a worker hand over at most: the successor has
/// them within a few milliseconds. Connections with more stay behind.
const HANDED_OVER_BYTES_MAX: usize = 8 << 20;
/// Bytes of output in the memory of the store that a worker copies at most for connections that stay behind: this
/// takes about ten milliseconds.
const COPIED_BYTES_MAX: usize = 32 << 20;
/// Time between two attempts to send output after the handover.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(5);
/// The same while all output has been sent: there may be thousands of idle connections.
const LINGER_INTERVAL: Duration = Duration::from_millis(25);
/// How long a client to which everything was sent may take to end its side of the connection.
const LINGER_TIME_MAX: Duration = Duration::from_millis(500);

impl Worker {
    /// Waits for the end of a pause.
    pub(super) fn pause(&mut self) {
        // The watchdog ends a process whose worker hangs, not one whose successor is slow.
        self.counters.progress_counter.begin_sleep();
        self.hand_over();
        self.counters.progress_counter.begin_work();
    }

    fn hand_over(&mut self) {
        let Some((pause_number, handover)) = self.shared.phases.wait_for_listener() else {
            return;
        };
        self.add_accepted_connections();
        let send_result = self.send_connections(&handover);
        self.store_worker.close_segments();
        self.shared.phases.pause_worker(pause_number, send_result);
        if self.shared.phases.is_running() {
            self.handed_over.clear();
        }
        self.store_worker.go_online();
    }

    /// Sends what the successor needs of each connection that can be handed over.
    fn send_connections(&mut self, handover: &Handover) -> Result<(), String> {
        self.handed_over.clear();
        let slot_keys = self.connections.keys_where(|_| true);
        let mut handed_over_bytes_left = HANDED_OVER_BYTES_MAX;
        let mut copied_bytes_left = COPIED_BYTES_MAX;
        for batch in slot_keys.chunks(DESCRIPTORS_MAX) {
            let mut fields = FieldWriter::default();
            let mut handed_over_keys = Vec::new();
            for &slot_key in batch {
                let Some(connection) = self.connections.get_mut(slot_key) else {
                    continue;
                };
                if connection.hand_over(&mut fields, &mut handed_over_bytes_left) {
                    handed_over_keys.push(slot_key);
                } else if !connection.prepare_without_handover(
                    &mut lock(&handover.uncommitted_uploads),
                    &mut copied_bytes_left,
                    &self.shared.peer_memory,
                ) {
                    handover.connections_closed_early.fetch_add(1, Ordering::Relaxed);
                }
            }
            let descriptors: Vec<_> = handed_over_keys
                .iter()
                .filter_map(|slot_key| self.connections.get(*slot_key))
                .map(|connection| connection.stream.socket().as_fd())
                .collect();
            if descriptors.is_empty() {
                continue;
            }
            // Also if the send fails: what was sent until then has arrived.
            self.may_share_sockets = true;
            let _send_guard = lock(&handover.send_lock);
            let send_result =
                handover.channel.send(FrameKind::Connections, &fields.0, &descriptors);
            send_result.map_err(|error| format!("connections cannot be sent: {error}"))?;
            self.handed_over.extend(handed_over_keys);
        }
        Ok(())
    }

    /// After the successor has taken over: removes the connections that it has, and sends the pending output of the
    /// others until the time for that is over. What they receive is discarded.
    pub(super) fn finish_replaced(&mut self) {
        for slot_key in std::mem::take(&mut self.handed_over) {
            if let Some(connection) = self.connections.remove(slot_key) {
                // The successor has the socket too, so closing it would not remove it here.
                let _ = epoll::delete(&self.epoll_fd, connection.stream.socket());
                self.shared.connections.remove(connection.info.id.serial);
            }
        }
        for slot_key in self.connections.keys_where(|connection| connection.mode.is_watching()) {
            if let Some(connection) = self.connections.get_mut(slot_key) {
                connection.queue_final_watch_lines(&self.shared);
            }
        }
        let handover = self.shared.phases.last_handover();
        let drain_time = handover.map_or(Duration::ZERO, |handover| handover.drain_time);
        let deadline = Instant::now() + drain_time;
        let mut output_end_times = BTreeMap::new();
        loop {
            for slot_key in self.connections.keys_where(|_| true) {
                if self.finish_output(slot_key, &mut output_end_times) {
                    self.abandon(slot_key);
                }
            }
            let slot_keys = self.connections.keys_where(|_| true);
            if slot_keys.is_empty() || Instant::now() >= deadline {
                break;
            }
            self.counters.progress_counter.count_iteration();
            let is_all_sent =
                slot_keys.iter().all(|slot_key| output_end_times.contains_key(slot_key));
            std::thread::sleep(if is_all_sent { LINGER_INTERVAL } else { OUTPUT_INTERVAL });
        }
        for slot_key in self.connections.keys_where(|_| true) {
            self.abandon(slot_key);
        }
    }

    /// Sends what a connection can be sent now; returns whether it can be closed. `output_end_times` has, for each
    /// connection, the time when the last of its output was sent.
    fn finish_output(
        &mut self,
        slot_key: u64,
        output_end_times: &mut BTreeMap<u64, Instant>,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(slot_key) else {
            return true;
        };
        if !connection.output.has_held_values()
            && !connection.output.send_copied(&mut connection.stream, &self.counters)
        {
            return false;
        }
        let output_ended_at = *output_end_times.entry(slot_key).or_insert_with(|| {
            connection.stream.end_output();
            Instant::now()
        });
        connection.stream.discard_input() || output_ended_at.elapsed() >= LINGER_TIME_MAX
    }

    /// Closes a connection without touching the memory of the store.
    fn abandon(&mut self, slot_key: u64) {
        if let Some(connection) = self.connections.get_mut(slot_key) {
            connection.forget_upload();
        }
        self.close(slot_key, CloseReason::Shutdown);
    }
}
