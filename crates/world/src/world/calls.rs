//! Calls from start to end: attempts, replies, failures, deadlines, cancellations.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;

use glasscache_client::Error;
use glasscache_client::engine::connection::{Connection, Failure, NoReplyReason};
use glasscache_client::engine::health::{COUNTED_TIMEOUT_MIN, HealthEffect};
use glasscache_client::engine::retry::{FailedRequest, FailureCause, RetryDecision};
use glasscache_client::error::{Context, Phase};
use glasscache_client::pipeline::{Fault, Reply};
use glasscache_client::request::{CommandSet, Request as ClientRequest};
use std::time::Duration;

use super::handle_replies::{ReplyContext, ReplyEffect};
use super::server_operation::ServerOperation;
use super::{CallId, ConnectionId, ServerCallId, World, error_name, micros};
use crate::checker::{Invariant, RecordedRequest};
use crate::network::Event;
use crate::plan::{Driver, Sabotage};

/// Whether quiet writes are acknowledged by a request after them.
pub(super) fn acknowledges_quiet_writes(engine: &Connection) -> bool {
    let command_set = engine.server().command_set();
    command_set.is_some_and(|command_set| command_set != CommandSet::Classic)
}

impl World {
    /// Begins an attempt at a server call.
    pub(super) fn start_server_call(&mut self, server_call: ServerCallId) {
        let (process, server) = self.process_and_server_of(server_call);
        if self.processes[process].server_pools[server].server_state.health.is_down() {
            self.check_health(process, server); // a quiet write may have marked it down
            let error = self.unavailable_error(server, Phase::Connect, "it is down");
            return self.fail_server_call(server_call, &error);
        }
        match self.processes[process].plan.driver {
            Driver::Pooled(connections_max) => self.check_out(server_call, connections_max),
            Driver::Shared => self.submit_on_shared(server_call),
        }
    }

    /// The process and the server of a server call.
    pub(super) fn process_and_server_of(&self, server_call: ServerCallId) -> (usize, usize) {
        let server_call_state = &self.server_calls[server_call];
        let call = &self.calls[server_call_state.call_id];
        (call.process, server_call_state.server)
    }

    fn error_context(&self, server: usize, phase: Phase) -> Context {
        Context {
            server: self.processes[0].server_pools[server].server_state.name.clone(),
            phase,
            retry_is_safe: true,
        }
    }

    pub(super) fn unavailable_error(&self, server: usize, phase: Phase, reason: &str) -> Error {
        Error::Unavailable(self.error_context(server, phase), reason.to_owned())
    }

    /// Writes the next round trip of a server call on a connection that takes requests.
    pub(super) fn submit(&mut self, connection: ConnectionId, server_call: ServerCallId) {
        let (process, server) = self.process_and_server_of(server_call);
        let attempt = self.calls[self.server_calls[server_call].call_id]
            .new_attempt(self.server_calls[server_call].is_retry);
        let client_connection = &mut self.connections[connection];
        let (Some(engine), Some(server_operation)) = (
            &mut client_connection.engine_connection,
            &self.server_calls[server_call].server_operation,
        ) else {
            return;
        };
        if self.sabotage == Some(Sabotage::ForgetsUncertainKeys) {
            engine.server().uncertain.take_all();
        }
        let acknowledges_quiet = acknowledges_quiet_writes(engine);
        let begin_offset = engine.appended_bytes();
        let is_owned = client_connection.owner.is_some();
        let (ticket, is_repeatable) =
            server_operation.with_requests(acknowledges_quiet, |requests| {
                let is_repeatable = requests.iter().all(ClientRequest::is_repeatable);
                // A driver that has the connection for itself sends a long body from its own buffer.
                let ticket = if is_owned {
                    engine.submit_without_body(requests, attempt)
                } else {
                    engine.submit(requests, attempt)
                };
                (ticket, is_repeatable)
            });
        let end_offset = engine.appended_bytes();
        let ticket = match ticket {
            Ok(ticket) => ticket,
            Err(error) => return self.fail_server_call(server_call, &error),
        };
        let client_connection = &mut self.connections[connection];
        let is_quiet = ticket.is_none();
        let effects = server_operation.effects();
        let request = RecordedRequest {
            server,
            link: client_connection.link,
            begin_offset,
            end_offset,
            known_outcomes: vec![crate::checker::KnownOutcome::Unknown; effects.len()],
            effects,
            is_repeatable,
            incarnation: self.processes[process].incarnation,
            is_multi_step: server_operation.is_multi_step(),
        };
        let is_flush = matches!(server_operation, ServerOperation::Flush);
        let request_id =
            self.checker.record_request(request, is_flush, is_quiet && acknowledges_quiet);
        self.log_event(|_| {
            format!("connection {connection} request {request_id} of server call {server_call}: {begin_offset} to {end_offset}")
        });
        let client_connection = &mut self.connections[connection];
        let server_call_state = &mut self.server_calls[server_call];
        server_call_state.connection = Some(connection);
        server_call_state.request_ids.push(request_id);
        if let Some(ticket) = ticket {
            client_connection.server_calls_in_flight.push((ticket, server_call));
        } else {
            server_call_state.quiet_begin_offset = Some(begin_offset);
            client_connection.quiet_writes.extend(acknowledges_quiet.then_some(request_id));
        }
        self.send_submitted(connection, is_quiet.then_some(server_call));
    }

