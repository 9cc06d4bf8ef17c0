//! One run of a session: its input and output, and the lookups that are collected before they are made.

use glasscache_protocol::meta::MetaLine;

use super::state::{PendingGet, RunEnd, State};
use crate::session::context::Context;
use crate::session::execute::{Batch, Lookup, StoppedCommand, StoppedLookup};
use crate::session::output::{Output, OutputPosition};

/// One run of a session: the input, how much of it is consumed, and the pending lookups.
pub(super) struct Run<'b, 'o, 'w> {
    pub(super) input: &'b [u8],
    pub(super) used_bytes: usize,
    pub(super) command_count: u32,
    pub(super) batch: Batch<'b, 'w>,
    pub(super) context: &'o Context<'w>,
    pub(super) out: &'o mut Output<'w>,
    /// The lookup at which a batch was stopped.
    pub(super) stopped_lookup: Option<StoppedLookup<'b>>,
}

impl<'b, 'w> Run<'b, '_, 'w> {
    #[inline]
    pub(super) fn remaining_input(&self) -> &'b [u8] {
        self.input.get(self.used_bytes..).unwrap_or_default()
    }

    /// Adds a lookup; INVARIANT: the batch is not full.
    #[inline]
    pub(super) fn push(&mut self, lookup: Lookup<'b, 'w>) {
        self.batch.push(lookup);
    }

    /// Adds the lookup of an `mg`; INVARIANT: the batch is not full.
    #[inline]
    pub(super) fn push_meta(&mut self, line: MetaLine<'b>) {
        self.batch.push_meta(line, self.context);
    }

    /// Makes the pending lookups. Returns where the reply of the last get that began among them begins. If the
    /// batch was stopped, nothing after it may be served: see [`Run::is_stopped`].
    #[inline]
    pub(super) fn execute_lookups(&mut self) -> Option<OutputPosition> {
        let (last_line_start, stopped) = self.batch.execute_lookups(self.context, self.out);
        self.stopped_lookup = self.stopped_lookup.take().or(stopped);
        last_line_start
    }

    /// Executes a full batch; returns how the run ends, if it has to end before the next command.
    #[inline]
    pub(super) fn check_limits(&mut self) -> Option<RunEnd> {
        self.execute_full_batch();
        if self.is_stopped() || self.context.is_output_full(self.out) {
            return Some(RunEnd::Flush);
        }
        if self.command_count >= self.context.shared.config.requests_per_event.max(1) {
            return Some(if self.remaining_input().is_empty() {
                RunEnd::NeedsInput
            } else {
                RunEnd::Yield
            });
        }
        None
    }

    /// Makes the pending lookups if the batch is full.
    #[inline]
    pub(super) fn execute_full_batch(&mut self) -> Option<OutputPosition> {
        if self.batch.is_full() { self.execute_lookups() } else { None }
    }

    /// Whether lookups were not made: the run ends, and the next begins with them.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped_lookup.is_some()
    }

    /// How much of the input is consumed before the lookup at which the batch was stopped, and the state there; `state`
    /// is the one after the batch.
    pub(super) fn position_before(
        &self,
        stopped: &StoppedLookup<'b>,
        state: &State,
    ) -> (usize, State) {
        let key_offset = stopped.key.as_ptr().addr().saturating_sub(self.input.as_ptr().addr());
        let (head, is_first) = match stopped.command {
            StoppedCommand::Text(head, is_first) => (head, is_first),
            StoppedCommand::Meta => {
                let input_before_key = self.input.get(..key_offset).unwrap_or_default();
                let line = input_before_key.trim_ascii_end().strip_suffix(b"mg");
                return (line.map_or(key_offset, <[u8]>::len), State::Command);
            }
            StoppedCommand::Binary { bytes_before_key } => {
                return (key_offset.saturating_sub(bytes_before_key), State::Command);
            }
        };
        let pending_get = PendingGet {
            head,
            // A complete line was within the bound.
            key_bytes: match (state, stopped.line_key_bytes) {
                (State::PendingGet(pending_get), Some(unmade_key_bytes)) => {
                    pending_get.key_bytes.saturating_sub(unmade_key_bytes)
                }
                _ => 0,
            },
            reply_start: None,
            has_started: !is_first,
        };
        (key_offset, State::PendingGet(pending_get))
    }
}
