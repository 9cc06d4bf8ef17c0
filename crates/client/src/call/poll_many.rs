//! Calls to several servers at once, with one `poll` for all.

use std::time::Instant;

use rustix::event::PollFd;

use super::{Call, CallEvent, CallStage};
use crate::error::Error;
use crate::pipeline::Reply;
use crate::transport::blocking::{WaitError, WaitLimit, wait, wait_by};
use crate::waiter::AwaitedSocket;

/// Drives calls to several servers until each has received its first reply or has failed; the
/// replies are not read yet. A call's failure is its own: the others continue.
///
/// False: a signal came; handle it and call again.
pub fn receive_first_replies(calls: &mut [(Call<'_>, Option<Error>)]) -> bool {
    loop {
        let mut deadline = None;
        let mut wait_deadline = None;
        let mut is_interrupted = false;
        for (call, error) in calls.iter_mut().filter(|(_, error)| error.is_none()) {
            match call.advance_to_reply() {
                Ok(CallEvent::Interrupted) => is_interrupted = true,
                Ok(CallEvent::Waiting) => {
                    deadline = Some(call.clock.deadline());
                    let call_wait_deadline = call.wait_deadline();
                    wait_deadline =
                        Some(wait_deadline.map_or(call_wait_deadline, |earliest: Instant| {
                            earliest.min(call_wait_deadline)
                        }));
                }
                Ok(_) => {}
                Err(call_error) => *error = Some(call_error),
            }
        }
        if is_interrupted {
            return false;
        }
        let (Some(deadline), Some(wait_deadline)) = (deadline, wait_deadline) else {
            return true;
        };
        match wait_for_any(calls, wait_deadline) {
            Ok(()) => {}
            Err(WaitError::Deadline) if Instant::now() < deadline => {} // a call tries its next address
            Err(WaitError::Interrupted) => return false,
            Err(wait_error) => {
                for (call, error) in calls.iter_mut() {
                    if error.is_none() && !call.has_first_reply() {
                        *error = call.handle_wait_error(wait_error).err();
                    }
                }
            }
        }
    }
}

/// Waits until the socket of one of the calls is ready or the deadline passes.
fn wait_for_any(calls: &[(Call<'_>, Option<Error>)], deadline: Instant) -> Result<(), WaitError> {
    let waiting_calls =
        calls.iter().filter(|(call, error)| error.is_none() && !call.has_first_reply());
    let sockets = waiting_calls.filter_map(|(call, _)| call.poll_interest());
    if let Some(waiter) = calls.first().and_then(|(call, _)| call.server.waiter()) {
        let sockets: Vec<_> = sockets.map(AwaitedSocket::new).collect();
        return wait_by(waiter, &sockets, deadline);
    }
    let fds = sockets.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
    wait(&mut fds.collect::<Vec<_>>(), deadline)
}

impl Call<'_> {
    /// Advances without waiting, until there is a reply that the caller must read.
    fn advance_to_reply(&mut self) -> Result<CallEvent, Error> {
        if self.has_first_reply() {
            return Ok(CallEvent::Finished);
        }
        let event = self.advance(WaitLimit::NoWait)?;
        if let CallEvent::Reply(reply) = event {
            self.unread_reply = Some(reply);
            return Ok(CallEvent::Finished);
        }
        Ok(event)
    }

    /// Whether the first reply was received, or the call has ended.
    fn has_first_reply(&self) -> bool {
        self.stage == CallStage::Done || self.unread_reply.is_some()
    }

    /// The reply that [`receive_first_replies`] waited for; its values are in [`Call::pipeline`].
    pub fn take_unread_reply(&mut self) -> Option<Reply> {
        self.unread_reply.take()
    }
}
