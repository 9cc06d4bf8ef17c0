//! A call driven by a runtime: it advances as far as it can, and returns what it waits for.

use std::time::Instant;

use rustix::io::Errno;
use tokio::io::Interest;

use super::{Call, CallEvent, CallStage};
use crate::error::Error;
use crate::pipeline::Reply;
use crate::transport::blocking::{WaitError, WaitLimit};
use crate::transport::resolver::Resolved;
use crate::transport::socket::AsyncSocket;

/// What a call waits for.
pub(crate) enum WaitFor {
    /// The addresses of a host: [`Call::set_resolved`].
    Lookup(String, u16),
    /// Its socket.
    Socket(AsyncSocket, Interest),
}

impl Call<'_> {
    /// Leaves all waiting to a runtime: to be called before the call begins.
    pub(crate) fn set_nonblocking(&mut self) {
        self.connecting.set_nonblocking();
    }

    /// When the call must end.
    pub(crate) fn deadline(&self) -> Instant {
        self.clock.deadline()
    }

    /// Advances as far as it can without waiting.
    pub(crate) fn step(&mut self) -> Result<CallEvent, Error> {
        loop {
            match self.advance(WaitLimit::NoWait)? {
                CallEvent::Interrupted => {} // a call that does not wait simply tries again
                event => return Ok(event),
            }
        }
    }

    /// What a waiting call waits for.
    pub(crate) fn next_wait(&self) -> Option<WaitFor> {
        if self.stage == CallStage::Connecting && self.connecting.is_resolving() {
            let (host, port) = self.server.endpoint.host_to_resolve()?;
            return Some(WaitFor::Lookup(host.to_owned(), port));
        }
        let (socket_connection, awaits_readable, awaits_writable) = self.awaited_socket()?;
        let interest = match (awaits_readable, awaits_writable) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (_, true) => Interest::WRITABLE,
            _ => Interest::READABLE,
        };
        Some(WaitFor::Socket(socket_connection.async_socket()?, interest))
    }

    /// Hands over the addresses that a [`WaitFor::Lookup`] found, or why it found none.
    pub(crate) fn set_resolved(&mut self, addresses: Resolved) {
        self.connecting.set_resolved(addresses);
    }

    /// Ends the call, whose time is over.
    pub(crate) fn time_out(&mut self) -> Result<(), Error> {
        self.handle_wait_error(WaitError::Deadline)
    }

    /// Notes that its connection is lost: another try, or the end.
    pub(crate) fn handle_connection_lost(&mut self) -> Result<(), Error> {
        self.handle_wait_error(WaitError::Closed(Some(Errno::NOTCONN)))
    }

    /// Leaves a reply for the caller to read, as [`receive_first_replies`](super::receive_first_replies) does.
    pub(crate) fn set_unread_reply(&mut self, reply: Reply) {
        self.unread_reply = Some(reply);
    }
}
