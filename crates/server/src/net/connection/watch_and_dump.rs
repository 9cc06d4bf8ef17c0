//! Connections in a special mode: logs of events (`watch`) and dumps of all items.

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
        let is_added = context.shared.watchers.add(serial, filter, context.waker.clone());
        context.shared.update_is_observed();
        let reply: &[u8] = if is_added { replies::OK } else { replies::TOO_MANY_WATCHERS };
        self.mode = if is_added { Mode::Watch } else { Mode::Serve };
        self.send_bytes(reply.to_vec(), context)
    }

    /// Sends the pending lines of a watcher.
    pub(super) fn send_watch_lines(
        &mut self,
        context: &Context<'_>,
        _buffers: &mut Buffers,
    ) -> NextStep {
        let lines = context.shared.watchers.take_lines(self.info.id.serial);
        if lines.is_empty() { NextStep::Wait } else { self.send_bytes(lines, context) }
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
        match self.stream.receive(&mut buffers.input, context.counters) {
            Ok(_) => NextStep::Wait,
            Err(reason) => NextStep::Close(reason),
        }
    }
}
