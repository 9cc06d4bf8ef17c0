//! Input of a connection: replies, deadlines that pass, or the end of the connection.

use std::sync::atomic::Ordering;
use std::time::Instant;

use glasscache_protocol::meta::request::WireKey;

use super::in_flight::{InFlightRequest, ReplyReceiver};
use super::{
    Attempt, Connection, ConnectionEvent, ConnectionStage, Failure, NoReplyReason, Ticket,
};
use crate::engine::health::HealthEffect;
use crate::engine::retry::{self, FailedRequest, FailureCause, RetryDecision};
use crate::engine::uncertain::OwnedKey;
use crate::error::{Context, Error, Phase};
use crate::pipeline::{self, ExpectedReply, Reply};
use crate::request::{CommandSet, Request};

impl Connection {
    /// Parses what was received, and returns the next event for the driver.
    pub fn poll(&mut self) -> ConnectionEvent {
        self.release();
        if self.must_report_ready {
            self.must_report_ready = false;
            return ConnectionEvent::Ready;
        }
        if !self.failed_calls.is_empty()
            && let Some((ticket, failure)) = self.failed_calls.pop_front()
        {
            return ConnectionEvent::Failed(ticket, failure);
        }
        if self.stage == ConnectionStage::Closed {
            return ConnectionEvent::Idle; // its fault was counted when it was closed
        }
        loop {
            // What has come then are refusals of quiet writes, which are read once an acknowledgement is requested.
            if self.in_flight.is_empty() && !self.pending_writes.is_empty() {
                if self.pipeline.received_bytes() > self.pending_writes.refusals_bytes_max() {
                    self.fail_protocol(pipeline::Fault::TooManyRows);
                }
                return ConnectionEvent::Idle;
            }
            match self.pipeline.poll() {
                Ok(pipeline::ReplyProgress::Complete(reply)) => {
                    if let Some(event) = self.deliver_reply(reply) {
                        return event;
                    }
                }
                Ok(pipeline::ReplyProgress::Idle) => return ConnectionEvent::Idle,
                Ok(pipeline::ReplyProgress::Incomplete(missing_bytes)) => {
                    return ConnectionEvent::NeedsBytes(missing_bytes);
                }
                Err(fault) => {
                    self.fail_protocol(fault);
                    return match self.failed_calls.pop_front() {
                        Some((ticket, failure)) => ConnectionEvent::Failed(ticket, failure),
                        None => ConnectionEvent::Idle,
                    };
                }
            }
        }
    }

    /// Delivers a complete reply to the oldest call in flight; `None`: the connection itself had requested it.
    fn deliver_reply(&mut self, reply: Reply) -> Option<ConnectionEvent> {
        let Some(in_flight_request) = self.in_flight.front_mut() else {
            self.pipeline.release();
            return None;
        };
        match (&in_flight_request.receiver, &reply) {
            (ReplyReceiver::Call(Ticket::OPENING, _), &Reply::Probe(knows_meta)) => {
                let command_set = if knows_meta { CommandSet::Meta } else { CommandSet::Classic };
                self.server.learn_command_set(command_set);
                self.end_reply();
                self.is_reused = false;
                if self.stage == ConnectionStage::Probing {
                    self.stage = ConnectionStage::Open;
                    return Some(ConnectionEvent::Ready);
                }
                None
            }
            (&ReplyReceiver::Call(Ticket::OPENING, attempt), Reply::Login(refusal)) => {
                let refusal = refusal.clone();
                self.end_reply();
                self.is_reused = false;
                self.finish_login(refusal, attempt)
            }
            (ReplyReceiver::Call(ticket, _), _) => {
                let ticket = *ticket;
                in_flight_request.awaits_first_reply = false;
                self.has_unreleased_reply = true;
                Some(ConnectionEvent::Reply(ticket, reply))
            }
            (ReplyReceiver::Acknowledgement(_), Reply::Quiet(failed_replies, refusals)) => {
                if let ReplyReceiver::Acknowledgement(pending_writes) =
                    &mut in_flight_request.receiver
                {
                    std::mem::take(&mut **pending_writes)
                        .acknowledge(failed_replies, refusals.len());
                }
                self.end_reply();
                None
            }
            (ReplyReceiver::Abandoned | ReplyReceiver::Acknowledgement(_), _) => {
                self.end_reply();
                None
            }
        }
    }

