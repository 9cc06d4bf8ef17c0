//! Who is served after the others: large transfers, those that had their share, those that wait for memory.
//!
//! Moving 64 KiB takes as long as several small requests, so whoever does that waits until the small ones of
//! the iteration are answered, and only one such share or two are moved before the next look at the sockets
//! (docs/decisions/0025-large-transfers-last.md).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::{Cause, Worker};
use crate::net::connection::Connection;
use crate::net::send::WHOLE_BYTES;
use crate::shared::sizes::SHARE_BYTES;

/// How long the queue is served before the sockets are looked at again: one or two shares of large transfers.
const QUEUE_TIME: Duration = Duration::from_micros(20);

/// A request that moved fewer bytes is small: it is for its like that large transfers are cut.
pub(super) const SMALL_BYTES: u64 = 64 << 10;

/// So long after the last small request transfers are still cut. Where there are none they are not, for a receiver
/// that is woken for every share costs a quarter more.
const SMALL_ABOUT: Duration = Duration::from_millis(100);

/// Shares of one transfer before other transfers get theirs: a megabyte and its line.
const SHARES_MAX: u32 = 17;

/// Connections that waited for memory and are served in one iteration.
const MEMORY_QUEUE_SERVED: usize = 16;

/// How long a connection is parked before it is served again: what it waits for takes others many round trips,
/// and a hundred looks a second cost nothing.
pub(super) const PARKED: Duration = Duration::from_millis(10);

/// How long a write that found no segment is parked before it is tried again: others pass many times meanwhile, unless
/// the kernel keeps one of them from its processor.
pub(super) const WRITE_PARKED: Duration = Duration::from_millis(1);

/// How long a write waits for a segment before it is refused: longer than the kernel keeps a thread from its processor
/// on a crowded machine.
const WRITE_WAIT: Duration = Duration::from_millis(250);

/// So many of those that wait for a piece, and of those that wait to begin, try again at once: the ones that came first.
/// Where these get nothing those behind them would not either, but for a piece smaller than theirs.
const TRY_AT_ONCE: usize = 4;

/// The connections of a worker that are served after the others.
pub(super) struct Deferred {
    /// Each at most once, and why it is to be served.
    queue: VecDeque<(u64, Cause)>,
    /// Connections that wait for memory that others hold.
    parked: Parked,
    /// When they were queued last.
    parked_tried: Instant,
    /// How often room had been made then.
    room_seen: u64,
    /// Connections whose next command waits for a segment, in the order in which they came.
    writes: VecDeque<u64>,
    /// When they were queued last.
    writes_tried: Instant,
    /// One of them has just come, or got its segment.
    must_try_writes: bool,
    /// Connections that wait for memory that peers may hold, in the order in which they came.
    memory_queue: VecDeque<u64>,
    /// The first in line has to be looked at although nothing happened: it has just come, or more may be granted.
    must_look: bool,
    /// How often room had been made for them when they were looked at last, and in which second that was.
    memory_seen: (u64, u32),
    /// One that waited got room, so the next may too.
    has_moved: bool,
    /// When the iteration began.
    begun: Instant,
    /// When a small request was served last.
    small: Instant,
}

/// Connections that wait for memory that others hold, in the order in which they came.
#[derive(Default)]
struct Parked {
    /// Those with a part of their value, by the number of the upload.
    uploading: BTreeMap<u64, u64>,
    /// Those that wait to begin, by a number of their own.
    beginning: BTreeMap<u64, u64>,
    arrivals: u64,
}

impl Deferred {
    pub(super) fn new() -> Deferred {
        let now = Instant::now();
        Deferred {
            queue: VecDeque::new(),
            parked: Parked::default(),
            parked_tried: now,
            room_seen: 0,
            writes: VecDeque::new(),
            writes_tried: now,
            must_try_writes: false,
            memory_queue: VecDeque::new(),
            must_look: false,
            memory_seen: (0, 0),
            has_moved: false,
            begun: now,
            small: now,
        }
    }

    pub(super) fn begin_iteration(&mut self, begun: Instant) {
        self.begun = begun;
    }

    /// Notes that a small request was served in this iteration.
    pub(super) fn note_small(&mut self) {
        self.small = self.begun;
    }

    /// What a connection may send before others are served.
    pub(super) fn share_bytes(&self) -> usize {
        if self.begun.duration_since(self.small) < SMALL_ABOUT {
            SHARE_BYTES
        } else {
            WHOLE_BYTES
        }
    }