    /// Sends what was written to a connection, if nobody does it who owns it; then a quiet call is over.
    fn send_submitted(&mut self, connection: ConnectionId, quiet_call: Option<ServerCallId>) {
        self.set_timer(connection);
        if self.connections[connection].owner.is_none() {
            self.schedule_send(connection);
            if let Some(quiet_call) = quiet_call {
                self.finish_server_call(quiet_call, "quiet");
            }
        }
    }

    /// Handles a reply to a server call; its values are in the connection.
    pub(super) fn dispatch_reply(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        reply: Reply,
    ) {
        let client_connection = &self.connections[connection];
        let (Some(engine), Some(mut server_operation)) = (
            &client_connection.engine_connection,
            self.server_calls[server_call].server_operation.take(),
        ) else {
            return;
        };
        let server = self.server_calls[server_call].server;
        let Some(&request_id) = self.server_calls[server_call].request_ids.last() else {
            return;
        };
        let task = self.calls[self.server_calls[server_call].call_id].task;
        // A refusal comes as soon as the line is read, before the value.
        if !self.network.has_misbehaved(server) && !matches!(reply, Reply::Refused(_)) {
            self.checker.check_executed(request_id, &self.network);
        }
        let handles_per_value =
            if self.is_sabotaged_by(Sabotage::HandlesValuesTwice) { 2 } else { 1 };
        let context = ReplyContext {
            pipeline: engine.pipeline(),
            server_name: &engine.server().name,
            request_id,
            network: &self.network,
            checker: &mut self.checker,
            handles_per_value,
            uniques: &mut self.tasks[task].uniques,
        };
        let reply_effect = server_operation.handle_reply(reply, context);
        self.log_event(|_| format!("server call {server_call}: reply {reply_effect:?}"));
        match reply_effect {
            ReplyEffect::MoreReplies => {
                self.server_calls[server_call].server_operation = Some(server_operation);
            }
            ReplyEffect::NextRoundTrip => {
                self.next_round_trip(connection, server_call, server_operation);
            }
            ReplyEffect::NextOperation(server_operation) => {
                self.next_round_trip(connection, server_call, server_operation);
            }
            ReplyEffect::Ended(outcome_name) => {
                if let Some(key) = server_operation.removed_key() {
                    let call = &self.calls[self.server_calls[server_call].call_id];
                    let range = (call.start_index, self.network.execution_index());
                    self.checker.record_removal(request_id, key, range, &self.network);
                }
                self.forget_ticket(connection, server_call);
                self.finish_server_call(server_call, outcome_name);
            }
            ReplyEffect::Failed(error) => {
                self.check_error(server_call, &error);
                self.forget_ticket(connection, server_call);
                self.finish_server_call(server_call, error_name(&error));
            }
        }
    }

    /// Starts the next round trip, on the same connection if it takes requests.
    fn next_round_trip(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        server_operation: ServerOperation,
    ) {
        self.forget_ticket(connection, server_call);
        let server_call_state = &mut self.server_calls[server_call];
        server_call_state.server_operation = Some(server_operation);
        server_call_state.request_ids.clear();
        server_call_state.is_retry = false;
        let accepts_requests =
            self.connections[connection].engine_connection.as_mut().is_some_and(|engine| {
                engine.release();
                engine.accepts_requests()
            });
        if accepts_requests {
            self.submit(connection, server_call);
        } else {
            self.server_calls[server_call].connection = None;
            self.start_server_call(server_call);
        }
    }

