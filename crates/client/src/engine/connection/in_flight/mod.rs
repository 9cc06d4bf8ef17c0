//! The requests in flight on a connection, the oldest first, and the calls that have ended without a reply.
//!
//! INVARIANT: a request leaves the queue when its last reply is released, or when the connection ends. The server's
//! state then records the keys that may still have an older value; in a forked child they belong to the parent.

mod request;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use glasscache_protocol::meta::request::WireKey;

use super::event::{Attempt, Failure, NoReplyReason, Ticket};
use super::wire::{ByteRange, WireProgress};
use crate::engine::health::HealthEffect;
use crate::engine::pending_writes::PendingWrites;
use crate::engine::retry::{self, RetryDecision};
use crate::engine::server::ServerState;
use crate::engine::uncertain::{OwnedKey, UncertainKeys, for_each_key_left_uncertain};
use crate::error::{Context, Error, Phase};
use crate::near::NearWriteGuard;
use crate::pipeline::{ExpectedReply, Reply};
use crate::request::Request;
use request::{InFlightRequest, ReplyReceiver, UncertainOnLoss};

/// The requests of a call that were written.
#[derive(Debug)]
pub(super) struct WrittenCall {
    pub(super) attempt: Attempt,
    pub(super) range: ByteRange,
    pub(super) reply_count: u32,
    pub(super) is_repeatable: bool,
    pub(super) uncertain_on_loss: Option<Box<UncertainOnLoss>>,
}

/// What a complete reply is for.
#[derive(Debug)]
pub(super) enum ReplyUse {
    /// No request awaits one.
    Unrequested,
    /// The call with this ticket.
    Call(Ticket),
    /// The login or the probe.
    Opening(Attempt),
    /// Nobody: it only ends its request.
    Internal,
}

/// What is left on a connection after the deadlines of some of its calls have passed.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    pub(super) health_effect: HealthEffect,
    /// Requests were sent to which replies may still come.
    pub(super) was_any_sent: bool,
    /// Requests were not sent, and must not be sent any more.
    pub(super) was_any_unsent: bool,
}

/// The requests in flight, the oldest first, and the calls that have ended without a reply.
#[derive(Debug)]
pub(super) struct InFlightRequests {
    queue: VecDeque<InFlightRequest>,
    /// How many of them are requests for acknowledgement.
    acknowledgement_count: usize,
    failed_calls: VecDeque<(Ticket, Box<Failure>)>,
    /// A reply of the oldest was returned and is not released yet.
    has_unreleased_reply: bool,
    /// A request was answered before, so the peer may have closed the connection since.
    is_reused: bool,
    last_ticket: u64,
    /// Quiet writes that were lost before a byte of them was sent.
    unsent_buffered_writes: Option<PendingWrites>,
    recycled_uncertain_on_loss: Option<Box<UncertainOnLoss>>,
}

impl InFlightRequests {
    /// No requests yet.
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            acknowledgement_count: 0,
            failed_calls: VecDeque::new(),
            has_unreleased_reply: false,
            is_reused: false,
            last_ticket: Ticket::OPENING.0,
            unsent_buffered_writes: None,
            recycled_uncertain_on_loss: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Requests for acknowledgement in flight.
    pub(super) fn acknowledgement_count(&self) -> usize {
        self.acknowledgement_count
    }

    /// Whether no call awaits a reply.
    pub(super) fn are_all_acknowledgements(&self) -> bool {
        self.queue.len() == self.acknowledgement_count
    }

    /// Whether the failure of a call was not returned yet.
    pub(super) fn has_failed_calls(&self) -> bool {
        !self.failed_calls.is_empty()
    }

    /// The next call that ended without a reply.
    pub(super) fn take_failed_call(&mut self) -> Option<(Ticket, Box<Failure>)> {
        self.failed_calls.pop_front()
    }

    /// Notes that another call uses the connection, some time after the last one.
    pub(super) fn mark_reused(&mut self) {
        self.is_reused = true;
    }

    /// Notes that no call has used the connection.
    pub(super) fn mark_unused(&mut self) {
        self.is_reused = false;
    }

    /// Quiet writes that were lost with the connection before a byte of them was sent.
    pub(super) fn take_unsent_buffered_writes(&mut self) -> Option<PendingWrites> {
        self.unsent_buffered_writes.take()
    }

