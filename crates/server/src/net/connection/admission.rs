//! What a connection may receive while memory for peers is short.
//!
//! Bytes that are in the socket cost nothing, so they stay there until what they may leave behind is granted. With TLS
//! they cannot be read and left where they are, so only whole records are read: of a connection that may keep them, of
//! one whose command they complete, or, after a while in line, of one whose command is refused if they do not complete
//! it.

use std::time::{Duration, Instant};

use super::buffers::Buffers;
use super::{Connection, InputSource, Interest, NextStep};
use crate::net::stream::{RECORD_BYTES_MAX, WholeRecords};
use crate::session::context::Context;
use crate::shared::connection_info::CloseReason;

/// How long a connection waits for the memory that its records may need before they are received in any case.
pub(crate) const OVERDUE_AFTER: Duration = Duration::from_secs(2);

impl Connection {
    /// Decides how much may be received while memory is short; the step to take if nothing may.
    pub(super) fn admit_input(
        &mut self,
        source: InputSource<'_>,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<(), NextStep> {
        if !self.stream.is_tls() && self.memory_wait.missing_bytes() == 0 {
            return Ok(());
        }
        if !matches!(source, InputSource::Socket) || self.stream.has_buffered_input() {
            // What was received before comes first.
            self.memory_wait.set_missing_bytes(0);
            self.stream.limit_reads(0);
            return Ok(());
        }
        match self.stream.peek_records(&mut buffers.input, context.counters) {
            // An error, or the end, is found again when it is received.
            Err(_) => Ok(()),
            Ok(None) if !self.memory_wait.is_waiting() => Err(NextStep::Wait),
            Ok(None) => Err(self.wait_for_input()),
            Ok(Some(whole)) if whole.bytes > 0 && self.may_receive(whole, context) => {
                self.stream.limit_reads(whole.bytes);
                Ok(())
            }
            // A large value goes on: most of what is read leaves at once for the store.
            Ok(Some(whole))
                if whole.bytes == 0
                    && self.session.upload_mut().is_some()
                    && context.shared.peer_memory.has_free(RECORD_BYTES_MAX, false) =>
            {
                self.stream.limit_reads(RECORD_BYTES_MAX);
                Ok(())
            }
            Ok(Some(whole)) if whole.bytes == 0 || self.memory_wait.missing_bytes() > 0 => {
                // After the end of the stream the rest will not come any more.
                let is_cut = self.is_half_closed;
                Err(if is_cut {
                    NextStep::Close(CloseReason::Normal)
                } else {
                    self.wait_for_input()
                })
            }
            Ok(Some(whole)) => {
                let wanted_bytes = whole.content_bytes_max.max(1);
                let _ = self.wait_for_input();
                Err(NextStep::WaitForMemory(wanted_bytes))
            }
        }
    }

    /// Waits for more than is in the socket; a connection in line keeps its place.
    fn wait_for_input(&mut self) -> NextStep {
        self.stream.enlarge_receive_buffer();
        self.read_interest = Interest::NewInput;
        match self.memory_wait.wanted_bytes() {
            0 => NextStep::Wait,
            wanted_bytes => NextStep::WaitForMemory(wanted_bytes),
        }
    }

    /// Whether the connection may receive these records.
    fn may_receive(&mut self, whole: WholeRecords, context: &Context<'_>) -> bool {
        let (memory, content_bytes) = (&context.shared.peer_memory, whole.content_bytes_max);
        // They go where memory is reserved for them, in the store or outside of it.
        let is_reserved = if self.input.pending().is_empty() {
            self.session.upload_mut().is_some()
        } else {
            self.input.pending().is_incomplete()
        };
        if is_reserved {
            return true;
        }
        let missing_bytes = self.memory_wait.missing_bytes();
        if missing_bytes > 0 {
            let completes_command = content_bytes >= missing_bytes;
            // Without TLS nothing beyond the command is received.
            context.refuses_incomplete.set(completes_command && self.stream.is_tls());
            return completes_command;
        }
        // Those whose peers have just sent something go before those in line, most of which wait for their peers too:
        // a complete command needs the memory for a moment only.
        let is_granted = memory.has_free(content_bytes, context.is_first_waiter)
            || (!context.is_first_waiter && memory.try_grant_input(content_bytes, false));
        context.refuses_incomplete.set(!is_granted && context.is_overdue);
        is_granted || context.is_overdue
    }

    /// Records what it holds and what it waits for after it was served, which ended with `next_step`.
    pub(crate) fn record_memory(
        &mut self,
        next_step: NextStep,
        moved_bytes: u64,
        context: &Context<'_>,
        now: Instant,
    ) {
        let wanted_bytes = match next_step {
            NextStep::WaitForMemory(bytes) => bytes,
            _ => 0,
        };
        if self.memory_wait.update(wanted_bytes, &context.shared.peer_memory, now) {
            context.counters.memory_waits.bump();
        }
        let held_bytes = self.held_bytes();
        if self.had_held_bytes || held_bytes > 0 {
            self.had_held_bytes = held_bytes > 0;
            let waits_for_memory = self.memory_wait.is_for_server();
            let held_memory = &self.info.held_memory;
            held_memory.record_held_bytes(
                held_bytes as u64,
                self.input.pending().len() as u64,
                moved_bytes,
                waits_for_memory,
                context.now,
            );
        }
    }

    /// Whether it has waited for memory for so long that its records are received in any case.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.stream.is_tls() && self.memory_wait.has_lasted(OVERDUE_AFTER, now)
    }
}