    pub(super) fn forget_ticket(&mut self, connection: ConnectionId, server_call: ServerCallId) {
        self.connections[connection]
            .server_calls_in_flight
            .retain(|(_, other_server_call)| *other_server_call != server_call);
    }

    /// Handles an attempt without a reply.
    pub(super) fn handle_failed_attempt(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        failure: &Failure,
    ) {
        self.forget_ticket(connection, server_call);
        let (process, server) = self.process_and_server_of(server_call);
        self.log_event(|_| {
            format!("server call {server_call}: {:?} then {:?}", failure.error, failure.decision)
        });
        let is_first = !self.server_calls[server_call].is_retry;
        let decision = match failure.decision {
            RetryDecision::Fail(_)
                if is_first && self.is_sabotaged_by(Sabotage::RepeatsAdditions) =>
            {
                RetryDecision::Retry
            }
            decision => decision,
        };
        match decision {
            RetryDecision::Retry | RetryDecision::RetryClassic => {
                self.count("retry");
                if decision == RetryDecision::RetryClassic {
                    self.server_calls[server_call].presumes_classic = true;
                } else {
                    self.close_idle(process, server);
                }
                self.server_calls[server_call].is_retry = true;
                self.server_calls[server_call].connection = None;
                self.replace_connection(connection, server_call);
                let call = &self.calls[self.server_calls[server_call].call_id];
                // A driver waits for a connection no longer than to the deadline of the call that needs it.
                if self.network.now >= call.deadline && !self.server_calls[server_call].is_ended {
                    self.expire_server_call(server_call);
                }
            }
            RetryDecision::Fail(health_effect) => {
                self.count_bad_call(connection, server_call, &failure.error);
                if self.is_sabotaged_by(Sabotage::CountsFailuresTwice) {
                    self.processes[process].server_pools[server]
                        .server_state
                        .health
                        .apply_effect(health_effect);
                }
                self.record_uncertain_requests(connection, server_call);
                self.fail_server_call(server_call, &failure.error);
            }
        }
        self.check_health(process, server);
    }

    /// Counts a failed call against its server, unless it was allowed too little time for that.
    fn count_bad_call(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        error: &Error,
    ) {
        let call = &self.calls[self.server_calls[server_call].call_id];
        let allowed_time = Duration::from_micros(call.deadline - call.started);
        if matches!(error, Error::Deadline(_)) && allowed_time < COUNTED_TIMEOUT_MIN {
            return;
        }
        let (process, server) = self.process_and_server_of(server_call);
        let bad_calls = &mut self.processes[process].server_pools[server].bad_calls;
        bad_calls.add(connection, self.network.now, error_name(error));
    }

    /// Records the requests of a server call that were sent whole and whose outcome is unknown.
    pub(super) fn record_uncertain_requests(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
    ) {
        let Some(engine) = &self.connections[connection].engine_connection else {
            return;
        };
        let sent_bytes = engine.sent_bytes();
        for request_id in self.server_calls[server_call].request_ids.clone() {
            let request = self.checker.history.request(request_id);
            if request.link == self.connections[connection].link && request.end_offset <= sent_bytes
            {
                self.checker.record_uncertain(request_id, &self.network);
            }
        }
    }

    /// Ends a server call by an error.
    pub(super) fn fail_server_call(&mut self, server_call: ServerCallId, error: &Error) {
        if let Error::Unavailable(context, _) | Error::Deadline(context) = error
            && (context.retry_is_safe || self.is_sabotaged_by(Sabotage::DeniesWrites))
        {
            for request_id in self.server_calls[server_call].request_ids.clone() {
                self.checker.record_unexecuted(request_id);
            }
        }
        self.check_error(server_call, error);
        if self.calls[self.server_calls[server_call].call_id].must_succeed {
            let text = format!("server call {server_call} ended by {error:?}");
            self.checker.report_broken(Invariant::CallsRecover, text);
        }
        self.end_server_call(server_call, error_name(error), false);
    }

    /// A server that does not misbehave breaks no protocol, unless a value is longer than its reader takes.
    fn check_error(&mut self, server_call: ServerCallId, error: &Error) {
        let (_, server) = self.process_and_server_of(server_call);
        if let Error::Protocol { fault, .. } = error
            && !matches!(fault, Fault::TooLong { .. })
            && !self.network.has_misbehaved(server)
        {
            let text = format!("server call {server_call}: {error:?}");
            self.checker.report_broken(Invariant::ReusedConnectionIsInSync, text);
        }
    }

