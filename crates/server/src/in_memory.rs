//! Sessions without sockets: bytes in, bytes out, at the second given by the caller.
//!
//! For tests, fuzzing and the replay of a recorded stream. The sessions are those that workers run; only the kernel
//! is missing, so a reply is returned whole and at once.

use std::cell::Cell;
use std::sync::Arc;

use glasscache_store::{Seconds, Store};

use crate::restartable_memory::RestartableMemory;
use crate::session::context::Context;
use crate::session::dump::Dump;
use crate::session::output::{Output, OutputPart};
use crate::session::{Access, RunEnd, Session};
use crate::shared::clock::Clock;
use crate::shared::cluster::Cluster;
use crate::shared::config::Config;
use crate::shared::connection_info::{ConnectionId, ConnectionInfo, Peer};
use crate::shared::counters::{ClassCounters, Counters};
use crate::shared::error::Error;
use crate::shared::log::Log;
use crate::shared::logins::Logins;
use crate::shared::peer_memory::Pressure;
use crate::shared::sizes::QUOTA_BYTES;
use crate::shared::slab_classes::SlabClassTable;
use crate::shared::wake::Waker;
use crate::shared::{Shared, SharedParts};

/// A worker of a server without sockets, whose connections are driven by hand.
pub struct InMemoryWorker {
    shared: Arc<Shared>,
    store_worker: glasscache_store::Worker,
    counters: Arc<Counters>,
    waker: Waker,
    connection_count: u64,
}

/// One connection of an [`InMemoryWorker`].
pub struct InMemoryConnection {
    info: ConnectionInfo,
    session: Session,
    /// Input that is an incomplete command.
    pending_input: Vec<u8>,
    /// A write found no free segment and is retried.
    retries_write: bool,
    is_closed: bool,
}

