//! One connection: its request is received, the response is sent, and what the client still sends is discarded.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::Port;
use super::request::{HEAD_BYTES_MAX, Refusal, Request, parse_head};
use super::response::Response;

/// Time for a head to arrive, and for a response to be taken.
const STEP_TIME_MAX: Duration = Duration::from_secs(5);
/// Time in which input is discarded after the response, so that the kernel does not reset the connection before the
/// client has read it.
const DISCARD_TIME_MAX: Duration = Duration::from_millis(500);
/// Bytes that are discarded; a client that sends more is reset.
const DISCARDED_BYTES_MAX: usize = 64 << 10;
/// Bytes that are received at a time.
const RECEIVE_BYTES: usize = 4096;
/// Unsent bytes of a stream of events from which on further events are left out.
const STREAM_BYTES_MAX: usize = 256 << 10;

/// A connection to the HTTP port, which serves one request.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    pub(crate) port: Port,
    /// Its number, in the order of acceptance.
    pub(crate) serial: u64,
    state: State,
    deadline: Instant,
}

/// What a connection does.
enum State {
    /// The head is received.
    Receiving(Vec<u8>),
    /// The response is sent.
    Sending(Output),
    /// Events are sent until the client closes.
    Streaming(Output),
    /// The response is sent; input is discarded, of which this many bytes have come.
    Discarding(usize),
    Closed,
}

/// Bytes to send, and how many have been sent.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    fn pending(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }
}

impl HttpConnection {
    pub(crate) fn new(stream: TcpStream, port: Port, serial: u64, now: Instant) -> HttpConnection {
        HttpConnection {
            stream,
            port,
            serial,
            state: State::Receiving(Vec::new()),
            deadline: now + STEP_TIME_MAX,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What it waits for.
    pub(crate) fn interest(&self) -> PollFlags {
        match &self.state {
            State::Sending(_) => PollFlags::OUT,
            State::Streaming(output) if !output.pending().is_empty() => {
                PollFlags::OUT | PollFlags::IN
            }
            _ => PollFlags::IN,
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.state, State::Streaming(_))
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// When it is closed if nothing happens; a stream that has nothing to send stays.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Streaming(output) if output.pending().is_empty() => None,
            _ => Some(self.deadline),
        }
    }

    /// Closes it if its time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.state = State::Closed;
        }
    }

    /// Goes on with what it does; `respond` makes the response to a complete request.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        respond: impl FnOnce(Port, Result<&Request, &Refusal>) -> Response,
    ) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Receiving(input) => self.receive(input, now, respond),
            State::Sending(output) => self.send(output, now),
            State::Streaming(output) => self.stream_events(output, now),
            State::Discarding(discarded) => self.discard(discarded),
            State::Closed => {}
        }
    }

    /// Sends events to a stream, unless its client does not read what it already has.
    pub(crate) fn push_events(&mut self, events: &[u8], now: Instant) {
        let State::Streaming(output) = &mut self.state else {
            return;
        };
        let is_idle = output.pending().is_empty();
        if output.pending().len() + events.len() > STREAM_BYTES_MAX {
            return;
        }
        output.bytes.drain(..output.sent);
        output.sent = 0;
        output.bytes.extend_from_slice(events);
        let output = std::mem::take(output);
        if is_idle {
            self.deadline = now + STEP_TIME_MAX;
        }
        self.state = State::Closed;
        self.stream_events(output, now);
    }

    fn receive(
        &mut self,
        mut input: Vec<u8>,
        now: Instant,
        respond: impl FnOnce(Port, Result<&Request, &Refusal>) -> Response,
    ) {
        let mut buffer = [0; RECEIVE_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => input.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(error) if is_temporary(&error) => {}
            Err(_) => return,
        }
        let parsed = parse_head(&input);
        let response = match &parsed {
            Ok(None) if input.len() <= HEAD_BYTES_MAX => {
                self.state = State::Receiving(input);
                return;
            }
            Ok(None) => return,
            Ok(Some(request)) => respond(self.port, Ok(request)),
            Err(refusal) => respond(self.port, Err(refusal)),
        };
        let request = parsed.as_ref().ok().and_then(Option::as_ref);
        let output = Output { bytes: response.to_bytes(request), sent: 0 };
        self.deadline = now + STEP_TIME_MAX;
        if response.is_stream && !request.is_some_and(|request| request.is_head) {
            self.stream_events(output, now);
        } else {
            self.send(output, now);
        }
    }

    /// Sends what the socket takes; false if the connection has failed.
    fn write_pending(&mut self, output: &mut Output) -> bool {
        while !output.pending().is_empty() {
            match self.stream.write(output.pending()) {
                Ok(0) => return false,
                Ok(length) => output.sent += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn send(&mut self, mut output: Output, now: Instant) {
        if !self.write_pending(&mut output) {
            return;
        }
        if !output.pending().is_empty() {
            self.state = State::Sending(output);
            return;
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        self.deadline = now + DISCARD_TIME_MAX;
        self.state = State::Discarding(0);
    }

    /// Sends events, and notices that the client has closed.
    fn stream_events(&mut self, mut output: Output, now: Instant) {
        let pending_before = output.pending().len();
        let mut buffer = [0; RECEIVE_BYTES];
        let is_open = match self.stream.read(&mut buffer) {
            Ok(length) => length > 0,
            Err(error) => is_temporary(&error),
        };
        if !is_open || !self.write_pending(&mut output) {
            return;
        }
        if output.pending().len() < pending_before {
            self.deadline = now + STEP_TIME_MAX;
        }
        self.state = State::Streaming(output);
    }

    fn discard(&mut self, discarded: usize) {
        let mut buffer = [0; RECEIVE_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(length) if length > 0 && discarded + length <= DISCARDED_BYTES_MAX => {
                self.state = State::Discarding(discarded + length);
            }
            Err(error) if is_temporary(&error) => self.state = State::Discarding(discarded),
            _ => {}
        }
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
