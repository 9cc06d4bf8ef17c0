//! One connection to a server: requests in flight, bytes to send, replies, deadlines. No socket, no clock.
//!
//! A driver moves bytes and passes in the time; everything else is decided here: in which command set a request is
//! written, what precedes it, which call a reply belongs to, which calls are past their deadline, and what follows
//! without a reply. The same connection serves a driver that keeps one call in flight (a pool) and one that keeps
//! many (an event loop).
//!
//! A *ticket* is the number of a request in flight, the *opening ticket* that of the login and the probe of a new
//! connection. An *attempt* is one try of a call on one connection, with the call's start and deadline.

mod event;
mod in_flight;
mod login;
mod output;
mod replies;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use glasscache_protocol::binary::opcode;

pub use event::{Attempt, ConnectionEvent, Failure, NoReplyReason, Ticket};
use in_flight::{InFlightRequest, ReplyReceiver, UncertainOnLoss};
use output::Output;

use super::pending_writes::PendingWrites;
use super::server::ServerState;
use super::uncertain::{OwnedKey, for_each_key_left_uncertain, keys_read, write_removals};
use crate::error::Error;
use crate::pipeline::{ExpectedBinaryReply, ExpectedReply, Pipeline};
use crate::request::{CommandSet, Request, RequestWriter, write_binary_noop};

/// Quiet writes after which a connection requests an acknowledgement.
///
/// Their error lines, should each have one, fit the socket's receive buffer.
const UNACKNOWLEDGED_WRITES_MAX: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionStage {
    /// The transport is being connected.
    Connecting,
    /// The user and the password were sent.
    LoggingIn,
    /// The server is probed for its command set.
    Probing,
    /// It takes requests.
    Open,
    /// It takes no more requests; what is in flight is still read.
    Closing,
    /// It cannot be used any more.
    Closed,
}

/// The state of one connection, without its socket.
#[derive(Debug)]
pub struct Connection {
    server: Arc<ServerState>,
    pipeline: Pipeline,
    stage: ConnectionStage,
    /// [`ConnectionEvent::Ready`] was not returned yet.
    must_report_ready: bool,
    /// The server closed on `mn`: classic text is tried, and learned from the first reply.
    presumes_classic: bool,
    output: Output,
    /// The opaque of the next request that has one.
    next_opaque: u32,
    /// Quiet writes without a request for acknowledgement after them.
    pending_writes: PendingWrites,
    in_flight: VecDeque<InFlightRequest>,
    /// Requests for acknowledgement in flight.
    acknowledgements_in_flight: usize,
    failed_calls: VecDeque<(Ticket, Box<Failure>)>,
    /// A reply was returned that [`Self::release`] has not released yet.
    has_unreleased_reply: bool,
    /// It has served an earlier call, so that its peer may have closed it meanwhile.
    is_reused: bool,
    last_ticket: u64,
    /// Quiet writes that were lost before a byte of them was sent.
    unsent_buffered_writes: Option<PendingWrites>,
    recycled_uncertain_on_loss: Option<Box<UncertainOnLoss>>,
}

impl Connection {
    /// A connection that is not connected yet. `first_opaque` is the first one that it uses, `value_bytes_max` the
    /// longest value that it reads.
    pub fn new(server: Arc<ServerState>, value_bytes_max: u64, first_opaque: u32) -> Self {
        let body_end: &[u8] = match server.command_set() {
            Some(CommandSet::Binary) => b"",
            _ => b"\r\n",
        };
        Self {
            server,
            pipeline: Pipeline::new(value_bytes_max),
            stage: ConnectionStage::Connecting,
            must_report_ready: false,
            presumes_classic: false,
            output: Output::new(body_end),
            next_opaque: first_opaque,
            pending_writes: PendingWrites::default(),
            in_flight: VecDeque::new(),
            acknowledgements_in_flight: 0,
            failed_calls: VecDeque::new(),
            has_unreleased_reply: false,
            is_reused: false,
            last_ticket: Ticket::OPENING.0,
            unsent_buffered_writes: None,
            recycled_uncertain_on_loss: None,
        }
    }

