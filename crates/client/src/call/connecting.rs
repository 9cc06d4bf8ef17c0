//! Connecting for a call: look up the server's name, try its addresses one after the other, negotiate TLS, log in, and
//! once per server probe for its command set.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::clock::CallClock;
use super::failure::StepError;
use crate::engine::connection::{ConnectionEvent, Failure};
use crate::engine::retry::FailureCause;
use crate::error::{Error, Phase};
use crate::pool::{PooledConnection, Server};
use crate::transport::blocking::{SocketConnection, WaitError, WaitLimit};
use crate::transport::connect::{self, CandidateAddresses, ConnectError};
#[cfg(feature = "tokio")]
use crate::transport::resolver::Resolved;
#[cfg(feature = "tokio")]
use crate::transport::socket::AsyncSocket;
use crate::transport::socket::Socket;
use crate::transport::tls::TlsSession;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectingStage {
    /// The server's name is looked up.
    Resolving,
    /// The socket is being connected.
    Connecting,
    /// The TLS handshake; without TLS it is complete at once.
    Handshaking,
    /// The engine logs in, and probes the server for its command set.
    Opening,
}

/// What drives the connecting: it resolves names and waits for sockets.
#[cfg(feature = "tokio")]
#[derive(Debug)]
enum Driver {
    /// The calling thread, which may block.
    Thread,
    /// A runtime, with the addresses that it has looked up.
    Runtime(Option<Resolved>),
}

/// A connection that is being made.
#[derive(Debug)]
pub(super) struct Connecting {
    stage: ConnectingStage,
    /// The addresses at which it can still be tried.
    candidates: CandidateAddresses,
    #[cfg(feature = "tokio")]
    driver: Driver,
    /// The server closed the connection on `mn`: assume that it knows classic text only, until the first reply confirms it.
    presumes_classic: bool,
}

/// The progress of a connection.
#[derive(Debug)]
pub(super) enum ConnectingStep {
    /// The next step can be taken.
    Continue,
    /// It accepts requests.
    Ready,
    /// It failed or was closed before that.
    Failed(Box<Failure>),
}

impl Connecting {
    /// No connection is being made.
    pub(super) fn new() -> Self {
        Self {
            stage: ConnectingStage::Resolving,
            candidates: CandidateAddresses::default(),
            #[cfg(feature = "tokio")]
            driver: Driver::Thread,
            presumes_classic: false,
        }
    }

    /// Leaves look-ups and sockets to a runtime.
    #[cfg(feature = "tokio")]
    pub(super) fn set_nonblocking(&mut self) {
        self.driver = Driver::Runtime(None);
    }

    /// Takes the addresses that the runtime has looked up.
    #[cfg(feature = "tokio")]
    pub(super) fn set_resolved(&mut self, addresses: Resolved) {
        self.driver = Driver::Runtime(Some(addresses));
    }

    /// Whether the server's name is looked up.
    #[cfg(feature = "tokio")]
    pub(super) fn is_resolving(&self) -> bool {
        self.stage == ConnectingStage::Resolving
    }

    /// Whether the connection is with the engine, which logs in and probes the server.
    pub(super) fn is_opening(&self) -> bool {
        self.stage == ConnectingStage::Opening
    }

    /// Whether it waits for the socket to become writable, and not readable.
    pub(super) fn awaits_writable(&self, socket_connection: &SocketConnection) -> bool {
        match self.stage {
            ConnectingStage::Connecting => true,
            ConnectingStage::Handshaking => socket_connection.has_unsent_records(),
            ConnectingStage::Resolving | ConnectingStage::Opening => false,
        }
    }

    /// When a wait ends: at the deadline, or earlier to try the next address.
    pub(super) fn wait_deadline(&self, deadline: Instant) -> Instant {
        match self.stage {
            ConnectingStage::Connecting => self.candidates.wait_deadline(deadline),
            _ => deadline,
        }
    }

    /// Assumes that the server knows classic text only; its first reply confirms that.
    pub(super) fn presume_classic(&mut self) {
        self.presumes_classic = true;
    }

    /// Takes the next step of the connection that [`Self::begin`] has begun.
    pub(super) fn advance(
        &mut self,
        server: &Arc<Server>,
        connection: &mut PooledConnection,
        clock: &CallClock,
    ) -> Result<ConnectingStep, StepError> {
        if self.stage == ConnectingStage::Resolving {
            return self.begin(server, connection, clock);
        }
        let Some(socket_connection) = connection.socket_connection() else {
            return Err(Error::Closed.into());
        };
        match self.stage {
            ConnectingStage::Resolving | ConnectingStage::Connecting => {
                self.finish_connecting(server, connection, clock.deadline())
            }
            ConnectingStage::Handshaking => {
                socket_connection.continue_handshake()?;
                let presumes_classic = self.presumes_classic;
                socket_connection.state_machine.handle_connected(presumes_classic, clock.attempt());
                self.stage = ConnectingStage::Opening;
                Ok(ConnectingStep::Continue)
            }
            ConnectingStage::Opening => continue_opening(socket_connection, clock.deadline()),
        }
    }

    /// Begins to connect.
    pub(super) fn begin(
        &mut self,
        server: &Arc<Server>,
        connection: &mut PooledConnection,
        clock: &CallClock,
    ) -> Result<ConnectingStep, StepError> {
        self.stage = ConnectingStage::Resolving;
        match self.begin_at_first_address(server, clock) {
            Ok(Some(fd)) => self.wait_for_connection(fd, server, connection),
            Ok(None) => Err(WaitError::WouldBlock.into()),
            Err(ConnectError::Deadline) if clock.blocking_deadline(server) < clock.deadline() => {
                Err(WaitError::WouldBlock.into())
            }
            Err(ConnectError::Deadline) => {
                // A look-up that takes too long counts as a failure to connect.
                server.record_failed_connect(FailureCause::Deadline(clock.time_allowed()));
                Err(Error::Deadline(server.unsent_context(Phase::Connect)).into())
            }
            Err(ConnectError::Failed(reason)) => Err(server.mark_down(reason).into()),
        }
    }

