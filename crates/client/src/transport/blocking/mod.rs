//! One connection on a blocking socket, where each wait ends at the call's deadline.
//!
//! A round trip should cost two system calls, so the first wait is a plain `recv` under a socket
//! time-out that is never longer than the rest of the call's time. What remains after an early
//! time-out is waited for by `poll`. Nothing here ever waits per read.

mod idle_check;

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use crate::engine::connection::Connection;
use crate::engine::server::ServerState;
use crate::fork::{Process, random_opaque};
use crate::transport::socket::Socket;
use crate::transport::tls::TlsSession;
use crate::waiter::{AwaitedSocket, PAUSE, Waiter};

/// What is received at first where a large value is expected: its head, and little of its body.
const HEAD_BYTES: usize = 2 << 10;

/// How much before the deadline a socket's own time-out ends a wait. The kernel counts it in ticks of
/// 4 ms and rounds up, twice if it must: what is left is waited for by `poll`, to the microsecond.
const TIMEOUT_MARGIN: Duration = Duration::from_millis(10);

/// Shortest socket time-out that is set; less is left to `poll` alone.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// How a wait for bytes ended without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitError {
    /// The deadline has passed.
    Deadline,
    /// The peer closed the connection, in order or not.
    Closed(Option<Errno>),
    /// A signal came: the caller may handle it and continue.
    Interrupted,
    /// Waiting was not allowed.
    WouldBlock,
}

impl From<Errno> for WaitError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::INTR => Self::Interrupted,
            Errno::AGAIN => Self::WouldBlock,
            error => Self::Closed(Some(error)),
        }
    }
}

/// Whether a wait may happen here or only where many connections are waited for together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    UntilDeadline,
    NoWait,
}

/// A connection: its socket, and the engine's state machine.
#[derive(Debug)]
pub(crate) struct SocketConnection {
    socket: Socket,
    /// With TLS, what encrypts and decrypts.
    tls: Option<Box<TlsSession>>,
    pub(crate) state_machine: Connection,
    /// The process that connected it; no other one may use it.
    pub(crate) process: Process,
    pub(crate) idle_since: Instant,
    /// The thread that returned it last.
    pub(crate) last_thread_id: usize,
    /// The last reply was a large value: the next is expected to be one, so only its head is received
    /// into the pipeline, and the rest directly into its target.
    pub(crate) expects_large_value: bool,
    /// For calls that have so much time left the socket's own time-out is right; none was set yet.
    suitable_times_left: Option<Range<Duration>>,
}

