//! What passes over a call's connection: its requests, and the replies until the last is whole.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::{Call, CallState, Stage, StopOrError};
use crate::engine::connection::Progress;
use crate::error::Error;
use crate::pool::PooledConnection;
use crate::transport::blocking::{Stop, WaitLimit, wait};

/// A value at least this long is handed out while it is still arriving, to be received into its target.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// Requests for acknowledgement that may be in flight while more is written: two, so that a quiet writer
/// does not wait for a server that keeps up, and is never more than 3000 writes, or three batches of
/// gathered ones, ahead of one that does not.
const ACKNOWLEDGEMENTS_MAX: usize = 2;

/// Received bytes that wait while requests are still being sent. Calls to several servers are sent side by side, so
/// the caller is asked to read only when a server replies with more than this.
const READ_AHEAD_BYTES_MAX: usize = 1 << 20;

impl Call<'_> {
    /// Writes the requests into the output of the connection, which the call has since `connected_at`.
    pub(super) fn write(&mut self, connected_at: Instant) -> Result<(), StopOrError> {
        self.times.connected_at = connected_at;
        self.has_waited = false;
        let attempt = self.attempt();
        let link = PooledConnection::link_of(&mut self.connection)?;
        if let Some(quiet_batch) = &mut self.quiet_batch {
            let pending = std::mem::take(&mut quiet_batch.pending);
            link.engine
                .submit_buffered_writes(&quiet_batch.out, pending);
            quiet_batch.end_offset = link.engine.appended_bytes();
        }
        self.requests_offset = link.engine.appended_bytes();
        let ticket = link.engine.submit_without_body(self.requests, attempt)?;
        self.is_noreply = ticket.is_none();
        self.stage = Stage::Sending;
        Ok(())
    }

    /// Sends as much as the peer takes. The first reply that comes meanwhile waits in `early_reply` and the others are
    /// received ahead, up to [`READ_AHEAD_BYTES_MAX`]; only then the caller gets them before all is sent.
    pub(super) fn send(&mut self) -> Result<Option<CallState>, StopOrError> {
        let body = match self.requests {
            [request] => request.external_body(),
            _ => None,
        };
        let link = PooledConnection::link_of(&mut self.connection)?;
        let send_result = link.send(body);
        if matches!(send_result, Err(Stop::Closed(_)))
            && self.early_reply.is_none()
            && !self.is_noreply
            // A server that refuses a value may close without reading the rest of it.
            && link.receive(1, self.deadline, WaitLimit::NoWait, Instant::now()).is_ok()
        {
            match link.engine.poll() {
                Progress::Reply(_, reply) => self.early_reply = Some(reply),
                Progress::Failed(_, failure) => {
                    self.handle_failure(*failure)?;
                    return Ok(None);
                }
                Progress::Ready | Progress::Needs(_) | Progress::Idle => {}
            }
        }
        let is_all_sent = send_result?;
        // Who writes without waiting keeps it until the connection is back in the pool, so that its own
        // next call finds that connection.
        self.quiet_batch.take_if(|quiet_batch| {
            !self.is_noreply && link.engine.sent_bytes() >= quiet_batch.end_offset
        });
        if is_all_sent {
            self.stage = Stage::Receiving;
            return Ok(None);
        }
        self.has_waited = true;
        if !link.engine.awaits_replies() {
            return Err(Stop::WouldWait.into());
        }
        // The peer does not take more: perhaps it waits for us to read.
        if self.early_reply.is_some() {
            if link.engine.is_last_reply() {
                return Err(Stop::WouldWait.into());
            }
            if link.engine.pipeline().received_bytes() > READ_AHEAD_BYTES_MAX {
                return Ok(self.early_reply.take().map(CallState::Reply));
            }
            link.receive(1, self.deadline, WaitLimit::NoWait, Instant::now())?;
            return Ok(None);
        }
        match link.engine.poll() {
            Progress::Reply(_, reply) => {
                self.early_reply = Some(reply);
                Ok(None)
            }
            Progress::Ready => Ok(None),
            Progress::Failed(_, failure) => {
                self.handle_failure(*failure)?;
                Ok(None)
            }
            Progress::Idle if link.engine.must_close() => Ok(None),
            Progress::Idle | Progress::Needs(_) => {
                let now = Instant::now();
                link.receive(1, self.deadline, WaitLimit::NoWait, now)?;
                Ok(None)
            }
        }
    }

    pub(super) fn receive(
        &mut self,
        wait_limit: WaitLimit,
    ) -> Result<Option<CallState>, StopOrError> {
        if let Some(reply) = self.early_reply.take() {
            return Ok(Some(CallState::Reply(reply)));
        }
        let link = PooledConnection::link_of(&mut self.connection)?;
        if self.is_noreply && link.engine.acknowledgements_in_flight() <= ACKNOWLEDGEMENTS_MAX {
            self.finish();
            return Ok(Some(CallState::Finished));
        }
        if link.engine.has_received_nothing() && !self.is_noreply {
            // The first wait begins when the call did.
            let now = if self.has_waited {
                Instant::now()
            } else {
                self.times.connected_at
            };
            self.has_waited = true;
            link.receive(1, self.deadline, wait_limit, now)?;
        }
        match link.engine.poll() {
            Progress::Reply(_, reply) => Ok(Some(CallState::Reply(reply))),
            Progress::Idle => {
                self.finish();
                Ok(Some(CallState::Finished))
            }
            Progress::Needs(_)
                if self.is_noreply
                    && link.engine.acknowledgements_in_flight() <= ACKNOWLEDGEMENTS_MAX =>
            {
                Ok(None)
            }
            Progress::Needs(missing_bytes) => {
                let pipeline = link.engine.pipeline();
                if self.hands_out_bodies
                    && missing_bytes >= DIRECT_BYTES_MIN
                    && let Some(found) = pipeline.partial_value()
                {
                    return Ok(Some(CallState::Body(found)));
                }
                link.receive(missing_bytes, self.deadline, wait_limit, Instant::now())?;
                Ok(None)
            }
            Progress::Ready => Ok(None),
            Progress::Failed(_, failure) => {
                self.handle_failure(*failure)?;
                Ok(None)
            }
        }
    }

    /// Receives the large value of [`CallState::Body`] into `target`, which is as long as the value.
    ///
    /// False: a signal came; handle it and call again.
    pub fn receive_body(&mut self, target: &mut [u8]) -> Result<bool, Error> {
        if !self.process.is_current() {
            return Err(self.forked());
        }
        let deadline = self.deadline;
        let link = PooledConnection::link_of(&mut self.connection)?;
        let mut received_bytes = match self.received_body_bytes {
            Some(received_bytes) => received_bytes,
            None if link.engine.pipeline().partial_value().is_none() => return Ok(true),
            None => link.engine.pipeline_mut().take_partial_value(target),
        };
        while let Some(rest) = target
            .get_mut(received_bytes..)
            .filter(|rest| !rest.is_empty())
        {
            let received = match link.receive_into(rest, deadline) {
                // The socket's own time-out ended early, or none could be set for so short a time.
                Err(Stop::WouldWait) => {
                    let mut fds = [PollFd::from_borrowed_fd(link.fd(), PollFlags::IN)];
                    wait(&mut fds, deadline).map(|()| 0)
                }
                received => received,
            };
            match received {
                Ok(bytes) => received_bytes += bytes,
                Err(Stop::Interrupted) => {
                    self.received_body_bytes = Some(received_bytes);
                    return Ok(false);
                }
                Err(stop) => {
                    self.handle_stop(stop)?;
                    return Err(Error::Closed);
                }
            }
        }
        self.received_body_bytes = None;
        self.took_large_body = true;
        Ok(true)
    }
}
