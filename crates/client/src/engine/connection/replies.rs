//! Input of a connection: replies, deadlines that pass, or the end of the connection.

use std::sync::atomic::Ordering;
use std::time::Instant;

use glasscache_protocol::meta::request::WireKey;

use super::in_flight::ReplyUse;
use super::lifecycle::OpeningStep;
use super::{Attempt, Connection, ConnectionEvent, Failure, NoReplyReason};
use crate::engine::health::HealthEffect;
use crate::engine::uncertain::OwnedKey;
use crate::error::Error;
use crate::pipeline::{self, Reply};
use crate::request::Request;

impl Connection {
    /// Parses what was received, and returns the next event for the driver.
    pub fn poll(&mut self) -> ConnectionEvent {
        self.release();
        if self.lifecycle.take_must_report_ready() {
            return ConnectionEvent::Ready;
        }
        if self.in_flight.has_failed_calls()
            && let Some((ticket, failure)) = self.in_flight.take_failed_call()
        {
            return ConnectionEvent::Failed(ticket, failure);
        }
        if self.lifecycle.is_closed() {
            return ConnectionEvent::Idle; // its fault was counted when it was closed
        }
        loop {
            // What has come then are refusals of quiet writes, which are read once an acknowledgement is requested.
            if self.in_flight.is_empty() && !self.pending_writes.is_empty() {
                let received_bytes = self.wire.pipeline().received_bytes();
                if received_bytes > self.pending_writes.refusals_bytes_max() {
                    self.fail_protocol(pipeline::Fault::TooManyRows);
                }
                return ConnectionEvent::Idle;
            }
            match self.wire.pipeline_mut().poll() {
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
                    return match self.in_flight.take_failed_call() {
                        Some((ticket, failure)) => ConnectionEvent::Failed(ticket, failure),
                        None => ConnectionEvent::Idle,
                    };
                }
            }
        }
    }

    /// Delivers a complete reply to the oldest call in flight; `None`: the connection itself had requested it.
    fn deliver_reply(&mut self, reply: Reply) -> Option<ConnectionEvent> {
        match self.in_flight.receive_reply(&reply) {
            ReplyUse::Call(ticket) => Some(ConnectionEvent::Reply(ticket, reply)),
            ReplyUse::Opening(attempt) => self.continue_opening(reply, attempt),
            ReplyUse::Internal => {
                self.end_reply();
                None
            }
            ReplyUse::Unrequested => {
                self.wire.pipeline_mut().release();
                None
            }
        }
    }

    /// Takes the reply to the login or the probe; `None`: the probe follows, or the connection is closing.
    fn continue_opening(&mut self, reply: Reply, attempt: Attempt) -> Option<ConnectionEvent> {
        self.end_reply();
        self.in_flight.mark_unused(); // no call was replied to
        let begin_offset = self.wire.appended_bytes();
        let step = match reply {
            Reply::Login(Some(refusal)) => {
                // The server is well, but no call to it can succeed: the probe finds out when one can.
                self.server.health.apply_effect(HealthEffect::Bad);
                let error = Error::LoginRefused { server: self.server.name.clone(), refusal };
                self.fail_opening(error, HealthEffect::Bad);
                let (ticket, failure) = self.in_flight.take_failed_call()?;
                return Some(ConnectionEvent::Failed(ticket, failure));
            }
            Reply::Probe(knows_meta) => self.lifecycle.finish_probe(knows_meta, &self.server),
            _ => self.lifecycle.finish_login(&self.server, &mut self.wire),
        };
        match step? {
            OpeningStep::Ready => Some(ConnectionEvent::Ready),
            OpeningStep::AwaitsReply => {
                self.in_flight.push_opening(self.wire.range_since(begin_offset), attempt);
                None
            }
        }
    }

    /// The first key written by the call whose reply was returned.
    pub fn written_key(&self) -> Option<OwnedKey> {
        self.in_flight.written_key().map(OwnedKey::from)
    }

    /// The key of the reply that was returned, where the request in flight keeps it: a plain read or a write.
    pub fn replied_key(&self) -> Option<WireKey<'_>> {
        self.in_flight.replied_key(self.wire.pipeline().oldest_request())
    }

    /// Whether the reply that was returned is the last of its call.
    pub fn is_last_reply(&self) -> bool {
        self.in_flight.is_last_reply()
    }

    /// Releases the reply that was returned, with its values; [`Self::poll`] does so too.
    pub fn release(&mut self) {
        if self.in_flight.take_unreleased_reply() {
            self.end_reply();
            self.server.health.mark_good();
            self.lifecycle.confirm_presumed_classic(&self.server);
        }
    }

    /// Ends the oldest reply, with its bytes.
    fn end_reply(&mut self) {
        self.wire.pipeline_mut().release();
        self.in_flight.end_reply(&self.server.uncertain);
    }

    /// The first deadline of a call in flight.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.in_flight.next_deadline()
    }

    /// Ends the calls whose deadline has passed. Their replies are still read and dropped; the connection takes no more
    /// requests, and is closed at once if one of theirs was not sent.
    pub fn tick(&mut self, now: Instant) {
        let expiry = self.in_flight.expire(now, self.wire.progress(), &self.server);
        if expiry.was_any_sent {
            self.close();
        }
        if expiry.was_any_unsent {
            self.close_now();
        }
        self.server.health.apply_effect(expiry.health_effect);
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
        let failure = self.in_flight.failure_of_quiet_writes(
            requests,
            (attempt, self.wire.range_since(begin_offset)),
            no_reply_reason,
            self.wire.progress(),
            &self.server,
        );
        self.server.health.apply_effect(failure.health_effect());
        let was_sent = begin_offset < self.wire.sent_bytes();
        self.pending_writes.exclude_reported(requests, was_sent);
        failure
    }

    /// Notes that the transport is gone: closed by the peer in order, or else by an error. `reason` goes into the
    /// errors of callers.
    pub fn handle_disconnect(&mut self, is_orderly: bool, reason: &str) {
        let was_closing = self.close_now();
        let health_effect = self.in_flight.fail_by_disconnect(
            NoReplyReason::Closed { is_orderly, reason },
            self.wire.progress(),
            &self.server,
        );
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
    pub(super) fn fail_all(&mut self, error: &Error) {
        self.close_now();
        self.in_flight.fail_all(error, self.wire.sent_bytes(), &self.server.uncertain);
        drop(std::mem::take(&mut self.pending_writes));
    }

    /// In a child after a fork: ends all calls, and forgets what is in flight, which is the parent's.
    pub fn abandon(&mut self) {
        self.close_now();
        std::mem::take(&mut self.pending_writes).drop_uncounted();
        self.in_flight.abandon(&self.server);
    }
}
