//! Receiving a large value straight into its target buffer, without a copy through the pipeline.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use crate::pipeline::{FoundValue, Pipeline};
use crate::transport::blocking::{SocketConnection, WaitError, wait, wait_by};
use crate::waiter::{AwaitedSocket, Waiter};

/// Values of at least this length are received straight into their target.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// Whether large values are received directly, and the progress of the current one.
#[derive(Debug, Default)]
pub(super) struct LargeValue {
    is_handed_out: bool,
    /// Bytes of it received before a signal interrupted.
    interrupted_at: Option<usize>,
    /// A value was received directly.
    was_received_directly: bool,
}

impl LargeValue {
    /// Enables direct receiving.
    pub(super) fn hand_out(&mut self) {
        self.is_handed_out = true;
    }

    /// The value to receive directly now; `missing_bytes` of its reply have not arrived.
    pub(super) fn arriving_value(
        &self,
        missing_bytes: usize,
        pipeline: &Pipeline,
    ) -> Option<FoundValue> {
        let is_large = self.is_handed_out && missing_bytes >= DIRECT_BYTES_MIN;
        if is_large { pipeline.partial_value() } else { None }
    }

    /// Whether a value was received directly, so that the next reply is expected to be large too.
    pub(super) fn was_received_directly(&self) -> bool {
        self.was_received_directly
    }

    /// Receives the arriving value into `target`, which has its length; false if a signal interrupted.
    pub(super) fn receive(
        &mut self,
        socket_connection: &mut SocketConnection,
        target: &mut [u8],
        deadline: Instant,
        waiter: Option<&dyn Waiter>,
    ) -> Result<bool, WaitError> {
        let state_machine = &mut socket_connection.state_machine;
        let mut received_bytes = match self.interrupted_at {
            Some(received_bytes) => received_bytes,
            None if state_machine.wire().pipeline().partial_value().is_none() => return Ok(true),
            None => state_machine.wire_mut().pipeline_mut().move_partial_value(target),
        };
        while let Some(remaining_target) =
            target.get_mut(received_bytes..).filter(|remaining_target| !remaining_target.is_empty())
        {
            match receive_some(socket_connection, remaining_target, deadline, waiter) {
                Ok(newly_received_bytes) => received_bytes += newly_received_bytes,
                Err(WaitError::Interrupted) => {
                    self.interrupted_at = Some(received_bytes);
                    return Ok(false);
                }
                Err(wait_error) => return Err(wait_error),
            }
        }
        self.interrupted_at = None;
        self.was_received_directly = true;
        Ok(true)
    }
}

/// Receives some bytes, or waits for them.
fn receive_some(
    socket_connection: &mut SocketConnection,
    target: &mut [u8],
    deadline: Instant,
    waiter: Option<&dyn Waiter>,
) -> Result<usize, WaitError> {
    let receive_result = socket_connection.receive_into(target, deadline, waiter.is_none());
    let interest = (socket_connection.fd(), PollFlags::IN);
    match (receive_result, waiter) {
        (Err(WaitError::WouldBlock), Some(waiter)) => {
            wait_by(waiter, &[AwaitedSocket::new(interest)], deadline).map(|()| 0)
        }
        // The socket's own timeout fired early, or the remaining time was too short to set one.
        (Err(WaitError::WouldBlock), None) => {
            let (fd, flags) = interest;
            wait(&mut [PollFd::from_borrowed_fd(fd, flags)], deadline).map(|()| 0)
        }
        (receive_result, _) => receive_result,
    }
}
