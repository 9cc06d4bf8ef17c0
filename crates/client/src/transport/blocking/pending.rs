//! The quiet writes of a connection that the server has not acknowledged yet.
//!
//! Such a connection may wait in the pool; whoever takes it up reads the replies that have come.

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Link;
use crate::engine::pending::PendingWrites;
use crate::engine::server::ServerState;
use crate::pipeline::{Answer, Expect, Progress};

impl Link {
    /// Whether quiet writes were not answered for yet.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty() || !self.awaited.is_empty()
    }

    /// Gets ready to note quiet writes that are about to be written.
    pub(crate) fn begin_pending(&mut self, server: &Arc<ServerState>) {
        if self.pending.is_empty() {
            self.pending = PendingWrites::new(server, self.opaque);
        }
    }

    /// Asks the server how quiet writes, which were written before, have gone.
    pub(crate) fn request_acknowledgement(&mut self, pending: PendingWrites) {
        let (first, count) = (pending.first, pending.count);
        self.out.extend_from_slice(b"mn\r\n");
        self.pipeline.expect(Expect::Quiet { first, count });
        self.awaited.push_back(pending);
    }

    /// Notes that the server has acknowledged the oldest of them, and refused so many.
    pub(crate) fn acknowledged(&mut self, refused: usize) {
        self.pipeline.release();
        if let Some(pending) = self.awaited.pop_front() {
            pending.acknowledge(refused);
        }
    }

    /// Forgets those of another process.
    pub(crate) fn forget_pending(&mut self) {
        std::mem::take(&mut self.pending).forget();
        self.awaited.drain(..).for_each(PendingWrites::forget);
    }

    /// Whether every request has its reply and not one byte more has come, but for acknowledgements.
    pub(crate) fn is_at_rest(&self) -> bool {
        if self.awaited.is_empty() {
            self.pipeline.is_clean()
        } else {
            self.pipeline.is_sound() && self.pipeline.in_flight() == self.awaited.len()
        }
    }

    /// Whether an idle connection is still good: not closed by the peer, and nothing came unasked.
    ///
    /// Acknowledgements that have come are taken. Error lines of quiet writes that no `mn` was sent behind are left to the next
    /// call.
    pub(crate) fn is_quiet(&mut self) -> bool {
        if !self.awaited.is_empty() && !self.take_acknowledged() {
            return false;
        }
        if self.has_pending() {
            return true;
        }
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(
            poll(
                &mut fds,
                Some(&Timespec {
                    tv_sec: 0,
                    tv_nsec: 0
                })
            ),
            Ok(0)
        )
    }

    /// Takes the answers that have come for quiet writes, without waiting; false: the connection is lost.
    fn take_acknowledged(&mut self) -> bool {
        loop {
            match self.pipeline.poll() {
                Ok(Progress::Whole(Answer::Quiet(troubles, refusals))) => {
                    self.acknowledged(troubles.len() + refusals.len());
                    if self.awaited.is_empty() {
                        return true;
                    }
                }
                Ok(Progress::Incomplete(missing)) => {
                    let room = self.pipeline.space(missing);
                    match recv(&self.fd, room, RecvFlags::DONTWAIT) {
                        Ok((_, 0)) => return false,
                        Ok((_, bytes)) => self.pipeline.received(bytes),
                        Err(error) => return error == Errno::AGAIN,
                    }
                }
                _ => return false,
            }
        }
    }
}
