//! How a call gets its connection: from the pool, or a new one, probed once for the server's command set.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::{Call, CallStage, StepError};
use crate::engine::connection::ConnectionEvent;
use crate::engine::retry::{FailedRequest, FailureCause, RetryDecision};
use crate::error::{Error, Phase};
use crate::pool::PooledConnection;
use crate::thread_id::this_thread_id;
use crate::transport::blocking::{SocketConnection, WaitError, WaitLimit};
use crate::transport::connect::{self, ConnectError};
#[cfg(feature = "tokio")]
use crate::transport::socket::AsyncSocket;
use crate::transport::socket::Socket;
use crate::transport::tls::TlsSession;
use crate::write_buffer::BatchWaitTimedOut;

impl Call<'_> {
    /// Takes a connection from the pool, or begins to connect; a server that is down fails the call.
    pub(super) fn check_out_connection(&mut self) -> Result<(), StepError> {
        if self.server.health.is_down() {
            self.probe_if_down(); // it may have gone down by a quiet write
            return Err(self
                .unavailable_unsent(Phase::Connect, "it is down and being probed".into())
                .into());
        }
        if self.was_retried {
            // The call keeps its slot in the pool; only the failed connection is replaced.
            return self.connect();
        }
        // Taken before the connection, so that no other call takes one while this call is about to send the batch.
        self.write_batch = match self.server.write_buffer.take_batch(self.deadline) {
            Ok(write_batch) => write_batch,
            Err(BatchWaitTimedOut) => {
                return Err(Error::Deadline(self.unsent_context(Phase::Wait)).into());
            }
        };
        self.has_taken_batch = self.write_batch.is_some();
        let thread_id = match &self.write_batch {
            Some(write_batch) if self.requests.is_empty() => write_batch.writer_thread_id,
            // Another call has sent the batch. A connection opened for nothing would be one on which the next batch
            // may overtake writes of a thread that uses another.
            None if self.requests.is_empty() => {
                self.stage = CallStage::Done;
                return Ok(());
            }
            _ => this_thread_id(),
        };
        let pool = &self.server.pool;
        let wait_until = self.blocking_deadline();
        self.connection = pool.checkout(thread_id, self.times.started, wait_until);
        match &self.connection {
            None if wait_until < self.deadline => Err(WaitError::WouldBlock.into()),
            None => Err(Error::Deadline(self.unsent_context(Phase::Wait)).into()),
            Some(connection) if connection.socket_connection_ref().is_none() => self.connect(),
            Some(_) => self.submit_requests(self.times.started),
        }
    }

    pub(super) fn connect(&mut self) -> Result<(), StepError> {
        match self.try_begin_connect() {
            Ok(Some(fd)) => self.wait_for_connection(fd),
            Ok(None) => {
                self.stage = CallStage::Resolving;
                Err(WaitError::WouldBlock.into())
            }
            Err(ConnectError::Deadline) if self.blocking_deadline() < self.deadline => {
                self.stage = CallStage::Resolving;
                Err(WaitError::WouldBlock.into())
            }
            Err(ConnectError::Deadline) => {
                // A name that cannot be looked up in time is a server that cannot be connected to.
                let time_allowed = self.deadline.saturating_duration_since(self.times.started);
                if let RetryDecision::Fail(effect) =
                    FailedRequest::CONNECTING.decide(FailureCause::Deadline(time_allowed))
                {
                    self.record_health(effect);
                }
                Err(Error::Deadline(self.unsent_context(Phase::Connect)).into())
            }
            Err(ConnectError::Failed(reason)) => Err(self.mark_down(reason).into()),
        }
    }

    /// Begins to connect; `None`: the runtime looks the server's name up first.
    fn try_begin_connect(&mut self) -> Result<Option<OwnedFd>, ConnectError> {
        let server = &self.server;
        #[cfg(feature = "tokio")]
        if let super::Driver::Runtime(resolved) = &mut self.driver
            && server.endpoint.host_to_resolve().is_some()
        {
            let Some(resolved) = resolved.take() else {
                return Ok(None);
            };
            let addresses = resolved.map_err(ConnectError::Failed)?;
            self.candidates = server.connect_target().candidates(addresses);
            return self.candidates.begin_first(self.deadline).map(Some);
        }
        let deadlines = (self.deadline, self.blocking_deadline());
        let (fd, candidates) = connect::begin_connect(server.connect_target(), deadlines)?;
        self.candidates = candidates;
        Ok(Some(fd))
    }

    /// Hands a connecting socket to the driver, which waits for it.
    fn wait_for_connection(&mut self, fd: OwnedFd) -> Result<(), StepError> {
        let socket = match self.wrap_socket(fd) {
            Ok(socket) => socket,
            Err(error) => return Err(self.mark_down(error.to_string()).into()),
        };
        let (server_state, value_bytes_max) =
            (&self.server.state, self.server.options.value_bytes_max);
        let socket_connection =
            SocketConnection::new(socket, server_state, value_bytes_max, Instant::now());
        if let Some(connection) = &mut self.connection {
            connection.replace(Some(Box::new(socket_connection)));
        }
        self.stage = CallStage::Connecting;
        Err(WaitError::WouldBlock.into())
    }

    /// Wraps a socket for the driver: a runtime registers it, a thread polls it.
    #[cfg_attr(
        not(feature = "tokio"),
        expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with a runtime")
    )]
    fn wrap_socket(&self, fd: OwnedFd) -> std::io::Result<Socket> {
        #[cfg(feature = "tokio")]
        if matches!(self.driver, super::Driver::Runtime(_)) {
            let is_unix = matches!(self.server.endpoint, crate::address::Endpoint::Unix(_));
            return AsyncSocket::new(fd, is_unix).map(Socket::Async);
        }
        Ok(fd.into())
    }

    /// Tries the next address, or ends the call; `last_reason` is why the last address failed.
    fn connect_to_next(&mut self, last_reason: String) -> Result<(), StepError> {
        match self.candidates.begin_next(self.deadline, last_reason) {
            Ok(fd) => self.wait_for_connection(fd),
            Err(reason) => Err(self.mark_down(reason).into()),
        }
    }

    pub(super) fn finish_connecting(&mut self) -> Result<(), StepError> {
        let socket_connection = PooledConnection::socket_connection_of(&mut self.connection)?;
        let mut fds = [PollFd::from_borrowed_fd(socket_connection.fd(), PollFlags::OUT)];
        let no_timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut fds, Some(&no_timeout)) {
            Ok(0) if self.candidates.is_next_due(Instant::now()) => {
                return self.connect_to_next("no reply".into());
            }
            Ok(0) => return Err(WaitError::WouldBlock.into()),
            Ok(_) => {}
            Err(error) => return Err(WaitError::from(error).into()),
        }
        if let Err(error) = connect::finish_connect(socket_connection.fd()) {
            return self.connect_to_next(error.to_string());
        }
        self.server.resolver.remember_connected(self.candidates.current());
        if let Some(tls) = &self.server.options.tls {
            match tls.session(&self.server.endpoint) {
                Ok(session) => socket_connection.begin_tls(TlsSession::new(session)),
                Err(reason) => return Err(self.mark_down(reason).into()),
            }
        }
        self.stage = CallStage::Handshaking;
        Ok(())
    }

    /// Waits until the TLS handshake is complete, if there is one; it is part of connecting.
    pub(super) fn continue_handshake(&mut self) -> Result<(), StepError> {
        let attempt = self.attempt();
        let socket_connection = PooledConnection::socket_connection_of(&mut self.connection)?;
        socket_connection.continue_handshake()?;
        socket_connection.state_machine.handle_connected(self.presumes_classic, attempt);
        self.stage = CallStage::Opening;
        Ok(())
    }

    /// Waits until the connection accepts requests: it logs in and, once per server, probes for the command set.
    pub(super) fn finish_opening(&mut self) -> Result<(), StepError> {
        let socket_connection = PooledConnection::socket_connection_of(&mut self.connection)?;
        if !socket_connection.send(None)? {
            return Err(WaitError::WouldBlock.into());
        }
        match socket_connection.state_machine.poll() {
            ConnectionEvent::Ready => self.submit_requests(Instant::now()),
            // The login was accepted, and the probe is to be sent.
            ConnectionEvent::NeedsBytes(_)
                if !socket_connection.state_machine.output().is_empty() =>
            {
                Ok(())
            }
            ConnectionEvent::NeedsBytes(missing_bytes) => {
                let now = Instant::now();
                Ok(socket_connection.receive(
                    missing_bytes,
                    self.deadline,
                    WaitLimit::NoWait,
                    now,
                )?)
            }
            ConnectionEvent::Failed(_, failure) => Ok(self.handle_failure(*failure)?),
            ConnectionEvent::Reply(..) | ConnectionEvent::Idle => Err(Error::Closed.into()),
        }
    }
}