    /// Whether a removal of a key is in flight ahead of new requests.
    pub(super) fn is_removing(&self, key: &OwnedKey) -> bool {
        let in_flight = self.queue.iter();
        let mut removals =
            in_flight.filter_map(|in_flight_request| in_flight_request.uncertain_on_loss.as_ref());
        removals.any(|uncertain_on_loss| uncertain_on_loss.removals.contains(key))
    }

    /// Has the next call on another connection repeat the removals in flight, because it does not wait for them.
    pub(super) fn repeat_removals(&mut self, uncertain: &UncertainKeys) {
        for in_flight_request in &mut self.queue {
            if let Some(uncertain_on_loss) = &mut in_flight_request.uncertain_on_loss {
                let removals = std::mem::take(&mut uncertain_on_loss.removals);
                uncertain.end_removal(removals, false);
            }
        }
    }

    /// The keys that are uncertain without replies to these requests and to the removals before them; `None` if there are
    /// no removals and the requests leave no key uncertain.
    #[inline]
    pub(super) fn uncertain_on_loss(
        &mut self,
        requests: &[Request<'_>],
        may_leave_keys_uncertain: bool,
        removals: Vec<OwnedKey>,
    ) -> Option<Box<UncertainOnLoss>> {
        if !may_leave_keys_uncertain && removals.is_empty() {
            return None;
        }
        let mut uncertain_on_loss = self.recycled_uncertain_on_loss.take().unwrap_or_default();
        for request in requests {
            for_each_key_left_uncertain(request, |key| uncertain_on_loss.keys.add(key));
        }
        uncertain_on_loss.removals = removals;
        Some(uncertain_on_loss)
    }

    /// Adds the login or the probe.
    pub(super) fn push_opening(&mut self, range: ByteRange, attempt: Attempt) {
        let receiver = ReplyReceiver::Call(Ticket::OPENING, attempt);
        let mut in_flight_request = InFlightRequest::new(receiver, range);
        in_flight_request.is_repeatable = true;
        self.queue.push_back(in_flight_request);
    }

    /// Adds a request that acknowledges quiet writes and these removals. With `was_buffered` the writes are from a write
    /// buffer, which sends them again if no byte of them was sent.
    pub(super) fn push_acknowledgement(
        &mut self,
        pending_writes: PendingWrites,
        removals: Vec<OwnedKey>,
        range: ByteRange,
        was_buffered: bool,
    ) {
        let receiver = ReplyReceiver::Acknowledgement(Box::new(pending_writes));
        let mut in_flight_request = InFlightRequest::new(receiver, range);
        in_flight_request.was_buffered = was_buffered;
        if !removals.is_empty() {
            let uncertain_on_loss = UncertainOnLoss { removals, ..UncertainOnLoss::default() };
            in_flight_request.uncertain_on_loss = Some(Box::new(uncertain_on_loss));
        }
        self.acknowledgement_count += 1;
        self.queue.push_back(in_flight_request);
    }

    /// Adds the requests of a call; what they change is guarded until it ends.
    #[inline]
    pub(super) fn push_call(
        &mut self,
        call: WrittenCall,
        near_write_guard: Option<Box<NearWriteGuard>>,
    ) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.queue.push_back(InFlightRequest {
            receiver: ReplyReceiver::Call(ticket, call.attempt),
            range: call.range,
            replies_left: call.reply_count,
            awaits_first_reply: true,
            is_repeatable: call.is_repeatable,
            was_buffered: false,
            uncertain_on_loss: call.uncertain_on_loss,
            near_write_guard,
        });
        ticket
    }

