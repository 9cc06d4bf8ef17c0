//! The connections to one server: handed out to one call at a time, taken back only when clean.
//!
//! A connection that has not read exactly one whole reply for each request sent is closed, for
//! every kind of exit: `PooledConnection` closes it when dropped, and only `PooledConnection::give_back` returns it.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::address::Endpoint;
use crate::engine::server::ServerState;
use crate::error::Error;
use crate::near::ClientNearCache;
use crate::options::Options;
use crate::quiet::QuietWrites;
use crate::transport::background::{BackgroundConnection, Peer};
use crate::transport::blocking::Link;
use crate::transport::resolver::Resolver;

/// A connection idle for longer is checked before it is used: the server may have closed it.
const TRUSTED_IDLE_MAX: Duration = Duration::from_millis(20);

/// One server: its endpoint, its state, and the connections to it.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// What is known of it.
    pub state: Arc<ServerState>,
    pub(crate) options: Arc<Options>,
    /// Finds its addresses.
    pub(crate) resolver: Resolver,
    pub(crate) quiet_writes: Arc<QuietWrites>,
    pool: Mutex<Pool>,
    connection_returned: Condvar,
    /// A thread watches it, or is to end.
    is_watched: AtomicBool,
}

#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "links come and go: a pointer is moved and not 300 bytes"
)]
struct Pool {
    idle: Vec<Box<Link>>,
    open_count: usize,
    waiting_calls: usize,
    /// The server left the client: what comes back is closed.
    has_left: bool,
}

impl Pool {
    /// The idle connection that this thread had last, else the one that was used last.
    ///
    /// So a thread's calls follow each other on one connection while others use theirs.
    fn take(&mut self, thread: usize) -> Option<Box<Link>> {
        let own_index = self.idle.iter().rposition(|link| link.thread == thread);
        match own_index {
            Some(own_index) => Some(self.idle.remove(own_index)),
            None => self.idle.pop(),
        }
    }
}

/// A number that threads do not share while they live.
fn this_thread_id() -> usize {
    thread_local!(static MARKER: u8 = const { 0 });
    MARKER.with(|marker| std::ptr::from_ref(marker).addr())
}

/// What a call gets when it requests a connection.
pub(crate) enum Checkout {
    /// A connection, used before.
    Reused(Box<Link>),
    /// The right to make a new one.
    MayConnect,
    /// The pool is full and stayed so until the deadline.
    PoolFull,
}

impl Deref for Server {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.state
    }
}

impl Server {
    pub(crate) fn new(
        endpoint: Endpoint,
        options: Arc<Options>,
        near: Option<Arc<ClientNearCache>>,
    ) -> Self {
        Self {
            state: Arc::new(
                ServerState::new(endpoint.to_string())
                    .with_login(options.login.clone())
                    .with_command_set(options.protocol.command_set())
                    .with_near(near),
            ),
            endpoint,
            options,
            resolver: Resolver::default(),
            quiet_writes: Arc::default(),
            pool: Mutex::default(),
            connection_returned: Condvar::new(),
            is_watched: AtomicBool::new(false),
        }
    }

    /// A connection for a background thread.
    pub(crate) fn connect_in_background(&self, deadline: Instant) -> Option<BackgroundConnection> {
        let peer = Peer {
            endpoint: &self.endpoint,
            resolver: &self.resolver,
            tls: self.options.tls.as_ref(),
        };
        BackgroundConnection::connect(&peer, deadline)
    }

    /// Notes that a thread watches it; false if one does.
    pub(crate) fn begin_watch(&self) -> bool {
        !self.is_watched.swap(true, Ordering::Relaxed)
    }

    /// Notes that no thread is to watch it any more.
    pub(crate) fn end_watch(&self) {
        self.is_watched.store(false, Ordering::Relaxed);
    }

    /// Whether a thread is to watch it.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // Nothing in this file can panic with the pool half changed.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that are open, and those of them that are idle.
    pub fn connection_counts(&self) -> (usize, usize) {
        let pool = self.pool();
        (pool.open_count, pool.idle.len())
    }

