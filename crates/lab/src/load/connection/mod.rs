//! One connection: requests on their way out, replies on their way in.
//!
//! Replies are read through a buffer shared by the thread and parsed where they lie; only a line cut in two
//! is kept. A value is compared as it streams past, so a megabyte needs no buffer of its own.

mod replies;

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::tally::Tally;
use super::work::{Batch, Dialect, Step, Work};
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

    /// Nothing is on its way in either direction.
    pub(crate) fn is_idle(&self) -> bool {
        self.replies.is_idle()
    }

    /// Asks the workload for up to `depth` requests and writes what the socket takes.
    pub(crate) fn send<W: Work>(
        &mut self,
        work: &mut W,
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
            match work.next(self.replies.index, &mut batch) {
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
        self.flush(work, tally)
    }

    /// Writes what is left to write; `waits_to_write` tells whether the socket was full.
    pub(crate) fn flush<W: Work>(&mut self, work: &W, tally: &mut Tally) -> Result<(), Error> {
        let value = self.large.map(|id| work.value(id));
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

    /// Reads once and hands each complete reply to the workload; `false` when nothing was there.
    pub(crate) fn receive<W: Work>(
        &mut self,
        work: &mut W,
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
        self.replies.feed(data, work, clock, tally)?;
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
