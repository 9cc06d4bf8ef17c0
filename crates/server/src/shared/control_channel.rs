//! The channel between a server and its successor, over a unix socket beside the memory file: it carries frames with
//! bytes and file descriptors.
//!
//! Only processes of the same user may connect: the kernel reports the user of the peer. Every frame has one deadline
//! for all of it.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

/// The version of the frames and of their fields.
pub(crate) const CONTROL_VERSION: u32 = 1;
/// How long one step of a handover may take while no request is served.
pub(crate) const HANDOVER_STEP_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum number of descriptors of a frame; the kernel allows 253.
pub(crate) const DESCRIPTORS_MAX: usize = 128;
/// Maximum size of a body in bytes: the snapshot of 1 TiB has 60 MB.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Kind, number of descriptors, two unused bytes, length of the body.
const HEAD_BYTES: usize = 8;
/// Time between two attempts to send while the kernel has too many descriptors in flight.
const SEND_RETRY_DELAY: Duration = Duration::from_millis(1);

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
    /// From the successor: it can serve and takes over, unless the server has ended.
    Commit,
    /// From the server: from now on the successor owns everything.
    Committed,
    /// From the server: the handover has failed, for this reason.
    Refused,
}

const FRAME_KINDS: [FrameKind; 8] = [
    FrameKind::Hello,
    FrameKind::Offer,
    FrameKind::Ready,
    FrameKind::Connections,
    FrameKind::Memory,
    FrameKind::Commit,
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

/// One end of the channel.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    socket: OwnedFd,
    /// The longest time of one frame.
    timeout: Duration,
}

/// The control socket of a server with this memory file.
pub(crate) fn control_path(memory_file: &Path) -> PathBuf {
    let mut path = memory_file.to_owned().into_os_string();
    path.push(".control");
    path.into()
}

impl ControlChannel {
    /// A channel on a connected socket, whose peer must be of this user.
    ///
    /// # Errors
    /// It is another user's, or the kernel refuses a setting.
    pub(crate) fn new(socket: OwnedFd, timeout: Duration) -> io::Result<ControlChannel> {
        let peer = sockopt::socket_peercred(&socket)?;
        if peer.uid != rustix::process::geteuid() {
            let reason = "the other process is of another user";
            return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
        }
        Ok(ControlChannel { socket, timeout })
    }