    /// The state of the server, shared by its connections.
    pub fn server(&self) -> &Arc<ServerState> {
        &self.server
    }

    /// Notes that the transport is connected. A server with an unknown command set is probed, unless the connection
    /// before was closed on the probe ([`RetryDecision::RetryClassic`](crate::engine::retry::RetryDecision)): then it
    /// `presumes_classic`.
    ///
    /// Before that it logs in, if the server has a login.
    pub fn handle_connected(&mut self, presumes_classic: bool, attempt: Attempt) {
        self.presumes_classic = presumes_classic;
        let server = Arc::clone(&self.server);
        let Some(login) = server.login() else {
            return self.probe_or_become_ready(attempt);
        };
        self.stage = ConnectionStage::LoggingIn;
        let begin_offset = self.appended_bytes();
        let login_result = if server.command_set() == Some(CommandSet::Binary) {
            let opaque = self.take_opaque();
            let opcode = opcode::SASL_AUTH;
            let expected = ExpectedBinaryReply::Status { opaque, opcode };
            self.pipeline.expect(ExpectedReply::Binary(expected));
            login.write_binary(&mut self.output.bytes, opaque)
        } else {
            self.pipeline.expect(ExpectedReply::Login);
            login.write(&mut self.output.bytes)
        };
        let receiver = ReplyReceiver::Call(Ticket::OPENING, attempt);
        self.push_in_flight(InFlightRequest::new(receiver, begin_offset).into_repeatable());
        if let Err(reason) = login_result {
            self.fail_login(reason);
        }
    }

    /// Probes the server if its command set is unknown.
    fn probe_or_become_ready(&mut self, attempt: Attempt) {
        if self.server.command_set().is_some() || self.presumes_classic {
            self.become_ready();
            return;
        }
        self.stage = ConnectionStage::Probing;
        let begin_offset = self.appended_bytes();
        self.output.bytes.extend_from_slice(b"mn\r\n");
        self.pipeline.expect(ExpectedReply::Probe);
        let receiver = ReplyReceiver::Call(Ticket::OPENING, attempt);
        self.push_in_flight(InFlightRequest::new(receiver, begin_offset).into_repeatable());
    }

    fn become_ready(&mut self) {
        self.stage = ConnectionStage::Open;
        self.must_report_ready = true;
    }

    /// Whether it takes requests.
    pub fn accepts_requests(&self) -> bool {
        self.stage == ConnectionStage::Open
    }

    /// Whether anything is in flight.
    pub fn awaits_replies(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether replies are awaited of which not a byte has come.
    pub fn has_received_nothing(&self) -> bool {
        self.awaits_replies() && self.failed_calls.is_empty() && self.pipeline.has_no_reply_bytes()
    }

    /// Whether nothing is in flight and nothing is left to send.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.output().is_empty()
    }

    /// Whether every call has its replies, and nothing came but for acknowledgements of quiet writes: another call
    /// may use it.
    pub fn is_ready_for_reuse(&self) -> bool {
        // What comes before they are acknowledged may be refusals of quiet writes.
        let is_clean = if self.has_unacknowledged_writes() {
            self.pipeline.has_no_fault()
        } else {
            self.pipeline.is_clean()
        };
        self.stage == ConnectionStage::Open
            && is_clean
            && self.in_flight.len() == self.acknowledgements_in_flight
    }

    /// Whether it cannot be used any more and is to be closed now.
    pub fn must_close(&self) -> bool {
        match self.stage {
            ConnectionStage::Closed => true,
            ConnectionStage::Closing => self.in_flight.is_empty() && self.output().is_empty(),
            ConnectionStage::Connecting
            | ConnectionStage::LoggingIn
            | ConnectionStage::Probing
            | ConnectionStage::Open => false,
        }
    }

    /// Takes no more requests; what is in flight is still sent and read.
    pub fn close(&mut self) {
        if self.stage != ConnectionStage::Closed {
            self.stage = ConnectionStage::Closing;
        }
        // The next call uses another connection, on which nothing waits for the removals in flight here.
        for in_flight_request in &mut self.in_flight {
            if let Some(uncertain_on_loss) = &mut in_flight_request.uncertain_on_loss {
                let removals = std::mem::take(&mut uncertain_on_loss.removals);
                self.server.uncertain.end_removal(removals, false);
            }
        }
    }

