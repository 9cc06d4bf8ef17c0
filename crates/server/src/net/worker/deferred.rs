//! Deferred connections: large transfers, those that used their quota, those that wait for memory.
//!
//! Moving 64 KiB takes as long as several small requests, so such a transfer waits until the small requests of the
//! iteration are served, and only one or two quotas are moved before the sockets are polled again
//! (docs/decisions/server.md, 0025).
//!
//! A connection that waits for memory or a segment is *parked*: it is not read until the worker lets it *retry*. The
//! *quota* is the number of bytes that a connection sends before others are served.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::slots::Slots;
use super::{ServeReason, Worker};
use crate::net::connection::Connection;
use crate::net::send::UNSHARED_QUOTA_BYTES;
use crate::shared::Shared;
use crate::shared::sizes::QUOTA_BYTES;

/// How long the queue is served before the sockets are polled again: one or two quotas of large transfers.
const QUEUE_TIME_MAX: Duration = Duration::from_micros(20);

/// A request that moved fewer bytes is small: while there are such requests, large transfers get small quotas.
pub(super) const SMALL_REQUEST_BYTES: u64 = 64 << 10;

/// Time after the last small request during which large transfers still get small quotas. Without small requests their
/// quotas are large, because waking a receiver for every small quota costs a quarter more.
const SMALL_REQUEST_WINDOW: Duration = Duration::from_millis(100);

/// How often those that wait for memory are checked for having waited long enough.
pub(super) const OVERDUE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of connections in one such check.
const OVERDUE_CHECKED_MAX: usize = 256;

/// How long the connection that has sent most waits before its records are received in any case: most likely they
/// complete its command.
const MOST_SENT_AFTER: Duration = Duration::from_millis(400);

/// How many of these are served in one check.
const MOST_SENT_SERVED_MAX: usize = 4;

/// Connections that waited for memory and are served in one iteration.
const MEMORY_QUEUE_SERVED_MAX: usize = 16;

/// How long an upload is parked before it is served again: others need many round trips to release what it waits
/// for, and a hundred checks a second cost nothing.
pub(super) const UPLOAD_PARK_TIME: Duration = Duration::from_millis(10);

/// How long a write that found no segment is parked before it is retried: other workers pass many times meanwhile,
/// unless the kernel does not schedule one of them.
pub(super) const WRITE_PARK_TIME: Duration = Duration::from_millis(1);

/// How long a write waits for a segment before it is refused: longer than the kernel keeps a thread from running on
/// a crowded machine.
const WRITE_WAIT_MAX: Duration = Duration::from_millis(250);

/// How many of those that wait for a piece, and of those that wait to begin, retry immediately: the oldest. If
/// these get nothing the younger ones would not either, except for a piece smaller than theirs.
const RETRIES_AT_ONCE: usize = 4;

/// The deferred connections of a worker.
pub(super) struct Deferred {
    /// The queued connections, each at most once, with the reason for which it is served.
    queue: VecDeque<(u64, ServeReason)>,
    /// Connections that wait for upload memory that others hold.
    parked_uploads: ParkedUploads,
    /// When the parked uploads were last queued.
    uploads_retried_at: Instant,
    /// The number of releases of upload memory at that time.
    upload_releases_seen: u64,
    /// Connections whose next command waits for a segment, oldest first.
    waiting_writes: VecDeque<u64>,
    /// When the waiting writes were last queued.
    writes_retried_at: Instant,
    /// Whether one of them is new, or got its segment.
    must_retry_writes: bool,
    /// Connections that wait for peer memory, oldest first.
    peer_memory_queue: VecDeque<u64>,
    /// Whether the first in line has to be checked without an event: it is new, or more may be granted.
    must_check_peer_memory: bool,
    /// The number of releases of peer memory when the queue was last checked, and in which second that was.
    peer_memory_releases_and_second: (u64, u32),
    /// When it was last checked for connections that have waited long enough.
    overdue_checked_at: Instant,
    /// Whether a parked upload got memory, so that the next may get some too.
    has_upload_progress: bool,
    /// When the iteration began.
    iteration_began_at: Instant,
    /// When a small request was last served.
    last_small_request_at: Instant,
    /// Whether that was within [`SMALL_REQUEST_WINDOW`] before the iteration, or in it.
    has_small_requests: bool,
}