    /// Ends the channel: the peer receives what was sent, and every operation that waits here fails.
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
        let deadline = Instant::now() + self.timeout;
        self.send_head(head, descriptors, deadline)?;
        let mut unsent_body = body;
        while !unsent_body.is_empty() {
            self.wait(PollFlags::OUT, deadline)?;
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.socket, unsent_body, flags) {
                Ok(sent) => unsent_body = unsent_body.get(sent..).unwrap_or_default(),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn send_head(
        &self,
        head: [u8; HEAD_BYTES],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> io::Result<()> {
        let mut ancillary_space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        loop {
            let mut ancillary_data = SendAncillaryBuffer::new(&mut ancillary_space);
            if !descriptors.is_empty()
                && !ancillary_data.push(SendAncillaryMessage::ScmRights(descriptors))
            {
                return Err(ErrorKind::InvalidInput.into());
            }
            let slices = [IoSlice::new(&head)];
            self.wait(PollFlags::OUT, deadline)?;
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(&self.socket, &slices, &mut ancillary_data, flags) {
                Ok(HEAD_BYTES) => return Ok(()),
                Ok(_) => return Err(ErrorKind::WriteZero.into()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // The receiver has not taken those that were sent before.
                Err(Errno::TOOMANYREFS) => std::thread::sleep(SEND_RETRY_DELAY),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// The other end is gone or silent, or sent something else; or this process may not have so many descriptors.
    pub(crate) fn receive(&self) -> io::Result<Frame> {
        self.receive_within(self.timeout)
    }

    /// Waits for the next frame, for which another time is allowed than for others.
    ///
    /// # Errors
    /// As [`ControlChannel::receive`].
    pub(crate) fn receive_within(&self, timeout: Duration) -> io::Result<Frame> {
        let deadline = Instant::now() + timeout;
        let mut head = [0; HEAD_BYTES];
        let mut descriptors = Vec::new();
        let mut filled_bytes = 0;
        while filled_bytes < HEAD_BYTES {
            let target = head.get_mut(filled_bytes..).unwrap_or_default();
            filled_bytes += self.receive_part(target, &mut descriptors, deadline)?;
        }
        let [kind_number, descriptor_count, _, _, length_field @ ..] = head;
        let body_bytes = u32::from_le_bytes(length_field) as usize;
        let kind = FRAME_KINDS.into_iter().find(|known| *known as u8 == kind_number);
        let (Some(kind), true) = (kind, body_bytes <= BODY_BYTES_MAX) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a frame"));
        };
        let mut body = vec![0; body_bytes];
        let mut filled_bytes = 0;
        while filled_bytes < body_bytes {
            let target = body.get_mut(filled_bytes..).unwrap_or_default();
            filled_bytes += self.receive_part(target, &mut descriptors, deadline)?;
        }
        if descriptors.len() != usize::from(descriptor_count) {
            return Err(io::Error::other("descriptors are missing"));
        }
        Ok(Frame { kind, body, descriptors })
    }

    fn receive_part(
        &self,
        target: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
        deadline: Instant,
    ) -> io::Result<usize> {
        self.wait(PollFlags::IN, deadline)?;
        let mut ancillary_space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary_data = RecvAncillaryBuffer::new(&mut ancillary_space);
        let mut slices = [IoSliceMut::new(target)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received =
            match rustix::net::recvmsg(&self.socket, &mut slices, &mut ancillary_data, flags) {
                Ok(received) => received,
                Err(Errno::INTR | Errno::AGAIN) => return Ok(0),
                Err(error) => return Err(error.into()),
            };
        for message in ancillary_data.drain() {
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

    /// Waits until the socket is ready, or has ended.
    fn wait(&self, events: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                let reason = "the other process did not respond in time";
                return Err(io::Error::new(ErrorKind::TimedOut, reason));
            }
            let timeout = Timespec::try_from(time_left).ok();
            match poll(&mut [PollFd::new(self, events)], timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for ControlChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::net::socketpair;

    use super::*;

    fn connect_pair() -> (ControlChannel, ControlChannel) {
        connect_pair_with_timeout(Duration::from_mins(1))
    }

    fn connect_pair_with_timeout(timeout: Duration) -> (ControlChannel, ControlChannel) {
        let flags = SocketFlags::CLOEXEC;
        let (first, second) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let channel = |socket| ControlChannel::new(socket, timeout).unwrap();
        (channel(first), channel(second))
    }

    #[test]
    fn frames_arrive_whole_with_their_own_descriptors() {
        let (server, successor) = connect_pair();
        let body = vec![7; 3 << 20];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let descriptors = vec![server.as_fd(); DESCRIPTORS_MAX];
                for _ in 0..3 {
                    server.send(FrameKind::Connections, &body, &descriptors).unwrap();
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
        let (server, successor) = connect_pair();
        rustix::net::send(&server, &[99; 8], SendFlags::empty()).unwrap();
        assert!(successor.receive().is_err());
        let (server, successor) = connect_pair();
        rustix::net::send(&server, &[1, 0, 0], SendFlags::empty()).unwrap();
        drop(server);
        assert!(successor.receive().is_err());
    }

    #[test]
    fn a_frame_that_trickles_in_or_out_is_an_error_after_the_time_for_all_of_it() {
        let (first, second) = connect_pair_with_timeout(Duration::from_millis(500));
        let must_end = AtomicBool::new(false);
        let trickle = |trickle_some: &dyn Fn()| {
            // A minute in which each call transfers something in time.
            for _ in 0..600 {
                if must_end.load(Ordering::Relaxed) {
                    return;
                }
                trickle_some();
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        std::thread::scope(|scope| {
            let head = [FrameKind::Memory as u8, 0, 0, 0, 88, 2, 0, 0];
            rustix::net::send(&first, &head, SendFlags::empty()).unwrap();
            scope.spawn(|| {
                trickle(&|| {
                    let _ = rustix::net::send(&first, b"x", SendFlags::NOSIGNAL);
                });
            });
            assert!(second.receive().is_err());
            must_end.store(true, Ordering::Relaxed);
        });
        let (first, second) = connect_pair_with_timeout(Duration::from_millis(500));
        must_end.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                trickle(&|| {
                    let _ = rustix::net::recv(&second, &mut [0; 4096], RecvFlags::DONTWAIT);
                });
            });
            let body = vec![0; 2 << 20];
            assert!(first.send(FrameKind::Memory, &body, &[]).is_err());
            must_end.store(true, Ordering::Relaxed);
        });
    }
}
