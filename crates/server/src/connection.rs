//! One socket: what arrives goes through its session, what the session says is sent.
//!
//! An idle connection owns no buffer. What cannot be used yet, or not be sent yet, is kept in
//! vectors of its own size, charged to the store's budget, and given back as soon as it is gone.
//! While output waits nothing is received: a client that does not read does not get to write.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use glasscache_protocol::words;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::execute::dump::Dump;
use crate::hub::Watching;
use crate::info::{Info, READING, READING_VALUE, Reason, WATCHING};
use crate::output::{Output, SLICE_BYTES};
use crate::send::{self, Sent, Waiting};
use crate::session::{Next, Session, UPLOAD_BYTES_MIN};
use crate::turn::Turn;

/// Bytes received at a time: enough for hundreds of commands, and small enough that a large value
/// is received into the store's memory and not through here.
const RECV_BYTES: usize = 16 << 10;

/// Bytes received beside a large value, and first of all after one: the next one's line fits, and what
/// comes with it, which has to be copied into the store, is little.
const RECV_BYTES_UPLOADER: usize = 2 << 10;

/// The input buffer of a worker: the longest unfinished command, and room to receive behind it.
pub(crate) const INPUT_BYTES: usize = UPLOAD_BYTES_MIN as usize + 4096 + RECV_BYTES;

/// Output or upload bytes after which a connection lets others go first.
const TURN_BYTES: usize = 2 * SLICE_BYTES;

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

/// What a worker lends to the connection it serves.
pub(crate) struct Buffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new() -> Buffers {
        Buffers {
            input: vec![0; INPUT_BYTES],
            output: Vec::new(),
        }
    }
}

/// How much of the input buffer is filled.
struct Received {
    filled: usize,
    /// The socket filled all the room that there was: it has more.
    is_full: bool,
}

impl Received {
    /// So many bytes, and no sign of more.
    fn less(filled: usize) -> Received {
        Received {
            filled,
            is_full: false,
        }
    }
}

