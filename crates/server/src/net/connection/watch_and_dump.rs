//! What a connection does: it serves commands, or is in a special mode, a log of events (`watch`) or a dump of all items.

use std::time::{Duration, Instant};

use glasscache_protocol::replies;

use super::buffers::Buffers;
use super::{Connection, Interest, NextStep};
use crate::net::send::SendOutcome;
use crate::session::context::Context;
use crate::session::dump::Dump;
use crate::session::output::Output;
use crate::shared::connection_info::{CloseReason, STATE_WATCHING};
use crate::shared::peer_memory::Pressure;
use crate::shared::watchers::{Watch, WatchFilter, Watchers};

/// What a connection does.
pub(crate) enum Mode {
    Serve,
    Watch(WatchedLog),
    Dump(Box<Dump>),
}

impl Mode {
    pub(crate) fn is_watching(&self) -> bool {
        matches!(self, Mode::Watch(_))
    }

    /// Whether it is a watcher that has to be sent something: lines, or a heartbeat if the last one is this old.
    pub(crate) fn is_watch_due(&self, now: Instant, heartbeat_interval: Duration) -> bool {
        matches!(self, Mode::Watch(log) if log.is_due(now, heartbeat_interval))
    }

    /// Whether it is a watcher with so many lines that these are sent before those of the others.
    pub(crate) fn is_urgent_watch(&self) -> bool {
        matches!(self, Mode::Watch(log) if log.watch.is_urgent())
    }
}

/// The log that a watcher is sent.
pub(crate) struct WatchedLog {
    watch: Watch,
    /// When it was last sent lines or a heartbeat.
    last_sent_at: Option<Instant>,
}

impl WatchedLog {
    fn is_due(&self, now: Instant, heartbeat_interval: Duration) -> bool {
        let is_heartbeat_due = self.watch.wants_heartbeats
            && self.last_sent_at.is_none_or(|last| now.duration_since(last) >= heartbeat_interval);
        is_heartbeat_due || self.watch.has_lines()
    }

    /// The pending lines, or a heartbeat: for that alone no lock is taken that those who publish need.
    fn take_lines(&mut self, watchers: &Watchers, serial: u64, now: Instant) -> Vec<u8> {
        self.last_sent_at = Some(now);
        // Made before it is known that there are no lines, so that it stands for all that were published before.
        let heartbeat = self.watch.wants_heartbeats.then(|| watchers.heartbeat());
        if self.watch.has_lines() {
            watchers.take_lines(serial)
        } else {
            heartbeat.unwrap_or_default().into_bytes()
        }
    }
}

impl Connection {
    pub(super) fn start_watch(&mut self, filter: WatchFilter, context: &Context<'_>) -> NextStep {
        let serial = self.info.id.serial;
        self.info.set_state(STATE_WATCHING);
        let watch = context.shared.watchers.add(serial, filter, context.waker.clone());
        context.shared.update_is_observed();
        let reply: &[u8] = if watch.is_some() { replies::OK } else { replies::TOO_MANY_WATCHERS };
        self.mode = match watch {
            Some(watch) => Mode::Watch(WatchedLog { watch, last_sent_at: None }),
            None => Mode::Serve,
        };
        self.send_bytes(reply.to_vec(), context)
    }

    /// Sends the pending lines of a watcher, or a heartbeat.
    pub(super) fn send_watch_lines(&mut self, context: &Context<'_>) -> NextStep {
        let Mode::Watch(log) = &mut self.mode else {
            return NextStep::Wait;
        };
        let (watchers, serial) = (&context.shared.watchers, self.info.id.serial);
        let lines = log.take_lines(watchers, serial, Instant::now());
        if lines.is_empty() {
            return NextStep::Wait;
        }
        let next_step = self.send_bytes(lines, context);
        if self.output.is_pending() {
            watchers.record_pending(serial, self.output.memory_bytes());
        }
        next_step
    }

    pub(super) fn send_bytes(&mut self, bytes: Vec<u8>, context: &Context<'_>) -> NextStep {
        match self.output.send(&mut Output::from_rendered(bytes), &mut self.stream, context) {
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
        let send_outcome = self.output.send(&mut out, &mut self.stream, context);
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
