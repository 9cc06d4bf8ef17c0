//! One server of a client, shared by the calls to it: its endpoint, its state, and the connections to it.
//!
//! A *stale* connection is one that the server closed while it was idle.

mod connections;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(crate) use connections::{ConnectionPool, PooledConnection};

use crate::address::Endpoint;
use crate::engine::server::ServerState;
use crate::near::ClientNearCache;
use crate::options::Options;
use crate::tcp::TcpOptions;
use crate::transport::background::BackgroundConnection;
use crate::transport::connect::ConnectTarget;
use crate::transport::resolver::Resolver;
use crate::waiter::Waiter;
use crate::write_buffer::WriteBuffer;

/// One server: its endpoint, its state, and the connections to it.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Its state, which its connections share.
    pub state: Arc<ServerState>,
    pub(crate) options: Arc<Options>,
    /// Finds its addresses.
    pub(crate) resolver: Resolver,
    pub(crate) write_buffer: Arc<WriteBuffer>,
    pub(crate) pool: Arc<ConnectionPool>,
    /// Whether a thread watches it, or should go on watching.
    is_watched: AtomicBool,
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
            resolver: Resolver::default(),
            write_buffer: Arc::default(),
            pool: Arc::new(ConnectionPool::new(options.connections_max)),
            options,
            is_watched: AtomicBool::new(false),
        }
    }

    /// Itself, for a connection to it.
    pub(crate) fn connect_target(&self) -> ConnectTarget<'_> {
        let (tls, tcp) = (self.options.tls.as_ref(), self.options.tcp);
        ConnectTarget { endpoint: &self.endpoint, resolver: &self.resolver, tls, tcp }
    }

    /// What waits in place of the threads that call it.
    pub(crate) fn waiter(&self) -> Option<&dyn Waiter> {
        self.options.waiter.as_deref()
    }

    /// A connection for a background thread.
    pub(crate) fn connect_in_background(&self, deadline: Instant) -> Option<BackgroundConnection> {
        BackgroundConnection::connect(self.connect_target(), deadline)
    }

    /// What is set on the TCP sockets of connections to it; `None`: it has none.
    pub fn tcp_options(&self) -> Option<TcpOptions> {
        matches!(self.endpoint, Endpoint::Tcp(..)).then_some(self.options.tcp)
    }

    /// Connections that are open, and those of them that are idle.
    pub fn connection_counts(&self) -> (usize, usize) {
        self.pool.open_and_idle_counts()
    }

    /// Whether quiet writes were not sent, or not acknowledged.
    pub(crate) fn has_unacknowledged_writes(&self) -> bool {
        self.write_buffer.has_buffered() || self.pool.has_unacknowledged_writes()
    }

    /// Notes that a thread watches it from now on; false if another one already does.
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
}
