//! TLS on one socket: records in, records out, at most one incomplete record and one buffer of output kept. Its reads
//! can be limited to the records that are complete, and then it keeps no incomplete one.
//!
//! The handshake is done by another thread than the worker that serves the connection (`net/handshakes`): signing
//! takes as long as hundreds of requests.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};
use rustls::{HandshakeKind, ServerConnection};

use super::framing::{Framing, WholeRecords};
use crate::shared::connection_info::CloseReason;
use crate::shared::counters::Counters;
use crate::shared::peer_memory::Charge;
use crate::shared::sizes::QUOTA_BYTES;
use crate::shared::tls_charge::{HANDSHAKE_BYTES, OpenRoom, TlsCharge};

/// Most bytes that one call reads from the socket (rustls reads no more at a time).
pub(crate) const READ_BYTES_MAX: usize = 4096;

/// Most reads for one call: as many bytes as a connection sends before others are served. Records may hold a byte each.
const READS_MAX: usize = QUOTA_BYTES / READ_BYTES_MAX;

/// Reads that are limited are limited to less than this: the buffer of a worker.
const LIMITED_BYTES_MAX: usize = 1 << 20;

/// Most reads for one call that is limited: rustls asks for less than [`READ_BYTES_MAX`] where its buffer is short.
const LIMITED_READS_MAX: usize = 4 * READS_MAX;

/// Most bytes that a client may send for a handshake: twice a chain of certificates.
const HANDSHAKE_SENT_BYTES_MAX: usize = 16 << 10;

/// Most bytes of records without content in a row, such as changes of keys.
const EMPTY_RECORD_BYTES_MAX: usize = 64 << 10;

/// Receive buffer of a socket in bytes while memory is short: the kernel doubles it for its own needs, and offers half.
const RECEIVE_BUFFER_BYTES: usize = 192 << 10;

/// A connection with TLS.
pub(crate) struct TlsStream {
    socket: OwnedFd,
    session: ServerConnection,
    /// Decrypted bytes that have not been read.
    decrypted_bytes: usize,
    /// Where the stream of received records stands.
    framing: Framing,
    /// Bytes of the handshake, later of records, since the last content.
    bytes_without_content: usize,
    /// Most bytes that may still be read from the socket.
    readable_bytes: usize,
    /// The buffer of records has grown for a large one; rustls shrinks it at the next read.
    has_grown: bool,
    /// The receive buffer of the socket has been enlarged.
    has_large_receive_buffer: bool,
    /// Why nothing more is received; reported after the decrypted bytes.
    end_reason: Option<CloseReason>,
    /// The charge for the bytes kept in memory.
    charge: Charge,
    /// The charge for the handshake, later for what an open connection takes in any case.
    state_charge: TlsCharge,
}

/// The progress of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeProgress {
    /// The client's next bytes, or space in the socket, are needed.
    InProgress,
    /// Memory for the client's next bytes is needed.
    NeedsMemory,
    /// The client closed before it sent anything, as checks of a port do.
    ClientClosed,
    /// Complete; `is_full_handshake` if no earlier session was resumed.
    Complete { is_full_handshake: bool },
}

