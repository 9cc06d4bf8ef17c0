//! The thread that waits for a successor and hands over to it: `serve --replace` of the next process.
//!
//! It listens on a unix socket beside the memory file. A successor that is prepared makes this server pause; then it
//! gets the connections and what belongs to the memory, and once it can serve, everything. If it fails before that, at
//! any point, this server continues (docs/decisions/operation.md, 0104).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::shared::Shared;
use crate::shared::control_channel::{
    CONTROL_VERSION, ControlChannel, FrameKind, HANDOVER_STEP_TIME_MAX, control_path,
};
use crate::shared::control_socket::ControlSocket;
use crate::shared::fields::{FieldReader, FieldWriter};
use crate::shared::handover::Handover;
use crate::shared::lock::lock;
use crate::shared::log_output::LogLevel;
use crate::shared::memory_file::MemoryFile;

/// How long a successor may take to prepare itself: it maps the memory page by page.
const PREPARATION_TIME_MAX: Duration = Duration::from_mins(2);
/// Time until the next attempt to accept a successor when this process may not have more descriptors.
const ACCEPT_RETRY_DELAY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The state of the thread.
pub(crate) struct HandoverThread {
    shared: Arc<Shared>,
    control_socket: ControlSocket,
    memory_descriptor: OwnedFd,
    /// In the order of the server's addresses.
    listening_sockets: Vec<OwnedFd>,
}

/// The cost of a handover for clients.
struct HandoverCost {
    /// The time in which no request was served.
    paused_for: Duration,
    /// Connections that were closed before all of their output was sent, for want of memory.
    connections_closed_early: usize,
}