/// The pieces of a stream whose lengths are `lengths`, over and over, at least one byte each.
pub fn pieces<'s, L>(stream: &'s [u8], lengths: &'s [L]) -> impl Iterator<Item = &'s [u8]>
where
    L: Copy + Into<usize>,
{
    let mut unread_input = stream;
    let lengths = lengths.iter().cycle();
    lengths.map_while(move |&length| {
        let (piece, tail) = unread_input.split_at(length.into().max(1).min(unread_input.len()));
        unread_input = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

/// One connection of a server, with a worker of its own.
pub struct InMemorySession {
    worker: InMemoryWorker,
    connection: InMemoryConnection,
}

impl InMemoryWorker {
    /// The workers of a fresh server. `workers` and `connections_max` of the settings do not matter, and of `listeners`
    /// only whether the first one serves statistics alone.
    ///
    /// # Errors
    /// When the store has no memory, or the file of users cannot be read.
    pub fn group(config: Config, workers: usize) -> Result<Vec<InMemoryWorker>, Error> {
        Self::group_with(config, workers, |config| Ok(Store::new(config)?))
    }

    /// The workers of a server whose items are in `memory`: those of the last group if that was stopped, else none.
    ///
    /// # Errors
    /// As [`Self::group`], or if what was stopped cannot be continued.
    pub fn group_in(
        config: Config,
        workers: usize,
        memory: &mut RestartableMemory,
    ) -> Result<Vec<InMemoryWorker>, Error> {
        Self::group_with(config, workers, |config| memory.make_store(config))
    }

    /// Stops the workers of a group, whose connections have ended, so that the next group in `memory` continues their
    /// store. False if it cannot be continued.
    pub fn stop(workers: Vec<InMemoryWorker>, memory: &mut RestartableMemory, now: u32) -> bool {
        let Some(shared) = workers.first().map(|worker| Arc::clone(&worker.shared)) else {
            return false;
        };
        drop(workers);
        memory.save(&shared.store, Seconds(now))
    }

    fn group_with(
        config: Config,
        workers: usize,
        make_store: impl FnOnce(glasscache_store::Config) -> Result<Arc<Store>, Error>,
    ) -> Result<Vec<InMemoryWorker>, Error> {
        let slab_classes = SlabClassTable::new(&config);
        let store = make_store(glasscache_store::Config {
            memory_bytes: config.memory_bytes,
            item_bytes_max: config.item_bytes_max,
            evict: config.evict,
            workers,
            hash_seed: config.hash_seed.unwrap_or(1),
            samples: false,
            slab_chunk_bytes: slab_classes.chunk_sizes().to_vec(),
        })?;
        // Attempts to log in are decided at once.
        let logins = Logins::new(config.users.as_ref())?;
        let system_error = |error: rustix::io::Errno| Error::System(error.into());
        let counters_and_wakers = (0..workers)
            .map(|_| {
                Ok((Arc::new(counters_for(&slab_classes)), Waker::new().map_err(system_error)?))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let shared = Arc::new(Shared::new(SharedParts {
            addresses: Vec::new(),
            clock: Clock::start(),
            listener_waker: Waker::new().map_err(system_error)?,
            control_waker: Waker::new().map_err(system_error)?,
            counters_and_wakers: counters_and_wakers.clone(),
            config,
            slab_classes,
            cluster: Cluster::default(),
            logins,
            tls: None,
            http_token: None,
            log: Log::default(),
            store: Arc::clone(&store),
        }));
        let group = counters_and_wakers.into_iter().map(|(counters, waker)| InMemoryWorker {
            shared: Arc::clone(&shared),
            store_worker: store.worker(),
            counters,
            waker,
            connection_count: 0,
        });
        Ok(group.collect())
    }

    /// A connection that was just accepted.
    pub fn connect(&mut self) -> InMemoryConnection {
        self.connection_count += 1;
        let id = ConnectionId { descriptor: 0, serial: self.connection_count };
        let mut info = ConnectionInfo::new(id, Peer::Unix, 0, 0);
        info.serves_statistics_only = self.shared.serves_statistics_only(0);
        InMemoryConnection {
            session: Session::new(Access::of(&info, &self.shared.logins), false),
            info,
            pending_input: Vec::new(),
            retries_write: false,
            is_closed: false,
        }
    }

    /// Feeds `bytes` of a connection at second `now` (from 2 on, never decreasing) and returns the replies.
    pub fn feed(&mut self, connection: &mut InMemoryConnection, bytes: &[u8], now: u32) -> Vec<u8> {
        if connection.is_closed {
            return Vec::new();
        }
        connection.pending_input.extend_from_slice(bytes);
        let mut replies = Vec::new();
        self.store_worker.go_online();
        while !connection.is_closed && self.run_session(connection, Seconds(now), &mut replies) {}
        // Between two calls nothing is borrowed, and others of the group may reuse segments.
        self.store_worker.go_offline();
        replies
    }

    /// Does the background work of one iteration of a worker's loop at second `now`.
    pub fn maintain(&mut self, now: u32) {
        self.store_worker.go_online();
        self.store_worker.maintain(Seconds(now));
        self.store_worker.go_offline();
    }

    /// Sets the wall clock, which absolute times of expiry refer to: second `now` is this Unix time.
    pub fn set_wall_clock(&self, unix_s: i64, now: u32) {
        self.shared.clock.set_wall_clock(unix_s, Seconds(now));
    }

    /// One run of the session; false when it needs more input.
    fn run_session(
        &mut self,
        connection: &mut InMemoryConnection,
        now: Seconds,
        replies: &mut Vec<u8>,
    ) -> bool {
        self.store_worker.pass();
        let may_refuse = Cell::new(std::mem::take(&mut connection.retries_write));
        let context = Context {
            store_worker: &self.store_worker,
            shared: &self.shared,
            counters: &self.counters,
            now,
            connection: &connection.info,
            waker: &self.waker,
            quota_bytes: QUOTA_BYTES,
            logs_commands: false,
            pressure: Pressure::Low,
            is_first_waiter: false,
            is_overdue: false,
            is_tls: false,
            refuses_incomplete: &Cell::new(false),
            may_refuse: &may_refuse,
        };
        let mut out = Output::new(Vec::new());
        let progress = connection.session.run(&connection.pending_input, &context, &mut out);
        collect_replies(&out, replies);
        drop(out);
        connection.pending_input.drain(..progress.used_bytes);
        match progress.run_end {
            // No other connection could release memory.
            RunEnd::NeedsInput
            | RunEnd::NeedsBytes(_)
            | RunEnd::WaitForMemory(_)
            | RunEnd::WaitForUpload
            | RunEnd::WaitForLogin => false,
            RunEnd::Flush | RunEnd::Yield => true,
            RunEnd::WaitForSegment => {
                connection.retries_write = true;
                true
            }
            RunEnd::Dump(dump) => {
                append_dump(dump, &context, replies);
                true
            }
            RunEnd::Close(_) | RunEnd::Watch(_) => {
                connection.is_closed = true;
                false
            }
        }
    }
}

impl InMemoryConnection {
    /// Whether the server would have closed the connection.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Input that is an incomplete command.
    pub fn pending_bytes(&self) -> usize {
        self.pending_input.len()
    }
}

impl InMemorySession {
    /// A fresh server. `listeners`, `workers` and `connections_max` of the settings do not matter.
    ///
    /// # Errors
    /// When the store has no memory.
    pub fn new(config: Config) -> Result<InMemorySession, Error> {
        let mut group = Self::group(config, 1)?;
        group.pop().ok_or(Error::System(std::io::ErrorKind::Other.into()))
    }

    /// A fresh server with this many connections, to be fed in any order.
    ///
    /// # Errors
    /// When the store has no memory.
    pub fn group(config: Config, connections: usize) -> Result<Vec<InMemorySession>, Error> {
        let workers = InMemoryWorker::group(config, connections)?;
        let group = workers.into_iter().map(|mut worker| {
            let connection = worker.connect();
            InMemorySession { worker, connection }
        });
        Ok(group.collect())
    }

    /// Feeds `bytes` at second `now` (from 2 on, never decreasing) and returns the replies.
    pub fn feed(&mut self, bytes: &[u8], now: u32) -> Vec<u8> {
        self.worker.feed(&mut self.connection, bytes, now)
    }

    /// Whether the server would have closed the connection.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Input that is an incomplete command.
    pub fn pending_bytes(&self) -> usize {
        self.connection.pending_bytes()
    }
}

fn counters_for(slab_classes: &SlabClassTable) -> Counters {
    let by_class =
        (0..=slab_classes.chunk_sizes().len()).map(|_| ClassCounters::default()).collect();
    Counters { by_class, ..Counters::default() }
}

fn append_dump(mut dump: Dump, context: &Context<'_>, replies: &mut Vec<u8>) {
    let mut is_done = false;
    while !is_done {
        let mut out = Output::new(Vec::new());
        is_done = dump.append_slice(context, &mut out);
        collect_replies(&out, replies);
    }
}

fn collect_replies(out: &Output<'_>, replies: &mut Vec<u8>) {
    for part in out.parts() {
        match part {
            OutputPart::Bytes(bytes) => replies.extend_from_slice(bytes),
            OutputPart::Value(item) => {
                item.pieces().for_each(|piece| replies.extend_from_slice(piece));
            }
        }
    }
}