impl TlsStream {
    /// A connection before its handshake.
    pub(crate) fn new(
        socket: OwnedFd,
        session: ServerConnection,
        charge: Charge,
        state_charge: TlsCharge,
    ) -> TlsStream {
        TlsStream {
            socket,
            session,
            decrypted_bytes: 0,
            framing: Framing::default(),
            bytes_without_content: 0,
            readable_bytes: usize::MAX,
            has_grown: false,
            has_large_receive_buffer: false,
            end_reason: None,
            charge,
            state_charge,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Continues the handshake as far as the socket allows; the error is the reason of a failure.
    pub(crate) fn continue_handshake(&mut self) -> Result<HandshakeProgress, String> {
        loop {
            match self.write_records() {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Ok(HandshakeProgress::InProgress),
                Err(error) => return Err(error.to_string()),
            }
            if !self.session.is_handshaking() {
                let is_full_handshake =
                    self.session.handshake_kind() != Some(HandshakeKind::Resumed);
                self.bytes_without_content = 0;
                self.limit_reads(usize::MAX);
                self.state_charge.finish_handshake();
                self.update_charge();
                return Ok(HandshakeProgress::Complete { is_full_handshake });
            }
            // Granted in steps of 4 KiB, so that the grant at the start covers the whole handshake of an ordinary client:
            // it never waits for memory for its last, short messages.
            let next_bytes = self.framing.bytes_to_boundary().min(READ_BYTES_MAX);
            let sent_bytes_max =
                (self.bytes_without_content + next_bytes).next_multiple_of(READ_BYTES_MAX);
            if !self.state_charge.try_set(HANDSHAKE_BYTES + sent_bytes_max) {
                return Ok(HandshakeProgress::NeedsMemory);
            }
            // Never beyond a record: what follows the handshake stays in the socket until a worker may hold it.
            self.limit_reads(self.framing.bytes_to_boundary());
            match self.read_tls() {
                Ok(0) if self.bytes_without_content == 0 => {
                    return Ok(HandshakeProgress::ClientClosed);
                }
                Ok(0) => return Err("the client closed the connection".to_owned()),
                Ok(read_bytes) => self.bytes_without_content += read_bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(HandshakeProgress::InProgress);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
            if self.bytes_without_content > HANDSHAKE_SENT_BYTES_MAX {
                return Err(format!("it sent more than {HANDSHAKE_SENT_BYTES_MAX} bytes"));
            }
            match self.session.process_new_packets() {
                Ok(state) => self.decrypted_bytes = state.plaintext_bytes_to_read(),
                Err(error) => {
                    // The alert for the client.
                    let _ = self.write_records();
                    return Err(error.to_string());
                }
            }
        }
    }

    /// Reads and drops what the client has sent, up to what a handshake may send, before a connection whose handshake
    /// failed is closed: where bytes are left in the socket the kernel resets the connection, and the client may lose the
    /// alert that says why.
    pub(crate) fn discard_received(&self) {
        let mut buffer = [0; READ_BYTES_MAX];
        for _ in 0..HANDSHAKE_SENT_BYTES_MAX.div_ceil(READ_BYTES_MAX) {
            match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((1.., _)) => {}
                _ => return,
            }
        }
    }

    /// Bytes that the client has sent for its handshake.
    pub(crate) fn handshake_bytes(&self) -> usize {
        self.bytes_without_content
    }

    /// Bytes of memory that its handshake takes.
    pub(crate) fn handshake_memory(&self) -> usize {
        self.state_charge.bytes()
    }

    /// Whether there is memory for it as an open connection, once its handshake is complete.
    pub(crate) fn room_for_open(&self) -> OpenRoom {
        self.state_charge.room_for_open()
    }

    /// Whether open connections have all of their share.
    pub(crate) fn is_open_share_full(&self) -> bool {
        self.state_charge.is_open_share_full()
    }

    /// Charges what an open connection takes, once its handshake is complete and there is memory for it.
    pub(crate) fn into_open(self: Box<Self>) -> Box<TlsStream> {
        let mut stream = self;
        stream.state_charge.become_open();
        stream
    }

    /// The complete ones of the records in `bytes`, which the socket has next.
    pub(super) fn whole_records(&self, bytes: &[u8]) -> WholeRecords {
        self.framing.whole_records(bytes)
    }

    pub(super) fn enlarge_receive_buffer(&mut self) {
        if !std::mem::replace(&mut self.has_large_receive_buffer, true) {
            // The system may allow less: then a record may have to wait for the memory to read it.
            let _ = sockopt::set_socket_recv_buffer_size(&self.socket, RECEIVE_BUFFER_BYTES);
            // The peer is told of the larger window with this call, and not only when it asks.
            let _ = rustix::net::recv(&self.socket, &mut [0; 1], RecvFlags::PEEK);
        }
    }

    /// Reads at most this many bytes from the socket from now on.
    pub(super) fn limit_reads(&mut self, bytes: usize) {
        self.readable_bytes = bytes;
    }

    /// Whether decrypted bytes, or the end of the stream, are still to be taken.
    pub(super) fn has_buffered_input(&self) -> bool {
        self.decrypted_bytes > 0 || self.end_reason.is_some()
    }

    pub(super) fn has_buffered_output(&self) -> bool {
        self.session.wants_write()
    }

    /// Bytes that it keeps in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// Receives into `buffer`, as much as the socket has or fits.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        counters: &Counters,
    ) -> Result<Option<usize>, CloseReason> {
        let mut filled_bytes = 0;
        // All that may be read is in the socket.
        let is_limited = self.readable_bytes < LIMITED_BYTES_MAX;
        let reads_max = if is_limited { LIMITED_READS_MAX } else { READS_MAX };
        for _ in 0..reads_max {
            filled_bytes += self.read_decrypted(buffer.get_mut(filled_bytes..).unwrap_or_default());
            if filled_bytes == buffer.len() || self.end_reason.is_some() {
                break;
            }
            match self.read_records(counters) {
                // The socket may have more.
                Ok(READ_BYTES_MAX) => {}
                Ok(1..) if is_limited => {}
                Ok(_) => break,
                Err(reason) => self.end_reason = Some(reason),
            }
        }
        filled_bytes += self.read_decrypted(buffer.get_mut(filled_bytes..).unwrap_or_default());
        self.shrink(counters);
        self.update_charge();
        match (filled_bytes, self.end_reason) {
            (0, Some(reason)) => Err(reason),
            (0, None) => Ok(None),
            _ => {
                counters.bytes_read.add(filled_bytes as u64);
                Ok(Some(filled_bytes))
            }
        }
    }

    /// Receives into `first` and then into `second`.
    pub(super) fn receive_vectored(
        &mut self,
        first: &mut [u8],
        second: &mut [u8],
        counters: &Counters,
    ) -> Result<Option<usize>, CloseReason> {
        let received = self.receive(first, counters)?;
        if received != Some(first.len()) || self.decrypted_bytes == 0 {
            return Ok(received);
        }
        let second_bytes = self.read_decrypted(second);
        counters.bytes_read.add(second_bytes as u64);
        self.update_charge();
        Ok(Some(first.len() + second_bytes))
    }

    /// Encrypts and sends a part of the pieces, and returns how much; what the socket does not accept is kept.
    pub(super) fn send(
        &mut self,
        pieces: &[IoSlice<'_>],
        counters: &Counters,
    ) -> Result<usize, Errno> {
        self.flush(counters)?;
        let write_result = self.session.writer().write_vectored(pieces);
        let written_bytes = write_result.map_err(|error| errno_of(&error))?;
        counters.bytes_written.add(written_bytes as u64);
        match self.flush(counters) {
            Ok(()) | Err(Errno::AGAIN) => Ok(written_bytes),
            Err(error) => Err(error),
        }
    }

    /// Sends what is encrypted; `AGAIN` if the socket does not accept all of it.
    pub(super) fn flush(&mut self, counters: &Counters) -> Result<(), Errno> {
        if !self.session.wants_write() {
            return Ok(());
        }
        counters.send_calls.bump();
        let write_result = self.write_records();
        self.update_charge();
        write_result
    }

    /// Frees what a large record needed, so that an idle connection does not keep it.
    fn shrink(&mut self, counters: &Counters) {
        // While decrypted bytes wait, rustls reads no more.
        let is_empty = self.decrypted_bytes == 0 && self.framing.is_between_records();
        if !self.has_grown || !is_empty || self.end_reason.is_some() {
            return;
        }
        self.has_grown = false;
        if let Err(reason) = self.read_records(counters) {
            self.end_reason = Some(reason);
        }
    }

    fn read_decrypted(&mut self, buffer: &mut [u8]) -> usize {
        if self.decrypted_bytes == 0 || buffer.is_empty() {
            return 0;
        }
        // Without decrypted bytes it would be an error.
        let taken_bytes = self.session.reader().read(buffer).unwrap_or(0);
        self.decrypted_bytes = self.decrypted_bytes.saturating_sub(taken_bytes);
        taken_bytes
    }

    /// Reads from the socket once and decrypts the records that are complete; returns the bytes read, 0 if the socket
    /// had none.
    fn read_records(&mut self, counters: &Counters) -> Result<usize, CloseReason> {
        counters.recv_calls.bump();
        let read_bytes = match self.read_tls() {
            Ok(0) => return Err(CloseReason::Normal),
            Ok(read_bytes) => read_bytes,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(0);
            }
            Err(_) => return Err(CloseReason::Error),
        };
        let Ok(state) = self.session.process_new_packets() else {
            let _ = self.write_records();
            return Err(CloseReason::MalformedTlsRecord);
        };
        self.decrypted_bytes = state.plaintext_bytes_to_read();
        self.bytes_without_content += read_bytes;
        self.has_grown |= self.bytes_without_content > 2 * READ_BYTES_MAX;
        if self.decrypted_bytes > 0 {
            self.bytes_without_content = 0;
        } else if self.bytes_without_content > EMPTY_RECORD_BYTES_MAX {
            return Err(CloseReason::MalformedTlsRecord);
        }
        if state.tls_bytes_to_write() > 0 {
            // A reply of the protocol itself; what does not fit now is sent before the next output.
            let _ = self.write_records();
        }
        if state.peer_has_closed() {
            self.end_reason = Some(CloseReason::Normal);
        }
        Ok(read_bytes)
    }

    /// Reads what may be read from the socket into the buffer of rustls.
    fn read_tls(&mut self) -> io::Result<usize> {
        let TlsStream { socket, session, framing, readable_bytes, .. } = self;
        session.read_tls(&mut FramedSocket { socket, framing, readable_bytes })
    }

    fn write_records(&mut self) -> Result<(), Errno> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(&self.socket)) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(errno_of(&error)),
            }
        }
        Ok(())
    }

    /// Charges what is kept; nothing on the usual path.
    fn update_charge(&mut self) {
        let unsent_bytes = if self.session.wants_write() { UNSENT_CHARGE_BYTES } else { 0 };
        let held_bytes = self.decrypted_bytes + self.framing.record_bytes() + unsent_bytes;
        if held_bytes != self.charge.bytes() {
            self.charge.set(held_bytes);
        }
    }
}

