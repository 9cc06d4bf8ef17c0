//! The connections to one server: handed out to one call at a time, taken back only when clean.
//!
//! A connection that has not read exactly one whole reply for each request sent is closed, for
//! every kind of exit: `PooledConnection` closes it when dropped, and only `PooledConnection::give_back` returns it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
use tokio::sync::Semaphore;

use crate::error::Error;
use crate::transport::blocking::Link;

/// A connection idle for longer is checked before it is used: the server may have closed it.
const TRUSTED_IDLE_MAX: Duration = Duration::from_millis(20);

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    connections_max: usize,
    state: Mutex<PoolState>,
    connection_returned: Condvar,
    /// With one of these a call of the tokio client finds a connection free.
    #[cfg(feature = "tokio")]
    pub(crate) permits: Arc<Semaphore>,
}

#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "links come and go: a pointer is moved and not 300 bytes"
)]
struct PoolState {
    idle: Vec<Box<Link>>,
    open_count: usize,
    waiting_calls: usize,
    /// The server left the client: what comes back is closed.
    has_left: bool,
}

impl PoolState {
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

impl ConnectionPool {
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            connections_max,
            state: Mutex::default(),
            connection_returned: Condvar::new(),
            #[cfg(feature = "tokio")]
            permits: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // Nothing in this file can panic with the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that are open, and those of them that are idle.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.open_count, state.idle.len())
    }

    /// Takes an idle connection, or the right to make one, which has no link yet; waits for either until `deadline`.
    /// `None`: the pool is full and stayed so.
    pub(crate) fn checkout(
        self: &Arc<Self>,
        now: Instant,
        deadline: Instant,
    ) -> Option<PooledConnection> {
        let thread = this_thread_id();
        let mut state = self.state();
        loop {
            while let Some(mut link) = state.take(thread) {
                let is_trusted = now.saturating_duration_since(link.idle_since) < TRUSTED_IDLE_MAX;
                if is_trusted || link.is_still_idle() {
                    return Some(PooledConnection::new(self, Some(link)));
                }
                state.open_count = state.open_count.saturating_sub(1);
            }
            if state.open_count < self.connections_max {
                state.open_count += 1;
                return Some(PooledConnection::new(self, None));
            }
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return None;
            }
            state.waiting_calls += 1;
            let wait_result = self.connection_returned.wait_timeout(state, time_left);
            state = wait_result.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting_calls -= 1;
        }
    }

    fn give_back(&self, link: Box<Link>) {
        let mut state = self.state();
        if state.has_left {
            state.open_count = state.open_count.saturating_sub(1);
        } else {
            state.idle.push(link);
        }
        self.wake(&state);
    }

    fn release_slot(&self) {
        let mut state = self.state();
        state.open_count = state.open_count.saturating_sub(1);
        self.wake(&state);
    }

    fn wake(&self, state: &MutexGuard<'_, PoolState>) {
        if state.waiting_calls > 0 {
            self.connection_returned.notify_one();
        }
    }

    /// In a child after a fork: closes the child's copies of idle connections, without waiting for
    /// a lock whose holder does not exist in the child.
    pub(crate) fn abandon(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.idle.drain(..).for_each(Link::abandon);
        }
    }

    /// Whether quiet writes on an idle connection were not acknowledged.
    pub(super) fn has_unacknowledged_writes(&self) -> bool {
        let state = self.state();
        let mut links = state.idle.iter();
        links.any(|link| link.engine.has_unacknowledged_writes())
    }

    /// Notes whether the server is one of the client's; the idle connections to one that left are closed.
    pub(crate) fn set_present(&self, is_present: bool) {
        self.state().has_left = !is_present;
        if !is_present {
            self.close_idle();
        }
    }

    /// Whether the server left the client.
    pub(crate) fn has_left(&self) -> bool {
        self.state().has_left
    }

    /// Closes the idle connections, outside the lock.
    pub(crate) fn close_idle(&self) {
        let mut state = self.state();
        let idle = std::mem::take(&mut state.idle);
        state.open_count = state.open_count.saturating_sub(idle.len());
        drop(state);
        drop(idle);
    }
}

/// A connection in use by one call; closed when dropped unless it was given back.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    link: Option<Box<Link>>,
    pool: Arc<ConnectionPool>,
    holds_pool_slot: bool,
}

impl PooledConnection {
    /// Counts in the pool, with a connection or before there is one.
    fn new(pool: &Arc<ConnectionPool>, link: Option<Box<Link>>) -> Self {
        Self {
            link,
            pool: pool.clone(),
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
            if let Some(link) = &self.link
                && link.engine.takes_requests()
            {
                link.engine.server().faults.fetch_add(1, Ordering::Relaxed);
            }
            return;
        };
        link.engine.mark_reused();
        link.idle_since = now;
        link.thread = this_thread_id();
        self.holds_pool_slot = false;
        self.pool.give_back(link);
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(link) = self.link.take_if(|link| !link.process.is_current()) {
            // The pool's lock may be held by a thread that does not exist in this child.
            link.abandon();
        } else if self.holds_pool_slot {
            self.link = None;
            self.pool.release_slot();
        }
    }
}
