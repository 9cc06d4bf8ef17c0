//! One connection: outgoing requests and incoming replies.
//!
//! Replies are read into a buffer shared by the thread and parsed in place; only an incomplete line is copied. A
//! value is compared while it is received, so a large value needs no buffer of its own.

mod replies;

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::tally::Tally;
use super::workload::{Batch, Dialect, Step, Workload};
use super::{Check, Error};
pub(crate) use replies::Clock;
use replies::Replies;

pub(crate) struct Connection {
    socket: TcpStream,
    out: Vec<u8>,
    /// Bytes of `out`, then of the large value, then of its line end that have been written.
    written: usize,
    large: Option<u64>,
    replies: Replies,
    pub(crate) is_finished: bool,
    pub(crate) waits_to_write: bool,
}

impl Connection {
    pub(crate) fn open(target: SocketAddr, index: usize, check: Check) -> io::Result<Self> {
        let socket = TcpStream::connect(target)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            out: Vec::new(),
            written: 0,
            large: None,
            replies: Replies::new(index, check),
            is_finished: false,
            waits_to_write: false,
        })
    }

    pub(crate) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether nothing is in flight in either direction.
    pub(crate) fn is_idle(&self) -> bool {
        self.replies.is_idle()
    }

    /// Takes up to `depth` requests from the workload and writes as much as the socket accepts.
    pub(crate) fn send<W: Workload>(
        &mut self,
        workload: &mut W,
        (depth, dialect): (usize, Dialect),
        (intended_ns, now_ns): (u64, u64),
        tally: &mut Tally,
    ) -> Result<(), Error> {
        for _ in 0..depth {
            let mut batch = Batch {
                out: &mut self.out,
                requests: &mut self.replies.requests,
                keys: &mut self.replies.keys,
                large: &mut self.large,
                dialect,
            };
            match workload.next(self.replies.index, &mut batch) {
                Step::Sent => {}
                Step::Wait => break,
                Step::Finished => {
                    self.is_finished = true;
                    break;
                }
            }
            if let Some(request) = self.replies.requests.back_mut() {
                request.intended_ns = intended_ns;
                request.sent_ns = now_ns;
            }
            if self.large.is_some() {
                break;
            }
        }
        self.flush(workload, tally)
    }

    /// Writes the remaining output; sets `waits_to_write` if the socket is full.
    pub(crate) fn flush<W: Workload>(
        &mut self,
        workload: &W,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let value = self.large.map(|id| workload.value(id));
        let end: &[u8] = if value.is_some() { b"\r\n" } else { b"" };
        let parts = [self.out.as_slice(), value.unwrap_or_default(), end];
        let total: usize = parts.iter().map(|part| part.len()).sum();
        while self.written < total {
            let slices = rest_of(parts, self.written);
            let result = match slices {
                [first, [], []] => (&self.socket).write(first),
                _ => (&self.socket).write_vectored(&slices.map(IoSlice::new)),
            };
            match result {
                Ok(0) => return Err(Error::Closed),
                Ok(bytes) => {
                    self.written += bytes;
                    tally.sent_bytes += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waits_to_write = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.waits_to_write = false;
        self.out.clear();
        self.written = 0;
        self.large = None;
        Ok(())
    }

    /// Reads once and reports each complete reply to the workload; returns the number of bytes read.
    pub(crate) fn receive<W: Workload>(
        &mut self,
        workload: &mut W,
        buffer: &mut [u8],
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<usize, Error> {
        let bytes = match (&self.socket).read(buffer) {
            Ok(0) => return Err(Error::Closed),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        tally.received_bytes += bytes as u64;
        let data = buffer.get(..bytes).unwrap_or_default();
        self.replies.feed(data, workload, clock, tally)?;
        Ok(bytes)
    }
}

fn rest_of(parts: [&[u8]; 3], mut written: usize) -> [&[u8]; 3] {
    parts.map(|part| {
        let skip = written.min(part.len());
        written -= skip;
        part.get(skip..).unwrap_or_default()
    })
}