    /// Ends a server call by a reply, or after the writing of quiet writes.
    pub(super) fn finish_server_call(
        &mut self,
        server_call: ServerCallId,
        outcome_name: &'static str,
    ) {
        self.end_server_call(server_call, outcome_name, true);
    }

    /// A server call ends in the child of a fork; the parent still has it.
    pub(super) fn end_forked_server_call(&mut self, server_call: ServerCallId) {
        self.end_server_call(server_call, "forked", false);
    }

    fn end_server_call(
        &mut self,
        server_call: ServerCallId,
        outcome_name: &'static str,
        had_reply: bool,
    ) {
        if std::mem::replace(&mut self.server_calls[server_call].is_ended, true) {
            return self.checker.report_broken(
                Invariant::CallEndsOnce,
                format!("server call {server_call} ended twice"),
            );
        }
        self.count(outcome_name);
        self.log_event(|_| format!("server call {server_call} ends: {outcome_name}"));
        let (process, server) = self.process_and_server_of(server_call);
        let execution_index = self.network.execution_index();
        let incarnation = self.processes[process].incarnation;
        let had_reply = had_reply && outcome_name != "quiet";
        self.checker.record_call_end(
            incarnation,
            server,
            (server_call, had_reply),
            execution_index,
        );
        let call_id = self.server_calls[server_call].call_id;
        let mut hasher = DefaultHasher::new();
        (self.results_hash, server_call, outcome_name, self.network.now).hash(&mut hasher);
        self.results_hash = hasher.finish();
        if let Some(connection) = self.server_calls[server_call].connection.take() {
            self.release_connection(connection, server_call);
        }
        if self.is_sabotaged_by(Sabotage::EndsTwice) && outcome_name == "hit" {
            self.end_server_call(server_call, "again", true);
        }
        self.calls[call_id].server_calls_left -= 1;
        if self.calls[call_id].server_calls_left == 0 {
            self.end_call(call_id);
        }
    }

    fn end_call(&mut self, call_id: CallId) {
        let call = &mut self.calls[call_id];
        call.is_ended = true;
        let (task, serial) = (call.task, call.serial);
        let unfrozen_at = self.processes[call.process].frozen_until;
        if self.network.now > call.deadline.max(unfrozen_at) + 1 {
            let text =
                format!("call {serial} ended at {}, not by {}", self.network.now, call.deadline);
            self.checker.report_broken(Invariant::CallEndsByDeadline, text);
        }
        self.network.schedule(0, Event::Task(task));
    }

    /// Ends the server calls of a call that are not in flight at its deadline; the engine ends the others.
    pub(super) fn expire_call(&mut self, call_id: CallId) {
        for server_call in self.calls[call_id].server_calls.clone() {
            if !self.server_calls[server_call].is_ended {
                self.expire_server_call(server_call);
            }
        }
    }

    /// A call that is not over after its deadline breaks an invariant.
    pub(super) fn check_overdue(&mut self, call_id: CallId) {
        let unfrozen_at = self.processes[self.calls[call_id].process].frozen_until;
        if unfrozen_at > 0 && self.network.now == unfrozen_at {
            // Events that waited for the process to continue come first.
            return self.network.schedule(2, Event::Overdue(call_id));
        }
        if !self.calls[call_id].is_ended {
            let text =
                format!("call {} is not over after its deadline", self.calls[call_id].serial);
            self.checker.report_broken(Invariant::CallEndsByDeadline, text);
        }
    }

    fn expire_server_call(&mut self, server_call: ServerCallId) {
        let (process, server) = self.process_and_server_of(server_call);
        let Some(connection) = self.server_calls[server_call].connection else {
            let waiting_server_calls =
                &mut self.processes[process].server_pools[server].waiting_server_calls;
            waiting_server_calls.retain(|other_server_call| *other_server_call != server_call);
            let error = Error::Deadline(self.error_context(server, Phase::Wait));
            return self.fail_server_call(server_call, &error);
        };
        if let Some(begin_offset) = self.server_calls[server_call].quiet_begin_offset {
            return self.expire_quiet_writes(connection, server_call, begin_offset);
        }
        let client_connection = &self.connections[connection];
        let call = &self.calls[self.server_calls[server_call].call_id];
        // The first deadline that the engine knows is that of the call for which it opens the connection.
        let opening_deadline =
            client_connection.engine_connection.as_ref().and_then(Connection::next_deadline);
        let opens_for_call = !client_connection.is_ready
            && opening_deadline
                .is_some_and(|opening_deadline| micros(opening_deadline) <= call.deadline);
        if opens_for_call
            || client_connection
                .server_calls_in_flight
                .iter()
                .any(|(_, other_server_call)| *other_server_call == server_call)
        {
            return; // the engine ends it
        }
        let timeout = Duration::from_micros(call.deadline - call.started);
        if let RetryDecision::Fail(health_effect) =
            FailedRequest::CONNECTING.decide(FailureCause::Deadline(timeout))
        {
            let pool = &mut self.processes[process].server_pools[server];
            pool.server_state.health.apply_effect(health_effect);
            pool.bad_calls.was_unreachable |= health_effect == HealthEffect::Down;
        }
        let error = Error::Deadline(self.error_context(server, Phase::Connect));
        self.fail_server_call(server_call, &error);
        self.check_health(process, server);
    }

