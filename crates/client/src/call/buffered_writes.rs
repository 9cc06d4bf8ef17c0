//! Buffered quiet writes of a server: enqueued here, and sent by a call that has no requests of its own.

use std::sync::Arc;
use std::time::Instant;

use super::{Call, CallEvent, sender};
use crate::error::Error;
use crate::pool::Server;
use crate::request::Request;
use crate::write_buffer::BufferResult;

impl Server {
    /// Enqueues a quiet write if another one came shortly before; otherwise the caller sends it itself.
    pub(crate) fn buffer_write(
        self: &Arc<Self>,
        request: &Request<'_>,
        now: Instant,
    ) -> BufferResult {
        if self.options.waiter.is_some() {
            return BufferResult::SendNow;
        }
        let buffer_result = self.write_buffer.buffer_write(&self.state, request, now);
        if buffer_result != BufferResult::EnqueuedWithoutSender {
            return buffer_result;
        }
        if sender::start(self) {
            return BufferResult::Enqueued;
        }
        self.write_buffer.clear_sender();
        BufferResult::CallerSendsBatch
    }

    /// Sends the buffered writes before `deadline`; those that cannot be sent count as lost.
    pub(crate) fn flush_buffered_writes(
        self: &Arc<Self>,
        started: Instant,
        deadline: Instant,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let mut call = Call::new(self.clone(), &[], started, deadline);
        let result = loop {
            match call.run() {
                Ok(CallEvent::Finished) => return Ok(()),
                Ok(CallEvent::Interrupted) if !should_continue() => break Err(Error::Interrupted),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        if !call.leading_writes.has_taken_batch() {
            self.write_buffer.drop_buffered_writes();
        }
        result
    }
}