/// Connections that wait for upload memory that others hold, oldest first.
#[derive(Default)]
struct ParkedUploads {
    /// The slot keys of uploads that have a part of their value, by the number of the upload.
    begun_uploads: BTreeMap<u64, u64>,
    /// The slot keys of uploads that wait to begin, by the number with which they were queued.
    waiting_uploads: BTreeMap<u64, u64>,
    last_queue_number: u64,
}

impl Deferred {
    pub(super) fn new() -> Deferred {
        let now = Instant::now();
        Deferred {
            queue: VecDeque::new(),
            parked_uploads: ParkedUploads::default(),
            uploads_retried_at: now,
            upload_releases_seen: 0,
            waiting_writes: VecDeque::new(),
            writes_retried_at: now,
            must_retry_writes: false,
            peer_memory_queue: VecDeque::new(),
            must_check_peer_memory: false,
            peer_memory_releases_and_second: (0, 0),
            overdue_checked_at: now,
            has_upload_progress: false,
            iteration_began_at: now,
            last_small_request_at: now,
            has_small_requests: true,
        }
    }

    pub(super) fn begin_iteration(&mut self, began_at: Instant) {
        self.iteration_began_at = began_at;
        // Computed by addition, because subtracting two `Instant`s is a function call.
        let window_end = self.last_small_request_at.checked_add(SMALL_REQUEST_WINDOW);
        self.has_small_requests = window_end.is_some_and(|end| began_at < end);
    }

    /// When the iteration began.
    pub(super) fn iteration_began_at(&self) -> Instant {
        self.iteration_began_at
    }

    /// Whether connections wait for memory.
    pub(super) fn has_waiters(&self) -> bool {
        !self.peer_memory_queue.is_empty()
    }

    /// Records that a small request was served in this iteration.
    pub(super) fn record_small_request(&mut self) {
        self.last_small_request_at = self.iteration_began_at;
        self.has_small_requests = true;
    }

    /// Bytes that a connection may send before others are served.
    pub(super) fn quota_bytes(&self) -> usize {
        if self.has_small_requests { QUOTA_BYTES } else { UNSHARED_QUOTA_BYTES }
    }

    /// Queues a connection, unless it is already queued.
    pub(super) fn add(&mut self, slot_key: u64, connection: &mut Connection, reason: ServeReason) {
        if connection.deferral.enter_queue() {
            self.queue.push_back((slot_key, reason));
        }
    }

    /// Queues a connection that used a quota of its transfer: as the next one, because alternating transfers cost a
    /// third more, until it has used its last.
    pub(super) fn add_to_front(&mut self, slot_key: u64, connection: &mut Connection) {
        if connection.deferral.use_quota() {
            self.add(slot_key, connection, ServeReason::Resume);
        } else if connection.deferral.enter_queue() {
            self.queue.push_front((slot_key, ServeReason::Resume));
        }
    }

    /// Queues a connection that waits for memory; the oldest stays first.
    pub(super) fn queue_for_memory(
        &mut self,
        slot_key: u64,
        connection: &mut Connection,
        is_first_waiter: bool,
    ) {
        if !connection.memory_wait.enter_queue() {
            return;
        }
        if is_first_waiter {
            self.peer_memory_queue.push_front(slot_key);
        } else {
            // Memory released before it was counted as waiting was not announced.
            self.must_check_peer_memory |= self.peer_memory_queue.is_empty();
            self.peer_memory_queue.push_back(slot_key);
        }
    }

    /// Whether those that wait for memory should be checked without an event.
    pub(super) fn must_check_memory_queue(&self) -> bool {
        self.must_check_peer_memory && !self.peer_memory_queue.is_empty()
    }

    /// Whether there is work for which nothing has to be waited for.
    pub(super) fn has_ready_work(&self) -> bool {
        !self.queue.is_empty()
            || (self.has_upload_progress && self.has_parked_uploads())
            || (self.must_retry_writes && self.has_waiting_writes())
    }

