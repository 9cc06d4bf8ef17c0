//! The client's end of one TLS connection, on a socket that its caller waits for.
//!
//! Nothing here waits unless a read is allowed to: what the socket does not take or have is `AGAIN`. Records that carry
//! no reply, such as session tickets, end a wait that is allowed, so that a peer cannot prolong a call with them.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::ClientConnection;

/// What was received is malformed, was changed on the way, or is an alert: [`TlsSession::failure`] has the reason.
pub(crate) const TLS_FAILED: Errno = Errno::PROTO;

/// One session.
#[derive(Debug)]
pub(crate) struct TlsSession {
    connection: ClientConnection,
    /// Decrypted bytes that were not taken.
    decrypted_bytes: usize,
    /// Why nothing can be received any more.
    failure: Option<String>,
}

impl TlsSession {
    pub(crate) fn new(connection: ClientConnection) -> Self {
        Self { connection, decrypted_bytes: 0, failure: None }
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether it waits for the socket to take bytes.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Continues the handshake as far as the socket allows; `AGAIN` until it is complete.
    pub(crate) fn continue_handshake(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        loop {
            self.flush(fd)?;
            if !self.connection.is_handshaking() {
                return Ok(());
            }
            if self.read_records(fd, RecvFlags::DONTWAIT)? == 0 {
                return Err(Errno::CONNRESET);
            }
        }
    }

    /// Encrypts and sends a part of the pieces, and returns how much; what the socket does not take is kept.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        self.flush(fd)?;
        let write_result = self.connection.writer().write_vectored(pieces);
        let written_bytes = write_result.map_err(|error| to_errno(&error))?;
        match self.flush(fd) {
            Ok(()) | Err(Errno::AGAIN) => Ok(written_bytes),
            Err(error) => Err(error),
        }
    }

    /// Sends what is encrypted; `AGAIN` if the socket does not take all of it.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut SocketIo { fd, flags: RecvFlags::DONTWAIT }) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(_) => {}
                Err(error) => return Err(to_errno(&error)),
            }
        }
        Ok(())
    }

    /// Receives into `buffer`; 0 is the end of the stream.
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let mut flags = flags & RecvFlags::DONTWAIT;
        loop {
            if self.decrypted_bytes > 0 {
                let read_result = self.connection.reader().read(buffer);
                let read_bytes = read_result.map_err(|error| to_errno(&error))?;
                self.decrypted_bytes = self.decrypted_bytes.saturating_sub(read_bytes);
                return Ok(read_bytes);
            }
            if self.failure.is_some() {
                return Err(TLS_FAILED);
            }
            if self.read_records(fd, flags)? == 0 {
                return Ok(0);
            }
            flags = RecvFlags::DONTWAIT;
        }
    }

    /// Whether nothing has come that belongs to a reply, nor the end of the stream.
    pub(crate) fn has_no_pending_data(&mut self, fd: BorrowedFd<'_>) -> bool {
        while self.decrypted_bytes == 0 {
            match self.read_records(fd, RecvFlags::DONTWAIT) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error == Errno::AGAIN,
            }
        }
        false
    }

    /// Reads once and decrypts; 0 is the end of the stream.
    fn read_records(&mut self, fd: BorrowedFd<'_>, flags: RecvFlags) -> Result<usize, Errno> {
        let read_result = self.connection.read_tls(&mut SocketIo { fd, flags });
        let record_bytes = read_result.map_err(|error| to_errno(&error))?;
        match self.connection.process_new_packets() {
            Ok(io_state) => {
                self.decrypted_bytes = io_state.plaintext_bytes_to_read();
                let is_closed = io_state.peer_has_closed() && self.decrypted_bytes == 0;
                Ok(if is_closed { 0 } else { record_bytes })
            }
            Err(error) => {
                self.failure = Some(format!("TLS failed: {error}"));
                // The alert with the reason, for the server.
                let _ = self.flush(fd);
                Err(TLS_FAILED)
            }
        }
    }
}

fn to_errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The socket as rustls reads and writes it.
struct SocketIo<'s> {
    fd: BorrowedFd<'s>,
    flags: RecvFlags,
}

impl Read for SocketIo<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read_bytes, _) = recv(self.fd, buffer, self.flags)?;
        Ok(read_bytes)
    }
}

impl Write for SocketIo<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent_bytes = sendmsg(self.fd, pieces, &mut SendAncillaryBuffer::default(), flags)?;
        Ok(sent_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
