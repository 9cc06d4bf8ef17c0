//! The conversation of a server with its successor, over a unix socket beside the memory file: frames with bytes and
//! file descriptors.
//!
//! Only processes of the same user may connect: the kernel reports the user of the peer. Every wait is bounded.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

/// Changes with the frames and what is in them.
pub(crate) const CONTROL_VERSION: u32 = 1;
/// Descriptors of a frame at most; the kernel allows 253.
pub(crate) const DESCRIPTORS_MAX: usize = 128;
/// Bytes of a frame at most: the snapshot of 1 TiB has 60 MB.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Kind, number of descriptors, two unused bytes, length of the body.
const HEAD_BYTES: usize = 8;
/// Time between two attempts to send while the kernel has too many descriptors in flight.
const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(1);

/// The kinds of frames, in the order in which they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// From the successor: it introduces itself.
    Hello = 1,
    /// From the server: its versions and sizes, its memory file and its listening sockets.
    Offer,
    /// From the successor: it is prepared, and the server may pause.
    Ready,
    /// From the server: some of its connections.
    Connections,
    /// From the server: what belongs to its memory; with this everything has been sent.
    Memory,
    /// From the successor: it can serve.
    Accept,
    /// From the server: from now on the successor owns everything.
    Committed,
    /// From the server: the handover has failed, for this reason.
    Refused,
}

const KINDS: [FrameKind; 8] = [
    FrameKind::Hello,
    FrameKind::Offer,
    FrameKind::Ready,
    FrameKind::Connections,
    FrameKind::Memory,
    FrameKind::Accept,
    FrameKind::Committed,
    FrameKind::Refused,
];

/// A message.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) body: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// One end of the conversation.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    socket: OwnedFd,
    /// The longest time of one operation.
    timeout: Duration,
}

/// The control socket of a server with this memory file.
pub(crate) fn control_path(memory_file: &Path) -> PathBuf {
    let mut path = memory_file.to_owned().into_os_string();
    path.push(".control");
    path.into()
}

