//! One connection: outgoing requests and incoming replies.
//!
//! Replies are read into a buffer shared by the thread and parsed in place; only an incomplete line is copied. A
//! value is compared while it is received, so a large value needs no buffer of its own.

mod head;
mod replies;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use super::socket::Socket;
use super::tally::Tally;
use super::workload::{Batch, KeyTexts, NextStep, Workload, value_terminator};
use super::{Error, ValueCheck};
use crate::access::{Access, Protocol};
pub(crate) use replies::Clock;
use replies::Replies;

/// One of this many reads measures how long the data waited for it (a system call for each measurement).
const READS_PER_DELAY: u32 = 8;

pub(crate) struct Connection {
    socket: Socket,
    /// Counts reads: every [`READS_PER_DELAY`]th measures its delay.
    read_count: u32,
    measures_delay: bool,
    output: Vec<u8>,
    /// Bytes of `output`, then of the large value, then of its terminator that have been written.
    written_bytes: usize,
    large_value_id: Option<u64>,
    key_texts: KeyTexts,
    protocol: Protocol,
    /// See [`Batch::next_opaque`].
    next_opaque: u32,
    replies: Replies,
    pub(crate) is_finished: bool,
    pub(crate) is_waiting_to_write: bool,
}

impl Connection {
    pub(crate) fn open(
        target: &Access,
        connection_index: usize,
        check: ValueCheck,
        measures_delay: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::connect(target, measures_delay)?,
            // Connections take turns, so that one epoll event in several measures a delay.
            read_count: connection_index as u32 % READS_PER_DELAY,
            measures_delay,
            output: Vec::new(),
            written_bytes: 0,
            large_value_id: None,
            key_texts: KeyTexts::default(),
            protocol: target.protocol,
            next_opaque: 0,
            replies: Replies::new(connection_index, target.protocol, check),
            is_finished: false,
            is_waiting_to_write: false,
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// Whether nothing is in flight in either direction.
    pub(crate) fn is_idle(&self) -> bool {
        self.replies.is_idle()
    }

    /// Takes up to `depth` requests from the workload and writes as much as the socket accepts.
    pub(crate) fn send<W: Workload>(
        &mut self,
        workload: &mut W,
        depth: usize,
        (intended_ns, now_ns): (u64, u64),
        tally: &mut Tally,
    ) -> Result<(), Error> {
        for _ in 0..depth {
            let mut batch = Batch {
                output: &mut self.output,
                requests: &mut self.replies.requests,
                key_ids: &mut self.replies.key_ids,
                large_value_id: &mut self.large_value_id,
                protocol: self.protocol,
                next_opaque: &mut self.next_opaque,
                key_texts: &mut self.key_texts,
            };
            match workload.next(self.replies.connection_index, &mut batch) {
                NextStep::Sent => {}
                NextStep::Wait => break,
                NextStep::Finished => {
                    self.is_finished = true;
                    break;
                }
            }
            if let Some(request) = self.replies.requests.back_mut() {
                request.intended_ns = intended_ns;
                request.sent_ns = now_ns;
            }
            if self.large_value_id.is_some() {
                break;
            }
        }
        self.flush(workload, tally)
    }

    /// Writes the remaining output; sets `is_waiting_to_write` if the socket is full.
    pub(crate) fn flush<W: Workload>(
        &mut self,
        workload: &W,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let value = self.large_value_id.map(|id| workload.value(id));
        let terminator = value.map_or(&b""[..], |_| value_terminator(self.protocol));
        let output_parts = [self.output.as_slice(), value.unwrap_or_default(), terminator];
        let total_bytes: usize = output_parts.iter().map(|output_part| output_part.len()).sum();
        while self.written_bytes < total_bytes {
            let slices = unwritten_slices(output_parts, self.written_bytes);
            let result = match slices {
                [first, [], []] => self.socket.write(first),
                _ => self.socket.write_vectored(&slices.map(IoSlice::new)),
            };
            match result {
                Ok(0) => return Err(Error::Closed),
                Ok(sent_bytes) => {
                    self.written_bytes += sent_bytes;
                    tally.sent_bytes += sent_bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_waiting_to_write = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        match self.socket.flush() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_waiting_to_write = true;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        self.is_waiting_to_write = false;
        self.output.clear();
        self.written_bytes = 0;
        self.large_value_id = None;
        Ok(())
    }

    /// Reads once and reports each complete reply to the workload; returns the number of bytes read.
    pub(crate) fn receive<W: Workload>(
        &mut self,
        workload: &mut W,
        buffer: &mut [u8],
        clock: &mut Clock,
        tally: &mut Tally,
    ) -> Result<usize, Error> {
        self.read_count = self.read_count.wrapping_add(1);
        let measures_delay = self.measures_delay && self.read_count.is_multiple_of(READS_PER_DELAY);
        let (received_bytes, delay_ns) = match self.socket.read(buffer, measures_delay) {
            Ok((0, _)) => return Err(Error::Closed),
            Ok(read_result) => read_result,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        clock.delay_ns = delay_ns;
        tally.received_bytes += received_bytes as u64;
        let data = buffer.get(..received_bytes).unwrap_or_default();
        self.replies.feed(data, workload, clock, tally)?;
        Ok(received_bytes)
    }
}

fn unwritten_slices(output_parts: [&[u8]; 3], mut written_bytes: usize) -> [&[u8]; 3] {
    output_parts.map(|output_part| {
        let written_of_part = written_bytes.min(output_part.len());
        written_bytes -= written_of_part;
        output_part.get(written_of_part..).unwrap_or_default()
    })
}
