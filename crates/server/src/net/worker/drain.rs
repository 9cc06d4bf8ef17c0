//! The shutdown of a worker: begun requests are completed, within a bound, then all connections are closed.

use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll;

use super::{ServeReason, Worker};
use crate::shared::connection_info::CloseReason;

/// How long begun requests may take to finish once the server stops.
const DRAIN_TIME_MAX: Duration = Duration::from_millis(700);

impl Worker {
    /// Completes begun requests: input already received by the kernel is served, incomplete commands and unsent
    /// replies have until [`DRAIN_TIME_MAX`] is over.
    pub(super) fn drain(&mut self, events: &mut Vec<epoll::Event>) {
        let deadline = Instant::now() + DRAIN_TIME_MAX;
        self.add_accepted_connections();
        for slot_key in self.connections.keys_where(|connection| !connection.has_pending_output()) {
            self.serve(slot_key, ServeReason::Input);
        }
        self.serve_watchers_where(|_| true);
        while Instant::now() < deadline {
            for slot_key in self
                .connections
                .keys_where(|connection| connection.is_idle() || connection.mode.is_watching())
            {
                self.close(slot_key, CloseReason::Shutdown);
            }
            if self.connections.keys_where(|_| true).is_empty() {
                return;
            }
            events.clear();
            self.store_worker.pass();
            self.counters.progress_counter.count_iteration();
            let poll_timeout = Timespec {
                tv_sec: 0,
                tv_nsec: if self.deferred.has_ready_work() { 0 } else { 10_000_000 },
            };
            let _ = epoll::wait(
                &self.epoll_fd,
                rustix::buffer::spare_capacity(events),
                Some(&poll_timeout),
            );
            self.run_iteration(events);
        }
    }

    pub(super) fn close_all(&mut self) {
        for slot_key in self.connections.keys_where(|_| true) {
            self.close(slot_key, CloseReason::Shutdown);
        }
    }
}
