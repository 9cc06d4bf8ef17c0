//! One call to one server: a state machine from checkout to the last reply, under one deadline.
//!
//! It can be driven alone, where it waits in blocking receives, or together with others, where one `poll`
//! waits for all. Dropping a call before its end closes its connection (`PooledConnection` does that).

mod buffered_writes;
mod checkout;
mod clock;
mod connecting;
mod failure;
mod large_value;
mod leading_writes;
#[cfg(feature = "tokio")]
mod nonblocking;
mod poll_many;
mod round_trips;
mod sender;
#[cfg(test)]
mod tests;
mod times;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use crate::error::Error;
use crate::fork::Process;
use crate::pipeline::{self, Pipeline, Reply};
use crate::pool::{PooledConnection, Server};
use crate::request::Request;
use crate::transport::blocking::{SocketConnection, WaitError, WaitLimit, wait, wait_by};
use crate::waiter::AwaitedSocket;
use clock::CallClock;
use connecting::Connecting;
use failure::StepError;
use large_value::LargeValue;
use leading_writes::LeadingWrites;
#[cfg(feature = "tokio")]
pub(crate) use nonblocking::WaitFor;
pub use poll_many::receive_first_replies;
pub use times::CallTimes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStage {
    Start,
    /// Its connection is being made.
    Connecting,
    Sending,
    Receiving,
    Done,
}

/// Why a driven call returned to its driver.
#[derive(Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// The next reply is complete: read it, then [`Call::release_reply`].
    Reply(Reply),
    /// A large value is arriving: receive it with [`Call::receive_body`].
    Body(pipeline::FoundValue),
    /// All replies were read.
    Finished,
    /// A signal came: handle it and continue.
    Interrupted,
    /// The call waits for its socket or for a lookup; the driver may wait for other calls at the same time.
    Waiting,
}

/// One or more requests to one server, and their replies.
#[derive(Debug)]
pub struct Call<'a> {
    server: Arc<Server>,
    /// The process in which it began: a child of a fork during the call does not continue it.
    process: Process,
    requests: &'a [Request<'a>],
    connection: Option<PooledConnection>,
    stage: CallStage,
    clock: CallClock,
    connecting: Connecting,
    /// Quiet writes that go before the requests.
    leading_writes: LeadingWrites,
    large_value: LargeValue,
    /// All its requests are quiet.
    is_noreply: bool,
    /// The byte of the connection's output at which the requests begin.
    requests_offset: u64,
    /// A reply that [`receive_first_replies`] leaves for the caller to read.
    unread_reply: Option<Reply>,
    /// The first reply, which came before all was sent: a server may refuse a value before it has received it.
    early_reply: Option<Reply>,
}