    /// Queues a connection, unless it is queued already.
    pub(super) fn add(&mut self, key: u64, connection: &mut Connection, cause: Cause) {
        if !std::mem::replace(&mut connection.is_queued, true) {
            self.queue.push_back((key, cause));
        }
    }

    /// Queues a connection that had a share of its transfer: as the next, for transfers that alternate cost
    /// a third more, until it had [`SHARES_MAX`].
    pub(super) fn add_first(&mut self, key: u64, connection: &mut Connection) {
        connection.shares += 1;
        if connection.shares >= SHARES_MAX {
            connection.shares = 0;
            self.add(key, connection, Cause::Room);
        } else if !std::mem::replace(&mut connection.is_queued, true) {
            self.queue.push_front((key, Cause::Room));
        }
    }

    /// Gives a connection its place among those that wait for memory: the first stays the first.
    pub(super) fn queue_for_memory(
        &mut self,
        key: u64,
        connection: &mut Connection,
        is_first: bool,
    ) {
        if std::mem::replace(&mut connection.is_in_memory_queue, true) {
            return;
        }
        if is_first {
            self.memory_queue.push_front(key);
        } else {
            // Room that was made before it was counted as waiting was not announced.
            self.must_look |= self.memory_queue.is_empty();
            self.memory_queue.push_back(key);
        }
    }

    /// Whether those that wait for memory should be looked at without any event.
    pub(super) fn must_look_at_memory_queue(&self) -> bool {
        self.must_look && !self.memory_queue.is_empty()
    }

    /// Whether there is something to do without waiting.
    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
            || (self.has_moved && self.has_parked())
            || (self.must_try_writes && self.has_writes())
    }

    /// Whether a write waits for a segment.
    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Whether a write of this connection waited for a segment for as long as it may.
    pub(super) fn may_refuse(&self, connection: &Connection) -> bool {
        let since = connection.segment_since;
        since.is_some_and(|since| self.begun.duration_since(since) >= WRITE_WAIT)
    }

    /// Whether a connection waits for memory.
    pub(super) fn has_parked(&self) -> bool {
        !self.parked.uploading.is_empty() || !self.parked.beginning.is_empty()
    }
}

impl Worker {
    /// Serves a connection that is ready, or queues it when a large value is on its way.
    pub(super) fn serve_or_queue(&mut self, key: u64, cause: Cause) {
        match self.connections.get_mut(key) {
            Some(connection) if connection.is_queued => {}
            Some(connection) if connection.is_transferring() => {
                self.deferred.add(key, connection, cause);
            }
            _ => self.serve(key, cause),
        }
    }

    /// Serves those that are queued now, the first in any case, the others while there is time.
    pub(super) fn serve_queue(&mut self) {
        if self.deferred.queue.is_empty() {
            return;
        }
        let begun = Instant::now();
        for _ in 0..self.deferred.queue.len() {
            let Some((key, cause)) = self.deferred.queue.pop_front() else {
                return;
            };
            if let Some(connection) = self.connections.get_mut(key) {
                connection.is_queued = false;
                self.serve(key, cause);
            }
            if begun.elapsed() >= QUEUE_TIME {
                return;
            }
        }
    }

    /// Serves those that wait for memory in their order, up to the first that still finds none; when room was made,
    /// and once a second.
    pub(super) fn serve_memory_queue(&mut self) {
        let seen = (self.shared.memory.made(), self.now.0);
        if self.deferred.memory_queue.is_empty()
            || (!self.deferred.must_look && self.deferred.memory_seen == seen)
        {
            return;
        }
        self.deferred.memory_seen = seen;
        self.deferred.must_look = false;
        for _ in 0..MEMORY_QUEUE_SERVED {
            let Some(key) = self.deferred.memory_queue.pop_front() else {
                return;
            };
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.is_in_memory_queue = false;
            if connection.wanted_bytes == 0 || connection.is_queued {
                continue;
            }
            self.serve(key, Cause::First);
            let still_waits = |connection: &mut Connection| connection.wanted_bytes > 0;
            if self.connections.get_mut(key).is_some_and(still_waits) {
                return;
            }
        }
        self.deferred.must_look = true;
    }