/// Charged for output that the socket did not accept: a full record.
const UNSENT_CHARGE_BYTES: usize = 16 << 10;

impl TlsStream {
    /// The client can distinguish the end from a cut connection. A socket that does not accept it is closed without.
    pub(super) fn end_output(&mut self) {
        self.session.send_close_notify();
        let _ = self.write_records();
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.end_output();
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The socket as rustls reads it: at most `readable_bytes`, whose records are followed.
struct FramedSocket<'s> {
    socket: &'s OwnedFd,
    framing: &'s mut Framing,
    readable_bytes: &'s mut usize,
}

impl Read for FramedSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes_max = buffer.len().min(*self.readable_bytes);
        let target = buffer.get_mut(..bytes_max).unwrap_or_default();
        if target.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let (read_bytes, _) = rustix::net::recv(self.socket, &mut *target, RecvFlags::empty())?;
        self.framing.advance(target.get(..read_bytes).unwrap_or_default());
        *self.readable_bytes -= read_bytes;
        Ok(read_bytes)
    }
}

/// The socket as rustls writes it.
struct Socket<'s>(&'s OwnedFd);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut no_ancillary_data = SendAncillaryBuffer::default();
        let sent_bytes =
            rustix::net::sendmsg(self.0, pieces, &mut no_ancillary_data, SendFlags::NOSIGNAL)?;
        Ok(sent_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
