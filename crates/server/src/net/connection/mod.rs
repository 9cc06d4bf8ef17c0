//! One socket: what arrives goes through its session, what the session says is sent.
//!
//! An idle connection owns no buffer. What cannot be used yet, or not be sent yet, is kept in
//! vectors of its own size, charged to the store's budget, and given back as soon as it is gone.
//! While output waits nothing is received: a client that does not read does not get to write.

mod buffers;
mod listing;
mod pending;
mod receiving;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use self::buffers::Received;
pub(crate) use self::buffers::{Buffers, READ_AHEAD_BYTES, Source};
use self::pending::Pending;
use self::receiving::peek;
pub(crate) use self::receiving::receive;
use crate::net::send::{self, Sent, Waiting};
use crate::session::context::Context;
use crate::session::dump::Dump;
use crate::session::output::Output;
use crate::session::trace;
use crate::session::{Next, Progress, Session};
use crate::shared::info::{Info, READING, READING_VALUE, Reason};
use crate::shared::peer_memory::Pressure;
use crate::shared::sizes::{INPUT_BYTES, RECV_BYTES};

/// Output or upload bytes after which a connection lets others go first, however few these are.
const YIELD_BYTES: usize = 128 << 10;

/// One client's connection, owned by one worker for life.
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) info: Arc<Info>,
    session: Session,
    /// Input that cannot be used yet.
    pending: Pending,
    /// Output that could not be sent yet.
    waiting: Option<Box<Waiting>>,
    mode: Mode,
    is_closing: bool,
    /// Whether it received a large value since its last command.
    is_uploader: bool,
    /// What epoll reports of it.
    pub(crate) interest: Interest,
    /// What epoll should report while no output waits.
    stance: Interest,
    /// Its peer sends nothing more.
    pub(crate) is_half_closed: bool,
    /// Bytes of memory that it waits for; 0 while it does not.
    pub(crate) wanted_bytes: usize,
    /// It has a place in the worker's line of connections that wait for memory.
    pub(crate) is_in_memory_queue: bool,
    /// Its last serving left bytes in memory.
    pub(crate) held_any: bool,
    /// It waits among the worker's parked connections.
    pub(crate) is_parked: bool,
    /// It waited there and tries again.
    pub(crate) tries: bool,
    /// Its place among those that wait to begin an upload.
    pub(crate) arrival: Option<u64>,
    /// Since when a write of it waits for a segment.
    pub(crate) segment_since: Option<Instant>,
    /// It waits in the worker's queue of those that are served after the others.
    pub(crate) is_queued: bool,
    /// Shares of a transfer that it had one after the other.
    pub(crate) shares: u32,
}

/// What epoll is asked to report of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Input.
    Input,
    /// Input that arrives from now on, once each time: what lies there is the beginning of a command.
    NewInput,
    /// Room to send.
    Room,
    /// Nothing but its end, once.
    Nothing,
}

enum Mode {
    Serve,
    Watch,
    Dump(Box<Dump>),
}

