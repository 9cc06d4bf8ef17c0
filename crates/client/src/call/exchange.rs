//! What passes over a call's connection: its requests, and the replies until the last is whole.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::{ACKNOWLEDGEMENTS_MAX, Call, CallState, DIRECT_BYTES_MIN, Stage, StopOrError};
use crate::engine::connection::Progress;
use crate::engine::retry::FORKED;
use crate::error::{Error, Phase};
use crate::pool::PooledConnection;
use crate::transport::blocking::{Stop, WaitLimit, wait};

impl Call<'_> {
    /// Writes the requests into the connection's output.
    pub(super) fn write(&mut self) -> Result<(), StopOrError> {
        self.connected_at = if self.is_new_connection {
            Instant::now()
        } else {
            self.started
        };
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

    pub(super) fn send(&mut self) -> Result<(), StopOrError> {
        let body = match self.requests {
            [request] => request.external_body(),
            _ => None,
        };
        let link = PooledConnection::link_of(&mut self.connection)?;
        let is_all_sent = link.send(body)?;
        // Who writes without waiting keeps it until the connection is back in the pool, so that its own
        // next call finds that connection.
        self.quiet_batch.take_if(|quiet_batch| {
            !self.is_noreply && link.engine.sent_bytes() >= quiet_batch.end_offset
        });
        if is_all_sent {
            self.stage = Stage::Receiving;
            return Ok(());
        }
        if !link.engine.awaits_replies() {
            return Err(Stop::WouldWait.into());
        }
        // The peer does not take more: perhaps it waits for us to read.
        match link.receive(1, self.deadline, WaitLimit::NoWait, Instant::now()) {
            Ok(()) => Ok(()),
            Err(stop) => Err(stop.into()),
        }
    }

    pub(super) fn receive(
        &mut self,
        wait_limit: WaitLimit,
    ) -> Result<Option<CallState>, StopOrError> {
        let link = PooledConnection::link_of(&mut self.connection)?;
        if self.is_noreply && link.engine.acknowledgements_in_flight() <= ACKNOWLEDGEMENTS_MAX {
            self.finish();
            return Ok(Some(CallState::Finished));
        }
        if link.engine.has_received_nothing() && !self.is_noreply {
            // The first wait begins when the call did.
            link.receive(1, self.deadline, wait_limit, self.connected_at)?;
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
            return Err(self.unavailable_unsent(Phase::Read, FORKED.into()));
        }
        let deadline = self.deadline;
        let link = PooledConnection::link_of(&mut self.connection)?;
        let mut received_bytes = match self.unfinished_body {
            Some((_, received_bytes)) => received_bytes,
            None => match link.engine.pipeline().partial_value() {
                Some(found) => {
                    let received_bytes = link.engine.pipeline_mut().take_partial_value(target);
                    self.unfinished_body = Some((found, received_bytes));
                    received_bytes
                }
                None => return Ok(true),
            },
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
                    if let Some((_, done)) = &mut self.unfinished_body {
                        *done = received_bytes;
                    }
                    return Ok(false);
                }
                Err(stop) => {
                    self.handle_stop(stop)?;
                    return Err(Error::Closed);
                }
            }
        }
        self.unfinished_body = None;
        self.took_large_body = true;
        Ok(true)
    }
}
