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
mod lifecycle;
mod output;
mod replies;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

pub use event::{Attempt, ConnectionEvent, Failure, NoReplyReason, Ticket};
use in_flight::{InFlightRequests, WrittenCall};
use lifecycle::{Lifecycle, OpeningStep};
pub use wire::Wire;

use super::health::HealthEffect;
use super::pending_writes::PendingWrites;
use super::server::ServerState;
use super::uncertain::{OwnedKey, keys_read, write_removals};
use crate::error::{Context, Error, Phase};
use crate::request::{CommandSet, Request};

/// Quiet writes after which a connection requests an acknowledgement.
///
/// Their error lines, should each have one, fit the socket's receive buffer.
const UNACKNOWLEDGED_WRITES_MAX: u32 = 1000;

/// The state of one connection, without its socket.
#[derive(Debug)]
pub struct Connection {
    server: Arc<ServerState>,
    wire: Wire,
    lifecycle: Lifecycle,
    in_flight: InFlightRequests,
    /// Quiet writes without a request for acknowledgement after them.
    pending_writes: PendingWrites,
}

impl Connection {
    /// A connection that is not connected yet. `first_opaque` is the first one that it uses, `value_bytes_max` the
    /// longest value that it reads.
    pub fn new(server: Arc<ServerState>, value_bytes_max: u64, first_opaque: u32) -> Self {
        Self {
            wire: Wire::new(server.command_set(), value_bytes_max, first_opaque),
            server,
            lifecycle: Lifecycle::new(),
            in_flight: InFlightRequests::new(),
            pending_writes: PendingWrites::default(),
        }
    }

    /// The state of the server, shared by its connections.
    pub fn server(&self) -> &Arc<ServerState> {
        &self.server
    }

    /// The bytes to send and the bytes received.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The same, for a driver that moves bytes between it and the socket.
    pub fn wire_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Notes that the transport is connected. A server with an unknown command set is probed, unless the connection
    /// before was closed on the probe ([`RetryDecision::RetryClassic`](crate::engine::retry::RetryDecision)): then it
    /// `presumes_classic`.
    ///
    /// Before that it logs in, if the server has a login.
    pub fn handle_connected(&mut self, presumes_classic: bool, attempt: Attempt) {
        let begin_offset = self.wire.appended_bytes();
        match self.lifecycle.begin(presumes_classic, &self.server, &mut self.wire) {
            Ok(OpeningStep::Ready) => {}
            Ok(OpeningStep::AwaitsReply) => {
                self.in_flight.push_opening(self.wire.range_since(begin_offset), attempt);
            }
            Err(reason) => {
                let context = Context {
                    server: self.server.name.clone(),
                    phase: Phase::Connect,
                    retry_is_safe: true,
                };
                self.fail_opening(Error::Unavailable(context, reason), HealthEffect::None);
            }
        }
    }

    /// Ends the connection before its first request.
    fn fail_opening(&mut self, error: Error, health_effect: HealthEffect) {
        self.close_now();
        self.in_flight.fail_opening(error, health_effect);
    }

    /// Stops using the connection: nothing more is sent or read. Returns whether it was already closing.
    fn close_now(&mut self) -> bool {
        self.wire.stop_sending();
        self.lifecycle.close()
    }

    /// Whether it takes requests.
    pub fn accepts_requests(&self) -> bool {
        self.lifecycle.is_open()
    }

    /// Whether anything is in flight.
    pub fn awaits_replies(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether replies are awaited of which not a byte has come.
    pub fn has_received_nothing(&self) -> bool {
        self.awaits_replies()
            && !self.in_flight.has_failed_calls()
            && self.wire.pipeline().has_no_reply_bytes()
    }

    /// Whether nothing is in flight and nothing is left to send.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.wire.output().is_empty()
    }

    /// Whether every call has its replies, and nothing came but for acknowledgements of quiet writes: another call
    /// may use it.
    pub fn is_ready_for_reuse(&self) -> bool {
        // What comes before they are acknowledged may be refusals of quiet writes.
        let is_clean = if self.has_unacknowledged_writes() {
            self.wire.pipeline().has_no_fault()
        } else {
            self.wire.pipeline().is_clean()
        };
        self.lifecycle.is_open() && is_clean && self.in_flight.are_all_acknowledgements()
    }

    /// Whether it cannot be used any more and is to be closed now.
    pub fn must_close(&self) -> bool {
        self.lifecycle.is_closed() || self.lifecycle.is_closing() && self.is_idle()
    }

    /// Takes no more requests; what is in flight is still sent and read.
    pub fn close(&mut self) {
        self.lifecycle.begin_closing();
        // The next call uses another connection, on which nothing waits for the removals in flight here.
        self.in_flight.repeat_removals(&self.server.uncertain);
    }