    /// Finds the receiver of a complete reply, and acknowledges the quiet writes that it is about; [`Self::end_reply`]
    /// follows, for the reply to a call when the driver has read it.
    pub(super) fn receive_reply(&mut self, reply: &Reply) -> ReplyUse {
        let Some(oldest) = self.queue.front_mut() else {
            return ReplyUse::Unrequested;
        };
        match (&mut oldest.receiver, reply) {
            (
                &mut ReplyReceiver::Call(Ticket::OPENING, attempt),
                Reply::Probe(_) | Reply::Login(_),
            ) => ReplyUse::Opening(attempt),
            (&mut ReplyReceiver::Call(ticket, _), _) => {
                oldest.awaits_first_reply = false;
                self.has_unreleased_reply = true;
                ReplyUse::Call(ticket)
            }
            (
                ReplyReceiver::Acknowledgement(pending_writes),
                Reply::Quiet(failed_replies, refusals),
            ) => {
                std::mem::take(&mut **pending_writes).acknowledge(failed_replies, refusals.len());
                ReplyUse::Internal
            }
            (ReplyReceiver::Abandoned | ReplyReceiver::Acknowledgement(_), _) => ReplyUse::Internal,
        }
    }

    /// Whether a returned reply is to be released now.
    #[inline]
    pub(super) fn take_unreleased_reply(&mut self) -> bool {
        self.has_unreleased_reply && std::mem::take(&mut self.has_unreleased_reply)
    }