    /// Takes an idle connection or the right to make one; waits for either until `deadline`.
    pub(crate) fn checkout(&self, now: Instant, deadline: Instant) -> Checkout {
        let thread = this_thread_id();
        let mut pool = self.pool();
        loop {
            while let Some(mut link) = pool.take(thread) {
                let is_trusted = now.saturating_duration_since(link.idle_since) < TRUSTED_IDLE_MAX;
                if is_trusted || link.is_still_idle() {
                    return Checkout::Reused(link);
                }
                pool.open_count = pool.open_count.saturating_sub(1);
            }
            if pool.open_count < self.options.connections_max {
                pool.open_count += 1;
                return Checkout::MayConnect;
            }
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return Checkout::PoolFull;
            }
            pool.waiting_calls += 1;
            let wait_result = self.connection_returned.wait_timeout(pool, time_left);
            pool = wait_result.unwrap_or_else(PoisonError::into_inner).0;
            pool.waiting_calls -= 1;
        }
    }

    fn give_back(&self, link: Box<Link>) {
        let mut pool = self.pool();
        if pool.has_left {
            pool.open_count = pool.open_count.saturating_sub(1);
        } else {
            pool.idle.push(link);
        }
        self.wake(&pool);
    }

    fn release_slot(&self) {
        let mut pool = self.pool();
        pool.open_count = pool.open_count.saturating_sub(1);
        self.wake(&pool);
    }

    fn wake(&self, pool: &MutexGuard<'_, Pool>) {
        if pool.waiting_calls > 0 {
            self.connection_returned.notify_one();
        }
    }

    /// In a child after a fork: closes the child's copies of idle connections, without waiting for
    /// a lock whose holder does not exist in the child.
    pub(crate) fn abandon(&self) {
        if let Ok(mut pool) = self.pool.try_lock() {
            pool.idle
                .drain(..)
                .for_each(super::transport::blocking::Link::abandon);
        }
    }

    /// Whether quiet writes were not sent, or not acknowledged.
    pub(crate) fn has_unacknowledged_writes(&self) -> bool {
        self.quiet_writes.has_buffered()
            || self
                .pool()
                .idle
                .iter()
                .any(|link| link.engine.has_unacknowledged_writes())
    }

    /// Notes whether the server is one of the client's; returns the connections to be closed.
    #[expect(clippy::vec_box, reason = "they come from the pool as they are")]
    pub(crate) fn set_present(&self, is_present: bool) -> Vec<Box<Link>> {
        self.pool().has_left = !is_present;
        if is_present {
            Vec::new()
        } else {
            self.take_idle()
        }
    }

    /// Whether the server left the client.
    pub(crate) fn has_left(&self) -> bool {
        self.pool().has_left
    }

    /// Closes the idle connections; returns them to be closed outside the lock.
    #[expect(clippy::vec_box, reason = "they come from the pool as they are")]
    pub(crate) fn take_idle(&self) -> Vec<Box<Link>> {
        let mut pool = self.pool();
        let idle = std::mem::take(&mut pool.idle);
        pool.open_count = pool.open_count.saturating_sub(idle.len());
        idle
    }
}

/// A connection in use by one call; closed when dropped unless it was given back.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    link: Option<Box<Link>>,
    server: Arc<Server>,
    holds_pool_slot: bool,
}

impl PooledConnection {
    /// Counts in the pool, with a connection or before there is one.
    pub(crate) fn new(server: Arc<Server>, link: Option<Box<Link>>) -> Self {
        Self {
            link,
            server,
            holds_pool_slot: true,
        }
    }

    /// The link of a call's connection.
    pub(crate) fn link_of(connection: &mut Option<Self>) -> Result<&mut Link, Error> {
        let link = connection.as_mut().and_then(Self::link);
        link.ok_or(Error::Closed)
    }

    pub(crate) fn link(&mut self) -> Option<&mut Link> {
        self.link.as_deref_mut()
    }

    pub(crate) fn link_ref(&self) -> Option<&Link> {
        self.link.as_deref()
    }

    /// Replaces the connection, if any; the old one is closed.
    pub(crate) fn replace(&mut self, link: Option<Box<Link>>) {
        self.link = link;
    }

    /// Returns the connection to the pool if every reply was read to its end; else closes it and counts a fault.
    pub(crate) fn give_back(mut self, now: Instant) {
        let Some(mut link) = self
            .link
            .take_if(|link| link.engine.is_ready_for_reuse() && link.process.is_current())
        else {
            // A fault on a connection that was closed before this was counted by the engine.
            if self
                .link
                .as_ref()
                .is_some_and(|link| link.engine.takes_requests())
            {
                self.server.faults.fetch_add(1, Ordering::Relaxed);
            }
            return;
        };
        link.engine.mark_reused();
        link.idle_since = now;
        link.thread = this_thread_id();
        self.holds_pool_slot = false;
        self.server.give_back(link);
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if self
            .link
            .as_ref()
            .is_some_and(|link| !link.process.is_current())
        {
            // The pool's lock may be held by a thread that does not exist in this child.
            self.link
                .take()
                .into_iter()
                .for_each(super::transport::blocking::Link::abandon);
        } else if self.holds_pool_slot {
            self.link = None;
            self.server.release_slot();
        }
    }
}
