//! One call to one server: a state machine from checkout to the last reply, under one deadline.
//!
//! It can be driven alone, where it waits in blocking receives, or together with others, where one `poll`
//! waits for all. Dropping a call before its end closes its connection (`PooledConnection` does that).

mod buffered_writes;
mod connect;
mod failure;
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

use crate::engine::connection::Attempt;
use crate::error::Error;
use crate::fork::Process;
use crate::pipeline::{self, Pipeline, Reply};
use crate::pool::{PooledConnection, Server};
use crate::request::Request;
use crate::transport::blocking::{SocketConnection, WaitError, WaitLimit, wait, wait_by};
use crate::transport::connect::CandidateAddresses;
use crate::waiter::{AwaitedSocket, Waiter};
use crate::write_buffer::WriteBatch;
use failure::StepError;
#[cfg(feature = "tokio")]
use nonblocking::Driver;
#[cfg(feature = "tokio")]
pub(crate) use nonblocking::WaitFor;
pub use poll_many::receive_first_replies;
pub use times::CallTimes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStage {
    Start,
    /// The runtime looks up the server's name.
    Resolving,
    Connecting,
    /// The TLS handshake.
    Handshaking,
    Opening,
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
    /// The addresses at which a connection that is being made can still be tried.
    candidates: CandidateAddresses,
    stage: CallStage,
    deadline: Instant,
    times: CallTimes,
    was_retried: bool,
    streams_bodies: bool,
    #[cfg(feature = "tokio")]
    driver: Driver,
    /// All its requests are quiet.
    is_noreply: bool,
    /// How much of a large value was received before a signal came.
    received_body_bytes: Option<usize>,
    /// A large value was received past the pipeline.
    received_body_directly: bool,
    /// The server closed on `mn`: classic text is tried, and learned from the first reply.
    presumes_classic: bool,
    /// A reply that [`receive_first_replies`] leaves for the caller to read.
    unread_reply: Option<Reply>,
    /// The first reply, which came before all was sent: a server may refuse a value before it has received it.
    early_reply: Option<Reply>,
    /// It may have waited since it had its connection, so that `connected_at` no longer serves as the present.
    may_have_waited: bool,
    /// The byte of the connection's output at which the requests begin.
    requests_offset: u64,
    /// Quiet writes that go before the requests and are not all sent yet.
    write_batch: Option<Box<WriteBatch>>,
    /// It has taken a batch of buffered writes, to send it before its requests.
    has_taken_batch: bool,
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
            candidates: CandidateAddresses::default(),
            stage: CallStage::Start,
            deadline,
            times: CallTimes::new(now),
            was_retried: false,
            streams_bodies: false,
            #[cfg(feature = "tokio")]
            driver: Driver::Thread,
            is_noreply: false,
            received_body_bytes: None,
            received_body_directly: false,
            presumes_classic: false,
            unread_reply: None,
            early_reply: None,
            may_have_waited: false,
            requests_offset: 0,
            write_batch: None,
            has_taken_batch: false,
        }
    }

    /// The server of the call.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The pipeline with the current reply, once there is one.
    pub fn pipeline(&self) -> Option<&Pipeline> {
        let socket_connection = self.connection.as_ref()?.socket_connection_ref()?;
        Some(socket_connection.state_machine.pipeline())
    }

    /// When it began, had its connection and its reply, and ended.
    pub fn times(&self) -> &CallTimes {
        &self.times
    }

    /// Notes that the reply is here and that what follows is the caller's own work.
    pub fn mark_reply_received(&mut self) {
        self.times.reply_received_at = Some(Instant::now());
    }

    /// Requests [`CallEvent::Body`]: a large value is then handed out while it arrives. For one `get`.
    pub fn stream_bodies(&mut self) {
        self.streams_bodies = true;
    }

    /// Drives the call alone until there is something for the caller.
    pub fn run(&mut self) -> Result<CallEvent, Error> {
        loop {
            match self.advance(self.wait_limit())? {
                CallEvent::Waiting => match self.wait() {
                    Ok(()) => {}
                    Err(WaitError::Deadline) if Instant::now() < self.deadline => {}
                    Err(WaitError::Interrupted) => return Ok(CallEvent::Interrupted),
                    Err(wait_error) => self.handle_wait_error(wait_error)?,
                },
                event => return Ok(event),
            }
        }
    }

    /// Whether it may block the thread.
    fn wait_limit(&self) -> WaitLimit {
        match self.waiter() {
            Some(_) => WaitLimit::NoWait,
            None => WaitLimit::UntilDeadline,
        }
    }

    /// What waits in place of the thread.
    fn waiter(&self) -> Option<&dyn Waiter> {
        self.server.options.waiter.as_deref()
    }

    /// Until when a step may block the thread: with a waiter not at all.
    fn blocking_deadline(&self) -> Instant {
        match self.waiter() {
            Some(_) => Instant::now().min(self.deadline),
            None => self.deadline,
        }
    }

    /// Waits for the socket; without one, which happens with a waiter only, for a moment.
    fn wait(&self) -> Result<(), WaitError> {
        let interest = self.poll_interest();
        if let Some(waiter) = self.waiter() {
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
        if self.stage == CallStage::Connecting {
            return self.candidates.wait_deadline(self.deadline);
        }
        self.deadline
    }

    /// The connection whose socket the call waits for, whether to become readable, and whether to become writable.
    fn awaited_socket(&self) -> Option<(&SocketConnection, bool, bool)> {
        let socket_connection = self.connection.as_ref()?.socket_connection_ref()?;
        let (awaits_readable, awaits_writable) = match self.stage {
            CallStage::Connecting => (false, true),
            CallStage::Handshaking if socket_connection.has_unsent_records() => (false, true),
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
                CallStage::Resolving => self.connect(),
                CallStage::Connecting => self.finish_connecting(),
                CallStage::Handshaking => self.continue_handshake(),
                CallStage::Opening => self.finish_opening(),
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
    pub fn release_reply(&mut self) {
        let Ok(socket_connection) = PooledConnection::socket_connection_of(&mut self.connection)
        else {
            return;
        };
        socket_connection.state_machine.release();
        socket_connection.expects_large_value = self.received_body_directly;
        if !socket_connection.state_machine.awaits_replies() {
            self.finish();
        }
    }

    /// Whether all replies were read and released.
    pub(crate) fn has_finished(&self) -> bool {
        self.stage == CallStage::Done
    }

    fn attempt(&self) -> Attempt {
        Attempt { started: self.times.started, deadline: self.deadline, is_retry: self.was_retried }
    }

    fn finish(&mut self) {
        self.stage = CallStage::Done;
        if let Some(mut connection) = self.connection.take() {
            self.times.finished_at = Instant::now();
            // All replies came before all was sent.
            if let Some(socket_connection) = connection.socket_connection()
                && !socket_connection.state_machine.is_all_sent()
            {
                socket_connection.state_machine.close();
            }
            connection.return_to_pool(self.times.finished_at);
        }
        self.write_batch = None;
    }
}