    /// Writes the requests of one call after all others. `None`: all of them are quiet.
    ///
    /// If the server has no command for one of them, nothing of the call is written, or the connection is closed.
    pub fn submit(
        &mut self,
        requests: &[Request<'_>],
        attempt: Attempt,
    ) -> Result<Option<Ticket>, Error> {
        self.write_with_body(requests, attempt, Output::push_body)
    }

    /// As [`Self::submit`], but leaves the long body of a single request to the driver, which sends it
    /// with its line end after [`Self::output`] before it submits anything else.
    pub fn submit_without_body(
        &mut self,
        requests: &[Request<'_>],
        attempt: Attempt,
    ) -> Result<Option<Ticket>, Error> {
        self.write_with_body(requests, attempt, Output::leave_body_to_driver)
    }

    /// Writes the requests, and passes the body of a single one, which the encoder left out, to `add_body`.
    fn write_with_body(
        &mut self,
        requests: &[Request<'_>],
        attempt: Attempt,
        add_body: fn(&mut Output, &[u8]),
    ) -> Result<Option<Ticket>, Error> {
        let ticket = self.write_call(requests, attempt)?;
        if let [request] = requests
            && let Some(body) = request.external_body()
        {
            add_body(&mut self.output, body);
        }
        Ok(ticket)
    }

    fn write_call(
        &mut self,
        requests: &[Request<'_>],
        attempt: Attempt,
    ) -> Result<Option<Ticket>, Error> {
        self.output.discard_sent();
        let command_set = self.command_set();
        let (mut is_noreply, mut is_repeatable) = (true, true);
        let (mut has_quiet_request, mut may_leave_keys_uncertain) = (false, false);
        for request in requests {
            let is_quiet = request.is_noreply();
            is_noreply &= is_quiet;
            has_quiet_request |= is_quiet;
            is_repeatable &= request.is_repeatable();
            may_leave_keys_uncertain |= request.may_leave_keys_uncertain();
        }
        let mut removals = Vec::new();
        if !is_noreply {
            if self.server.uncertain.has_keys() || !self.pending_writes.is_empty() {
                removals = self.remove_uncertain(requests, command_set);
            }
        } else if self.pending_writes.opaque_count >= UNACKNOWLEDGED_WRITES_MAX {
            self.request_acknowledgement();
        }
        let (begin_offset, in_flight_before) =
            (self.appended_bytes(), self.pipeline.in_flight_count());
        let near_write_guard = self.server.guard_writes(requests, attempt.deadline);
        if let Err(unsupported) = self.write_requests(requests, command_set, has_quiet_request) {
            // No reply will confirm these removals, so another call repeats them.
            self.server.uncertain.end_removal(removals, false);
            return Err(unsupported);
        }
        if is_noreply {
            return Ok(None);
        }
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let mut uncertain_on_loss = None;
        if may_leave_keys_uncertain || !removals.is_empty() {
            let mut keys_and_removals = self.recycled_uncertain_on_loss.take().unwrap_or_default();
            for request in requests {
                for_each_key_left_uncertain(request, |key| keys_and_removals.keys.add(key));
            }
            keys_and_removals.removals = removals;
            uncertain_on_loss = Some(keys_and_removals);
        }
        self.in_flight.push_back(InFlightRequest {
            receiver: ReplyReceiver::Call(ticket, attempt),
            begin_offset,
            end_offset: self.output.appended_bytes(),
            replies_left: (self.pipeline.in_flight_count() - in_flight_before) as u32,
            awaits_first_reply: true,
            is_repeatable,
            was_buffered: false,
            uncertain_on_loss,
            near_write_guard,
        });
        Ok(Some(ticket))
    }

    /// Writes the removal of uncertain keys, and requests an acknowledgement for it and the quiet writes so far.
    /// Returns the keys if the command set has no such request: then the reply to the next call confirms them.
    fn remove_uncertain(
        &mut self,
        requests: &[Request<'_>],
        command_set: CommandSet,
    ) -> Vec<OwnedKey> {
        let mut removals = Vec::new();
        if self.server.uncertain.has_keys() {
            let requested = requests.iter().flat_map(keys_read);
            let elsewhere = requested.filter(|key| !self.is_removing(key));
            removals = self.server.uncertain.begin_removal(elsewhere);
        }
        if !removals.is_empty() {
            self.begin_pending_writes();
            let acknowledged_count =
                write_removals(&removals, &mut self.request_writer(command_set));
            self.pending_writes.add_removals(acknowledged_count);
        }
        if !self.pending_writes.is_empty() {
            let pending_writes = std::mem::take(&mut self.pending_writes);
            self.request_acknowledgement_of(
                pending_writes,
                std::mem::take(&mut removals),
                self.appended_bytes(),
            );
        }
        removals
    }

    /// Whether a removal of a key is in flight on this connection, ahead of what is written now.
    fn is_removing(&self, key: &OwnedKey) -> bool {
        let in_flight = self.in_flight.iter();
        let mut removals =
            in_flight.filter_map(|in_flight_request| in_flight_request.uncertain_on_loss.as_ref());
        removals.any(|uncertain_on_loss| uncertain_on_loss.removals.contains(key))
    }

    /// Writes requests; only a single one leaves its long body out.
    fn write_requests(
        &mut self,
        requests: &[Request<'_>],
        command_set: CommandSet,
        has_quiet_request: bool,
    ) -> Result<(), Error> {
        let awaits_acknowledgement = has_quiet_request && command_set != CommandSet::Classic;
        if awaits_acknowledgement {
            self.begin_pending_writes();
        }
        for (request_index, request) in requests.iter().enumerate() {
            if let Err(unsupported) = request.write(&mut self.request_writer(command_set)) {
                if request_index > 0 {
                    self.fail_all_and_close(); // replies to those before it could not be delivered
                }
                return Err(Error::Unsupported {
                    server: self.server.name.clone(),
                    what: unsupported.0,
                });
            }
            if requests.len() > 1
                && let Some(body) = request.external_body()
            {
                self.output.push_body(body);
            }
            if awaits_acknowledgement && request.is_noreply() {
                self.pending_writes.add_write(request);
            }
        }
        Ok(())
    }

    /// The command set in which requests are written.
    fn command_set(&self) -> CommandSet {
        self.server.command_set().unwrap_or(CommandSet::Classic)
    }

    fn take_opaque(&mut self) -> u32 {
        let opaque = self.next_opaque;
        self.next_opaque = opaque.wrapping_add(1);
        opaque
    }

    /// Submits quiet writes from the write buffer, and requests their acknowledgement.
    pub fn submit_buffered_writes(&mut self, encoded_writes: &[u8], pending_writes: PendingWrites) {
        self.output.discard_sent();
        self.remove_uncertain(&[], self.command_set());
        let begin_offset = self.appended_bytes();
        self.output.bytes.extend_from_slice(encoded_writes);
        self.request_acknowledgement_of(pending_writes, Vec::new(), begin_offset);
        if let Some(in_flight_request) = self.in_flight.back_mut() {
            in_flight_request.was_buffered = true;
        }
    }

    /// Requests an acknowledgement of the quiet writes so far. A driver of many calls does so before it sends its
    /// output, so that a refusal is read as a reply and not as unsolicited bytes.
    pub fn request_acknowledgement(&mut self) {
        if !self.pending_writes.is_empty() {
            let begin_offset = self.appended_bytes();
            let pending_writes = std::mem::take(&mut self.pending_writes);
            self.request_acknowledgement_of(pending_writes, Vec::new(), begin_offset);
        }
    }

    /// Notes that another call takes it up, some time after the one before.
    pub fn mark_reused(&mut self) {
        self.is_reused = true;
    }

    /// Quiet writes that were lost with the connection before a byte of them was sent.
    pub fn take_unsent_buffered_writes(&mut self) -> Option<PendingWrites> {
        self.unsent_buffered_writes.take()
    }

    /// Requests for acknowledgement in flight.
    pub fn acknowledgements_in_flight(&self) -> usize {
        self.acknowledgements_in_flight
    }

    /// Whether quiet writes were not acknowledged yet.
    pub fn has_unacknowledged_writes(&self) -> bool {
        !self.pending_writes.is_empty() || self.acknowledgements_in_flight > 0
    }

    fn request_acknowledgement_of(
        &mut self,
        pending_writes: PendingWrites,
        removals: Vec<OwnedKey>,
        begin_offset: u64,
    ) {
        let (first_opaque, count) = (pending_writes.first_opaque, pending_writes.opaque_count);
        if self.command_set() == CommandSet::Binary {
            let opaque = self.take_opaque();
            write_binary_noop(&mut self.output.bytes, opaque);
            let expected = ExpectedBinaryReply::Quiet { first_opaque, count, noop_opaque: opaque };
            self.pipeline.expect(ExpectedReply::Binary(expected));
        } else {
            self.output.bytes.extend_from_slice(b"mn\r\n");
            self.pipeline.expect(ExpectedReply::Quiet { first_opaque, count });
        }
        self.acknowledgements_in_flight += 1;
        let mut in_flight_request = InFlightRequest::new(
            ReplyReceiver::Acknowledgement(Box::new(pending_writes)),
            begin_offset,
        );
        if !removals.is_empty() {
            let uncertain_on_loss = UncertainOnLoss { removals, ..UncertainOnLoss::default() };
            in_flight_request.uncertain_on_loss = Some(Box::new(uncertain_on_loss));
        }
        self.push_in_flight(in_flight_request);
    }

    fn push_in_flight(&mut self, mut in_flight_request: InFlightRequest) {
        in_flight_request.end_offset = self.appended_bytes();
        self.in_flight.push_back(in_flight_request);
    }

    fn begin_pending_writes(&mut self) {
        if self.pending_writes.is_empty() {
            self.pending_writes = PendingWrites::new(&self.server, self.next_opaque);
        }
    }

    fn request_writer(&mut self, command_set: CommandSet) -> RequestWriter<'_> {
        RequestWriter {
            command_set,
            pipeline: &mut self.pipeline,
            out: &mut self.output.bytes,
            next_opaque: &mut self.next_opaque,
        }
    }

    /// What is to be sent, before a body that was left to the driver.
    pub fn output(&self) -> &[u8] {
        match self.stage {
            ConnectionStage::Closed => &[],
            _ => self.output.unsent(),
        }
    }

    /// What follows a body that was left to the driver: a line end, in binary nothing.
    pub fn body_end(&self) -> &'static [u8] {
        self.output.body_end
    }

    /// How many bytes of a body that was left to the driver, and of its end, are sent.
    pub fn sent_external_body_bytes(&self) -> usize {
        self.output.sent_external_body_bytes()
    }

    /// Whether nothing is left to send, the body that was left to the driver included.
    pub fn is_all_sent(&self) -> bool {
        self.stage == ConnectionStage::Closed || self.output.is_all_sent()
    }

    /// Notes that this many more bytes were sent, or given to the transport.
    pub fn mark_sent(&mut self, byte_count: usize) {
        self.output.current_sent_bytes += byte_count;
    }

    /// The bytes written since the connection was made.
    pub fn appended_bytes(&self) -> u64 {
        self.output.appended_bytes()
    }

    /// The bytes sent since the connection was made.
    pub fn sent_bytes(&self) -> u64 {
        self.output.sent_bytes()
    }

    /// The replies; the values of one that was handed out lie here until [`Self::release`].
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// As [`Self::pipeline`], to receive a large value past it ([`Pipeline::move_partial_value`]).
    pub fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Room for at least `byte_count_min` more received bytes; [`Self::mark_received`] notes how many came.
    pub fn receive_space(&mut self, byte_count_min: usize) -> &mut [u8] {
        self.pipeline.receive_space(byte_count_min)
    }

    /// Notes that `byte_count` bytes were written into [`Self::receive_space`].
    pub fn mark_received(&mut self, byte_count: usize) {
        self.pipeline.mark_received(byte_count);
    }

    /// Takes received bytes by copy.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pipeline.feed(bytes);
    }
}