    /// Ends quiet writes that could not all be sent in time.
    fn expire_quiet_writes(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        begin_offset: u64,
    ) {
        let Some(failure) =
            self.fail_quiet_writes(connection, server_call, begin_offset, NoReplyReason::Deadline)
        else {
            return;
        };
        self.count_bad_call(connection, server_call, &failure.error);
        self.fail_server_call(server_call, &failure.error);
        let (process, server) = self.process_and_server_of(server_call);
        self.check_health(process, server);
    }

    /// Ends quiet writes that were not all sent, with their connection: their caller gets the error, so they do not count
    /// as lost; those of earlier calls on the connection may.
    pub(super) fn fail_quiet_writes(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        begin_offset: u64,
        no_reply_reason: NoReplyReason<'_>,
    ) -> Option<Failure> {
        let attempt = self.calls[self.server_calls[server_call].call_id]
            .new_attempt(self.server_calls[server_call].is_retry);
        let (process, server) = self.process_and_server_of(server_call);
        let server_state = self.processes[process].server_pools[server].server_state.clone();
        let counted_before = server_state.noreply_failures.load(Ordering::Relaxed);
        let (Some(engine), Some(server_operation)) = (
            &mut self.connections[connection].engine_connection,
            &self.server_calls[server_call].server_operation,
        ) else {
            return None;
        };
        let failure = server_operation.with_requests(true, |requests| {
            engine.fail_quiet(requests, attempt, begin_offset, no_reply_reason)
        });
        let (is_orderly, reason) = match no_reply_reason {
            NoReplyReason::Closed { is_orderly, reason } => (is_orderly, reason),
            NoReplyReason::Deadline => (false, "quiet writes were late"),
        };
        engine.handle_disconnect(is_orderly, reason);
        let request_ids = self.server_calls[server_call].request_ids.clone();
        let quiet_writes = &mut self.connections[connection].quiet_writes;
        quiet_writes.retain(|quiet_write| !request_ids.contains(quiet_write));
        let earlier_count = quiet_writes.len() as u64;
        for request_id in request_ids {
            self.checker.forget_quiet_write(request_id);
        }
        let counted_failures =
            server_state.noreply_failures.load(Ordering::Relaxed) - counted_before;
        if counted_failures > earlier_count {
            let text = format!(
                "connection {connection} had {earlier_count} quiet writes of earlier calls, {counted_failures} counted as failed"
            );
            self.checker.report_broken(Invariant::QuietWriteIsCounted, text);
        }
        Some(failure)
    }

    /// The caller of a call gives up.
    pub(super) fn cancel(&mut self, call_id: CallId) {
        for server_call in self.calls[call_id].server_calls.clone() {
            if self.server_calls[server_call].is_ended {
                continue;
            }
            let (process, server) = self.process_and_server_of(server_call);
            match self.server_calls[server_call].connection {
                None => {
                    let waiting_server_calls =
                        &mut self.processes[process].server_pools[server].waiting_server_calls;
                    waiting_server_calls
                        .retain(|other_server_call| *other_server_call != server_call);
                }
                Some(_) if self.is_sabotaged_by(Sabotage::ReusesUnreadConnections) => {}
                Some(connection) if self.connections[connection].owner == Some(server_call) => {
                    // Its connection is closed, so what it has written is removed by the next call.
                    self.record_uncertain_requests(connection, server_call);
                    self.forget_ticket(connection, server_call);
                    self.close_connection(connection);
                }
                Some(connection) => self.forget_ticket(connection, server_call),
            }
            self.end_server_call(server_call, "cancelled", false);
        }
    }
}
