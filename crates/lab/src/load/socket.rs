//! A non-blocking connection of the generator: TCP or a unix socket, encrypted or not.
//!
//! On TCP the kernel stamps received data, so a read can report how long the data waited for it: this is the
//! generator's share of a latency. Unix sockets have no such stamps.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};
use rustls::ClientConnection;

use crate::access::{Access, Endpoint, SocketIo, Stream};

/// How long a connection may take to be accepted, and each step of its handshake and its login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A non-blocking connection.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    tls_session: Option<Box<ClientConnection>>,
    has_timestamps: bool,
}

impl Socket {
    /// Connects as `access` requires; `wants_timestamps` asks the kernel for the arrival times of data, where it has
    /// them.
    pub(super) fn connect(access: &Access, wants_timestamps: bool) -> io::Result<Self> {
        let (fd, tls_session) = Stream::open(access, CONNECT_TIMEOUT)?.into_parts();
        rustix::io::ioctl_fionbio(&fd, true)?;
        let has_timestamps = wants_timestamps
            && matches!(access.endpoint, Endpoint::Tcp(_))
            && setsockopt(&fd, sockopt::ReceiveTimestampns, &true).is_ok();
        Ok(Self { fd, tls_session, has_timestamps })
    }

    /// The descriptor, for epoll.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads once; `measures_delay` also returns how long the data had been readable, in nanoseconds, where the
    /// kernel reports it. An encrypted connection keeps no decrypted data, so a readable socket means that there is more.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        measures_delay: bool,
    ) -> io::Result<(usize, Option<u64>)> {
        let measures_delay = measures_delay && self.has_timestamps;
        let Some(tls_session) = &mut self.tls_session else {
            return receive(&self.fd, buffer, measures_delay);
        };
        // Decrypted data is shorter, so with the end of a record that began earlier it has room in two thirds.
        let (decrypted, received) = buffer.split_at_mut(buffer.len() / 3 * 2);
        let (received_bytes, delay_ns) = receive(&self.fd, received, measures_delay)?;
        let records = received.get(..received_bytes).unwrap_or_default();
        match decrypt(tls_session, records, decrypted)? {
            (0, false) if received_bytes > 0 => Err(io::ErrorKind::WouldBlock.into()),
            (decrypted_bytes, _) => Ok((decrypted_bytes, delay_ns)),
        }
    }

    /// Writes once.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.tls_session {
            None => Ok(rustix::io::write(&self.fd, bytes)?),
            Some(_) => self.write_vectored(&[IoSlice::new(bytes)]),
        }
    }

    /// Writes several slices at once.
    pub(super) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls_session) = &mut self.tls_session else {
            return Ok(rustix::io::writev(&self.fd, slices)?);
        };
        send_records(tls_session, self.fd.as_fd())?;
        let written_bytes = tls_session.writer().write_vectored(slices)?;
        match send_records(tls_session, self.fd.as_fd()) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            // What the socket does not take yet is sent by the next write or flush.
            _ => Ok(written_bytes),
        }
    }

    /// Sends what is encrypted; an error of the kind `WouldBlock` if the socket does not take all of it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(tls_session) = &mut self.tls_session else {
            return Ok(());
        };
        send_records(tls_session, self.fd.as_fd())
    }
}

fn send_records(tls_session: &mut ClientConnection, fd: BorrowedFd<'_>) -> io::Result<()> {
    while tls_session.wants_write() {
        tls_session.write_tls(&mut SocketIo(fd))?;
    }
    Ok(())
}

/// Decrypts `records` into `decrypted`; returns the number of its bytes, none for a part of a record and for records
/// without data such as tickets, and whether the server has ended the session.
fn decrypt(
    tls_session: &mut ClientConnection,
    mut records: &[u8],
    decrypted: &mut [u8],
) -> io::Result<(usize, bool)> {
    let (mut decrypted_bytes, mut has_ended) = (0, false);
    while !records.is_empty() {
        tls_session.read_tls(&mut records)?;
        let tls_state = tls_session
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let end = decrypted_bytes + tls_state.plaintext_bytes_to_read();
        let room = decrypted.get_mut(decrypted_bytes..end).ok_or(io::ErrorKind::OutOfMemory)?;
        tls_session.reader().read_exact(room)?;
        decrypted_bytes = end;
        has_ended = tls_state.peer_has_closed();
        if has_ended {
            break;
        }
    }
    Ok((decrypted_bytes, has_ended))
}

/// Reads once; also how long the data had been readable, if that is to be measured.
fn receive(
    fd: &OwnedFd,
    buffer: &mut [u8],
    measures_delay: bool,
) -> io::Result<(usize, Option<u64>)> {
    if !measures_delay {
        return Ok((rustix::io::read(fd, buffer)?, None));
    }
    let now = clock_gettime(ClockId::Realtime);
    let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    let mut control_buffer = nix::cmsg_space!(TimeSpec);
    let mut slices = [IoSliceMut::new(buffer)];
    let message =
        recvmsg::<()>(fd.as_raw_fd(), &mut slices, Some(&mut control_buffer), MsgFlags::empty())?;
    let arrival_ns = message.cmsgs()?.find_map(|control_message| match control_message {
        ControlMessageOwned::ScmTimestampns(arrival_time) => Some(
            i128::from(arrival_time.tv_sec()) * 1_000_000_000 + i128::from(arrival_time.tv_nsec()),
        ),
        _ => None,
    });
    // Data that arrived after the clock was read waited for nothing.
    let delay_ns = arrival_ns.map(|arrival_ns| u64::try_from(now_ns - arrival_ns).unwrap_or(0));
    Ok((message.bytes, delay_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_how_long_data_was_readable() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let access = Access::from(listener.local_addr().unwrap());
        let mut socket = Socket::connect(&access, true).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"hello").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let mut buffer = [0; 16];
        let (bytes, delay_ns) = socket.read(&mut buffer, true).unwrap();
        assert_eq!(&buffer[..bytes], b"hello");
        // A kernel without stamps reports nothing; one with them cannot report less than we slept.
        assert!(
            delay_ns.is_none_or(|ns| (19_000_000..60_000_000_000).contains(&ns)),
            "{delay_ns:?}"
        );
    }
}