/// What is to happen to a connection after it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait for the socket.
    Wait,
    /// It has more to do; serve others first.
    Again,
    /// It has more to send; serve those first that want little.
    GoOn,
    /// It waits for the room of uploads, which others hold: serve it again after a while.
    Park,
    /// It waits for so many bytes of the memory that peers may hold.
    Room(usize),
    /// A write of it waits for a segment; `is_new` where it was not the same that waited before.
    Segment { is_new: bool },
    /// Close it.
    Close(Reason),
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, info: Arc<Info>, session: Session) -> Connection {
        Connection {
            socket,
            info,
            session,
            pending: Pending::default(),
            waiting: None,
            mode: Mode::Serve,
            is_closing: false,
            is_uploader: false,
            interest: Interest::Input,
            stance: Interest::Input,
            is_half_closed: false,
            wanted_bytes: 0,
            is_in_memory_queue: false,
            held_any: false,
            is_parked: false,
            tries: false,
            arrival: None,
            segment_since: None,
            is_queued: false,
            shares: 0,
        }
    }

    /// Whether a large value is on its way from it or to it.
    pub(crate) fn is_transferring(&self) -> bool {
        self.is_waiting() || self.session.awaits_value()
    }

    /// Whether it holds room for a value that is not whole.
    pub(crate) fn is_uploading(&mut self) -> bool {
        self.session.upload_mut().is_some()
    }

    /// The number of the upload whose value is not whole.
    pub(crate) fn upload_id(&mut self) -> Option<u64> {
        self.session
            .upload_mut()
            .map(|reservation| reservation.id())
    }

    /// Whether output waits for the socket.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// What epoll should report of it now.
    pub(crate) fn wanted_interest(&self) -> Interest {
        if self.is_queued {
            // It is served in any case: nothing has to be told to epoll.
            return self.interest;
        }
        match (self.is_waiting(), self.is_parked) {
            (true, _) => Interest::Room,
            (false, true) => Interest::Nothing,
            (false, false) => self.stance,
        }
    }

    /// Whether nothing has begun that is not finished.
    pub(crate) fn is_idle(&self) -> bool {
        self.session.is_idle() && self.pending.is_empty() && self.waiting.is_none()
    }

    /// Bytes that it keeps in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pending.charged_bytes() + self.waiting.as_ref().map_or(0, |waiting| waiting.bytes())
    }

    pub(crate) fn is_watching(&self) -> bool {
        matches!(self.mode, Mode::Watch)
    }

    /// Whether what comes next begins a command that may be received before others of the iteration are answered.
    pub(crate) fn may_read_ahead(&self) -> bool {
        matches!(self.mode, Mode::Serve)
            && self.is_idle()
            && !(self.is_closing || self.is_uploader || self.is_parked || self.is_queued)
    }

    /// It was read ahead: its input was received already, or the connection is over.
    pub(crate) fn serve_read_ahead(
        &mut self,
        received: Result<Option<&[u8]>, Reason>,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Verdict {
        self.stance = Interest::Input;
        match received {
            Ok(Some(input)) => self.serve(Source::ReadAhead(input), context, buffers),
            Ok(None) => Verdict::Wait,
            Err(reason) => Verdict::Close(reason),
        }
    }

    /// The socket has input.
    pub(crate) fn readable(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> Verdict {
        self.stance = Interest::Input;
        match self.mode {
            Mode::Serve => self.serve(Source::Socket, context, buffers),
            // What a watcher says is not listened to, but its leaving is noticed.
            Mode::Watch => self.notice_leaving(context, buffers),
            // What comes behind a listing stays with the kernel until the listing is over.
            Mode::Dump(_) => Verdict::Wait,
        }
    }

    /// The socket has room, or the connection's next share of time has come.
    pub(crate) fn go_on(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> Verdict {
        self.stance = Interest::Input;
        if let Some(waiting) = &mut self.waiting {
            match waiting.send(&self.socket, context) {
                Sent::All => self.waiting = None,
                Sent::Share => return Verdict::GoOn,
                Sent::Some => return Verdict::Wait,
                Sent::Failed => return Verdict::Close(Reason::Error),
            }
        }
        if self.is_closing {
            return Verdict::Close(Reason::Normal);
        }
        match self.mode {
            Mode::Serve => self.serve(Source::Kept, context, buffers),
            Mode::Watch => self.send_events(context, buffers),
            Mode::Dump(_) => self.dump(context, buffers),
        }
    }

    /// Serves what comes from `source`.
    fn serve(
        &mut self,
        source: Source<'_>,
        context: &Context<'_>,
        buffers: &mut Buffers,
    ) -> Verdict {
        let mut budget = context.share_bytes.min(YIELD_BYTES);
        self.info
            .last_command
            .store(context.now.0, Ordering::Relaxed);
        let is_uploading = self.pending.is_empty() && self.session.upload_mut().is_some();
        let is_pressed = context.pressure == Pressure::High && self.pending.is_empty();
        let mut kept = Pending::default();
        let received = match source {
            Source::ReadAhead(input) if input.len() < READ_AHEAD_BYTES => {
                Ok(Received::less(input.len()))
            }
            Source::ReadAhead(input) => self.receive_behind(input, context, buffers),
            Source::Socket if is_uploading => self.receive_upload(&mut budget, context, buffers),
            _ if is_pressed && !is_uploading => return self.serve_peeked(context, buffers),
            Source::Socket if self.pending.lacks_bytes() => {
                self.receive_in_place(context, &mut kept)
            }
            Source::Socket => self.receive_commands(context, buffers),
            Source::Kept => {
                kept = std::mem::take(&mut self.pending);
                Ok(Received::less(kept.len()))
            }
        };
        let Received {
            mut filled,
            mut is_full,
        } = match received {
            Ok(received) => received,
            Err(verdict) => return verdict,
        };
        let mut apart = source.whole().or(kept.bytes());
        let mut used = 0;
        let mut whole_bytes = 0;
        let verdict = loop {
            let input = apart.unwrap_or(&buffers.input);
            let input = input.get(used..filled).unwrap_or_default();
            let mut out = Output::new(std::mem::take(&mut buffers.output));
            let progress = self.session.run(input, context, &mut out);
            used += progress.used;
            if context.is_traced {
                trace::replies(context, &out);
            }
            budget = budget.saturating_sub(out.len());
            let sent = self.send(&mut out, context);
            buffers.put_output(out.into_bytes());
            if sent == Sent::Failed {
                break Verdict::Close(Reason::Error);
            }
            if let Next::Whole(bytes) = progress.next {
                whole_bytes = bytes;
            }
            let Some(mut verdict) = self.after(progress.next, sent, budget, context) else {
                continue;
            };
            if let Verdict::Segment { is_new } = &mut verdict {
                *is_new = used > 0;
            }
            // Where the head of a large value filled the buffer more has come: no wait is needed.
            let begins_upload = std::mem::take(&mut is_full) && self.session.upload_mut().is_some();
            if !begins_upload || verdict != Verdict::Wait || sent != Sent::All {
                break verdict;
            }
            match self.receive_upload(&mut budget, context, buffers) {
                Ok(behind) => (apart, used, filled) = (None, 0, behind.filled),
                Err(verdict) => return verdict,
            }
        };
        if used == 0 && apart.is_some() && !kept.is_empty() {
            self.pending = kept;
        } else {
            let input = apart.unwrap_or(&buffers.input);
            let rest = input.get(used..filled).unwrap_or_default();
            self.pending = Pending::keep(rest, &context.shared.memory);
        }
        self.grow_pending(verdict, whole_bytes, context)
    }

    /// Takes room for the rest of an unfinished command; while memory is short it waits for that.
    fn grow_pending(
        &mut self,
        verdict: Verdict,
        whole_bytes: usize,
        context: &Context<'_>,
    ) -> Verdict {
        let is_value = self.session.awaits_value() || !self.pending.is_empty();
        self.info
            .set_state(if is_value { READING_VALUE } else { READING });
        if verdict != Verdict::Wait || self.is_waiting() || self.pending.is_empty() {
            return verdict;
        }
        let lacking = whole_bytes.saturating_sub(self.pending.charged_bytes());
        let is_granted = context.pressure != Pressure::High
            || context.shared.memory.has_room(lacking, context.is_first);
        if lacking == 0 || is_granted {
            self.pending.grow(whole_bytes);
            return verdict;
        }
        self.stance = Interest::Nothing;
        Verdict::Room(lacking)
    }

    /// Serves what lies in the socket and leaves there what cannot be used yet, so that nothing has to be kept.
    /// Only a socket that takes a slice of output is served at all.
    fn serve_peeked(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> Verdict {
        if !send::is_writable(&self.socket) {
            // A reply made now would have to wait in memory.
            context.counters.memory_waits.bump();
            self.stance = Interest::Room;
            return Verdict::Wait;
        }
        let mut most = RECV_BYTES;
        loop {
            let room = buffers.input.get_mut(..most).unwrap_or_default();
            let filled = match peek(&self.socket, room, context.counters) {
                Ok(Some(filled)) => filled,
                Ok(None) => return Verdict::Wait,
                Err(reason) => return Verdict::Close(reason),
            };
            let mut out = Output::new(std::mem::take(&mut buffers.output));
            let input = buffers.input.get(..filled).unwrap_or_default();
            let Progress { used, next } = self.session.run(input, context, &mut out);
            let sent = self.send(&mut out, context);
            buffers.put_output(out.into_bytes());
            let is_consumed = self.consume(used, context, buffers);
            if sent == Sent::Failed || !is_consumed {
                return Verdict::Close(Reason::Error);
            }
            let is_unfinished = matches!(next, Next::Input | Next::Whole(_)) && used < filled;
            if !is_unfinished || sent != Sent::All {
                return self.after_peek(next, sent, context);
            }
            if used > 0 {
                // Once more with the unfinished command in front.
                return Verdict::Again;
            }
            if filled < most || most == INPUT_BYTES {
                return self.wait_for_rest(&next, context);
            }
            most = INPUT_BYTES;
        }
    }

    /// What the end of a run over peeked input means.
    fn after_peek(&mut self, next: Next, sent: Sent, context: &Context<'_>) -> Verdict {
        let is_parked = matches!(next, Next::Room(_));
        // The socket has to be looked at before each slice, so only one slice is made.
        let verdict = self.after(next, sent, 0, context).unwrap_or(Verdict::Again);
        if is_parked {
            self.stance = Interest::Nothing;
        }
        verdict
    }

    /// An unfinished command stays in the socket, unless there is memory to gather it.
    fn wait_for_rest(&mut self, next: &Next, context: &Context<'_>) -> Verdict {
        if self.is_half_closed {
            return Verdict::Close(Reason::Normal);
        }
        let Next::Whole(bytes) = *next else {
            self.stance = Interest::NewInput;
            return Verdict::Wait;
        };
        if let Some(charge) = context.shared.memory.try_charge(bytes, context.is_first) {
            self.pending = Pending::with_room(bytes, charge);
            return Verdict::Wait;
        }
        self.stance = Interest::NewInput;
        Verdict::Room(bytes)
    }

    /// Takes `bytes` that were peeked at out of the socket; false if they are not there.
    fn consume(&self, mut bytes: usize, context: &Context<'_>, buffers: &mut Buffers) -> bool {
        while bytes > 0 {
            let room = buffers.input.get_mut(..bytes).unwrap_or_default();
            match receive(&self.socket, room, context.counters) {
                Ok(Some(taken)) => bytes = bytes.saturating_sub(taken),
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    /// What the end of a run means; `None` runs the session again.
    fn after(
        &mut self,
        next: Next,
        sent: Sent,
        budget: usize,
        context: &Context<'_>,
    ) -> Option<Verdict> {
        // What is left of the output goes first.
        let unsent = match sent {
            Sent::Some => Some(Verdict::Wait),
            Sent::Share => Some(Verdict::GoOn),
            Sent::All | Sent::Failed => None,
        };
        match next {
            Next::Close(_) if unsent.is_some() => {
                self.is_closing = true;
                unsent
            }
            Next::Close(reason) => Some(Verdict::Close(reason)),
            Next::Watch(watching) => {
                self.mode = Mode::Watch;
                Some(self.begin_watch(watching, context))
            }
            Next::Dump(dump) => {
                self.mode = Mode::Dump(Box::new(dump));
                Some(unsent.unwrap_or(Verdict::Again))
            }
            _ if unsent.is_some() => unsent,
            Next::Input | Next::Whole(_) => Some(Verdict::Wait),
            Next::Room(bytes) => {
                self.stance = Interest::Nothing;
                Some(Verdict::Room(bytes))
            }
            Next::Park => Some(Verdict::Park),
            Next::Segment => Some(Verdict::Segment { is_new: false }),
            Next::Flush if budget > 0 => None,
            Next::Flush | Next::Yield => Some(Verdict::Again),
        }
    }

    /// Sends the output of a run; what is left of it waits.
    fn send(&mut self, out: &mut Output<'_>, context: &Context<'_>) -> Sent {
        let (sent, waiting) = send::output(&self.socket, out, context);
        self.waiting = waiting;
        if out.release_kept() {
            context.shared.memory.note_room();
        }
        sent
    }

    /// Puts kept input in front of the buffer and returns how much it was.
    fn take_pending(&mut self, buffers: &mut Buffers) -> usize {
        let pending = std::mem::take(&mut self.pending);
        let Some(bytes) = pending.bytes() else {
            return 0;
        };
        match buffers.input.get_mut(..bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            None => return 0,
        }
        bytes.len()
    }
}
