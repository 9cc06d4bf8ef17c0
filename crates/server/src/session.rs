//! One connection's conversation, without its socket: bytes in, bytes out, time passed in.
//!
//! A session holds only where it stands in the stream; input that it cannot use yet stays with the
//! caller. Reads of keys, whether many in one `get` or many pipelined commands, are gathered into
//! batches, so that the memory behind 16 keys is fetched at once (`execute/get`). A turn ends when
//! the input is used up, when much output waits, or when the connection has had its share.

use glasscache_protocol::command::{Command, GetHead, Refusal};
use glasscache_protocol::limits::{GET_KEY_BYTES_MAX, LINE_BYTES_MAX};
use glasscache_protocol::meta::{self, MetaLine};
use glasscache_protocol::text::{self, KeyToken, Parsed};
use glasscache_protocol::words;
use glasscache_store::Reservation;

use crate::execute::{self, Batch, Lookup, Outcome, store::Write};
use crate::hub::Watching;
use crate::info::Reason;
use crate::output::{Mark, Output, SLICE_BYTES};
use crate::shed;
use crate::turn::Turn;

/// Values from this size on are received into the store's memory; smaller ones are gathered whole
/// in the connection's buffer first, since an unfinished reservation holds its segment open.
pub(crate) const UPLOAD_BYTES_MIN: u32 = 64 << 10;

/// One connection's place in its stream.
#[derive(Default)]
pub(crate) struct Session {
    state: State,
}

#[derive(Default)]
enum State {
    /// At the start of a line.
    #[default]
    Command,
    /// Behind the head of a get.
    Keys(Keys),
    /// So many bytes of a refused value are still to come.
    Swallow(u64),
    /// A large value is being received into the store.
    Upload(Box<Upload>),
    /// Behind a length that cannot be: what follows may be its value, so nothing is executed.
    Lost,
    /// Nothing more is served.
    Closed,
}

/// A get that is being answered.
#[derive(Clone, Copy)]
struct Keys {
    head: GetHead,
    /// Key bytes so far, against [`GET_KEY_BYTES_MAX`].
    key_bytes: usize,
    /// Where its reply begins in the output; `None` before its first key and once a slice was sent.
    reply_from: Option<Mark>,
    /// Whether a key has been looked at.
    is_begun: bool,
}

/// A large value on its way into the store.
pub(crate) struct Upload {
    /// The command line, kept for its reply.
    line: Box<[u8]>,
    reservation: Reservation,
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The rest of the input, if any, is the beginning of something.
    Input,
    /// Send the output, then call again.
    Flush,
    /// The connection has had its share: others first, then call again.
    Yield,
    /// The others' uploads hold all the room there is: call again soon, receive nothing meanwhile.
    Park,
    /// Send the output and close.
    Close(Reason),
    /// From now on the connection is a log of events.
    Watch(Watching),
    /// Send a listing of the items, then go on.
    Dump(execute::dump::Dump),
}

/// What one turn used and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) used: usize,
    pub(crate) next: Next,
}

impl Session {
    /// A session that closes at the first bytes it gets.
    pub(crate) fn closed() -> Session {
        Session {
            state: State::Closed,
        }
    }

