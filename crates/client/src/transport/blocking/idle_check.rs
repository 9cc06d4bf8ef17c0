//! The check of an idle connection before another call uses it; its quiet writes may not be acknowledged yet.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::{SocketConnection, receive_bytes};
use crate::engine::connection::ConnectionEvent;

impl SocketConnection {
    /// Whether an idle connection can be used again: not closed by the peer, and without unsolicited bytes.
    ///
    /// Acknowledgements that have come are taken. Error lines of quiet writes without an `mn` after them are left
    /// to the next call.
    pub(crate) fn is_reusable(&mut self) -> bool {
        if self.state_machine.acknowledgements_in_flight() > 0 && !self.take_acknowledgements() {
            return false;
        }
        if self.state_machine.has_unacknowledged_writes() {
            return true;
        }
        if let Some(tls) = &mut self.tls {
            return tls.has_no_pending_data(self.socket.as_fd());
        }
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let no_timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&no_timeout)), Ok(0))
    }

    /// Takes the acknowledgements of quiet writes that have come, without waiting; false: the connection is lost.
    fn take_acknowledgements(&mut self) -> bool {
        loop {
            match self.state_machine.poll() {
                ConnectionEvent::NeedsBytes(missing_bytes) => {
                    let buffer = self.state_machine.wire_mut().receive_space(missing_bytes);
                    let flags = RecvFlags::DONTWAIT;
                    match receive_bytes(&self.socket, self.tls.as_deref_mut(), buffer, flags) {
                        Ok(0) => return false,
                        Ok(received_bytes) => {
                            self.state_machine.wire_mut().mark_received(received_bytes);
                        }
                        Err(error) => return error == Errno::AGAIN,
                    }
                }
                ConnectionEvent::Idle => return self.state_machine.accepts_requests(),
                _ => return false,
            }
        }
    }
}
