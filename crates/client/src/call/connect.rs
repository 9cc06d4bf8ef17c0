//! How a call gets its connection: from the pool, or a new one, probed once for the server's command set.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::{Call, Stage, StopOrError};
use crate::engine::connection::Progress;
use crate::engine::retry::{Cause, FailedRequest, RetryDecision};
use crate::error::{Error, Phase};
use crate::pool::PooledConnection;
use crate::quiet::BatchWaitTimedOut;
use crate::transport::blocking::{Link, Stop, WaitLimit};
#[cfg(feature = "tokio")]
use crate::transport::connect::Candidates;
use crate::transport::connect::{self, ConnectError};
#[cfg(feature = "tokio")]
use crate::transport::socket::AsyncSocket;
use crate::transport::socket::Socket;
use crate::transport::tls::TlsSession;

impl Call<'_> {
    pub(super) fn start(&mut self) -> Result<(), StopOrError> {
        if self.server.health.is_down() {
            self.probe_if_down(); // it may have gone down by a quiet write
            return Err(self
                .unavailable_unsent(Phase::Connect, "it is down and being probed".into())
                .into());
        }
        if self.was_retried {
            // Its connection still counts in the pool: what failed is replaced.
            return self.connect();
        }
        // Before a connection is chosen, so that no other call chooses one while this one is about to send them.
        self.quiet_batch = match self.server.quiet_writes.take(self.deadline) {
            Ok(quiet_batch) => quiet_batch,
            Err(BatchWaitTimedOut) => {
                return Err(Error::Deadline(self.unsent_context(Phase::Wait)).into());
            }
        };
        self.took_quiet_batch = self.quiet_batch.is_some();
        self.connection = self.server.pool.checkout(self.times.started, self.deadline);
        match &self.connection {
            None => Err(Error::Deadline(self.unsent_context(Phase::Wait)).into()),
            Some(connection) if connection.link_ref().is_none() => self.connect(),
            Some(_) => self.write(self.times.started),
        }
    }

    pub(super) fn connect(&mut self) -> Result<(), StopOrError> {
        match self.try_begin_connect() {
            Ok(Some(fd)) => self.wait_for_connection(fd),
            Ok(None) => {
                self.stage = Stage::Resolving;
                Err(Stop::WouldWait.into())
            }
            Err(ConnectError::Deadline) => {
                // A name that cannot be looked up in time is a server that cannot be connected to.
                let time_allowed = self.deadline.saturating_duration_since(self.times.started);
                if let RetryDecision::End(mark) =
                    FailedRequest::CONNECTING.decide(Cause::Deadline(time_allowed))
                {
                    self.note_health(mark);
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
            self.candidates = Candidates::new(server.resolver.last_connected_first(addresses));
            return self.candidates.begin_first(self.deadline).map(Some);
        }
        let (fd, candidates) =
            connect::begin_connect(&server.endpoint, &server.resolver, self.deadline)?;
        self.candidates = candidates;
        Ok(Some(fd))
    }

    /// Gives a socket that is connecting to the driver; it is waited for.
    fn wait_for_connection(&mut self, fd: OwnedFd) -> Result<(), StopOrError> {
        let socket = match self.socket(fd) {
            Ok(socket) => socket,
            Err(error) => return Err(self.mark_down(error.to_string()).into()),
        };
        let (server, bytes_max) = (&self.server.state, self.server.options.value_bytes_max);
        let link = Link::new(socket, server, bytes_max, Instant::now());
        if let Some(connection) = &mut self.connection {
            connection.replace(Some(Box::new(link)));
        }
        self.stage = Stage::Connecting;
        Err(Stop::WouldWait.into())
    }

    /// A socket as its driver waits for it.
    #[cfg_attr(
        not(feature = "tokio"),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            reason = "as with a runtime"
        )
    )]
    fn socket(&self, fd: OwnedFd) -> std::io::Result<Socket> {
        #[cfg(feature = "tokio")]
        if matches!(self.driver, super::Driver::Runtime(_)) {
            let is_unix = matches!(self.server.endpoint, crate::address::Endpoint::Unix(_));
            return AsyncSocket::new(fd, is_unix).map(Socket::AsyncSocket);
        }
        Ok(fd.into())
    }

    /// Tries the next address, or ends the call with the last failure.
    fn connect_to_next(&mut self, failure: String) -> Result<(), StopOrError> {
        match self.candidates.begin_next(self.deadline, failure) {
            Ok(fd) => self.wait_for_connection(fd),
            Err(reason) => Err(self.mark_down(reason).into()),
        }
    }

    pub(super) fn finish_connecting(&mut self) -> Result<(), StopOrError> {
        let link = PooledConnection::link_of(&mut self.connection)?;
        let mut fds = [PollFd::from_borrowed_fd(link.fd(), PollFlags::OUT)];
        let no_timeout = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match rustix::event::poll(&mut fds, Some(&no_timeout)) {
            Ok(0) if self.candidates.is_next_due(Instant::now()) => {
                return self.connect_to_next("no reply".into());
            }
            Ok(0) => return Err(Stop::WouldWait.into()),
            Ok(_) => {}
            Err(error) => return Err(Stop::from(error).into()),
        }
        if let Err(error) = connect::finish_connect(link.fd()) {
            return self.connect_to_next(error.to_string());
        }
        self.server
            .resolver
            .remember_connected(self.candidates.current());
        if let Some(tls) = &self.server.options.tls {
            match tls.session(&self.server.endpoint) {
                Ok(session) => link.begin_tls(TlsSession::new(session)),
                Err(reason) => return Err(self.mark_down(reason).into()),
            }
        }
        self.stage = Stage::Handshaking;
        Ok(())
    }

    /// Waits until the TLS handshake is complete, if there is one; it is part of connecting.
    pub(super) fn continue_handshake(&mut self) -> Result<(), StopOrError> {
        let attempt = self.attempt();
        let link = PooledConnection::link_of(&mut self.connection)?;
        link.handshake()?;
        link.engine.handle_connected(self.presumes_classic, attempt);
        self.stage = Stage::Probing;
        Ok(())
    }

    /// Waits until the connection takes requests: once per server it is probed for its command set, in one round trip.
    pub(super) fn probe(&mut self) -> Result<(), StopOrError> {
        let link = PooledConnection::link_of(&mut self.connection)?;
        if !link.send(None)? {
            return Err(Stop::WouldWait.into());
        }
        match link.engine.poll() {
            Progress::Ready => self.write(Instant::now()),
            // The login was accepted, and the probe is to be sent.
            Progress::Needs(_) if !link.engine.output().is_empty() => Ok(()),
            Progress::Needs(missing_bytes) => {
                let now = Instant::now();
                Ok(link.receive(missing_bytes, self.deadline, WaitLimit::NoWait, now)?)
            }
            Progress::Failed(_, failure) => Ok(self.handle_failure(*failure)?),
            Progress::Reply(..) | Progress::Idle => Err(Error::Closed.into()),
        }
    }
}