    /// The first key written by the call whose reply was returned.
    pub fn written_key(&self) -> Option<OwnedKey> {
        let in_flight_request = self.in_flight.front().filter(|_| self.has_unreleased_reply)?;
        in_flight_request.uncertain_on_loss.as_ref()?.keys.first().map(OwnedKey::from)
    }

    /// The key of the reply that was returned, where the request in flight keeps it: a plain read or a write.
    pub fn replied_key(&self) -> Option<WireKey<'_>> {
        let in_flight_request = self.in_flight.front().filter(|_| self.has_unreleased_reply)?;
        match (&in_flight_request.uncertain_on_loss, self.pipeline.oldest_request()) {
            (Some(uncertain_on_loss), _) => uncertain_on_loss.keys.first(),
            (None, oldest) => Some(WireKey { bytes: oldest?.keys()?.get(0)?, is_base64: false }),
        }
    }

    /// Whether the reply that was returned is the last of its call.
    pub fn is_last_reply(&self) -> bool {
        self.in_flight.front().is_none_or(|in_flight_request| in_flight_request.replies_left <= 1)
    }

    /// Releases the reply that was returned, with its values; [`Self::poll`] does so too.
    pub fn release(&mut self) {
        if self.has_unreleased_reply {
            self.has_unreleased_reply = false;
            self.end_reply();
            self.server.health.mark_good();
            if self.presumes_classic && self.server.command_set().is_none() {
                self.server.learn_command_set(CommandSet::Classic);
            }
        }
    }

    fn end_reply(&mut self) {
        self.pipeline.release();
        self.is_reused = true;
        let Some(in_flight_request) = self.in_flight.front_mut() else {
            return;
        };
        in_flight_request.replies_left = in_flight_request.replies_left.saturating_sub(1);
        if in_flight_request.replies_left > 0 {
            return;
        }
        if let Some(mut uncertain_on_loss) = in_flight_request.uncertain_on_loss.take() {
            uncertain_on_loss.keys.clear();
            let removals = std::mem::take(&mut uncertain_on_loss.removals);
            self.server.uncertain.end_removal(removals, true);
            self.recycled_uncertain_on_loss = Some(uncertain_on_loss);
        }
        if matches!(in_flight_request.receiver, ReplyReceiver::Acknowledgement(_)) {
            self.acknowledgements_in_flight -= 1;
        }
        self.in_flight.pop_front();
    }

    /// The first deadline of a call in flight.
    pub fn next_deadline(&self) -> Option<Instant> {
        let calls = self.in_flight.iter().filter_map(InFlightRequest::ticket_and_attempt);
        calls.map(|(_, attempt)| attempt.deadline).min()
    }

    /// Ends the calls whose deadline has passed. Their replies are still read and dropped; the connection takes no more
    /// requests, and is closed at once if one of theirs was not sent.
    pub fn tick(&mut self, now: Instant) {
        let mut health_effect = HealthEffect::None;
        for in_flight_index in 0..self.in_flight.len() {
            let expired_call = self.in_flight.get(in_flight_index).and_then(|in_flight_request| {
                let (ticket, attempt) = in_flight_request
                    .ticket_and_attempt()
                    .filter(|(_, candidate)| candidate.deadline <= now)?;
                Some((
                    ticket,
                    self.failure_without_reply(in_flight_request, attempt, NoReplyReason::Deadline),
                ))
            });
            let (Some((ticket, failure)), Some(in_flight_request)) =
                (expired_call, self.in_flight.get_mut(in_flight_index))
            else {
                continue;
            };
            health_effect = health_effect.max(failure.health_effect());
            self.failed_calls.push_back((ticket, Box::new(failure)));
            in_flight_request.receiver = ReplyReceiver::Abandoned;
            if in_flight_request.begin_offset < self.output.sent_bytes() {
                if let Some(uncertain_on_loss) = &mut in_flight_request.uncertain_on_loss {
                    self.server.uncertain.add(uncertain_on_loss.keys.iter());
                    uncertain_on_loss.keys.clear();
                }
                self.close();
            } else {
                self.stage = ConnectionStage::Closed;
            }
        }
        self.server.health.apply_effect(health_effect);
    }

    /// Ends a call whose quiet writes were submitted from the byte `begin_offset` on and could not all be sent: its
    /// caller gets the error, so they do not count as lost. To be called before [`Self::handle_disconnect`].
    pub fn fail_quiet(
        &mut self,
        requests: &[Request<'_>],
        attempt: Attempt,
        begin_offset: u64,
        no_reply_reason: NoReplyReason<'_>,
    ) -> Failure {
        let mut in_flight_request = InFlightRequest::new(ReplyReceiver::Abandoned, begin_offset);
        in_flight_request.end_offset = self.appended_bytes();
        in_flight_request.is_repeatable = requests.iter().all(Request::is_repeatable);
        let failure = self.failure_without_reply(&in_flight_request, attempt, no_reply_reason);
        self.server.health.apply_effect(failure.health_effect());
        let was_sent = begin_offset < self.sent_bytes();
        self.pending_writes.exclude_reported(requests, was_sent);
        failure
    }

    /// Notes that the transport is gone: closed by the peer in order, or else by an error. `reason` goes into the
    /// errors of callers.
    pub fn handle_disconnect(&mut self, is_orderly: bool, reason: &str) {
        let was_closing = matches!(self.stage, ConnectionStage::Closing | ConnectionStage::Closed);
        self.stage = ConnectionStage::Closed;
        let mut health_effect = HealthEffect::None;
        for mut in_flight_request in std::mem::take(&mut self.in_flight) {
            if let Some((ticket, attempt)) = in_flight_request.ticket_and_attempt() {
                let failure = self.failure_without_reply(
                    &in_flight_request,
                    attempt,
                    NoReplyReason::Closed { is_orderly, reason },
                );
                health_effect = health_effect.max(failure.health_effect());
                self.failed_calls.push_back((ticket, Box::new(failure)));
            }
            self.save_unsent_buffered_writes(&mut in_flight_request);
            self.record_uncertain_keys(&in_flight_request);
        }
        self.acknowledgements_in_flight = 0;
        // If we are closing it, its health was noted when a call on it passed its deadline.
        if !was_closing {
            self.server.health.apply_effect(health_effect);
        }
        drop(std::mem::take(&mut self.pending_writes));
    }

    /// Notes that the server broke the protocol: nothing received on this connection can be trusted any more.
    fn fail_protocol(&mut self, fault: pipeline::Fault) {
        self.server.faults.fetch_add(1, Ordering::Relaxed);
        self.server.health.apply_effect(HealthEffect::Bad);
        self.fail_all(&Error::Protocol { server: self.server.name.clone(), fault });
    }

    /// Ends all calls in flight, because their replies could not be matched any more.
    pub(super) fn fail_all_and_close(&mut self) {
        self.fail_all(&Error::Closed);
    }

    fn fail_all(&mut self, error: &Error) {
        self.stage = ConnectionStage::Closed;
        for in_flight_request in std::mem::take(&mut self.in_flight) {
            if let Some((ticket, _)) = in_flight_request.ticket_and_attempt() {
                let failure = Failure {
                    error: error.clone(),
                    decision: RetryDecision::Fail(HealthEffect::None),
                };
                self.failed_calls.push_back((ticket, Box::new(failure)));
            }
            self.record_uncertain_keys(&in_flight_request);
        }
        self.acknowledgements_in_flight = 0;
        drop(std::mem::take(&mut self.pending_writes));
    }

    /// The error for the caller of a request without a reply, and what follows.
    fn failure_without_reply(
        &self,
        in_flight_request: &InFlightRequest,
        attempt: Attempt,
        no_reply_reason: NoReplyReason<'_>,
    ) -> Failure {
        let is_opening =
            matches!(in_flight_request.receiver, ReplyReceiver::Call(Ticket::OPENING, _));
        let sent_bytes = self.sent_bytes();
        let failed_request = FailedRequest {
            // A peer that closes during the login may still know meta commands.
            stage: if is_opening
                && !self.pipeline.oldest_request().is_some_and(ExpectedReply::is_login)
            {
                retry::FailureStage::Probing
            } else {
                retry::FailureStage::RoundTrip
            },
            is_reused: self.is_reused,
            has_no_reply_bytes: self.pipeline.has_no_reply_bytes()
                && in_flight_request.awaits_first_reply,
            was_sent: in_flight_request.begin_offset < sent_bytes && !is_opening,
            is_repeatable: in_flight_request.is_repeatable,
            was_retried: attempt.is_retry,
        };
        let phase = if is_opening {
            Phase::Connect
        } else if sent_bytes < in_flight_request.end_offset {
            Phase::Write
        } else {
            Phase::Read
        };
        let context = Context {
            server: self.server.name.clone(),
            phase,
            retry_is_safe: failed_request.retry_is_safe(),
        };
        let (cause, error) = match no_reply_reason {
            NoReplyReason::Closed { is_orderly, reason } => (
                FailureCause::Closed { is_orderly },
                Error::Unavailable(context, reason.to_owned()),
            ),
            NoReplyReason::Deadline => {
                let time_allowed = attempt.deadline.saturating_duration_since(attempt.started);
                (FailureCause::Deadline(time_allowed), Error::Deadline(context))
            }
        };
        let decision = failed_request.decide(cause);
        Failure { error, decision }
    }

    fn record_uncertain_keys(&self, in_flight_request: &InFlightRequest) {
        let Some(uncertain_on_loss) = &in_flight_request.uncertain_on_loss else {
            return;
        };
        if in_flight_request.begin_offset < self.sent_bytes() {
            self.server.uncertain.add(uncertain_on_loss.keys.iter());
        }
        self.server.uncertain.end_removal(uncertain_on_loss.removals.clone(), false);
    }

    fn save_unsent_buffered_writes(&mut self, in_flight_request: &mut InFlightRequest) {
        if in_flight_request.was_buffered
            && in_flight_request.begin_offset >= self.sent_bytes()
            && let ReplyReceiver::Acknowledgement(pending_writes) = &mut in_flight_request.receiver
        {
            self.unsent_buffered_writes = Some(std::mem::take(&mut **pending_writes));
        }
    }

    /// In a child after a fork: ends all calls, and forgets what is in flight, which is the parent's.
    pub fn abandon(&mut self) {
        self.stage = ConnectionStage::Closed;
        std::mem::take(&mut self.pending_writes).drop_uncounted();
        for mut in_flight_request in std::mem::take(&mut self.in_flight) {
            if let Some((ticket, _)) = in_flight_request.ticket_and_attempt() {
                let context = Context {
                    server: self.server.name.clone(),
                    phase: Phase::Read,
                    retry_is_safe: in_flight_request.is_repeatable,
                };
                let reason = retry::FORK_REASON.to_owned();
                let failure = Failure {
                    error: Error::Unavailable(context, reason),
                    decision: RetryDecision::Fail(HealthEffect::None),
                };
                self.failed_calls.push_back((ticket, Box::new(failure)));
            }
            if let ReplyReceiver::Acknowledgement(pending_writes) = &mut in_flight_request.receiver
            {
                std::mem::take(&mut **pending_writes).drop_uncounted();
            }
        }
        self.acknowledgements_in_flight = 0;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for in_flight_request in std::mem::take(&mut self.in_flight) {
            self.record_uncertain_keys(&in_flight_request);
        }
    }
}