impl ControlChannel {
    /// A conversation on a connected socket, whose peer must be of this user.
    ///
    /// # Errors
    /// It is another user's, or the kernel refuses a setting.
    pub(crate) fn new(socket: OwnedFd, timeout: Duration) -> io::Result<ControlChannel> {
        let peer = sockopt::socket_peercred(&socket)?;
        if peer.uid != rustix::process::geteuid() {
            let reason = "the other process is of another user";
            return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
        }
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(timeout))?;
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
        Ok(ControlChannel { socket, timeout })
    }

    /// Ends the conversation: the peer receives what was sent, and every operation that waits here fails.
    pub(crate) fn shut_down(&self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Connects to the server that listens at `path`.
    ///
    /// # Errors
    /// There is no such server, or it is another user's.
    pub(crate) fn connect(path: &Path, timeout: Duration) -> io::Result<ControlChannel> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address)?;
        ControlChannel::new(socket, timeout)
    }

    /// Sends a frame with up to [`DESCRIPTORS_MAX`] descriptors.
    ///
    /// # Errors
    /// The other end is gone, or has not received in time.
    pub(crate) fn send(
        &self,
        kind: FrameKind,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        head[0] = kind as u8;
        head[1] = descriptors.len() as u8;
        head[4..].copy_from_slice(&(body.len() as u32).to_le_bytes());
        self.send_head(head, descriptors)?;
        let mut rest = body;
        while !rest.is_empty() {
            match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(describe_timeout(error)),
            }
        }
        Ok(())
    }

    fn send_head(&self, head: [u8; HEAD_BYTES], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let deadline = Instant::now() + self.timeout;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        loop {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty()
                && !control.push(SendAncillaryMessage::ScmRights(descriptors))
            {
                return Err(ErrorKind::InvalidInput.into());
            }
            let slices = [IoSlice::new(&head)];
            match rustix::net::sendmsg(&self.socket, &slices, &mut control, SendFlags::NOSIGNAL) {
                Ok(HEAD_BYTES) => return Ok(()),
                Ok(_) => return Err(ErrorKind::WriteZero.into()),
                Err(Errno::INTR) => {}
                // The receiver has not taken those that were sent before.
                Err(Errno::TOOMANYREFS) if Instant::now() < deadline => {
                    std::thread::sleep(IN_FLIGHT_PAUSE);
                }
                Err(error) => return Err(describe_timeout(error)),
            }
        }
    }

    /// The next frame.
    ///
    /// # Errors
    /// The other end is gone or silent, or sent something else; or this process may not have so many descriptors.
    pub(crate) fn receive(&self) -> io::Result<Frame> {
        let mut head = [0; HEAD_BYTES];
        let mut descriptors = Vec::new();
        let mut filled = 0;
        while filled < HEAD_BYTES {
            let target = head.get_mut(filled..).unwrap_or_default();
            filled += self.receive_part(target, &mut descriptors)?;
        }
        let [kind, count, _, _, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        let kind = KINDS.into_iter().find(|known| *known as u8 == kind);
        let (Some(kind), true) = (kind, length <= BODY_BYTES_MAX) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a frame"));
        };
        let mut body = vec![0; length];
        let mut filled = 0;
        while filled < length {
            let target = body.get_mut(filled..).unwrap_or_default();
            filled += self.receive_part(target, &mut descriptors)?;
        }
        if descriptors.len() != usize::from(count) {
            return Err(io::Error::other("descriptors are missing"));
        }
        Ok(Frame {
            kind,
            body,
            descriptors,
        })
    }

    fn receive_part(&self, target: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(target)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = match rustix::net::recvmsg(&self.socket, &mut slices, &mut control, flags) {
            Ok(received) => received,
            Err(Errno::INTR) => return Ok(0),
            Err(error) => return Err(describe_timeout(error)),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            let reason = "this process may open too few descriptors (-c, ulimit -n)";
            return Err(io::Error::other(reason));
        }
        if received.bytes == 0 {
            let reason = "the other process has closed the connection";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, reason));
        }
        Ok(received.bytes)
    }

    /// Changes the longest time of one operation.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(timeout))?;
        sockopt::set_socket_timeout(&self.socket, Timeout::Send, Some(timeout))?;
        self.timeout = timeout;
        Ok(())
    }
}

impl AsFd for ControlChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The error, with a sentence for one that is a timeout.
fn describe_timeout(error: Errno) -> io::Error {
    if error == Errno::AGAIN {
        return io::Error::new(
            ErrorKind::TimedOut,
            "the other process did not respond in time",
        );
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    fn pair() -> (ControlChannel, ControlChannel) {
        let flags = SocketFlags::CLOEXEC;
        let (first, second) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let timeout = Duration::from_mins(1);
        let channel = |socket| ControlChannel::new(socket, timeout).unwrap();
        (channel(first), channel(second))
    }

    #[test]
    fn frames_arrive_whole_with_their_own_descriptors() {
        let (server, successor) = pair();
        let body = vec![7; 3 << 20];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let descriptors = vec![server.as_fd(); DESCRIPTORS_MAX];
                for _ in 0..3 {
                    server
                        .send(FrameKind::Connections, &body, &descriptors)
                        .unwrap();
                    server.send(FrameKind::Memory, b"", &[]).unwrap();
                }
            });
            for _ in 0..3 {
                let frame = successor.receive().unwrap();
                assert_eq!(frame.kind, FrameKind::Connections);
                assert_eq!(frame.descriptors.len(), DESCRIPTORS_MAX);
                assert!(frame.body == body);
                let frame = successor.receive().unwrap();
                assert_eq!(frame.kind, FrameKind::Memory);
                assert!(frame.body.is_empty() && frame.descriptors.is_empty());
            }
        });
    }

    #[test]
    fn an_end_or_other_bytes_are_an_error() {
        let (server, successor) = pair();
        rustix::net::send(&server, &[99; 8], SendFlags::empty()).unwrap();
        assert!(successor.receive().is_err());
        let (server, successor) = pair();
        rustix::net::send(&server, &[1, 0, 0], SendFlags::empty()).unwrap();
        drop(server);
        assert!(successor.receive().is_err());
    }
}
