//! How a call gets its connection: from the pool, or a new one.

use std::time::Instant;

use super::connecting::ConnectingStep;
use super::{Call, CallStage, StepError};
use crate::error::{Error, Phase};
use crate::thread_id::this_thread_id;
use crate::transport::blocking::WaitError;
use crate::write_buffer::BatchWaitTimedOut;

impl Call<'_> {
    /// Takes a connection from the pool, or begins to connect; a server that is down fails the call.
    pub(super) fn check_out_connection(&mut self) -> Result<(), StepError> {
        if self.server.health.is_down() {
            self.server.probe_if_down(); // it may have gone down by a quiet write
            let reason = "it is down and being probed".into();
            return Err(self.server.unavailable_unsent(Phase::Connect, reason).into());
        }
        if self.clock.was_retried() {
            // The call keeps its slot in the pool; only the failed connection is replaced.
            return self.connect();
        }
        let deadline = self.clock.deadline();
        // Taken before the connection, so that no other call takes one while this call is about to send the batch.
        if let Err(BatchWaitTimedOut) = self.leading_writes.take(&self.server, deadline) {
            return Err(Error::Deadline(self.server.unsent_context(Phase::Wait)).into());
        }
        let thread_id = match self.leading_writes.writer_thread_id() {
            Some(writer_thread_id) if self.requests.is_empty() => writer_thread_id,
            // Another call has sent the batch. A connection opened for nothing would be one on which the next batch
            // may overtake writes of a thread that uses another.
            None if self.requests.is_empty() => {
                self.stage = CallStage::Done;
                return Ok(());
            }
            _ => this_thread_id(),
        };
        let started = self.clock.times().started;
        let wait_until = self.clock.blocking_deadline(&self.server);
        self.connection = self.server.pool.checkout(thread_id, started, wait_until);
        match &self.connection {
            None if wait_until < deadline => Err(WaitError::WouldBlock.into()),
            None => Err(Error::Deadline(self.server.unsent_context(Phase::Wait)).into()),
            Some(connection) if connection.socket_connection_ref().is_none() => self.connect(),
            Some(_) => self.submit_requests(started),
        }
    }

    /// Begins to make the connection, or takes its next step.
    pub(super) fn connect(&mut self) -> Result<(), StepError> {
        let Some(connection) = &mut self.connection else {
            return Err(Error::Closed.into());
        };
        let is_under_way = self.stage == CallStage::Connecting;
        self.stage = CallStage::Connecting;
        let step = if is_under_way {
            self.connecting.advance(&self.server, connection, &self.clock)?
        } else {
            self.connecting.begin(&self.server, connection, &self.clock)?
        };
        match step {
            ConnectingStep::Continue => Ok(()),
            ConnectingStep::Ready => self.submit_requests(Instant::now()),
            ConnectingStep::Failed(failure) => Ok(self.handle_failure(*failure)?),
        }
    }
}
