//! Sessions without sockets: bytes in, bytes out, at the second that the caller gives.
//!
//! For tests, fuzzing and the replay of a recorded stream. It is the session that workers run; what
//! is missing is the kernel, so a reply comes back whole and at once.

use std::cell::Cell;
use std::sync::Arc;

use glasscache_store::{Seconds, Store};

use crate::session::context::Context;
use crate::session::dump::Dump;
use crate::session::output::{Output, Part};
use crate::session::{Next, Session};
use crate::shared::classes::Classes;
use crate::shared::cluster::Cluster;
use crate::shared::config::Config;
use crate::shared::counters::{ClassCounters, Counters};
use crate::shared::error::Error;
use crate::shared::info::{ConnectionId, Info, Peer};
use crate::shared::log::Log;
use crate::shared::peer_memory::Pressure;
use crate::shared::sizes::SHARE_BYTES;
use crate::shared::wake::Waker;
use crate::shared::{Parts, Shared};

/// One connection of a server, with a worker of its own, driven by hand.
pub struct Replay {
    shared: Arc<Shared>,
    store: glasscache_store::Worker,
    counters: Arc<Counters>,
    waker: Waker,
    info: Info,
    session: Session,
    pending: Vec<u8>,
    /// A write found no segment free and is tried once more.
    tries_again: bool,
    is_closed: bool,
}

impl Replay {
    /// A fresh server. `listeners`, `workers` and `connections_max` of the settings do not matter.
    ///
    /// # Errors
    /// When the store has no memory.
    pub fn new(config: Config) -> Result<Replay, Error> {
        let mut group = Self::group(config, 1)?;
        group
            .pop()
            .ok_or(Error::System(std::io::ErrorKind::Other.into()))
    }

    /// A fresh server with this many connections, to be fed in any order.
    ///
    /// # Errors
    /// When the store has no memory.
    pub fn group(config: Config, connections: usize) -> Result<Vec<Replay>, Error> {
        let classes = Classes::new(&config);
        let store = Store::new(glasscache_store::Config {
            memory_bytes: config.memory_bytes,
            item_bytes_max: config.item_bytes_max,
            evict: config.evict,
            workers: connections,
            hash_seed: config.hash_seed.unwrap_or(1),
            slab_chunk_bytes: classes.chunks().to_vec(),
        })?;
        let system = |error: rustix::io::Errno| Error::System(error.into());
        let workers = (0..connections)
            .map(|_| {
                Ok((
                    Arc::new(counters_for(&classes)),
                    Waker::new().map_err(system)?,
                ))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let shared = Arc::new(Shared::new(Parts {
            addresses: Vec::new(),
            listener: Waker::new().map_err(system)?,
            workers: workers.clone(),
            config,
            classes,
            cluster: Cluster::default(),
            log: Log::default(),
            store: Arc::clone(&store),
        }));
        let group = (1..).zip(workers).map(|(serial, (counters, waker))| {
            let id = ConnectionId {
                descriptor: 0,
                serial,
            };
            Replay {
                shared: Arc::clone(&shared),
                store: store.worker(),
                counters,
                waker,
                info: Info::new(id, Peer::Unix, 0, 0),
                session: Session::default(),
                pending: Vec::new(),
                tries_again: false,
                is_closed: false,
            }
        });
        Ok(group.collect())
    }

    /// Takes `bytes` at second `now` (from 2 on, never backwards) and returns what is answered.
    pub fn feed(&mut self, bytes: &[u8], now: u32) -> Vec<u8> {
        if self.is_closed {
            return Vec::new();
        }
        self.pending.extend_from_slice(bytes);
        let mut replies = Vec::new();
        self.store.go_online();
        while !self.is_closed && self.run_session(Seconds(now), &mut replies) {}
        // Between two calls nothing is borrowed, and others of the group may reuse segments.
        self.store.go_offline();
        replies
    }

    /// Whether the server would have closed the connection.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Input that waits for more.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// One run of the session; false when it waits for input.
    fn run_session(&mut self, now: Seconds, replies: &mut Vec<u8>) -> bool {
        self.store.pass();
        let may_refuse = Cell::new(std::mem::take(&mut self.tries_again));
        let context = Context {
            store: &self.store,
            shared: &self.shared,
            counters: &self.counters,
            now,
            connection: &self.info,
            waker: &self.waker,
            share_bytes: SHARE_BYTES,
            is_traced: false,
            pressure: Pressure::Low,
            is_first: false,
            may_refuse: &may_refuse,
        };
        let mut out = Output::new(Vec::new());
        let progress = self.session.run(&self.pending, &context, &mut out);
        collect(&out, replies);
        drop(out);
        self.pending.drain(..progress.used);
        match progress.next {
            // There is nobody else who could make room.
            Next::Input | Next::Whole(_) | Next::Room(_) | Next::Park => false,
            Next::Flush | Next::Yield => true,
            Next::Segment => {
                self.tries_again = true;
                true
            }
            Next::Dump(dump) => {
                list(dump, &context, replies);
                true
            }
            Next::Close(_) | Next::Watch(_) => {
                self.is_closed = true;
                false
            }
        }
    }
}

fn counters_for(classes: &Classes) -> Counters {
    let by_class = (0..=classes.chunks().len())
        .map(|_| ClassCounters::default())
        .collect();
    Counters {
        by_class,
        ..Counters::default()
    }
}

fn list(mut dump: Dump, context: &Context<'_>, replies: &mut Vec<u8>) {
    let mut is_done = false;
    while !is_done {
        let mut out = Output::new(Vec::new());
        is_done = dump.run(context, &mut out);
        collect(&out, replies);
    }
}

fn collect(out: &Output<'_>, replies: &mut Vec<u8>) {
    for part in out.parts() {
        match part {
            Part::Bytes(bytes) => replies.extend_from_slice(bytes),
            Part::Value(item) => item
                .pieces()
                .for_each(|piece| replies.extend_from_slice(piece)),
        }
    }
}
