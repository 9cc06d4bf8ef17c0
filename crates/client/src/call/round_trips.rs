//! The round trips of a call on its connection: requests are sent and replies received until the last is complete.

use std::time::Instant;

use super::{Call, CallEvent, CallStage, StepError};
use crate::engine::connection::ConnectionEvent;
use crate::error::Error;
use crate::pool::PooledConnection;
use crate::transport::blocking::{WaitError, WaitLimit};

/// Requests for acknowledgement that may be in flight while more is written: two, so that a quiet writer
/// does not wait for a server that keeps up, and is never more than 3000 writes, or three batches of
/// buffered ones, ahead of one that does not.
const ACKNOWLEDGEMENTS_MAX: usize = 2;

/// Received bytes that wait while requests are still being sent. Calls to several servers are sent at the same time, so
/// the caller has to read only when a server replies with more than this.
const READ_AHEAD_BYTES_MAX: usize = 1 << 20;

impl Call<'_> {
    /// Submits the requests to the connection, which the call has had since `connected_at`.
    pub(super) fn submit_requests(&mut self, connected_at: Instant) -> Result<(), StepError> {
        self.clock.begin_round_trips(connected_at);
        let attempt = self.clock.attempt();
        let socket_connection = PooledConnection::socket_connection_of(&mut self.connection)?;
        self.leading_writes.submit_to(&mut socket_connection.state_machine);
        self.requests_offset = socket_connection.state_machine.wire().appended_bytes();
        let ticket = socket_connection.state_machine.submit_without_body(self.requests, attempt)?;
        self.is_noreply = ticket.is_none();
        self.stage = CallStage::Sending;
        Ok(())
    }

    /// Sends as much as the peer takes. The first reply that comes meanwhile waits in `early_reply` and the others are
    /// received ahead, up to [`READ_AHEAD_BYTES_MAX`]; only then the caller gets them before all is sent.
    pub(super) fn send(&mut self) -> Result<Option<CallEvent>, StepError> {
        let body = match self.requests {
            [request] => request.external_body(),
            _ => None,
        };
        let socket_connection = PooledConnection::socket_connection_of(&mut self.connection)?;
        let send_result = socket_connection.send(body);
        if matches!(send_result, Err(WaitError::Closed(_)))
            && self.early_reply.is_none()
            && !self.is_noreply
            // A server that refuses a value may close without reading the rest of it.
            && socket_connection.receive(1, self.clock.deadline(), WaitLimit::NoWait, Instant::now()).is_ok()
        {
            match socket_connection.state_machine.poll() {
                ConnectionEvent::Reply(_, reply) => self.early_reply = Some(reply),
                ConnectionEvent::Failed(_, failure) => {
                    self.handle_failure(*failure)?;
                    return Ok(None);
                }
                ConnectionEvent::Ready | ConnectionEvent::NeedsBytes(_) | ConnectionEvent::Idle => {
                }
            }
        }
        let is_all_sent = send_result?;
        // A call without replies keeps the batch until its connection is back in the pool, so that its
        // caller's next call finds that connection.
        if !self.is_noreply {
            self.leading_writes.release_sent(socket_connection.state_machine.wire().sent_bytes());
        }
        if is_all_sent {
            self.stage = CallStage::Receiving;
            return Ok(None);
        }
        self.clock.mark_waited();
        if !socket_connection.state_machine.awaits_replies() {
            return Err(WaitError::WouldBlock.into());
        }
        // The peer accepts no more bytes: it may be waiting until we read its replies.
        if self.early_reply.is_some() {
            if socket_connection.state_machine.is_last_reply() {
                return Err(WaitError::WouldBlock.into());
            }
            if socket_connection.state_machine.wire().pipeline().received_bytes()
                > READ_AHEAD_BYTES_MAX
            {
                return Ok(self.early_reply.take().map(CallEvent::Reply));
            }
            socket_connection.receive(
                1,
                self.clock.deadline(),
                WaitLimit::NoWait,
                Instant::now(),
            )?;
            return Ok(None);
        }
        match socket_connection.state_machine.poll() {
            ConnectionEvent::Reply(_, reply) => {
                self.early_reply = Some(reply);
                Ok(None)
            }
            ConnectionEvent::Ready => Ok(None),
            ConnectionEvent::Failed(_, failure) => {
                self.handle_failure(*failure)?;
                Ok(None)
            }
            ConnectionEvent::Idle if socket_connection.state_machine.must_close() => Ok(None),
            ConnectionEvent::Idle | ConnectionEvent::NeedsBytes(_) => {
                let now = Instant::now();
                socket_connection.receive(1, self.clock.deadline(), WaitLimit::NoWait, now)?;
                Ok(None)
            }
        }
    }

    /// Receives until a reply or a large value is there for the caller, or until the call has finished.
    pub(super) fn receive(
        &mut self,
        wait_limit: WaitLimit,
    ) -> Result<Option<CallEvent>, StepError> {
        if let Some(reply) = self.early_reply.take() {
            return Ok(Some(CallEvent::Reply(reply)));
        }
        let socket_connection = PooledConnection::socket_connection_of(&mut self.connection)?;
        if self.is_noreply
            && socket_connection.state_machine.acknowledgements_in_flight() <= ACKNOWLEDGEMENTS_MAX
        {
            self.finish();
            return Ok(Some(CallEvent::Finished));
        }
        if socket_connection.state_machine.has_received_nothing() && !self.is_noreply {
            let now = self.clock.begin_first_receive();
            socket_connection.receive(1, self.clock.deadline(), wait_limit, now)?;
        }
        match socket_connection.state_machine.poll() {
            ConnectionEvent::Reply(_, reply) => Ok(Some(CallEvent::Reply(reply))),
            ConnectionEvent::Idle => {
                self.finish();
                Ok(Some(CallEvent::Finished))
            }
            ConnectionEvent::NeedsBytes(_)
                if self.is_noreply
                    && socket_connection.state_machine.acknowledgements_in_flight()
                        <= ACKNOWLEDGEMENTS_MAX =>
            {
                Ok(None)
            }
            ConnectionEvent::NeedsBytes(missing_bytes) => {
                let pipeline = socket_connection.state_machine.wire().pipeline();
                if let Some(found) = self.large_value.arriving_value(missing_bytes, pipeline) {
                    return Ok(Some(CallEvent::Body(found)));
                }
                socket_connection.receive(
                    missing_bytes,
                    self.clock.deadline(),
                    wait_limit,
                    Instant::now(),
                )?;
                Ok(None)
            }
            ConnectionEvent::Ready => Ok(None),
            ConnectionEvent::Failed(_, failure) => {
                self.handle_failure(*failure)?;
                Ok(None)
            }
        }
    }

    /// Receives the large value of [`CallEvent::Body`] into `target`, which is as long as the value.
    ///
    /// False: a signal came; handle it and call again.
    pub fn receive_body(&mut self, target: &mut [u8]) -> Result<bool, Error> {
        if !self.process.is_current() {
            return Err(self.fork_error());
        }
        let socket_connection = PooledConnection::socket_connection_of(&mut self.connection)?;
        let (deadline, waiter) = (self.clock.deadline(), self.server.waiter());
        match self.large_value.receive(socket_connection, target, deadline, waiter) {
            Ok(is_complete) => Ok(is_complete),
            Err(wait_error) => {
                self.handle_wait_error(wait_error)?;
                Err(Error::Closed)
            }
        }
    }
}