    /// Whether a write waits for a segment.
    pub(super) fn has_waiting_writes(&self) -> bool {
        !self.waiting_writes.is_empty()
    }

    /// Whether a write of this connection has waited for a segment for the maximum time.
    pub(super) fn may_refuse(&self, connection: &Connection) -> bool {
        connection.deferral.has_waited_for_segment(WRITE_WAIT_MAX, self.iteration_began_at)
    }

    /// Whether a connection waits for upload memory.
    pub(super) fn has_parked_uploads(&self) -> bool {
        !self.parked_uploads.begun_uploads.is_empty()
            || !self.parked_uploads.waiting_uploads.is_empty()
    }

    /// The connection that has waited with most bytes in its socket, if it has clearly more there than others have sent:
    /// those that sent a part of the same and stopped must not delay it until they are stalled.
    fn find_most_sent(&self, connections: &Slots, shared: &Shared, now: Instant) -> Option<u64> {
        let (mut sent_bytes, mut most_sent) = (Vec::new(), None);
        for &slot_key in self.peer_memory_queue.iter().rev().take(OVERDUE_CHECKED_MAX) {
            if let Some(connection) = connections.get(slot_key)
                && !connection.deferral.is_queued()
                && connection.waits_to_receive()
            {
                let wanted_bytes = connection.memory_wait.wanted_bytes() as u64;
                sent_bytes.push(wanted_bytes);
                if connection.memory_wait.has_lasted(MOST_SENT_AFTER, now) {
                    most_sent = most_sent.max(Some((wanted_bytes, slot_key)));
                }
            }
        }
        let (most_bytes, slot_key) = most_sent?;
        let holders = shared
            .connections
            .select(|info| info.held_memory.snapshot().filter(|snapshot| !snapshot.is_waiting));
        sent_bytes.extend(holders.iter().map(|(snapshot, _)| snapshot.received_bytes));
        is_clearly_more(most_bytes, &mut sent_bytes).then_some(slot_key)
    }
}

impl Worker {
    /// Serves a connection that is ready, or queues it if a large value is being transferred.
    pub(super) fn serve_or_queue(&mut self, slot_key: u64, reason: ServeReason) {
        match self.connections.get_mut(slot_key) {
            Some(connection) if connection.deferral.is_queued() => {}
            Some(connection) if connection.is_transferring() => {
                self.deferred.add(slot_key, connection, reason);
            }
            _ => self.serve(slot_key, reason),
        }
    }

    /// Serves the queued connections, the first in any case, the others while there is time.
    pub(super) fn serve_queue(&mut self) {
        if self.deferred.queue.is_empty() {
            return;
        }
        let queue_began_at = Instant::now();
        for _ in 0..self.deferred.queue.len() {
            let Some((slot_key, reason)) = self.deferred.queue.pop_front() else {
                return;
            };
            if let Some(connection) = self.connections.get_mut(slot_key) {
                connection.deferral.leave_queue();
                self.serve(slot_key, reason);
            }
            if queue_began_at.elapsed() >= QUEUE_TIME_MAX {
                return;
            }
        }
    }

    /// Serves those that wait for memory after memory was released, and once a second: in order, up to the first that
    /// still gets none, and then the newest.
    pub(super) fn serve_memory_queue(&mut self) {
        let peer_memory_releases_and_second = (self.shared.peer_memory.releases(), self.now.0);
        if self.deferred.peer_memory_queue.is_empty()
            || (!self.deferred.must_check_peer_memory
                && self.deferred.peer_memory_releases_and_second == peer_memory_releases_and_second)
        {
            return;
        }
        self.deferred.peer_memory_releases_and_second = peer_memory_releases_and_second;
        self.deferred.must_check_peer_memory = false;
        self.serve_oldest_waiters();
        self.serve_newest_waiters();
    }