/// What is to happen to a connection after it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait for the socket.
    Wait,
    /// It has more to do; serve others first.
    Again,
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
        }
    }

    /// Whether output waits for the socket.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// What epoll should report of it now.
    pub(crate) fn wanted_interest(&self) -> Interest {
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

    /// The socket has input.
    pub(crate) fn readable(&mut self, turn: &Turn<'_>, buffers: &mut Buffers) -> Verdict {
        match self.mode {
            Mode::Serve => self.serve(true, turn, buffers),
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
                Sent::Some => return Verdict::Wait,
                Sent::Failed => return Verdict::Close(Reason::Error),
            }
        }
        if self.is_closing {
            return Verdict::Close(Reason::Normal);
        }
        match self.mode {
            Mode::Serve => self.serve(false, turn, buffers),
            Mode::Watch => self.send_events(turn, buffers),
            Mode::Dump(_) => self.dump(turn, buffers),
        }
    }

    /// Serves what has been received, after receiving more if `receives`.
    fn serve(&mut self, receives: bool, turn: &Turn<'_>, buffers: &mut Buffers) -> Verdict {
        let mut budget = TURN_BYTES;
        self.info.last_command.store(turn.now.0, Ordering::Relaxed);
        let received = if !receives {
            Ok(Received::less(self.take_pending(turn, buffers)))
        } else if self.pending.is_empty() && self.session.upload_mut().is_some() {
            self.receive_upload(&mut budget, turn, buffers)
        } else {
            self.receive_commands(turn, buffers)
        };
        let Received {
            mut filled,
            mut is_full,
        } = match received {
            Ok(received) => received,
            Err(verdict) => return verdict,
        };
        let mut used = 0;
        let verdict = loop {
            let input = buffers.input.get(used..filled).unwrap_or_default();
            let mut out = Output::new(std::mem::take(&mut buffers.output));
            let progress = self.session.run(input, turn, &mut out);
            used += progress.used;
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
            if !begins_upload || verdict != Verdict::Wait || sent == Sent::Some {
                break verdict;
            }
            match self.receive_upload(&mut budget, turn, buffers) {
                Ok(behind) => (used, filled) = (0, behind.filled),
                Err(verdict) => return verdict,
            }
        };
        self.keep(buffers.input.get(used..filled).unwrap_or_default(), turn);
        verdict
    }

    /// What a turn's end means; `None` runs the session again.
    fn after(&mut self, next: Next, sent: Sent, budget: usize, turn: &Turn<'_>) -> Option<Verdict> {
        let is_stuck = sent == Sent::Some;
        match next {
            Next::Close(_) if is_stuck => {
                self.is_closing = true;
                Some(Verdict::Wait)
            }
            Next::Close(reason) => Some(Verdict::Close(reason)),
            Next::Watch(watching) => {
                self.mode = Mode::Watch;
                Some(self.begin_watch(watching, turn))
            }
            Next::Dump(dump) => {
                self.mode = Mode::Dump(Box::new(dump));
                Some(if is_stuck {
                    Verdict::Wait
                } else {
                    Verdict::Again
                })
            }
            _ if is_stuck => Some(Verdict::Wait),
            Next::Input => Some(Verdict::Wait),
            Next::Park => Some(Verdict::Park),
            Next::Flush if budget > 0 => None,
            Next::Flush | Next::Yield => {
                turn.counters.conn_yields.bump();
                Some(Verdict::Again)
            }
        }
    }

    /// Receives behind what is kept.
    fn receive_commands(
        &mut self,
        turn: &Turn<'_>,
        buffers: &mut Buffers,
    ) -> Result<Received, Verdict> {
        let filled = self.take_pending(turn, buffers);
        let most = match filled {
            0 if std::mem::take(&mut self.is_uploader) => RECV_BYTES_UPLOADER,
            0 => RECV_BYTES,
            _ => INPUT_BYTES,
        };
        let room = buffers.input.get_mut(filled..).unwrap_or_default();
        let bytes = room.len().min(most);
        if bytes == 0 {
            // Full of commands that wait for their turn: these first.
            return Ok(Received::less(filled));
        }
        match receive(
            &self.socket,
            room.get_mut(..bytes).unwrap_or_default(),
            turn,
        ) {
            Ok(Some(received)) => Ok(Received {
                filled: filled + received,
                is_full: received == bytes,
            }),
            Ok(None) => {
                self.keep(buffers.input.get(..filled).unwrap_or_default(), turn);
                Err(Verdict::Wait)
            }
            Err(reason) => Err(Verdict::Close(reason)),
        }
    }

    /// Receives an unfinished large value where it is to lie, and what follows it into the buffer:
    /// its ending and the next commands need no call of their own. Returns how much followed.
    fn receive_upload(
        &mut self,
        budget: &mut usize,
        turn: &Turn<'_>,
        buffers: &mut Buffers,
    ) -> Result<Received, Verdict> {
        self.is_uploader = true;
        while let Some(reservation) = self.session.upload_mut() {
            let missing = reservation.missing_bytes() as usize;
            let space = reservation.space(turn.store, turn.now);
            if space.is_empty() {
                // No room: what comes goes the other way, to the session, which says what now.
                return self.receive_commands(turn, buffers);
            }
            let room = space.len();
            let behind = if room == missing {
                RECV_BYTES_UPLOADER
            } else {
                0
            };
            let behind = buffers.input.get_mut(..behind).unwrap_or_default();
            let received =
                receive_two(&self.socket, space, behind, turn).map_err(Verdict::Close)?;
            let Some(received) = received else {
                return Err(Verdict::Wait);
            };
            reservation.advance(received.min(room));
            *budget = budget.saturating_sub(received);
            if received > room {
                return Ok(Received::less(received - room));
            }
            // The socket had no more, or others are to have their turn.
            if received < room || *budget == 0 {
                break;
            }
        }
        Ok(Received::less(0))
    }

    /// Sends a turn's output; what the socket does not take waits.
    fn send(&mut self, out: &Output<'_>, turn: &Turn<'_>) -> Sent {
        match send::output(&self.socket, out, turn) {
            Ok(None) => Sent::All,
            Ok(Some(waiting)) => {
                self.waiting = Some(waiting);
                Sent::Some
            }
            Err(_) => Sent::Failed,
        }
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

    fn begin_watch(&mut self, watching: Watching, turn: &Turn<'_>) -> Verdict {
        let serial = self.info.id.serial;
        self.info.set_state(WATCHING);
        let is_added = turn.shared.hub.add(serial, watching, turn.waker.clone());
        turn.shared.observe();
        let reply: &[u8] = if is_added {
            words::OK
        } else {
            b"WATCHER_TOO_MANY log watcher limit reached\r\n"
        };
        self.mode = if is_added { Mode::Watch } else { Mode::Serve };
        self.send_plain(reply.to_vec(), turn)
    }

    /// Sends the lines that wait for a watcher.
    fn send_events(&mut self, turn: &Turn<'_>, _buffers: &mut Buffers) -> Verdict {
        let lines = turn.shared.hub.take(self.info.id.serial);
        if lines.is_empty() {
            Verdict::Wait
        } else {
            self.send_plain(lines, turn)
        }
    }

    fn send_plain(&mut self, bytes: Vec<u8>, turn: &Turn<'_>) -> Verdict {
        match self.send(&Output::rendered(bytes), turn) {
            Sent::Failed => Verdict::Close(Reason::Error),
            Sent::All | Sent::Some => Verdict::Wait,
        }
    }

    /// Sends the next slice of a listing.
    fn dump(&mut self, turn: &Turn<'_>, buffers: &mut Buffers) -> Verdict {
        let Mode::Dump(dump) = &mut self.mode else {
            return Verdict::Wait;
        };
        let mut out = Output::new(std::mem::take(&mut buffers.output));
        let is_done = dump.run(turn, &mut out);
        if is_done {
            self.mode = Mode::Serve;
        }
        let sent = self.send(&out, turn);
        buffers.output = out.into_bytes();
        match sent {
            Sent::Failed => Verdict::Close(Reason::Error),
            Sent::Some => Verdict::Wait,
            Sent::All => Verdict::Again,
        }
    }

    /// Input of a connection that is not listened to: thrown away, or its end.
    fn notice_leaving(&mut self, turn: &Turn<'_>, buffers: &mut Buffers) -> Verdict {
        match receive(&self.socket, &mut buffers.input, turn) {
            Ok(_) => Verdict::Wait,
            Err(reason) => Verdict::Close(reason),
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
    }
}

/// Receives into `first` and then into `second`, as [`receive`] does.
fn receive_two(
    socket: &OwnedFd,
    first: &mut [u8],
    second: &mut [u8],
    turn: &Turn<'_>,
) -> Result<Option<usize>, Reason> {
    turn.counters.recv_calls.bump();
    let mut rooms = [IoSliceMut::new(first), IoSliceMut::new(second)];
    match rustix::io::readv(socket, &mut rooms) {
        Ok(0) => Err(Reason::Normal),
        Ok(bytes) => {
            turn.counters.bytes_read.add(bytes as u64);
            Ok(Some(bytes))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(Reason::Error),
    }
}

/// Receives into `room`: `None` when nothing is there, an error when the connection is over.
fn receive(socket: &OwnedFd, room: &mut [u8], turn: &Turn<'_>) -> Result<Option<usize>, Reason> {
    turn.counters.recv_calls.bump();
    match rustix::net::recv(socket, &mut *room, RecvFlags::empty()) {
        Ok((0, _)) => Err(Reason::Normal),
        Ok((bytes, _)) => {
            turn.counters.bytes_read.add(bytes as u64);
            Ok(Some(bytes))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(Reason::Error),
    }
}
