//! Connections that are no conversation: logs of events (`watch`) and listings of all items.

use glasscache_protocol::replies;

use super::buffers::Buffers;
use super::receiving::receive;
use super::{Connection, Interest, Mode, Verdict};
use crate::net::send::Sent;
use crate::session::context::Context;
use crate::session::output::Output;
use crate::shared::info::{Reason, WATCHING};
use crate::shared::peer_memory::Pressure;
use crate::shared::watchers::WatchedKinds;

impl Connection {
    pub(super) fn begin_watch(&mut self, watching: WatchedKinds, context: &Context<'_>) -> Verdict {
        let serial = self.info.id.serial;
        self.info.set_state(WATCHING);
        let is_added = context
            .shared
            .watchers
            .add(serial, watching, context.waker.clone());
        context.shared.observe();
        let reply: &[u8] = if is_added {
            replies::OK
        } else {
            b"WATCHER_TOO_MANY log watcher limit reached\r\n"
        };
        self.mode = if is_added { Mode::Watch } else { Mode::Serve };
        self.send_plain(reply.to_vec(), context)
    }

    /// Sends the lines that wait for a watcher.
    pub(super) fn send_events(&mut self, context: &Context<'_>, _buffers: &mut Buffers) -> Verdict {
        let lines = context.shared.watchers.take(self.info.id.serial);
        if lines.is_empty() {
            Verdict::Wait
        } else {
            self.send_plain(lines, context)
        }
    }

    pub(super) fn send_plain(&mut self, bytes: Vec<u8>, context: &Context<'_>) -> Verdict {
        match self.send(&mut Output::rendered(bytes), context) {
            Sent::Failed => Verdict::Close(Reason::Error),
            Sent::Share => Verdict::GoOn,
            Sent::All | Sent::Some => Verdict::Wait,
        }
    }

    /// Sends the next slice of a listing.
    pub(super) fn dump(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> Verdict {
        let Mode::Dump(dump) = &mut self.mode else {
            return Verdict::Wait;
        };
        if context.pressure == Pressure::High {
            let lacking = dump.lacking_bytes(context);
            if !context.shared.memory.has_room(lacking, context.is_first) {
                self.stance = Interest::Nothing;
                return Verdict::Room(lacking);
            }
        }
        let mut out = Output::new(std::mem::take(&mut buffers.output));
        let is_done = dump.run(context, &mut out);
        if is_done {
            self.mode = Mode::Serve;
        }
        let sent = self.send(&mut out, context);
        buffers.put_output(out.into_bytes());
        match sent {
            Sent::Failed => Verdict::Close(Reason::Error),
            Sent::Some => Verdict::Wait,
            Sent::All | Sent::Share => Verdict::Again,
        }
    }

    /// Input of a connection that is not listened to: thrown away, or its end.
    pub(super) fn notice_leaving(
        &mut self,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Verdict {
        match receive(&self.socket, &mut buffers.input, context.counters) {
            Ok(_) => Verdict::Wait,
            Err(reason) => Verdict::Close(reason),
        }
    }
}
