//! A connection of a background thread, outside the pool: each step (connect, send, receive) has a deadline of its own.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::blocking::{WaitError, wait};
use super::connect::{self, ConnectTarget};
use super::tls::TlsSession;

/// A connection of a background thread.
pub(crate) struct BackgroundConnection {
    fd: OwnedFd,
    tls_session: Option<Box<TlsSession>>,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// Nothing until the deadline.
    Nothing,
    /// The server closed the connection, or it failed.
    Closed,
}

impl BackgroundConnection {
    /// Connects to the first of the server's addresses that takes a connection, and begins TLS if the client has it.
    pub(crate) fn connect(target: ConnectTarget<'_>, deadline: Instant) -> Option<Self> {
        let fd = connect_first_address(target, deadline)?;
        let mut connection = Self { fd, tls_session: None };
        if let Some(tls) = target.tls {
            let session = tls.session(target.endpoint).ok()?;
            connection.tls_session = Some(Box::new(TlsSession::new(session)));
            connection.retry_when_ready(deadline, |fd, tls_session| match tls_session {
                Some(tls_session) => tls_session.continue_handshake(fd.as_fd()),
                None => Ok(()),
            })?;
        }
        Some(connection)
    }

    /// Sends all bytes; `None` if that fails or takes too long.
    pub(crate) fn send(&mut self, bytes: &[u8], deadline: Instant) -> Option<()> {
        let mut remaining = bytes;
        while !remaining.is_empty() {
            let sent_bytes =
                self.retry_when_ready(deadline, |fd, tls_session| match tls_session {
                    Some(tls_session) => tls_session.send(fd.as_fd(), &[IoSlice::new(remaining)]),
                    None => send(fd, remaining, SendFlags::NOSIGNAL | SendFlags::DONTWAIT),
                })?;
            remaining = remaining.get(sent_bytes..)?;
        }
        self.retry_when_ready(deadline, |fd, tls_session| match tls_session {
            Some(tls_session) => tls_session.flush(fd.as_fd()),
            None => Ok(()),
        })
    }

    /// Receives what has come, or waits for it until the deadline.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], deadline: Instant) -> Received {
        let mut has_failed = false;
        let received_bytes = self.retry_when_ready(deadline, |fd, tls_session| {
            let receive_result = match tls_session {
                Some(tls_session) => tls_session.receive(fd.as_fd(), buffer, RecvFlags::DONTWAIT),
                None => {
                    recv(fd, &mut *buffer, RecvFlags::DONTWAIT).map(|(byte_count, _)| byte_count)
                }
            };
            has_failed = !matches!(receive_result, Ok(1..) | Err(Errno::AGAIN | Errno::INTR));
            receive_result
        });
        match received_bytes {
            Some(byte_count @ 1..) => Received::Bytes(byte_count),
            Some(0) => Received::Closed,
            None if has_failed => Received::Closed,
            _ => Received::Nothing,
        }
    }

    /// Repeats a step until the socket allows it; `None` if it fails or takes too long.
    fn retry_when_ready<T>(
        &mut self,
        deadline: Instant,
        mut step: impl FnMut(&OwnedFd, Option<&mut TlsSession>) -> Result<T, Errno>,
    ) -> Option<T> {
        loop {
            match step(&self.fd, self.tls_session.as_deref_mut()) {
                Ok(result) => return Some(result),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return None,
            }
            let wants_write =
                self.tls_session.as_ref().is_some_and(|tls_session| tls_session.wants_write());
            let flags = if wants_write { PollFlags::OUT } else { PollFlags::IN };
            if !wait_until_ready(&self.fd, flags, deadline) {
                return None;
            }
        }
    }
}

/// A connection to the first of the server's addresses that takes one.
fn connect_first_address(target: ConnectTarget<'_>, deadline: Instant) -> Option<OwnedFd> {
    let (mut fd, mut candidates) = connect::begin_connect(target, (deadline, deadline)).ok()?;
    loop {
        let is_writable = wait_until_ready(&fd, PollFlags::OUT, candidates.wait_deadline(deadline));
        if is_writable && connect::finish_connect(fd.as_fd()).is_ok() {
            target.resolver.remember_connected(candidates.current());
            return Some(fd);
        }
        fd = candidates.begin_next(deadline, String::new()).ok()?;
    }
}

/// Waits until the socket is ready; false if it is not by the deadline, or failed.
fn wait_until_ready(fd: &OwnedFd, flags: PollFlags, deadline: Instant) -> bool {
    loop {
        match wait(&mut [PollFd::new(fd, flags)], deadline) {
            Err(WaitError::Interrupted) => {}
            wait_result => return wait_result.is_ok(),
        }
    }
}
