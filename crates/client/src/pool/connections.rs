//! The connections to one server: handed out to one call at a time, taken back only when clean.
//!
//! A connection that has not read exactly one whole reply for each request sent is closed, for every kind of exit:
//! `PooledConnection` closes it when dropped, and only `PooledConnection::return_to_pool` returns it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
use tokio::sync::Semaphore;

use crate::error::Error;
use crate::transport::blocking::SocketConnection;

/// A connection idle for longer is checked before it is used: the server may have closed it.
const TRUSTED_IDLE_MAX: Duration = Duration::from_millis(20);

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    connections_max: usize,
    state: Mutex<PoolState>,
    connection_returned: Condvar,
    /// A call of the tokio client holds one of these, so that the pool has a connection for it.
    #[cfg(feature = "tokio")]
    pub(crate) permits: Arc<Semaphore>,
}

#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "connections come and go: a pointer is moved and not 300 bytes")]
struct PoolState {
    idle: Vec<Box<SocketConnection>>,
    open_count: usize,
    waiting_calls: usize,
    /// The server left the client: what comes back is closed.
    has_server_left: bool,
}

impl PoolState {
    /// Takes the idle connection that this thread used last, else the one that was used last by any thread.
    ///
    /// So a thread's calls follow each other on one connection while others use theirs.
    fn take_idle(&mut self, thread_id: usize) -> Option<Box<SocketConnection>> {
        if self.idle.last().is_none_or(|connection| connection.last_thread_id == thread_id) {
            return self.idle.pop(); // as always with one thread
        }
        let own_connection_index = self
            .idle
            .iter()
            .rposition(|socket_connection| socket_connection.last_thread_id == thread_id);
        match own_connection_index {
            Some(own_connection_index) => Some(self.idle.remove(own_connection_index)),
            None => self.idle.pop(),
        }
    }
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
    pub(super) fn open_and_idle_counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.open_count, state.idle.len())
    }

    /// Takes an idle connection for a thread, or permission to open one, which has no socket yet; waits for either
    /// until `deadline`. `None`: the pool stayed full until then.
    #[inline]
    pub(crate) fn checkout(
        self: &Arc<Self>,
        thread_id: usize,
        now: Instant,
        deadline: Instant,
    ) -> Option<PooledConnection> {
        let mut state = self.state();
        loop {
            while let Some(mut socket_connection) = state.take_idle(thread_id) {
                // Cheaper than the difference of the times.
                let is_trusted = now < socket_connection.idle_since + TRUSTED_IDLE_MAX;
                if is_trusted || socket_connection.is_reusable() {
                    return Some(PooledConnection::new(self, thread_id, Some(socket_connection)));
                }
                state.open_count = state.open_count.saturating_sub(1);
            }
            if state.open_count < self.connections_max {
                state.open_count += 1;
                return Some(PooledConnection::new(self, thread_id, None));
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

    #[inline]
    fn return_connection(&self, socket_connection: Box<SocketConnection>) {
        let mut state = self.state();
        if state.has_server_left {
            state.open_count = state.open_count.saturating_sub(1);
        } else {
            state.idle.push(socket_connection);
        }
        self.wake(&state);
    }

    fn release_permission(&self) {
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
            state.idle.drain(..).for_each(SocketConnection::abandon);
        }
    }

    /// Whether quiet writes on an idle connection were not acknowledged.
    pub(super) fn has_unacknowledged_writes(&self) -> bool {
        let state = self.state();
        let mut idle_connections = state.idle.iter();
        idle_connections
            .any(|socket_connection| socket_connection.state_machine.has_unacknowledged_writes())
    }

    /// Notes whether the server is one of the client's; the idle connections to one that left are closed.
    pub(crate) fn set_present(&self, is_present: bool) {
        self.state().has_server_left = !is_present;
        if !is_present {
            self.close_idle();
        }
    }

    /// Whether the server left the client.
    pub(crate) fn has_server_left(&self) -> bool {
        self.state().has_server_left
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
    socket_connection: Option<Box<SocketConnection>>,
    pool: Arc<ConnectionPool>,
    /// The thread whose later calls prefer this connection.
    thread_id: usize,
    counts_as_open: bool,
}

impl PooledConnection {
    /// Counts in the pool, with a connection or before there is one.
    fn new(
        pool: &Arc<ConnectionPool>,
        thread_id: usize,
        socket_connection: Option<Box<SocketConnection>>,
    ) -> Self {
        Self { socket_connection, pool: pool.clone(), thread_id, counts_as_open: true }
    }

    /// The open socket connection that a call holds.
    pub(crate) fn socket_connection_of(
        connection: &mut Option<Self>,
    ) -> Result<&mut SocketConnection, Error> {
        match connection.as_mut().and_then(Self::socket_connection) {
            Some(socket_connection) => Ok(socket_connection),
            None => Err(Error::Closed),
        }
    }

    pub(crate) fn socket_connection(&mut self) -> Option<&mut SocketConnection> {
        self.socket_connection.as_deref_mut()
    }

    pub(crate) fn socket_connection_ref(&self) -> Option<&SocketConnection> {
        self.socket_connection.as_deref()
    }

    /// Replaces the connection, if any; the old one is closed.
    pub(crate) fn replace(&mut self, socket_connection: Option<Box<SocketConnection>>) {
        self.socket_connection = socket_connection;
    }

    /// Returns the connection to the pool if every reply was read to its end; else closes it and counts a fault.
    #[inline]
    pub(crate) fn return_to_pool(mut self, now: Instant) {
        let Some(mut socket_connection) = self.socket_connection.take_if(|socket_connection| {
            socket_connection.state_machine.is_ready_for_reuse()
                && socket_connection.process.is_current()
        }) else {
            // A fault on a connection that was closed before this was counted by the engine.
            if let Some(socket_connection) = &self.socket_connection
                && socket_connection.state_machine.accepts_requests()
            {
                socket_connection.state_machine.server().faults.fetch_add(1, Ordering::Relaxed);
            }
            return;
        };
        socket_connection.state_machine.mark_reused();
        socket_connection.idle_since = now;
        socket_connection.last_thread_id = self.thread_id;
        self.counts_as_open = false;
        self.pool.return_connection(socket_connection);
    }
}

impl Drop for PooledConnection {
    #[inline]
    fn drop(&mut self) {
        if let Some(socket_connection) = self
            .socket_connection
            .take_if(|socket_connection| !socket_connection.process.is_current())
        {
            // The pool's lock may be held by a thread that does not exist in this child.
            socket_connection.abandon();
        } else if self.counts_as_open {
            self.socket_connection = None;
            self.pool.release_permission();
        }
    }
}