    /// Lets a connection wait for memory, at the place that it had if it waited before.
    pub(super) fn park(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let parked = &mut self.deferred.parked;
        if let Some(id) = connection.upload_id() {
            // It waited to begin, and did.
            self.deferred.has_moved |= connection.arrival.take().is_some();
            parked.uploading.insert(id, key);
        } else {
            let arrival = *connection.arrival.get_or_insert_with(|| {
                parked.arrivals += 1;
                parked.arrivals
            });
            parked.beginning.insert(arrival, key);
        }
        connection.tries = false;
        connection.segment_since = None;
        if !std::mem::replace(&mut connection.is_parked, true) {
            self.shared.parking.enter();
        }
    }

    /// Lets a connection wait for a segment; `is_new` where it is not the same write that waited before. Nothing of it
    /// is received meanwhile, so what it asked for later is answered later.
    pub(super) fn park_write(&mut self, key: u64, is_new: bool) {
        let begun = self.deferred.begun;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if is_new || connection.segment_since.is_none() {
            connection.segment_since = Some(begun);
            // Between two turns the worker passes: that may be all it takes.
            self.deferred.must_try_writes = true;
        }
        connection.tries = false;
        self.deferred.writes.push_back(key);
        if !std::mem::replace(&mut connection.is_parked, true) {
            self.shared.parking.enter();
        }
    }

    /// Lets writes that wait for a segment try again: all that waited for as long as they may, and those that came first
    /// if it is time or one just got a segment.
    pub(super) fn queue_writes(&mut self, now: Instant) {
        if !self.deferred.has_writes() {
            return;
        }
        let is_time = now.duration_since(self.deferred.writes_tried) >= WRITE_PARKED;
        if !std::mem::take(&mut self.deferred.must_try_writes) && !is_time {
            return;
        }
        self.deferred.writes_tried = now;
        let mut trying = 0;
        while let Some(&key) = self.deferred.writes.front() {
            let waiting = self.connections.get_mut(key).filter(|c| c.is_parked);
            if let Some(connection) = waiting {
                if trying >= TRY_AT_ONCE && !self.deferred.may_refuse(connection) {
                    return;
                }
                connection.is_parked = false;
                connection.tries = true;
                self.shared.parking.leave(1);
                self.deferred.add(key, connection, Cause::Room);
                trying += 1;
            }
            self.deferred.writes.pop_front();
        }
    }

    /// Notes that a connection waits for memory no more, if it did.
    pub(super) fn unpark(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let arrival = connection.arrival.take();
        if std::mem::take(&mut connection.is_parked) {
            // Something else woke it. A key that stays is passed over when it comes first.
            if let Some(arrival) = arrival {
                self.deferred.parked.beginning.remove(&arrival);
            }
            if let Some(id) = connection.upload_id() {
                self.deferred.parked.uploading.remove(&id);
            }
            self.shared.parking.leave(1);
        }
        let has_moved = std::mem::take(&mut connection.tries);
        if connection.segment_since.take().is_some() {
            self.deferred.must_try_writes |= has_moved;
        } else {
            self.deferred.has_moved |= has_moved;
        }
    }

    /// Lets the parked connections that came first try again, if it is time, if room was made, or if one of them just
    /// got some.
    pub(super) fn queue_parked(&mut self, now: Instant) {
        if !self.deferred.has_parked() {
            return;
        }
        let made = self.shared.parking.made();
        let is_time = now.duration_since(self.deferred.parked_tried) >= PARKED;
        let has_moved = std::mem::take(&mut self.deferred.has_moved);
        if !is_time && !has_moved && made == self.deferred.room_seen {
            return;
        }
        self.deferred.parked_tried = now;
        self.deferred.room_seen = made;
        for is_uploading in [true, false] {
            let mut trying = 0;
            while trying < TRY_AT_ONCE
                && let Some(key) = self.deferred.parked.pop(is_uploading)
            {
                // One that was closed or woken meanwhile takes nobody's place.
                if let Some(connection) = self.connections.get_mut(key)
                    && std::mem::take(&mut connection.is_parked)
                {
                    self.shared.parking.leave(1);
                    connection.tries = true;
                    self.deferred.add(key, connection, Cause::Room);
                    self.counters.upload_tries.bump();
                    trying += 1;
                }
            }
        }
    }
}

impl Parked {
    fn pop(&mut self, is_uploading: bool) -> Option<u64> {
        let parked = if is_uploading {
            &mut self.uploading
        } else {
            &mut self.beginning
        };
        parked.pop_first().map(|(_, key)| key)
    }
}
