//! The byte stream of one connection: its socket, plain or with TLS on it.
//!
//! With TLS, received bytes can be decrypted and not yet taken, and sent bytes encrypted and not yet accepted by the
//! socket; both are bounded, and both count as memory that the connection holds. While memory is short, only whole
//! records leave the socket, and only as many as the connection may hold.

mod framing;
mod tls;

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

pub(crate) use self::framing::{RECORD_BYTES_MAX, WholeRecords};
pub(crate) use self::tls::{HandshakeProgress, READ_BYTES_MAX, TlsStream};
use crate::session::send_vector::SendVector;
use crate::shared::connection_info::CloseReason;
use crate::shared::counters::Counters;
use crate::shared::sizes::RECV_BYTES;

/// Receive calls of one [`Stream::discard_input`].
const DISCARDS_MAX: usize = 64;

/// The stream of a connection.
pub(crate) enum Stream {
    Plain(OwnedFd),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(crate) fn socket(&self) -> &OwnedFd {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => tls.socket(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// Whether received bytes are in memory: the socket reports no event for them.
    pub(crate) fn has_buffered_input(&self) -> bool {
        matches!(self, Stream::Tls(tls) if tls.has_buffered_input())
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn has_buffered_output(&self) -> bool {
        matches!(self, Stream::Tls(tls) if tls.has_buffered_output())
    }

    /// Bytes received or to be sent that it keeps in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Stream::Plain(_) => 0,
            Stream::Tls(tls) => tls.held_bytes(),
        }
    }

    /// The records of TLS that are complete in the socket, which keeps them; `buffer` is overwritten. `None` if nothing
    /// has come, an error if the connection is closed. Without TLS every byte is a record.
    pub(crate) fn peek_records(
        &self,
        buffer: &mut [u8],
        counters: &Counters,
    ) -> Result<Option<WholeRecords>, CloseReason> {
        counters.recv_calls.bump();
        let result = rustix::net::recv(self.socket(), &mut *buffer, RecvFlags::PEEK);
        let peeked_bytes = match result {
            Ok((0, _)) => return Err(CloseReason::Normal),
            Ok((peeked_bytes, _)) => peeked_bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(_) => return Err(CloseReason::Error),
        };
        let peeked = buffer.get(..peeked_bytes).unwrap_or_default();
        Ok(Some(match self {
            Stream::Plain(_) => {
                WholeRecords { bytes: peeked_bytes, content_bytes_max: peeked_bytes }
            }
            Stream::Tls(tls) => tls.whole_records(peeked),
        }))
    }

    /// Makes the kernel keep more for the connection, once: a record, or a command, has to be complete in the socket
    /// before it is read. Where segments are as long as on the loopback interface, one that is read in part closes the
    /// window of a buffer of the usual size.
    pub(crate) fn enlarge_receive_buffer(&mut self) {
        if let Stream::Tls(tls) = self {
            tls.enlarge_receive_buffer();
        }
    }

    /// With TLS, at most this many bytes are read from the socket from now on.
    pub(crate) fn limit_reads(&mut self, bytes: usize) {
        if let Stream::Tls(tls) = self {
            tls.limit_reads(bytes);
        }
    }

    /// Receives into `buffer`: `None` if nothing has come, an error if the connection is closed.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        counters: &Counters,
    ) -> Result<Option<usize>, CloseReason> {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => return tls.receive(buffer, counters),
        };
        counters.recv_calls.bump();
        let result = rustix::net::recv(socket, &mut *buffer, RecvFlags::empty());
        interpret_receive(result.map(|(received_bytes, _)| received_bytes), counters)
    }

    /// Receives into `first` and then into `second`, like [`Stream::receive`].
    pub(crate) fn receive_vectored(
        &mut self,
        first: &mut [u8],
        second: &mut [u8],
        counters: &Counters,
    ) -> Result<Option<usize>, CloseReason> {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => return tls.receive_vectored(first, second, counters),
        };
        counters.recv_calls.bump();
        let mut buffers = [IoSliceMut::new(first), IoSliceMut::new(second)];
        interpret_receive(rustix::io::readv(socket, &mut buffers), counters)
    }

    /// Receives after the bytes of `buffer`, up to its capacity, like [`Stream::receive`].
    pub(crate) fn receive_append(
        &mut self,
        buffer: &mut Vec<u8>,
        counters: &Counters,
    ) -> Result<Option<usize>, CloseReason> {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => {
                let filled_bytes = buffer.len();
                // The vector keeps its buffer: it grows up to its capacity only.
                buffer.resize(buffer.capacity().min(filled_bytes + RECV_BYTES), 0);
                let tail = buffer.get_mut(filled_bytes..).unwrap_or_default();
                let result = tls.receive(tail, counters);
                let received_bytes = result.ok().flatten().unwrap_or(0);
                buffer.truncate(filled_bytes + received_bytes);
                return result;
            }
        };
        counters.recv_calls.bump();
        let result = rustix::net::recv(socket, spare_capacity(buffer), RecvFlags::empty());
        interpret_receive(result.map(|(received_bytes, _)| received_bytes), counters)
    }

    /// Sends a part of `bytes` and returns how much.
    pub(crate) fn send(&mut self, bytes: &[u8], counters: &Counters) -> Result<usize, Errno> {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => return tls.send(&[std::io::IoSlice::new(bytes)], counters),
        };
        counters.send_calls.bump();
        let sent_bytes = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?;
        counters.bytes_written.add(sent_bytes as u64);
        Ok(sent_bytes)
    }

    /// Sends a part of the pieces; with `has_more` the kernel does not complete a packet, since more follows
    /// immediately.
    pub(crate) fn send_pieces(
        &mut self,
        send_vector: &SendVector<'_>,
        has_more: bool,
        counters: &Counters,
    ) -> Result<usize, Errno> {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => return tls.send(&send_vector.slices, counters),
        };
        counters.send_calls.bump();
        let mut no_ancillary_data = SendAncillaryBuffer::default();
        let more_flag = if has_more { SendFlags::MORE } else { SendFlags::empty() };
        let flags = SendFlags::NOSIGNAL | more_flag;
        let sent_bytes =
            rustix::net::sendmsg(socket, &send_vector.slices, &mut no_ancillary_data, flags)?;
        counters.bytes_written.add(sent_bytes as u64);
        Ok(sent_bytes)
    }

    /// Ends the output: the peer receives what was sent, and then the end.
    pub(crate) fn end_output(&mut self) {
        if let Stream::Tls(tls) = self {
            tls.end_output();
        }
        let _ = rustix::net::shutdown(self.socket(), Shutdown::Write);
    }

    /// Discards received bytes, a bounded number: the kernel resets a connection that is closed before they were read,
    /// and what was sent to the peer may be lost with it. Returns whether the peer has ended its side.
    pub(crate) fn discard_input(&self) -> bool {
        let mut discarded = [0; RECV_BYTES];
        for _ in 0..DISCARDS_MAX {
            match rustix::net::recv(self.socket(), &mut discarded, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
        false
    }

    /// Sends encrypted bytes that wait for the socket; an error also if the socket does not accept all.
    pub(crate) fn flush(&mut self, counters: &Counters) -> Result<(), Errno> {
        match self {
            Stream::Plain(_) => Ok(()),
            Stream::Tls(tls) => tls.flush(counters),
        }
    }
}

/// The outcome of a system call that receives.
fn interpret_receive(
    result: Result<usize, Errno>,
    counters: &Counters,
) -> Result<Option<usize>, CloseReason> {
    match result {
        Ok(0) => Err(CloseReason::Normal),
        Ok(received_bytes) => {
            counters.bytes_read.add(received_bytes as u64);
            Ok(Some(received_bytes))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err(CloseReason::Error),
    }
}