impl SocketConnection {
    pub(crate) fn new(
        socket: Socket,
        server: &Arc<ServerState>,
        value_bytes_max: u64,
        now: Instant,
    ) -> Self {
        Self {
            socket,
            tls: None,
            state_machine: Connection::new(server.clone(), value_bytes_max, random_opaque()),
            process: Process::current(),
            idle_since: now,
            last_thread_id: 0,
            expects_large_value: false,
            suitable_times_left: None,
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Begins TLS on the connection.
    pub(crate) fn begin_tls(&mut self, session: TlsSession) {
        self.tls = Some(Box::new(session));
    }

    /// Continues the handshake as far as the socket allows; without TLS there is none.
    pub(crate) fn continue_handshake(&mut self) -> Result<(), WaitError> {
        match &mut self.tls {
            Some(tls) => Ok(tls.continue_handshake(self.socket.as_fd())?),
            None => Ok(()),
        }
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn has_unsent_records(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Why TLS failed, if it did.
    pub(crate) fn tls_failure(&self) -> Option<&str> {
        self.tls.as_ref()?.failure()
    }

    /// In a child after a fork: closes the child's copy of the socket, which stays open in the parent.
    pub(crate) fn abandon(mut self: Box<Self>) {
        self.state_machine.abandon();
        let socket_connection = *self;
        socket_connection.socket.abandon();
    }

    /// The socket as its runtime watches it.
    #[cfg(feature = "tokio")]
    pub(crate) fn async_socket(&self) -> Option<crate::transport::socket::AsyncSocket> {
        self.socket.async_socket()
    }

    /// Sends what the socket takes of the output and of the body that was left out; true when all is sent.
    pub(crate) fn send(&mut self, body: Option<&[u8]>) -> Result<bool, WaitError> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while !self.state_machine.wire().is_all_sent() {
            let out = self.state_machine.wire().output();
            let send_result = match (body, &mut self.tls) {
                // The common case, and the cheaper system call.
                (None, None) => send(&self.socket, out, flags),
                (None, Some(tls)) => tls.send(self.socket.as_fd(), &[IoSlice::new(out)]),
                (Some(body), tls) => {
                    let body_offset = self.state_machine.wire().sent_external_body_bytes();
                    let (body_end_offset, body_end) = (
                        body_offset.saturating_sub(body.len()),
                        self.state_machine.wire().body_end(),
                    );
                    let slices = [
                        IoSlice::new(out),
                        IoSlice::new(body.get(body_offset..).unwrap_or_default()),
                        IoSlice::new(body_end.get(body_end_offset..).unwrap_or_default()),
                    ];
                    let no_ancillary_data = &mut SendAncillaryBuffer::default();
                    match tls {
                        Some(tls) => tls.send(self.socket.as_fd(), &slices),
                        None => sendmsg(&self.socket, &slices, no_ancillary_data, flags),
                    }
                }
            };
            match send_result {
                Ok(sent_bytes) => self.state_machine.wire_mut().mark_sent(sent_bytes),
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        match self.tls.as_mut().map(|tls| tls.flush(self.socket.as_fd())) {
            Some(Err(Errno::AGAIN)) => Ok(false),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(())) | None => Ok(true),
        }
    }

    /// Receives into the pipeline, at least one byte.
    pub(crate) fn receive(
        &mut self,
        missing_bytes: usize,
        deadline: Instant,
        wait_limit: WaitLimit,
        now: Instant,
    ) -> Result<(), WaitError> {
        let may_wait =
            wait_limit == WaitLimit::UntilDeadline && self.set_receive_timeout(deadline, now)?;
        if now >= deadline {
            return Err(WaitError::Deadline);
        }
        let flags = if may_wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let is_head =
            self.expects_large_value && self.state_machine.wire().pipeline().has_no_reply_bytes();
        let buffer = self.state_machine.wire_mut().receive_space(missing_bytes);
        let buffer = match buffer.get_mut(..HEAD_BYTES) {
            Some(head) if is_head => head,
            _ => buffer,
        };
        match receive_bytes(&self.socket, self.tls.as_deref_mut(), buffer, flags)? {
            0 => Err(WaitError::Closed(None)),
            received_bytes => {
                self.state_machine.wire_mut().mark_received(received_bytes);
                Ok(())
            }
        }
    }

    /// Receives straight into `target`, waiting for it where it may; returns how much came.
    pub(crate) fn receive_into(
        &mut self,
        target: &mut [u8],
        deadline: Instant,
        may_wait: bool,
    ) -> Result<usize, WaitError> {
        let flags = if may_wait && self.set_receive_timeout(deadline, Instant::now())? {
            RecvFlags::WAITALL
        } else {
            RecvFlags::DONTWAIT
        };
        match receive_bytes(&self.socket, self.tls.as_deref_mut(), target, flags)? {
            0 => Err(WaitError::Closed(None)),
            received_bytes => Ok(received_bytes),
        }
    }

    /// Whether the socket's own time-out is right for what is left of the call. Two additions are cheaper than the
    /// difference of the times.
    #[inline]
    fn is_receive_timeout_suitable(&self, deadline: Instant, now: Instant) -> bool {
        self.suitable_times_left.as_ref().is_some_and(|times| {
            now.checked_add(times.start).is_some_and(|earliest| earliest <= deadline)
                && now.checked_add(times.end).is_none_or(|end| deadline < end)
        })
    }

    /// Keeps the socket's own time-out below what is left of the call; false: so little is left that
    /// only `poll` can wait for it.
    ///
    /// It is changed only when it must be, and then to a power of two of microseconds, so that a
    /// series of calls with falling deadlines changes it a few times and not each time.
    #[inline]
    fn set_receive_timeout(&mut self, deadline: Instant, now: Instant) -> Result<bool, WaitError> {
        if self.is_receive_timeout_suitable(deadline, now) {
            return Ok(true);
        }
        self.change_receive_timeout(deadline, now)
    }

    fn change_receive_timeout(
        &mut self,
        deadline: Instant,
        now: Instant,
    ) -> Result<bool, WaitError> {
        let time_left = deadline.saturating_duration_since(now);
        if time_left.is_zero() {
            return Err(WaitError::Deadline);
        }
        let timeout_max = time_left.saturating_sub(TIMEOUT_MARGIN);
        if timeout_max < TIMEOUT_MIN {
            return Ok(false);
        }
        let timeout_max_us = timeout_max.as_micros().min(1 << 40) as u64;
        let rounded_timeout = Duration::from_micros(1 << timeout_max_us.max(1).ilog2());
        // The usual case, the client's own time-out, is kept exact: it returns with every call.
        let is_first = self.suitable_times_left.is_none();
        let timeout = if is_first { timeout_max } else { rounded_timeout }.max(TIMEOUT_MIN);
        set_socket_timeout(&self.socket, Timeout::Recv, Some(timeout)).map_err(WaitError::from)?;
        self.suitable_times_left =
            Some(timeout + TIMEOUT_MARGIN..timeout.saturating_mul(4) + TIMEOUT_MARGIN);
        Ok(true)
    }
}

/// Receives into `buffer`, decrypted if there is TLS; 0 is the end of the stream.
fn receive_bytes(
    socket: &Socket,
    tls: Option<&mut TlsSession>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<usize, Errno> {
    match tls {
        Some(tls) => tls.receive(socket.as_fd(), buffer, flags),
        None => recv(socket, buffer, flags).map(|(received_bytes, _)| received_bytes),
    }
}

/// As [`wait`], by a waiter; without sockets for a moment.
pub(crate) fn wait_by(
    waiter: &dyn Waiter,
    sockets: &[AwaitedSocket<'_>],
    deadline: Instant,
) -> Result<(), WaitError> {
    let time_left = deadline.saturating_duration_since(Instant::now());
    if time_left.is_zero() && !sockets.is_empty() {
        return Err(WaitError::Deadline);
    }
    let timeout = if sockets.is_empty() { time_left.min(PAUSE) } else { time_left };
    if waiter.wait(sockets, timeout) { Ok(()) } else { Err(WaitError::Interrupted) }
}

/// Waits until one of `fds` is ready or the deadline passes; a signal ends it too.
pub(crate) fn wait(fds: &mut [PollFd<'_>], deadline: Instant) -> Result<(), WaitError> {
    let time_left = deadline.saturating_duration_since(Instant::now());
    if time_left.is_zero() {
        return Err(WaitError::Deadline);
    }
    let timeout = Timespec {
        tv_sec: time_left.as_secs().min(1 << 30) as i64,
        tv_nsec: time_left.subsec_nanos().into(),
    };
    match poll(fds, Some(&timeout)) {
        Ok(0) => Err(WaitError::Deadline),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