    /// Writes the requests of one call after all others. `None`: all of them are quiet.
    ///
    /// If the server has no command for one of them, nothing of the call is written, or the connection is closed.
    pub fn submit(
        &mut self,
        requests: &[Request<'_>],
        attempt: Attempt,
    ) -> Result<Option<Ticket>, Error> {
        let ticket = self.write_call(requests, attempt)?;
        if let [request] = requests
            && let Some(body) = request.external_body()
        {
            self.wire.push_body(body);
        }
        Ok(ticket)
    }

    /// As [`Self::submit`], but leaves the long body of a single request to the driver, which sends it
    /// with its line end after [`Wire::output`] before it submits anything else.
    pub fn submit_without_body(
        &mut self,
        requests: &[Request<'_>],
        attempt: Attempt,
    ) -> Result<Option<Ticket>, Error> {
        let ticket = self.write_call(requests, attempt)?;
        if let [request] = requests
            && let Some(body) = request.external_body()
        {
            self.wire.leave_body_to_driver(body);
        }
        Ok(ticket)
    }

    /// Writes the requests of a call; the body of a single one, which the encoder leaves out, follows.
    fn write_call(
        &mut self,
        requests: &[Request<'_>],
        attempt: Attempt,
    ) -> Result<Option<Ticket>, Error> {
        self.wire.discard_sent();
        let command_set = self.server.written_command_set();
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
            (self.wire.appended_bytes(), self.wire.pipeline().in_flight_count());
        let near_write_guard = self.server.guard_writes(requests, attempt.deadline);
        if let Err(unsupported) = self.write_requests(requests, command_set, has_quiet_request) {
            // No reply will confirm these removals, so another call repeats them.
            self.server.uncertain.end_removal(removals, false);
            return Err(unsupported);
        }
        if is_noreply {
            return Ok(None);
        }
        let uncertain_on_loss =
            self.in_flight.uncertain_on_loss(requests, may_leave_keys_uncertain, removals);
        let call = WrittenCall {
            attempt,
            range: self.wire.range_since(begin_offset),
            reply_count: (self.wire.pipeline().in_flight_count() - in_flight_before) as u32,
            is_repeatable,
            uncertain_on_loss,
        };
        Ok(Some(self.in_flight.push_call(call, near_write_guard)))
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
            let elsewhere = requested.filter(|key| !self.in_flight.is_removing(key));
            removals = self.server.uncertain.begin_removal(elsewhere);
        }
        if !removals.is_empty() {
            self.pending_writes.begin(&self.server, self.wire.next_opaque());
            let acknowledged_count =
                write_removals(&removals, &mut self.wire.request_writer(command_set));
            self.pending_writes.add_removals(acknowledged_count);
        }
        if !self.pending_writes.is_empty() {
            let begin_offset = self.wire.appended_bytes();
            let pending_writes = std::mem::take(&mut self.pending_writes);
            let range =
                self.wire.write_acknowledgement_request(command_set, &pending_writes, begin_offset);
            let removals = std::mem::take(&mut removals);
            self.in_flight.push_acknowledgement(pending_writes, removals, range, false);
        }
        removals
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
            self.pending_writes.begin(&self.server, self.wire.next_opaque());
        }
        for (request_index, request) in requests.iter().enumerate() {
            if let Err(unsupported) = request.write(&mut self.wire.request_writer(command_set)) {
                if request_index > 0 {
                    self.fail_all(&Error::Closed); // replies to those before it could not be delivered
                }
                return Err(Error::Unsupported {
                    server: self.server.name.clone(),
                    what: unsupported.0,
                });
            }
            if requests.len() > 1
                && let Some(body) = request.external_body()
            {
                self.wire.push_body(body);
            }
            if awaits_acknowledgement && request.is_noreply() {
                self.pending_writes.add_write(request);
            }
        }
        Ok(())
    }

    /// Submits quiet writes from the write buffer, and requests their acknowledgement.
    pub fn submit_buffered_writes(&mut self, encoded_writes: &[u8], pending_writes: PendingWrites) {
        self.wire.discard_sent();
        let command_set = self.server.written_command_set();
        self.remove_uncertain(&[], command_set);
        let begin_offset = self.wire.appended_bytes();
        self.wire.push_encoded(encoded_writes);
        let range =
            self.wire.write_acknowledgement_request(command_set, &pending_writes, begin_offset);
        self.in_flight.push_acknowledgement(pending_writes, Vec::new(), range, true);
    }

    /// Requests an acknowledgement of the quiet writes so far. A driver of many calls does so before it sends its
    /// output, so that a refusal is read as a reply and not as unsolicited bytes.
    pub fn request_acknowledgement(&mut self) {
        if !self.pending_writes.is_empty() {
            let command_set = self.server.written_command_set();
            let begin_offset = self.wire.appended_bytes();
            let pending_writes = std::mem::take(&mut self.pending_writes);
            let range =
                self.wire.write_acknowledgement_request(command_set, &pending_writes, begin_offset);
            self.in_flight.push_acknowledgement(pending_writes, Vec::new(), range, false);
        }
    }

    /// Notes that another call takes it up, some time after the one before.
    pub fn mark_reused(&mut self) {
        self.in_flight.mark_reused();
    }

    /// Quiet writes that were lost with the connection before a byte of them was sent.
    pub fn take_unsent_buffered_writes(&mut self) -> Option<PendingWrites> {
        self.in_flight.take_unsent_buffered_writes()
    }

    /// Requests for acknowledgement in flight.
    pub fn acknowledgements_in_flight(&self) -> usize {
        self.in_flight.acknowledgement_count()
    }

    /// Whether quiet writes were not acknowledged yet.
    pub fn has_unacknowledged_writes(&self) -> bool {
        !self.pending_writes.is_empty() || self.in_flight.acknowledgement_count() > 0
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.in_flight.record_uncertain_keys(self.wire.sent_bytes(), &self.server.uncertain);
    }
}
