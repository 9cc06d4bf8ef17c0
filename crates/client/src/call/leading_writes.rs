//! The buffered quiet writes that a call sends before its own requests.
//!
//! INVARIANT: other calls to the server wait until the writes are sent, so they are released as soon as they are, and at
//! the end of the call.

use std::time::Instant;

use crate::engine::connection::Connection;
use crate::engine::pending_writes::PendingWrites;
use crate::pool::Server;
use crate::write_buffer::{BatchWaitTimedOut, WriteBatch};

/// The quiet writes of other calls that are sent first.
#[derive(Debug, Default)]
pub(super) struct LeadingWrites {
    /// Those that are not all sent yet.
    batch: Option<Box<WriteBatch>>,
    has_taken_batch: bool,
}

impl LeadingWrites {
    /// Takes the writes that are buffered for the server; fails if other calls held them until the deadline.
    #[inline]
    pub(super) fn take(
        &mut self,
        server: &Server,
        deadline: Instant,
    ) -> Result<(), BatchWaitTimedOut> {
        if let Some(batch) = server.write_buffer.take_batch(deadline)? {
            self.batch = Some(batch);
            self.has_taken_batch = true;
        }
        Ok(())
    }

    /// Whether there were any.
    pub(super) fn has_taken_batch(&self) -> bool {
        self.has_taken_batch
    }

    /// Whether other calls wait for them.
    pub(super) fn are_held(&self) -> bool {
        self.batch.is_some()
    }

    /// The thread that wrote the last of them.
    pub(super) fn writer_thread_id(&self) -> Option<usize> {
        self.batch.as_ref().map(|batch| batch.writer_thread_id)
    }

    /// Submits them to the connection.
    #[inline]
    pub(super) fn submit_to(&mut self, state_machine: &mut Connection) {
        if let Some(batch) = &mut self.batch {
            let pending = std::mem::take(&mut batch.pending);
            state_machine.submit_buffered_writes(&batch.out, pending);
            batch.end_offset = state_machine.wire().appended_bytes();
        }
    }

    /// Releases them if they are among the bytes of the connection's output that are sent.
    #[inline]
    pub(super) fn release_sent(&mut self, sent_bytes: u64) {
        self.batch.take_if(|batch| sent_bytes >= batch.end_offset);
    }

    /// Keeps them for the next connection: those of which no byte was sent are sent again, the others are lost.
    pub(super) fn keep_unsent(&mut self, unsent: Option<PendingWrites>) {
        self.batch = match (self.batch.take(), unsent) {
            (Some(mut batch), Some(unsent)) => {
                batch.pending = unsent;
                Some(batch)
            }
            _ => None,
        };
    }

    /// Releases them at the end of the call.
    pub(super) fn release(&mut self) {
        self.batch = None;
    }

    /// In a forked child: drops them, because they belong to the parent.
    pub(super) fn abandon(&mut self) {
        self.batch.take().into_iter().for_each(WriteBatch::abandon);
    }
}