impl HandoverThread {
    /// The thread of a server with these sockets; `inherited_socket` is that of a server that it has replaced.
    ///
    /// # Errors
    /// The control socket cannot be bound, or the process may not have more descriptors.
    pub(crate) fn new<'s>(
        shared: &Arc<Shared>,
        listening_sockets: impl Iterator<Item = &'s OwnedFd>,
        memory_file: &MemoryFile,
        inherited_socket: Option<OwnedFd>,
    ) -> io::Result<HandoverThread> {
        // The file itself may still have another name.
        let file = shared.config.memory_file.as_deref();
        let path = control_path(file.unwrap_or_else(|| memory_file.path()));
        let listening_sockets = listening_sockets.map(OwnedFd::try_clone);
        Ok(HandoverThread {
            shared: Arc::clone(shared),
            memory_descriptor: memory_file.descriptor()?,
            listening_sockets: listening_sockets.collect::<io::Result<_>>()?,
            control_socket: match inherited_socket {
                Some(socket) => ControlSocket::inherited(socket, path),
                None => ControlSocket::bind(path)?,
            },
        })
    }

    /// Waits until the server ends.
    pub(crate) fn run(self) {
        while !self.shared.phases.is_ending() {
            let waker = &self.shared.control_waker;
            let mut poll_fds = [
                PollFd::new(&self.control_socket, PollFlags::IN),
                PollFd::new(waker, PollFlags::IN),
            ];
            let _ = poll(&mut poll_fds, None);
            let [connected, woken] = poll_fds.map(|poll_fd| !poll_fd.revents().is_empty());
            if woken {
                waker.clear();
            }
            if connected {
                self.serve_successor();
            }
        }
        if !self.shared.phases.is_replaced() {
            self.control_socket.remove_file();
        }
    }

    fn serve_successor(&self) {
        let channel = match self.control_socket.accept(HANDOVER_STEP_TIME_MAX) {
            Ok(channel) => channel,
            Err(error) => {
                self.log_failure(&error.to_string());
                // It may still wait to be accepted.
                let stop_event = PollFd::new(&self.shared.control_waker, PollFlags::IN);
                let _ = poll(&mut [stop_event], Some(&ACCEPT_RETRY_DELAY));
                return;
            }
        };
        match self.hand_over_on(channel) {
            Ok(HandoverCost { paused_for, connections_closed_early }) => {
                let paused_ms = paused_for.as_secs_f64() * 1000.0;
                let early_closes = match connections_closed_early {
                    0 => String::new(),
                    _ => format!(
                        "; {connections_closed_early} connections were closed before their output, which did not fit into memory"
                    ),
                };
                self.shared.log.queue_line(LogLevel::Info, format!(
                    "glasscache: a new process has taken over, after a pause of {paused_ms:.1} ms{early_closes}"
                ));
            }
            Err(reason) => self.log_failure(&reason),
        }
    }

    fn log_failure(&self, reason: &str) {
        self.shared.log.queue_line(
            LogLevel::Warning,
            format!("glasscache: a new process has not taken over: {reason}; this one goes on"),
        );
    }

    /// Hands over to the successor at the other end of the channel, from its first message to the last.
    fn hand_over_on(&self, channel: ControlChannel) -> Result<HandoverCost, String> {
        self.wait_for_message(&channel, HANDOVER_STEP_TIME_MAX)?;
        let hello = receive(&channel, FrameKind::Hello)?;
        let mut hello_fields = FieldReader(&hello);
        let (Some(version), Some(drain_ms)) = (hello_fields.u32(), hello_fields.u64()) else {
            return Err("its greeting is malformed".to_owned());
        };
        if version != CONTROL_VERSION {
            let reason =
                format!("it hands over in version {version}, this one in {CONTROL_VERSION}");
            let _ = channel.send(FrameKind::Refused, reason.as_bytes(), &[]);
            return Err(reason);
        }
        let (offer, descriptors) = self.make_offer();
        send(&channel, FrameKind::Offer, &offer, &descriptors)?;
        self.wait_for_message(&channel, PREPARATION_TIME_MAX)?;
        receive(&channel, FrameKind::Ready)?;
        let pause_start = Instant::now();
        let handover = Arc::new(Handover {
            channel,
            send_lock: Mutex::default(),
            uncommitted_uploads: Mutex::default(),
            connections_closed_early: AtomicUsize::default(),
            drain_time: Duration::from_millis(drain_ms),
        });
        let outcome = self.pause_and_commit(&handover);
        if let Err(reason) = &outcome {
            self.shared.phases.resume();
            handover.abort(reason);
        }
        self.shared.wake_all();
        outcome.map(|()| HandoverCost {
            paused_for: pause_start.elapsed(),
            connections_closed_early: handover.connections_closed_early.load(Ordering::Relaxed),
        })
    }

    /// Waits until the successor sends something, or this server is stopped, which must not wait for a successor.
    fn wait_for_message(&self, channel: &ControlChannel, time_max: Duration) -> Result<(), String> {
        let waker = &self.shared.control_waker;
        let deadline = Instant::now() + time_max;
        loop {
            if self.shared.phases.is_ending() {
                return Err("the server is stopping".to_owned());
            }
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return Err("it did not respond in time".to_owned());
            }
            let timeout = Timespec::try_from(time_left).ok();
            let mut poll_fds =
                [PollFd::new(channel, PollFlags::IN), PollFd::new(waker, PollFlags::IN)];
            let _ = poll(&mut poll_fds, timeout.as_ref());
            let [has_message, woken] = poll_fds.map(|poll_fd| !poll_fd.revents().is_empty());
            if has_message {
                return Ok(());
            }
            if woken {
                waker.clear();
            }
        }
    }

    /// The frame with what a successor needs to prepare itself, and its descriptors.
    fn make_offer(&self) -> (Vec<u8>, Vec<BorrowedFd<'_>>) {
        let size = self.shared.store.memory_size();
        let mut offer = FieldWriter::default();
        offer.u64(glasscache_store::MemoryHandover::VERSION);
        offer.u64(size.memory_bytes);
        offer.u64(size.segments);
        offer.bool(self.shared.logins.are_required());
        // From here on fields that earlier versions do not have, and do not read.
        offer.u64(self.shared.store.counters().items);
        let slab_chunk_bytes = &self.shared.store.config().slab_chunk_bytes;
        offer.u32(slab_chunk_bytes.len() as u32);
        for &chunk_bytes in slab_chunk_bytes {
            offer.u32(chunk_bytes);
        }
        let own_descriptors = [self.memory_descriptor.as_fd(), self.control_socket.as_fd()];
        let listening_sockets = self.listening_sockets.iter().map(AsFd::as_fd);
        (offer.0, own_descriptors.into_iter().chain(listening_sockets).collect())
    }

    /// Pauses the server, sends the successor what it needs, and lets it own everything.
    fn pause_and_commit(&self, handover: &Arc<Handover>) -> Result<(), String> {
        let phases = &self.shared.phases;
        if !phases.begin_pause(Arc::clone(handover)) {
            return Err("the server is stopping".to_owned());
        }
        self.shared.wake_all();
        phases.wait_for_workers(self.shared.counters_and_wakers.len(), HANDOVER_STEP_TIME_MAX)?;
        let stop_time = self.shared.clock.stop_time();
        let uncommitted_uploads = lock(&handover.uncommitted_uploads);
        let memory_handover = self.shared.store.hand_over(stop_time, &uncommitted_uploads);
        let memory_handover = memory_handover.ok_or("a worker has not ended its work")?;
        let mut fields = FieldWriter::default();
        let clock_state = self.shared.clock.handover_state();
        for number in clock_state {
            fields.i64(number);
        }
        fields.u64(self.shared.store.uniques_end());
        fields.bytes(&memory_handover);
        let channel = &handover.channel;
        send(channel, FrameKind::Memory, &fields.0, &[])?;
        receive(channel, FrameKind::Commit)?;
        let inform_successor = || channel.send(FrameKind::Committed, &[], &[]).is_ok();
        if phases.commit(inform_successor) {
            Ok(())
        } else {
            Err("it ended, or this server was stopped, in the last moment".to_owned())
        }
    }
}

fn send(
    channel: &ControlChannel,
    kind: FrameKind,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), String> {
    let send_result = channel.send(kind, body, descriptors);
    send_result.map_err(|error| error.to_string())
}

/// The body of the next frame, which must be of this kind.
fn receive(channel: &ControlChannel, kind: FrameKind) -> Result<Vec<u8>, String> {
    let frame = channel.receive().map_err(|error| error.to_string())?;
    if frame.kind == kind {
        Ok(frame.body)
    } else {
        Err(format!("{:?} came instead of {kind:?}", frame.kind))
    }
}

#[cfg(test)]
mod tests;