impl<'a> Call<'a> {
    /// A call that has not begun. `now` is when its time began to run.
    pub fn new(
        server: Arc<Server>,
        requests: &'a [Request<'a>],
        now: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            server,
            process: Process::current(),
            requests,
            connection: None,
            stage: CallStage::Start,
            clock: CallClock::new(now, deadline),
            connecting: Connecting::new(),
            leading_writes: LeadingWrites::default(),
            large_value: LargeValue::default(),
            is_noreply: false,
            requests_offset: 0,
            unread_reply: None,
            early_reply: None,
        }
    }

    /// The server of the call.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The pipeline with the current reply, once there is one.
    pub fn pipeline(&self) -> Option<&Pipeline> {
        let socket_connection = self.connection.as_ref()?.socket_connection_ref()?;
        Some(socket_connection.state_machine.wire().pipeline())
    }

    /// When it began, had its connection and its reply, and ended.
    pub fn times(&self) -> &CallTimes {
        self.clock.times()
    }

    /// Notes that the reply is here and that what follows is the caller's own work.
    pub fn mark_reply_received(&mut self) {
        self.clock.mark_reply_received();
    }

    /// Requests [`CallEvent::Body`]: a large value is then handed out while it arrives. For one `get`.
    pub fn stream_bodies(&mut self) {
        self.large_value.hand_out();
    }

    /// Drives the call alone until there is something for the caller.
    pub fn run(&mut self) -> Result<CallEvent, Error> {
        loop {
            match self.advance(self.wait_limit())? {
                CallEvent::Waiting => match self.wait() {
                    Ok(()) => {}
                    Err(WaitError::Deadline) if Instant::now() < self.clock.deadline() => {}
                    Err(WaitError::Interrupted) => return Ok(CallEvent::Interrupted),
                    Err(wait_error) => self.handle_wait_error(wait_error)?,
                },
                event => return Ok(event),
            }
        }
    }

    /// Whether it may block the thread.
    fn wait_limit(&self) -> WaitLimit {
        match self.server.waiter() {
            Some(_) => WaitLimit::NoWait,
            None => WaitLimit::UntilDeadline,
        }
    }

    /// Waits for the socket; without one, which happens with a waiter only, for a moment.
    fn wait(&self) -> Result<(), WaitError> {
        let interest = self.poll_interest();
        if let Some(waiter) = self.server.waiter() {
            let socket = interest.map(AwaitedSocket::new);
            return wait_by(waiter, socket.as_slice(), self.wait_deadline());
        }
        let Some((fd, flags)) = interest else {
            return Ok(());
        };
        wait(&mut [PollFd::from_borrowed_fd(fd, flags)], self.wait_deadline())
    }

    /// When a wait must end: at the deadline, or before it when the next address is tried.
    pub(crate) fn wait_deadline(&self) -> Instant {
        match self.stage {
            CallStage::Connecting => self.connecting.wait_deadline(self.clock.deadline()),
            _ => self.clock.deadline(),
        }
    }

    /// The connection whose socket the call waits for, whether to become readable, and whether to become writable.
    fn awaited_socket(&self) -> Option<(&SocketConnection, bool, bool)> {
        let socket_connection = self.connection.as_ref()?.socket_connection_ref()?;
        let (awaits_readable, awaits_writable) = match self.stage {
            CallStage::Connecting if self.connecting.awaits_writable(socket_connection) => {
                (false, true)
            }
            // A server that is not read from stops reading: replies are taken while sending.
            CallStage::Sending => (
                socket_connection.state_machine.awaits_replies()
                    && (self.early_reply.is_none()
                        || !socket_connection.state_machine.is_last_reply()),
                true,
            ),
            _ => (true, false),
        };
        Some((socket_connection, awaits_readable, awaits_writable))
    }

    /// What the call waits for.
    fn poll_interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let (socket_connection, awaits_readable, awaits_writable) = self.awaited_socket()?;
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, awaits_readable);
        flags.set(PollFlags::OUT, awaits_writable);
        Some((socket_connection.fd(), flags))
    }

    /// Advances as far as it can.
    fn advance(&mut self, wait_limit: WaitLimit) -> Result<CallEvent, Error> {
        if self.stage == CallStage::Done {
            return Ok(CallEvent::Finished);
        }
        if !self.process.is_current() {
            return Err(self.fork_error());
        }
        loop {
            let step_result = match self.stage {
                CallStage::Start => self.check_out_connection(),
                CallStage::Connecting => self.connect(),
                CallStage::Sending => match self.send() {
                    Ok(Some(event)) => return Ok(event),
                    Ok(None) => Ok(()),
                    Err(step_error) => Err(step_error),
                },
                CallStage::Receiving => match self.receive(wait_limit) {
                    Ok(Some(event)) => return Ok(event),
                    Ok(None) => Ok(()),
                    Err(step_error) => Err(step_error),
                },
                CallStage::Done => return Ok(CallEvent::Finished),
            };
            match step_result {
                Ok(()) => {}
                Err(StepError::Wait(WaitError::Interrupted)) => return Ok(CallEvent::Interrupted),
                Err(StepError::Wait(WaitError::WouldBlock)) => return Ok(CallEvent::Waiting),
                Err(StepError::Wait(wait_error)) => self.handle_wait_error(wait_error)?,
                Err(StepError::Call(error)) => {
                    self.connection = None;
                    return Err(error);
                }
            }
        }
    }

    /// Releases the reply that was read; after the last one the connection returns to the pool.
    #[inline]
    pub fn release_reply(&mut self) {
        let Ok(socket_connection) = PooledConnection::socket_connection_of(&mut self.connection)
        else {
            return;
        };
        socket_connection.state_machine.release();
        socket_connection.expects_large_value = self.large_value.was_received_directly();
        if !socket_connection.state_machine.awaits_replies() {
            self.finish();
        }
    }

    /// Whether all replies were read and released.
    pub(crate) fn has_finished(&self) -> bool {
        self.stage == CallStage::Done
    }

    fn finish(&mut self) {
        self.stage = CallStage::Done;
        if let Some(mut connection) = self.connection.take() {
            let finished_at = self.clock.finish();
            // All replies came before all was sent.
            if let Some(socket_connection) = connection.socket_connection()
                && !socket_connection.state_machine.wire().is_all_sent()
            {
                socket_connection.state_machine.close();
            }
            connection.return_to_pool(finished_at);
        }
        self.leading_writes.release();
    }
}