    fn serve_oldest_waiters(&mut self) {
        for _ in 0..MEMORY_QUEUE_SERVED_MAX {
            let Some(slot_key) = self.deferred.peer_memory_queue.pop_front() else {
                return;
            };
            let Some(connection) = self.connections.get_mut(slot_key) else {
                continue;
            };
            connection.memory_wait.leave_queue();
            if !connection.memory_wait.is_waiting() || connection.deferral.is_queued() {
                continue;
            }
            self.serve(slot_key, ServeReason::MemoryQueueHead);
            let still_waits = |connection: &mut Connection| connection.memory_wait.is_waiting();
            if self.connections.get_mut(slot_key).is_some_and(still_waits) {
                return;
            }
        }
        self.deferred.must_check_peer_memory = true;
    }

    /// Serves the newest of those that wait with their input in the socket, up to the first that still gets no memory:
    /// those in line leave some to them (`net/connection/admission`).
    fn serve_newest_waiters(&mut self) {
        let queue = &self.deferred.peer_memory_queue;
        let newest: Vec<u64> = queue.iter().rev().take(MEMORY_QUEUE_SERVED_MAX).copied().collect();
        for slot_key in newest {
            let waits_to_receive = |connection: &mut Connection| {
                !connection.deferral.is_queued() && connection.waits_to_receive()
            };
            if self.connections.get_mut(slot_key).is_some_and(waits_to_receive) {
                self.serve(slot_key, ServeReason::Resume);
                if self.connections.get_mut(slot_key).is_some_and(waits_to_receive) {
                    return;
                }
            }
        }
    }

    /// Serves those that have waited for memory for long enough, wherever they are in line: they keep none.
    pub(super) fn serve_overdue(&mut self, now: Instant) {
        // In this order, because connections rarely wait and subtracting two `Instant`s is a function call.
        if !self.deferred.has_waiters()
            || now.duration_since(self.deferred.overdue_checked_at) < OVERDUE_CHECK_INTERVAL
        {
            return;
        }
        self.deferred.overdue_checked_at = now;
        self.serve_newest_waiters();
        let checked: Vec<u64> =
            self.deferred.peer_memory_queue.iter().take(OVERDUE_CHECKED_MAX).copied().collect();
        for slot_key in checked {
            if self.connections.get_mut(slot_key).is_some_and(|connection| {
                connection.memory_wait.is_waiting()
                    && !connection.deferral.is_queued()
                    && connection.is_overdue(now)
            }) {
                self.serve(slot_key, ServeReason::Resume);
            }
        }
        for _ in 0..MOST_SENT_SERVED_MAX {
            let Some(slot_key) = self.deferred.find_most_sent(&self.connections, &self.shared, now)
            else {
                return;
            };
            self.serve(slot_key, ServeReason::MostSent);
        }
    }

    /// Parks a connection that waits for upload memory, at its previous position if it waited before.
    pub(super) fn park_upload(&mut self, slot_key: u64) {
        let Some(connection) = self.connections.get_mut(slot_key) else {
            return;
        };
        let parked_uploads = &mut self.deferred.parked_uploads;
        if let Some(upload_id) = connection.upload_id() {
            // It waited to begin, and has begun.
            self.deferred.has_upload_progress |= connection.deferral.wait_in_upload();
            parked_uploads.begun_uploads.insert(upload_id, slot_key);
        } else {
            let queue_number = connection.deferral.wait_to_upload(|| {
                parked_uploads.last_queue_number += 1;
                parked_uploads.last_queue_number
            });
            parked_uploads.waiting_uploads.insert(queue_number, slot_key);
        }
        if connection.deferral.park() {
            self.shared.parked_connections.add();
        }
    }

    /// Parks a connection that waits for a segment; `is_new` if it is not the write that waited before. Nothing of
    /// it is received meanwhile, so its later requests are executed later.
    pub(super) fn park_write(&mut self, slot_key: u64, is_new: bool) {
        let began_at = self.deferred.iteration_began_at;
        let Some(connection) = self.connections.get_mut(slot_key) else {
            return;
        };
        if connection.deferral.wait_for_segment(is_new, began_at) {
            // The worker passes between two iterations: that may be enough.
            self.deferred.must_retry_writes = true;
        }
        self.deferred.waiting_writes.push_back(slot_key);
        if connection.deferral.park() {
            self.shared.parked_connections.add();
        }
    }

