//! One socket: what arrives goes through its session, what the session says is sent.
//!
//! An idle connection owns no buffer. What cannot be used yet, or not be sent yet, is kept in
//! vectors of its own size, charged to the store's budget, and given back as soon as it is gone.
//! While output waits nothing is received: a client that does not read does not get to write.

mod buffers;
mod listing;
mod receiving;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::buffers::Received;
pub(crate) use self::buffers::{Buffers, HEARD_BYTES, INPUT_BYTES, Source};
pub(crate) use self::receiving::receive;
use crate::execute::dump::Dump;
use crate::info::{Info, READING, READING_VALUE, Reason};
use crate::output::Output;
use crate::send::{self, Sent, Waiting};
use crate::session::{Next, Session};
use crate::trace;
use crate::turn::Turn;

/// Output or upload bytes after which a connection lets others go first, however few these are.
const TURN_BYTES: usize = 128 << 10;

/// One client's connection, owned by one worker for life.
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) info: Arc<Info>,
    session: Session,
    /// Input that cannot be used yet.
    pending: Vec<u8>,
    /// Output that could not be sent yet.
    waiting: Option<Box<Waiting>>,
    mode: Mode,
    is_closing: bool,
    /// Whether it received a large value since its last command.
    is_uploader: bool,
    /// What epoll reports of it.
    pub(crate) interest: Interest,
    /// It waits among the worker's parked connections.
    pub(crate) is_parked: bool,
    /// It waited there and tries again.
    pub(crate) tries: bool,
    /// Its place among those that wait to begin an upload.
    pub(crate) arrival: Option<u64>,
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
    /// Room to send.
    Room,
    /// Nothing but its end.
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
    /// It waits for memory that others tie up: serve it again after a while.
    Park,
    /// Close it.
    Close(Reason),
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, info: Arc<Info>, session: Session) -> Connection {
        Connection {
            socket,
            info,
            session,
            pending: Vec::new(),
            waiting: None,
            mode: Mode::Serve,
            is_closing: false,
            is_uploader: false,
            interest: Interest::Input,
            is_parked: false,
            tries: false,
            arrival: None,
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
            (false, false) => Interest::Input,
        }
    }

    /// Whether nothing has begun that is not finished.
    pub(crate) fn is_idle(&self) -> bool {
        self.session.is_idle() && self.pending.is_empty() && self.waiting.is_none()
    }

    pub(crate) fn is_watching(&self) -> bool {
        matches!(self.mode, Mode::Watch)
    }

    /// Whether what comes next begins a command that may be received before others of the turn are answered.
    pub(crate) fn may_be_heard(&self) -> bool {
        matches!(self.mode, Mode::Serve)
            && self.is_idle()
            && !(self.is_closing || self.is_uploader || self.is_parked || self.is_queued)
    }

    /// It was heard: its input was received already, or the connection is over.
    pub(crate) fn heard(
        &mut self,
        heard: Result<Option<&[u8]>, Reason>,
        turn: &Turn<'_>,
        buffers: &mut Buffers,
    ) -> Verdict {
        match heard {
            Ok(Some(input)) => self.serve(Source::Heard(input), turn, buffers),
            Ok(None) => Verdict::Wait,
            Err(reason) => Verdict::Close(reason),
        }
    }

    /// The socket has input.
    pub(crate) fn readable(&mut self, turn: &Turn<'_>, buffers: &mut Buffers) -> Verdict {
        match self.mode {
            Mode::Serve => self.serve(Source::Socket, turn, buffers),
            // What a watcher says is not listened to, but its leaving is noticed.
            Mode::Watch => self.notice_leaving(turn, buffers),
            // What comes behind a listing stays with the kernel until the listing is over.
            Mode::Dump(_) => Verdict::Wait,
        }
    }

    /// The socket has room, or the connection's next share of time has come.
    pub(crate) fn go_on(&mut self, turn: &Turn<'_>, buffers: &mut Buffers) -> Verdict {
        if let Some(waiting) = &mut self.waiting {
            match waiting.send(&self.socket, turn) {
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
            Mode::Serve => self.serve(Source::Kept, turn, buffers),
            Mode::Watch => self.send_events(turn, buffers),
            Mode::Dump(_) => self.dump(turn, buffers),
        }
    }

    /// Serves what comes from `source`.
    fn serve(&mut self, source: Source<'_>, turn: &Turn<'_>, buffers: &mut Buffers) -> Verdict {
        let mut budget = turn.share_bytes.min(TURN_BYTES);
        self.info.last_command.store(turn.now.0, Ordering::Relaxed);
        let received = match source {
            Source::Kept => Ok(Received::less(self.take_pending(turn, buffers))),
            Source::Heard(heard) if heard.len() < HEARD_BYTES => Ok(Received::less(heard.len())),
            Source::Heard(heard) => self.receive_behind(heard, turn, buffers),
            Source::Socket if self.pending.is_empty() && self.session.upload_mut().is_some() => {
                self.receive_upload(&mut budget, turn, buffers)
            }
            Source::Socket => self.receive_commands(turn, buffers),
        };
        let Received {
            mut filled,
            mut is_full,
        } = match received {
            Ok(received) => received,
            Err(verdict) => return verdict,
        };
        let mut heard = source.whole();
        let mut used = 0;
        let verdict = loop {
            let input = heard.unwrap_or(&buffers.input);
            let input = input.get(used..filled).unwrap_or_default();
            let mut out = Output::new(std::mem::take(&mut buffers.output));
            let progress = self.session.run(input, turn, &mut out);
            used += progress.used;
            if turn.is_traced {
                trace::replies(turn, &out);
            }
            budget = budget.saturating_sub(out.len());
            let sent = self.send(&out, turn);
            buffers.output = out.into_bytes();
            if sent == Sent::Failed {
                break Verdict::Close(Reason::Error);
            }
            let Some(verdict) = self.after(progress.next, sent, budget, turn) else {
                continue;
            };
            // Where the head of a large value filled the buffer more has come: no wait is needed.
            let begins_upload = std::mem::take(&mut is_full) && self.session.upload_mut().is_some();
            if !begins_upload || verdict != Verdict::Wait || sent != Sent::All {
                break verdict;
            }
            match self.receive_upload(&mut budget, turn, buffers) {
                Ok(behind) => (heard, used, filled) = (None, 0, behind.filled),
                Err(verdict) => return verdict,
            }
        };
        let input = heard.unwrap_or(&buffers.input);
        self.keep(input.get(used..filled).unwrap_or_default(), turn);
        verdict
    }

    /// What a turn's end means; `None` runs the session again.
    fn after(&mut self, next: Next, sent: Sent, budget: usize, turn: &Turn<'_>) -> Option<Verdict> {
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
                Some(self.begin_watch(watching, turn))
            }
            Next::Dump(dump) => {
                self.mode = Mode::Dump(Box::new(dump));
                Some(unsent.unwrap_or(Verdict::Again))
            }
            _ if unsent.is_some() => unsent,
            Next::Input => Some(Verdict::Wait),
            Next::Park => Some(Verdict::Park),
            Next::Flush if budget > 0 => None,
            Next::Flush | Next::Yield => Some(Verdict::Again),
        }
    }

    /// Sends a turn's output; what is left of it waits.
    fn send(&mut self, out: &Output<'_>, turn: &Turn<'_>) -> Sent {
        let (sent, waiting) = send::output(&self.socket, out, turn);
        self.waiting = waiting;
        sent
    }

    /// Puts kept input in front of the buffer and returns how much it was.
    fn take_pending(&mut self, turn: &Turn<'_>, buffers: &mut Buffers) -> usize {
        if self.pending.is_empty() {
            return 0;
        }
        let pending = std::mem::take(&mut self.pending);
        turn.store.store().charge_buffers(-(pending.len() as i64));
        match buffers.input.get_mut(..pending.len()) {
            Some(room) => room.copy_from_slice(&pending),
            None => return 0,
        }
        pending.len()
    }

    /// Keeps input that cannot be used yet.
    fn keep(&mut self, input: &[u8], turn: &Turn<'_>) {
        let is_value = self.session.awaits_value() || !input.is_empty();
        self.info
            .set_state(if is_value { READING_VALUE } else { READING });
        if !input.is_empty() {
            turn.store.store().charge_buffers(input.len() as i64);
            self.pending = input.to_vec();
        }
    }

    /// Gives back what the connection was charged for.
    pub(crate) fn release(&mut self, turn: &Turn<'_>) {
        turn.store
            .store()
            .charge_buffers(-(self.pending.len() as i64));
        self.pending = Vec::new();
        if let Some(mut waiting) = self.waiting.take() {
            waiting.release(turn);
        }
        if let Mode::Dump(dump) = &mut self.mode {
            dump.release(turn);
        }
    }
}