    /// The first key written by the call whose reply was returned.
    pub(super) fn written_key(&self) -> Option<WireKey<'_>> {
        let oldest = self.queue.front().filter(|_| self.has_unreleased_reply)?;
        oldest.uncertain_on_loss.as_ref()?.keys.first()
    }

    /// The key of the reply that was returned, where it is known: of a write, or of the read `oldest_request`.
    pub(super) fn replied_key<'s>(
        &'s self,
        oldest_request: Option<&'s ExpectedReply>,
    ) -> Option<WireKey<'s>> {
        let oldest = self.queue.front().filter(|_| self.has_unreleased_reply)?;
        match &oldest.uncertain_on_loss {
            Some(uncertain_on_loss) => uncertain_on_loss.keys.first(),
            None => Some(WireKey { bytes: oldest_request?.keys()?.get(0)?, is_base64: false }),
        }
    }

    /// Whether the reply that was returned is the last of its call.
    pub(super) fn is_last_reply(&self) -> bool {
        self.queue.front().is_none_or(|oldest| oldest.replies_left <= 1)
    }

    /// Ends a reply to the oldest request, and the request if it was its last reply.
    pub(super) fn end_reply(&mut self, uncertain: &UncertainKeys) {
        self.is_reused = true;
        let Some(oldest) = self.queue.front_mut() else {
            return;
        };
        oldest.replies_left = oldest.replies_left.saturating_sub(1);
        if oldest.replies_left > 0 {
            return;
        }
        if let Some(mut uncertain_on_loss) = oldest.uncertain_on_loss.take() {
            uncertain_on_loss.keys.clear();
            let removals = std::mem::take(&mut uncertain_on_loss.removals);
            uncertain.end_removal(removals, true);
            self.recycled_uncertain_on_loss = Some(uncertain_on_loss);
        }
        if matches!(oldest.receiver, ReplyReceiver::Acknowledgement(_)) {
            self.acknowledgement_count -= 1;
        }
        self.queue.pop_front();
    }

    /// The first deadline of a call in flight.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let calls = self.queue.iter().filter_map(InFlightRequest::ticket_and_attempt);
        calls.map(|(_, attempt)| attempt.deadline).min()
    }

    /// Ends the calls whose deadline has passed. Their replies are still read and dropped.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        progress: WireProgress,
        server: &ServerState,
    ) -> Expiry {
        let mut expiry = Expiry::default();
        for in_flight_request in &mut self.queue {
            let Some((ticket, attempt)) = in_flight_request
                .ticket_and_attempt()
                .filter(|(_, candidate)| candidate.deadline <= now)
            else {
                continue;
            };
            let failure = in_flight_request.failure_without_reply(
                attempt,
                NoReplyReason::Deadline,
                progress,
                (server, self.is_reused),
            );
            expiry.health_effect = expiry.health_effect.max(failure.health_effect());
            self.failed_calls.push_back((ticket, Box::new(failure)));
            in_flight_request.receiver = ReplyReceiver::Abandoned;
            if in_flight_request.range.begin_offset < progress.sent_bytes {
                if let Some(uncertain_on_loss) = &mut in_flight_request.uncertain_on_loss {
                    server.uncertain.add(uncertain_on_loss.keys.iter());
                    uncertain_on_loss.keys.clear();
                }
                expiry.was_any_sent = true;
            } else {
                expiry.was_any_unsent = true;
            }
        }
        expiry
    }

    /// The failure of quiet writes in this range of bytes that could not all be sent: no reply of theirs is in flight.
    pub(super) fn failure_of_quiet_writes(
        &self,
        requests: &[Request<'_>],
        (attempt, range): (Attempt, ByteRange),
        no_reply_reason: NoReplyReason<'_>,
        progress: WireProgress,
        server: &ServerState,
    ) -> Failure {
        let mut in_flight_request = InFlightRequest::new(ReplyReceiver::Abandoned, range);
        in_flight_request.is_repeatable = requests.iter().all(Request::is_repeatable);
        let server_and_use = (server, self.is_reused);
        in_flight_request.failure_without_reply(attempt, no_reply_reason, progress, server_and_use)
    }

    /// Ends all requests, because the transport is gone; returns how that counts for the health of the server.
    pub(super) fn fail_by_disconnect(
        &mut self,
        no_reply_reason: NoReplyReason<'_>,
        progress: WireProgress,
        server: &ServerState,
    ) -> HealthEffect {
        let mut health_effect = HealthEffect::None;
        for mut in_flight_request in self.take_all() {
            if let Some((ticket, attempt)) = in_flight_request.ticket_and_attempt() {
                let failure = in_flight_request.failure_without_reply(
                    attempt,
                    no_reply_reason,
                    progress,
                    (server, self.is_reused),
                );
                health_effect = health_effect.max(failure.health_effect());
                self.failed_calls.push_back((ticket, Box::new(failure)));
            }
            let unsent_writes = in_flight_request.take_unsent_buffered_writes(progress.sent_bytes);
            if unsent_writes.is_some() {
                self.unsent_buffered_writes = unsent_writes;
            }
            in_flight_request.record_uncertain_keys(progress.sent_bytes, &server.uncertain);
        }
        health_effect
    }

    /// Ends all requests with one error, because their replies could not be matched any more.
    pub(super) fn fail_all(&mut self, error: &Error, sent_bytes: u64, uncertain: &UncertainKeys) {
        for in_flight_request in self.take_all() {
            if let Some((ticket, _)) = in_flight_request.ticket_and_attempt() {
                self.push_final_failure(ticket, error.clone());
            }
            in_flight_request.record_uncertain_keys(sent_bytes, uncertain);
        }
    }

    /// Ends the opening with the failure of the login.
    pub(super) fn fail_opening(&mut self, error: Error, health_effect: HealthEffect) {
        self.take_all();
        let decision = RetryDecision::Fail(health_effect);
        self.failed_calls.push_back((Ticket::OPENING, Box::new(Failure { error, decision })));
    }

    /// In a forked child: ends all calls and drops the requests in flight, which belong to the parent.
    pub(super) fn abandon(&mut self, server: &ServerState) {
        for mut in_flight_request in self.take_all() {
            if let Some((ticket, _)) = in_flight_request.ticket_and_attempt() {
                let context = Context {
                    server: server.name.clone(),
                    phase: Phase::Read,
                    retry_is_safe: in_flight_request.is_repeatable,
                };
                let reason = retry::FORK_REASON.to_owned();
                self.push_final_failure(ticket, Error::Unavailable(context, reason));
            }
            if let ReplyReceiver::Acknowledgement(pending_writes) = &mut in_flight_request.receiver
            {
                std::mem::take(&mut **pending_writes).drop_uncounted();
            }
        }
    }

    /// Records the keys that the requests may have left uncertain, because the connection is dropped.
    pub(super) fn record_uncertain_keys(&mut self, sent_bytes: u64, uncertain: &UncertainKeys) {
        for in_flight_request in self.take_all() {
            in_flight_request.record_uncertain_keys(sent_bytes, uncertain);
        }
    }

    fn push_final_failure(&mut self, ticket: Ticket, error: Error) {
        let decision = RetryDecision::Fail(HealthEffect::None);
        self.failed_calls.push_back((ticket, Box::new(Failure { error, decision })));
    }

    fn take_all(&mut self) -> VecDeque<InFlightRequest> {
        self.acknowledgement_count = 0;
        std::mem::take(&mut self.queue)
    }
}