    /// Serves what `input` holds, as far as the turn goes. Bytes beyond `used` must come again.
    pub(crate) fn run<'w>(
        &mut self,
        input: &[u8],
        turn: &Turn<'w>,
        out: &mut Output<'w>,
    ) -> Progress {
        let mut run = Run {
            input,
            used: 0,
            commands: 0,
            batch: Batch::new(),
            turn,
            out,
        };
        let next = loop {
            let next = match self.state {
                State::Command => self.command(&mut run),
                State::Keys(keys) => self.keys(keys, &mut run),
                State::Swallow(left) => self.swallow(left, &mut run),
                State::Upload(_) => self.upload(&mut run),
                State::Lost => Some(lost(&mut run)),
                State::Closed => Some(Next::Close(Reason::Error)),
            };
            if let Some(next) = next {
                break next;
            }
        };
        run.flush();
        match &mut self.state {
            // What a turn made is sent before the next: it cannot be taken back any more.
            State::Keys(keys) => keys.reply_from = None,
            state if matches!(next, Next::Close(_)) => *state = State::Closed,
            _ => {}
        }
        Progress {
            used: run.used,
            next,
        }
    }

    /// The unfinished value into which the next bytes of the socket belong, if there is one.
    pub(crate) fn upload_mut(&mut self) -> Option<&mut Reservation> {
        match &mut self.state {
            State::Upload(upload) if !upload.reservation.is_complete() => {
                Some(&mut upload.reservation)
            }
            _ => None,
        }
    }

    /// Whether a large value is on its way.
    pub(crate) fn awaits_value(&self) -> bool {
        matches!(self.state, State::Upload(_) | State::Swallow(_))
    }

    /// Whether the stream stands between two commands.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Command)
    }

    /// Takes one line. `None` goes on.
    fn command(&mut self, run: &mut Run<'_, '_, '_>) -> Option<Next> {
        if run.out.len() >= SLICE_BYTES {
            return Some(Next::Flush);
        }
        if run.commands >= run.turn.shared.config.requests_per_event.max(1) {
            return Some(if run.rest().is_empty() {
                Next::Input
            } else {
                Next::Yield
            });
        }
        if let Some((key, used)) = text::single_get(run.rest()) {
            run.used += used;
            run.commands += 1;
            run.look_up(Lookup::single(key, run.turn));
            return None;
        }
        if let Some((line, used)) = meta::plain_get(run.rest()) {
            run.used += used;
            run.commands += 1;
            run.look_up_meta(line);
            return None;
        }
        match text::parse(run.rest()) {
            Parsed::Incomplete => Some(Next::Input),
            Parsed::Refused(refusal, used) => {
                run.used += used;
                run.flush();
                self.refuse(refusal, run)
            }
            Parsed::Command(command, used) => {
                run.commands += 1;
                self.begin(command, used, run)
            }
        }
    }

    fn begin<'b>(
        &mut self,
        command: Command<'b>,
        used: usize,
        run: &mut Run<'b, '_, '_>,
    ) -> Option<Next> {
        match command {
            Command::Get(head) => {
                run.used += used;
                let keys = Keys {
                    head,
                    key_bytes: 0,
                    reply_from: None,
                    is_begun: false,
                };
                self.state = State::Keys(keys);
                None
            }
            Command::MetaGet(line) if !line.flags.has(b'b') => {
                run.used += used;
                run.look_up_meta(line);
                None
            }
            Command::Store(head) => self.write(&Write::text(&head, run.turn), used, run),
            Command::MetaSet(line, bytes) => {
                let mut scratch = Vec::new();
                let write = Write::meta(&line, bytes, &mut scratch, run.turn);
                self.write(&write, used, run)
            }
            other => {
                run.used += used;
                run.flush();
                after(execute::command(&other, run.turn, run.out))
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal, run: &mut Run<'_, '_, '_>) -> Option<Next> {
        if !refusal.noreply {
            run.out.bytes.extend_from_slice(refusal.reply);
        }
        if refusal.swallow_bytes == Refusal::UNKNOWN {
            self.state = State::Lost;
        } else if refusal.swallow_bytes > 0 {
            self.state = State::Swallow(refusal.swallow_bytes);
        }
        refusal.close.then_some(Next::Close(Reason::Error))
    }

    fn swallow(&mut self, left: u64, run: &mut Run<'_, '_, '_>) -> Option<Next> {
        let taken = left.min(run.rest().len() as u64);
        run.used += taken as usize;
        if taken == left {
            self.state = State::Command;
            return None;
        }
        self.state = State::Swallow(left - taken);
        Some(Next::Input)
    }

    /// A storage command: at once when its value is here, else into the store piece by piece when
    /// it is large, else when more has come.
    fn write(&mut self, write: &Write<'_>, head: usize, run: &mut Run<'_, '_, '_>) -> Option<Next> {
        let value_bytes = write.value_bytes as usize;
        let behind = run.rest().get(head..).unwrap_or_default();
        if write.value_bytes < UPLOAD_BYTES_MIN
            && let Some((value, rest)) = behind.split_at_checked(value_bytes)
            && let Some((ending, _)) = rest.split_at_checked(2)
        {
            run.flush();
            run.used += head + value_bytes + 2;
            if ending != b"\r\n" {
                return after(write.refuse_chunk(run.out));
            }
            write.execute(value, run.turn, run.out);
            return None;
        }
        if write.value_bytes < UPLOAD_BYTES_MIN {
            return Some(Next::Input);
        }
        if shed::waits_for_upload(None, run.turn) {
            return Some(Next::Park);
        }
        run.flush();
        let line = run.rest().get(..head).unwrap_or_default();
        run.used += head;
        match write.reserve(run.turn, run.out) {
            Some(reservation) => {
                run.turn.connection.ties.note_upload(reservation.id());
                self.state = State::Upload(Box::new(Upload {
                    line: line.into(),
                    reservation,
                }));
            }
            None => self.state = State::Swallow(u64::from(write.value_bytes) + 2),
        }
        None
    }

    /// Fills a large value from the input, and commits it when its ending has come.
    fn upload(&mut self, run: &mut Run<'_, '_, '_>) -> Option<Next> {
        let State::Upload(upload) = &mut self.state else {
            return None;
        };
        while !upload.reservation.is_complete() {
            let rest = run.rest();
            if rest.is_empty() {
                return Some(Next::Input);
            }
            let space = upload.reservation.space(run.turn.store, run.turn.now);
            let bytes = space.len().min(rest.len());
            if bytes == 0 {
                let own = Some(upload.reservation.id());
                return if shed::waits_for_upload(own, run.turn) {
                    Some(Next::Park)
                } else {
                    self.give_up_upload(run)
                };
            }
            if let (Some(to), Some(from)) = (space.get_mut(..bytes), rest.get(..bytes)) {
                to.copy_from_slice(from);
            }
            upload.reservation.advance(bytes);
            run.used += bytes;
        }
        let Some(ending) = run.rest().get(..2) else {
            // The value is whole and its line end is not: not reading on here would spin for ever.
            return Some(Next::Input);
        };
        self.finish_upload(ending, run)
    }

    fn finish_upload(&mut self, ending: &[u8], run: &mut Run<'_, '_, '_>) -> Option<Next> {
        run.used += 2;
        let State::Upload(upload) = std::mem::take(&mut self.state) else {
            return None;
        };
        let mut scratch = Vec::new();
        let Some(write) = Write::from_line(&upload.line, &mut scratch, run.turn) else {
            // The line was parsed once already: a server that cannot read it again is broken.
            run.turn.counters.invariant_broken.bump();
            return Some(Next::Close(Reason::Error));
        };
        if ending != b"\r\n" {
            return after(write.refuse_chunk(run.out));
        }
        write.commit(upload.reservation, run.turn, run.out);
        None
    }

    /// The store has no memory for the rest: say so and let the rest pass by.
    fn give_up_upload(&mut self, run: &mut Run<'_, '_, '_>) -> Option<Next> {
        let State::Upload(upload) = std::mem::take(&mut self.state) else {
            return None;
        };
        run.turn.counters.store_no_memory.bump();
        let mut scratch = Vec::new();
        if Write::from_line(&upload.line, &mut scratch, run.turn).is_some_and(|w| !w.is_quiet()) {
            run.out.bytes.extend_from_slice(words::NO_MEMORY);
        }
        self.state = State::Swallow(u64::from(upload.reservation.missing_bytes()) + 2);
        None
    }

    /// Takes the keys of a get, up to the end of the line, of the input, or of the slice.
    fn keys(&mut self, mut keys: Keys, run: &mut Run<'_, '_, '_>) -> Option<Next> {
        loop {
            // The batch begun is answered with this slice: 16 values more at the most.
            if run.out.len() >= SLICE_BYTES {
                self.state = State::Keys(keys);
                return Some(Next::Flush);
            }
            match text::next_key(run.rest()) {
                KeyToken::Key(key, used) => {
                    run.used += used;
                    keys.key_bytes += key.len();
                    if keys.key_bytes > GET_KEY_BYTES_MAX {
                        return self.end_get_badly(keys, words::LINE_TOO_LONG, run);
                    }
                    let lookup = Lookup::text(key, keys.head, !keys.is_begun, run.turn);
                    let mark = run.look_up(lookup);
                    if keys.is_begun && mark.is_some() {
                        keys.reply_from = mark;
                    }
                    keys.is_begun = true;
                }
                KeyToken::End(used) => {
                    run.used += used;
                    run.batch.end(run.out);
                    self.state = State::Command;
                    return None;
                }
                KeyToken::Incomplete => {
                    self.state = State::Keys(keys);
                    return Some(Next::Input);
                }
                KeyToken::TooLong => {
                    return self.end_get_badly(keys, words::BAD_FORMAT, run);
                }
            }
        }
    }

    /// A key too long, or too many: the error stands in place of the reply, as in memcached, unless
    /// a part of that reply has left already; then the connection must close.
    fn end_get_badly(
        &mut self,
        keys: Keys,
        reply: &'static [u8],
        run: &mut Run<'_, '_, '_>,
    ) -> Option<Next> {
        self.state = State::Command;
        let mark = run.flush().filter(|_| keys.is_begun).or(keys.reply_from);
        let line_end = memchr::memchr(b'\n', run.rest());
        if let Some(mark) = mark {
            run.out.rewind(mark);
        }
        run.out.bytes.extend_from_slice(reply);
        let is_whole = mark.is_some() || !keys.is_begun;
        match line_end {
            Some(end) if is_whole && reply == words::BAD_FORMAT => {
                run.used += end + 1;
                None
            }
            _ => Some(Next::Close(Reason::Error)),
        }
    }
}

/// What a command means for the turn; `None` goes on.
fn after(outcome: Outcome) -> Option<Next> {
    match outcome {
        Outcome::Done => None,
        Outcome::Close(reason) => Some(Next::Close(reason)),
        Outcome::Watch(watching) => Some(Next::Watch(watching)),
        Outcome::Dump(dump) => Some(Next::Dump(dump)),
    }
}

/// Refuses the line behind a length that cannot be, as the line before it, and closes. memcached
/// executes that line; only the words are the same here.
fn lost(run: &mut Run<'_, '_, '_>) -> Next {
    match memchr::memchr(b'\n', run.rest()) {
        Some(end) => {
            run.used += end + 1;
            run.out.bytes.extend_from_slice(words::BAD_FORMAT);
            Next::Close(Reason::Error)
        }
        None if run.rest().len() > LINE_BYTES_MAX => Next::Close(Reason::Error),
        None => Next::Input,
    }
}

/// One turn of a session: the input, how far it is used, and the lookups not yet made.
struct Run<'b, 'o, 'w> {
    input: &'b [u8],
    used: usize,
    commands: u32,
    batch: Batch<'b>,
    turn: &'o Turn<'w>,
    out: &'o mut Output<'w>,
}

impl<'b> Run<'b, '_, '_> {
    #[inline]
    fn rest(&self) -> &'b [u8] {
        self.input.get(self.used..).unwrap_or_default()
    }

    /// Adds a lookup to the batch, making the batch first when it is full; see [`Run::flush`].
    #[inline]
    fn look_up(&mut self, lookup: Lookup<'b>) -> Option<Mark> {
        let mark = if self.batch.is_full() {
            self.flush()
        } else {
            None
        };
        self.batch.push(lookup);
        mark
    }

    /// Adds the lookup of an `mg`.
    #[inline]
    fn look_up_meta(&mut self, line: MetaLine<'b>) {
        if self.batch.is_full() {
            self.flush();
        }
        self.batch.push_meta(line, self.turn);
    }

    /// Makes the lookups gathered so far. Returns where the reply of the last get that began among
    /// them begins.
    #[inline]
    fn flush(&mut self) -> Option<Mark> {
        self.batch.flush(self.turn, self.out)
    }
}