    /// Retries writes that wait for a segment: all that have waited for the maximum time, and the oldest if it is
    /// time or one has just got a segment.
    pub(super) fn retry_writes(&mut self, now: Instant) {
        if !self.deferred.has_waiting_writes() {
            return;
        }
        let is_due = now.duration_since(self.deferred.writes_retried_at) >= WRITE_PARK_TIME;
        if !std::mem::take(&mut self.deferred.must_retry_writes) && !is_due {
            return;
        }
        self.deferred.writes_retried_at = now;
        let mut retried_count = 0;
        while let Some(&slot_key) = self.deferred.waiting_writes.front() {
            let parked_connection = self
                .connections
                .get_mut(slot_key)
                .filter(|connection| connection.deferral.is_parked());
            if let Some(connection) = parked_connection {
                if retried_count >= RETRIES_AT_ONCE && !self.deferred.may_refuse(connection) {
                    return;
                }
                connection.deferral.retry();
                self.shared.parked_connections.subtract(1);
                self.deferred.add(slot_key, connection, ServeReason::Resume);
                retried_count += 1;
            }
            self.deferred.waiting_writes.pop_front();
        }
    }

    /// Records that a connection no longer waits for memory, if it did.
    pub(super) fn unpark(&mut self, slot_key: u64) {
        let Some(connection) = self.connections.get_mut(slot_key) else {
            return;
        };
        let ended_wait = connection.deferral.unpark();
        if ended_wait.was_parked {
            // Something else woke it. A slot key that stays in the queue is skipped when it is first.
            if let Some(queue_number) = ended_wait.upload_queue_number {
                self.deferred.parked_uploads.waiting_uploads.remove(&queue_number);
            }
            if let Some(upload_id) = connection.upload_id() {
                self.deferred.parked_uploads.begun_uploads.remove(&upload_id);
            }
            self.shared.parked_connections.subtract(1);
        }
        self.deferred.must_retry_writes |= ended_wait.got_segment;
        self.deferred.has_upload_progress |= ended_wait.got_upload_memory;
    }

    /// Retries the oldest parked connections if it is time, if memory was released, or if one of them just got
    /// some.
    pub(super) fn retry_parked_uploads(&mut self, now: Instant) {
        if !self.deferred.has_parked_uploads() {
            return;
        }
        let releases = self.shared.parked_connections.releases();
        let is_due = now.duration_since(self.deferred.uploads_retried_at) >= UPLOAD_PARK_TIME;
        let got_memory = std::mem::take(&mut self.deferred.has_upload_progress);
        if !is_due && !got_memory && releases == self.deferred.upload_releases_seen {
            return;
        }
        self.deferred.uploads_retried_at = now;
        self.deferred.upload_releases_seen = releases;
        for has_begun in [true, false] {
            let mut retried_count = 0;
            while retried_count < RETRIES_AT_ONCE
                && let Some(slot_key) = self.deferred.parked_uploads.pop(has_begun)
            {
                // One that was closed or woken meanwhile does not count.
                if let Some(connection) = self.connections.get_mut(slot_key)
                    && connection.deferral.retry()
                {
                    self.shared.parked_connections.subtract(1);
                    self.deferred.add(slot_key, connection, ServeReason::Resume);
                    self.counters.upload_tries.bump();
                    retried_count += 1;
                }
            }
        }
    }
}

impl ParkedUploads {
    fn pop(&mut self, has_begun: bool) -> Option<u64> {
        let uploads = if has_begun { &mut self.begun_uploads } else { &mut self.waiting_uploads };
        uploads.pop_first().map(|(_, slot_key)| slot_key)
    }
}

/// Whether `bytes` are more than a median one of `others` by at least a quarter.
fn is_clearly_more(bytes: u64, others: &mut [u64]) -> bool {
    others.sort_unstable();
    let median_bytes = others.get(others.len() / 2).copied().unwrap_or(0);
    bytes > median_bytes + median_bytes / 4
}

#[cfg(test)]
mod tests;