    /// Begins to connect; `None`: the runtime looks the server's name up first.
    fn begin_at_first_address(
        &mut self,
        server: &Server,
        clock: &CallClock,
    ) -> Result<Option<OwnedFd>, ConnectError> {
        #[cfg(feature = "tokio")]
        if let Driver::Runtime(resolved) = &mut self.driver
            && server.endpoint.host_to_resolve().is_some()
        {
            let Some(resolved) = resolved.take() else {
                return Ok(None);
            };
            let addresses = resolved.map_err(ConnectError::Failed)?;
            self.candidates = server.connect_target().candidates(addresses);
            return self.candidates.begin_first(clock.deadline()).map(Some);
        }
        let deadlines = (clock.deadline(), clock.blocking_deadline(server));
        let (fd, candidates) = connect::begin_connect(server.connect_target(), deadlines)?;
        self.candidates = candidates;
        Ok(Some(fd))
    }

    /// Hands a connecting socket to the driver, which waits for it.
    fn wait_for_connection(
        &mut self,
        fd: OwnedFd,
        server: &Arc<Server>,
        connection: &mut PooledConnection,
    ) -> Result<ConnectingStep, StepError> {
        let socket = match self.wrap_socket(fd, server) {
            Ok(socket) => socket,
            Err(error) => return Err(server.mark_down(error.to_string()).into()),
        };
        let value_bytes_max = server.options.value_bytes_max;
        let socket_connection =
            SocketConnection::new(socket, &server.state, value_bytes_max, Instant::now());
        connection.replace(Some(Box::new(socket_connection)));
        self.stage = ConnectingStage::Connecting;
        Err(WaitError::WouldBlock.into())
    }

    /// Wraps a socket for the driver: a runtime registers it, a thread polls it.
    #[cfg_attr(
        not(feature = "tokio"),
        expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with a runtime")
    )]
    #[cfg_attr(not(feature = "tokio"), expect(unused_variables, reason = "as with a runtime"))]
    fn wrap_socket(&self, fd: OwnedFd, server: &Server) -> std::io::Result<Socket> {
        #[cfg(feature = "tokio")]
        if matches!(self.driver, Driver::Runtime(_)) {
            let is_unix = matches!(server.endpoint, crate::address::Endpoint::Unix(_));
            return AsyncSocket::new(fd, is_unix).map(Socket::Async);
        }
        Ok(fd.into())
    }

    fn finish_connecting(
        &mut self,
        server: &Arc<Server>,
        connection: &mut PooledConnection,
        deadline: Instant,
    ) -> Result<ConnectingStep, StepError> {
        let Some(socket_connection) = connection.socket_connection() else {
            return Err(Error::Closed.into());
        };
        let mut fds = [PollFd::from_borrowed_fd(socket_connection.fd(), PollFlags::OUT)];
        let no_timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let failure = match rustix::event::poll(&mut fds, Some(&no_timeout)) {
            Ok(0) if self.candidates.is_next_due(Instant::now()) => Some("no reply".to_owned()),
            Ok(0) => return Err(WaitError::WouldBlock.into()),
            Ok(_) => {
                let connect_result = connect::finish_connect(socket_connection.fd());
                connect_result.err().map(|error| error.to_string())
            }
            Err(error) => return Err(WaitError::from(error).into()),
        };
        if let Some(reason) = failure {
            // Try the next address, if there is one.
            return match self.candidates.begin_next(deadline, reason) {
                Ok(fd) => self.wait_for_connection(fd, server, connection),
                Err(reason) => Err(server.mark_down(reason).into()),
            };
        }
        server.resolver.remember_connected(self.candidates.current());
        if let Some(tls) = &server.options.tls {
            match tls.session(&server.endpoint) {
                Ok(session) => socket_connection.begin_tls(TlsSession::new(session)),
                Err(reason) => return Err(server.mark_down(reason).into()),
            }
        }
        self.stage = ConnectingStage::Handshaking;
        Ok(ConnectingStep::Continue)
    }
}

/// Waits until the connection accepts requests: it logs in and, once per server, probes for the command set.
fn continue_opening(
    socket_connection: &mut SocketConnection,
    deadline: Instant,
) -> Result<ConnectingStep, StepError> {
    if !socket_connection.send(None)? {
        return Err(WaitError::WouldBlock.into());
    }
    match socket_connection.state_machine.poll() {
        ConnectionEvent::Ready => Ok(ConnectingStep::Ready),
        // The login was accepted, and the probe is to be sent.
        ConnectionEvent::NeedsBytes(_)
            if !socket_connection.state_machine.wire().output().is_empty() =>
        {
            Ok(ConnectingStep::Continue)
        }
        ConnectionEvent::NeedsBytes(missing_bytes) => {
            socket_connection.receive(
                missing_bytes,
                deadline,
                WaitLimit::NoWait,
                Instant::now(),
            )?;
            Ok(ConnectingStep::Continue)
        }
        ConnectionEvent::Failed(_, failure) => Ok(ConnectingStep::Failed(failure)),
        ConnectionEvent::Reply(..) | ConnectionEvent::Idle => Err(Error::Closed.into()),
    }
}
