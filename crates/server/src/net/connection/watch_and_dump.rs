//! Connections in a special mode: logs of events (`watch`) and dumps of all items.

use std::time::{Duration, Instant};

use glasscache_protocol::replies;

use super::buffers::Buffers;
use super::{Connection, Interest, Mode, NextStep};
use crate::net::send::SendOutcome;
use crate::session::context::Context;
use crate::session::output::Output;
use crate::shared::connection_info::{CloseReason, STATE_WATCHING};
use crate::shared::peer_memory::Pressure;
use crate::shared::watchers::WatchFilter;

impl Connection {
    pub(super) fn start_watch(&mut self, filter: WatchFilter, context: &Context<'_>) -> NextStep {
        let serial = self.info.id.serial;
        self.info.set_state(STATE_WATCHING);
        let watch = context.shared.watchers.add(serial, filter, context.waker.clone());
        context.shared.update_is_observed();
        let reply: &[u8] = if watch.is_some() { replies::OK } else { replies::TOO_MANY_WATCHERS };
        self.mode = match watch {
            Some(watch) => Mode::Watch { watch, last_sent_at: None },
            None => Mode::Serve,
        };
        self.send_bytes(reply.to_vec(), context)
    }

    /// Whether it is a watcher that has to be sent something: lines, or a heartbeat if the last one is this old.
    pub(crate) fn is_watch_due(&self, now: Instant, heartbeat_interval: Duration) -> bool {
        let Mode::Watch { watch, last_sent_at } = &self.mode else {
            return false;
        };
        let is_heartbeat_due = watch.wants_heartbeats
            && last_sent_at.is_none_or(|last| now.duration_since(last) >= heartbeat_interval);
        is_heartbeat_due || watch.has_lines()
    }

    /// Whether it is a watcher with so many lines that these are sent before those of the others.
    pub(crate) fn is_urgent_watch(&self) -> bool {
        matches!(&self.mode, Mode::Watch { watch, .. } if watch.is_urgent())
    }

    /// Sends the pending lines of a watcher, or a heartbeat: for that alone no lock is taken that those who publish need.
    pub(super) fn send_watch_lines(&mut self, context: &Context<'_>) -> NextStep {
        let Mode::Watch { watch, last_sent_at } = &mut self.mode else {
            return NextStep::Wait;
        };
        *last_sent_at = Some(Instant::now());
        let watchers = &context.shared.watchers;
        // Made before it is known that there are no lines, so that it stands for all that were published before.
        let heartbeat = watch.wants_heartbeats.then(|| watchers.heartbeat());
        let lines = if watch.has_lines() {
            watchers.take_lines(self.info.id.serial)
        } else {
            heartbeat.unwrap_or_default().into_bytes()
        };
        if lines.is_empty() {
            return NextStep::Wait;
        }
        let next_step = self.send_bytes(lines, context);
        if let Some(pending_output) = &self.pending_output {
            watchers.record_pending(self.info.id.serial, pending_output.memory_bytes());
        }
        next_step
    }

    pub(super) fn send_bytes(&mut self, bytes: Vec<u8>, context: &Context<'_>) -> NextStep {
        match self.send(&mut Output::from_rendered(bytes), context) {
            SendOutcome::Failed => NextStep::Close(CloseReason::Error),
            SendOutcome::QuotaUsed => NextStep::RequeueAfterSmallRequests,
            SendOutcome::All | SendOutcome::Partial => NextStep::Wait,
        }
    }

    /// Sends the next slice of a dump.
    pub(super) fn send_dump_slice(
        &mut self,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> NextStep {
        let Mode::Dump(dump) = &mut self.mode else {
            return NextStep::Wait;
        };
        if context.pressure == Pressure::High {
            let needed_bytes = dump.needed_bytes(context);
            if !context.shared.peer_memory.try_grant(needed_bytes, context.is_first_waiter) {
                self.read_interest = Interest::Nothing;
                return NextStep::WaitForMemory(needed_bytes);
            }
        }
        let mut out = Output::new(std::mem::take(&mut buffers.output));
        let is_done = dump.append_slice(context, &mut out);
        if is_done {
            self.mode = Mode::Serve;
        }
        let send_outcome = self.send(&mut out, context);
        buffers.return_output_buffer(out.into_bytes());
        match send_outcome {
            SendOutcome::Failed => NextStep::Close(CloseReason::Error),
            SendOutcome::Partial => NextStep::Wait,
            SendOutcome::All | SendOutcome::QuotaUsed => NextStep::Requeue,
        }
    }

    /// Discards the input of a watcher, or detects its end.
    pub(super) fn detect_close(
        &mut self,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> NextStep {
        if context.pressure == Pressure::High && self.stream.is_tls() {
            // An incomplete record stays in the socket.
            match self.stream.peek_records(&mut buffers.input, context.counters) {
                Ok(Some(whole)) if whole.bytes == 0 && !self.is_half_closed => {
                    self.read_interest = Interest::NewInput;
                    return NextStep::Wait;
                }
                Ok(Some(whole)) if whole.bytes > 0 => self.stream.limit_reads(whole.bytes),
                _ => {}
            }
        }
        let received = self.stream.receive(&mut buffers.input, context.counters);
        self.stream.limit_reads(usize::MAX);
        match received {
            Ok(_) => NextStep::Wait,
            Err(reason) => NextStep::Close(reason),
        }
    }
}
