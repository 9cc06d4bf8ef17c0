//! The clients of all processes: calls from start to end, on connections that are taken from a pool or shared.
//!
//! They act as the drivers of the real client do: attempts, replies, failures, deadlines, cancellations. A pool knows
//! which connections are free, a connection moves its bytes, the calls know how far each has come; here is what one of
//! these has to do because of another.

use glasscache_client::Error;
use glasscache_client::engine::connection::{ConnectionEvent, Failure, NoReplyReason, Ticket};
use glasscache_client::engine::retry::{FailureCause, RetryDecision};
use glasscache_client::error::Phase;
use glasscache_client::pipeline::Reply;

use super::call_splitter::{CallSplitter, KeyMap};
use super::calls::Calls;
use super::connection::{ClientConnection, IdleState, Movement, Submitted};
use super::connections::Connections;
use super::environment::Environment;
use super::event_names::error_name;
use super::handle_replies::ReplyEffect;
use super::pool::ServerPool;
use super::process::Process;
use super::server_operation::ServerOperation;
use super::{CallId, ConnectionId, ServerCallId};
use crate::checker::Invariant;
use crate::network::{End, Event, Receiver};
use crate::plan::{Call, Plan, Sabotage};

/// The clients of a world.
pub(super) struct Clients {
    pub(super) processes: Vec<Process>,
    connections: Connections,
    pub(super) calls: Calls,
    pub(super) key_map: KeyMap,
}

impl Clients {
    pub(super) fn new(plan: &Plan, env: &mut Environment) -> Self {
        let requires_login = || plan.servers.iter().map(|server_plan| server_plan.requires_login);
        let processes = plan.processes.iter().enumerate().map(|(process, process_plan)| {
            let incarnation = env.checker.begin_incarnation();
            Process::new(process, *process_plan, incarnation, requires_login())
        });
        Self {
            processes: processes.collect(),
            connections: Connections::default(),
            calls: Calls::new(plan.tasks.len()),
            key_map: KeyMap::new(plan),
        }
    }

    /// The process in which an event happens, if it does in one.
    pub(super) fn process_of(&self, event: Event) -> Option<usize> {
        match event {
            Event::Task(task) => Some(task % self.processes.len()),
            Event::Deadline(call) | Event::Overdue(call) | Event::Cancel(call) => {
                Some(self.calls.process(call))
            }
            Event::Tick(connection) => Some(self.connections[connection].process),
            Event::SendOutput(process, _)
            | Event::Probe(process, _)
            | Event::ProbeTimeout(process, _) => Some(process),
            _ => None,
        }
    }

    /// The process of the receiver of a connection's events.
    pub(super) fn process_of_receiver(&self, receiver: Receiver) -> usize {
        match receiver {
            Receiver::Connection(connection) => self.connections[connection].process,
            Receiver::Probe(process, _) => process,
        }
    }

    /// The connections of a process to a server.
    pub(super) fn pool(&mut self, process: usize, server: usize) -> &mut ServerPool {
        &mut self.processes[process].server_pools[server]
    }

    /// Begins a call of a task.
    pub(super) fn start_call(&mut self, task: usize, call: &Call, env: &mut Environment) {
        assert!(!env.is_sabotaged_by(Sabotage::Panics) || call.serial != 50, "planted");
        let process = task % self.processes.len();
        let value_bytes_max = self.processes[process].value_bytes_max();
        let uniques = self.calls.uniques(task);
        let operations_by_server =
            CallSplitter::split(call, &self.key_map, value_bytes_max, uniques, env);
        env.log(|| {
            format!("task {task} call {} {:?} within {}", call.serial, call.operation, call.timeout)
        });
        let incarnation = self.processes[process].incarnation;
        for server_call in self.calls.begin((task, process), call, operations_by_server, env) {
            let server = self.calls[server_call].server;
            env.checker.record_call_begin(incarnation, server, server_call);
            self.start_server_call(server_call, env);
        }
    }

    /// Begins an attempt at a server call.
    fn start_server_call(&mut self, server_call: ServerCallId, env: &mut Environment) {
        let (process, server) = self.calls.process_and_server(server_call);
        if self.pool(process, server).server_state.health.is_down() {
            self.check_health(process, server, env); // a quiet write may have marked it down
            let error = self.pool(process, server).unavailable_error("it is down");
            return self.fail_server_call(server_call, &error, env);
        }
        match self.processes[process].pooled_connections_max() {
            Some(connections_max) => self.check_out(server_call, connections_max, env),
            None => self.submit_on_shared(server_call, env),
        }
    }

    /// Takes a connection of a pool for a server call, or makes one, or waits for one.
    fn check_out(
        &mut self,
        server_call: ServerCallId,
        connections_max: usize,
        env: &mut Environment,
    ) {
        let (process, server) = self.calls.process_and_server(server_call);
        while let Some(connection) = self.pool(process, server).take_idle() {
            let client_connection = &mut self.connections[connection];
            let idle_state = client_connection.check_idle(&mut env.network);
            if idle_state == IdleState::Usable {
                client_connection.owner = Some(server_call);
                if let Some(engine) = &mut client_connection.engine {
                    engine.mark_reused();
                }
                self.calls[server_call].connection = Some(connection);
                self.submit(connection, server_call, env);
                return self.pump(connection, env);
            }
            if idle_state == IdleState::BrokeProtocol {
                self.pool(process, server).add_bad_call(connection, env.now(), "protocol");
            }
            self.close_connection(connection, env);
        }
        if self.pool(process, server).may_open(connections_max) {
            self.open_for(server_call, env);
        } else {
            self.pool(process, server).wait(server_call);
        }
    }

    /// Opens a connection that belongs to a server call.
    fn open_for(&mut self, server_call: ServerCallId, env: &mut Environment) {
        let (process, server) = self.calls.process_and_server(server_call);
        let connection = self.connections.open(&self.processes[process], server, env);
        self.connections[connection].owner = Some(server_call);
        self.calls[server_call].connection = Some(connection);
    }

    /// Gives a server call a request slot on the connection that an event loop has to its server.
    fn submit_on_shared(&mut self, server_call: ServerCallId, env: &mut Environment) {
        let (process, server) = self.calls.process_and_server(server_call);
        let shared_connection = self.pool(process, server).shared_connection;
        let usable_connection =
            shared_connection.filter(|connection| self.connections[*connection].is_shareable());
        let connection = usable_connection.unwrap_or_else(|| {
            let connection = self.connections.open(&self.processes[process], server, env);
            self.pool(process, server).shared_connection = Some(connection);
            connection
        });
        self.calls[server_call].connection = Some(connection);
        if self.connections[connection].is_ready {
            self.submit(connection, server_call, env);
        } else {
            self.connections[connection].waiting_server_calls.push(server_call);
        }
    }

    /// The network has something for a connection.
    pub(super) fn handle_ready(&mut self, connection: ConnectionId, env: &mut Environment) {
        let client_connection = &self.connections[connection];
        if client_connection.engine.is_none() {
            return;
        }
        if client_connection.is_open {
            // Nobody looks at an idle connection of a pool.
            if client_connection.owner.is_some() || client_connection.is_shared {
                self.pump(connection, env);
            }
            return;
        }
        match env.network.link(client_connection.link).connect_result() {
            Some(true) => self.handle_connected(connection, env),
            Some(false) => self.handle_refused(connection, env),
            None => {}
        }
    }

    fn handle_connected(&mut self, connection: ConnectionId, env: &mut Environment) {
        let client_connection = &mut self.connections[connection];
        let Some(&first_server_call) = client_connection.waiting().first() else {
            return self.close_connection(connection, env); // the call that needed it was given up
        };
        client_connection.is_open = true;
        if let Some(engine) = &mut client_connection.engine {
            let presumes_classic = self.calls[first_server_call].presumes_classic;
            engine.handle_connected(presumes_classic, self.calls.new_attempt(first_server_call));
        }
        self.pump(connection, env);
    }

    fn handle_refused(&mut self, connection: ConnectionId, env: &mut Environment) {
        let ClientConnection { process, server, .. } = self.connections[connection];
        let cause = FailureCause::Closed { is_orderly: false };
        self.pool(process, server).handle_connect_failure(cause);
        let waiting_server_calls = self.connections[connection].waiting();
        self.connections[connection].waiting_server_calls.clear();
        for server_call in waiting_server_calls {
            let error = self.pool(process, server).unavailable_error("refused");
            self.fail_server_call(server_call, &error, env);
        }
        self.close_connection(connection, env);
        self.check_health(process, server, env);
    }

    /// Has a connection do what it can: take replies, send, receive.
    fn pump(&mut self, connection: ConnectionId, env: &mut Environment) {
        let keeps_unparsed = env.is_sabotaged_by(Sabotage::KeepsUnparsedBytes);
        while env.checker.violation().is_none() {
            let client_connection = &mut self.connections[connection];
            let must_move_bytes_first = client_connection.must_move_bytes_first(keeps_unparsed);
            let Some(engine) = &mut client_connection.engine else {
                return;
            };
            if must_move_bytes_first {
                if self.move_bytes(connection, env) {
                    continue;
                }
                break;
            }
            let had_to_close = engine.must_close();
            let event = engine.poll();
            let broke_protocol = !had_to_close && engine.must_close();
            let ClientConnection { process, server, .. } = *client_connection;
            if matches!(event, ConnectionEvent::Reply(..)) {
                self.pool(process, server).handle_reply();
            } else if broke_protocol {
                self.pool(process, server).add_bad_call(connection, env.now(), "protocol");
            }
            match event {
                ConnectionEvent::Ready => self.submit_waiting(connection, env),
                ConnectionEvent::Reply(ticket, reply) => {
                    self.take_reply(connection, ticket, reply, env);
                }
                ConnectionEvent::Failed(ticket, failure) => {
                    self.take_failure(connection, ticket, &failure, env);
                    if ticket == Ticket::OPENING {
                        return self.close_connection(connection, env); // it never takes requests
                    }
                }
                ConnectionEvent::NeedsBytes(_) | ConnectionEvent::Idle => {
                    if !self.move_bytes(connection, env) {
                        break;
                    }
                }
            }
        }
        self.finish_pump(connection, env);
    }

    /// Sends and receives; false: there is nothing to be had at present.
    fn move_bytes(&mut self, connection: ConnectionId, env: &mut Environment) -> bool {
        let client_connection = &mut self.connections[connection];
        let server_operation = client_connection
            .owner
            .and_then(|server_call| self.calls[server_call].server_operation.as_ref());
        match client_connection.move_bytes(server_operation, &mut env.network) {
            Movement::Nothing => return false,
            Movement::Received => {}
            Movement::Ended(end) => self.lose_transport(connection, end, env),
        }
        true
    }

    /// The transport of a connection is gone.
    fn lose_transport(&mut self, connection: ConnectionId, end: End, env: &mut Environment) {
        let (is_orderly, reason) = match end {
            End::InOrder => (true, "it was closed"),
            End::Reset => (false, "it broke"),
        };
        env.log(|| format!("connection {connection}: {reason}"));
        // The calls that wait for the sending of quiet writes learn that these are not sent.
        if let Some(server_call) = self.connections[connection].owner {
            let no_reply_reason = NoReplyReason::Closed { is_orderly, reason };
            if let Some(failure) =
                self.fail_quiet_writes(connection, server_call, no_reply_reason, env)
            {
                self.calls[server_call].quiet_begin_offset = None;
                self.handle_failed_attempt(connection, server_call, &failure, env);
            }
        }
        self.connections[connection].handle_disconnect(is_orderly, reason, env);
    }

    fn submit_waiting(&mut self, connection: ConnectionId, env: &mut Environment) {
        let client_connection = &mut self.connections[connection];
        client_connection.is_ready = true;
        let waiting_server_calls = client_connection.waiting();
        client_connection.waiting_server_calls.clear();
        for server_call in waiting_server_calls {
            self.submit(connection, server_call, env);
        }
    }

    /// Writes the next round trip of a server call on a connection that takes requests.
    fn submit(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        env: &mut Environment,
    ) {
        let process = self.connections[connection].process;
        let attempt = self.calls.new_attempt(server_call);
        let client_connection = &mut self.connections[connection];
        let submitted = client_connection.submit(
            (server_call, &mut self.calls[server_call]),
            attempt,
            self.processes[process].incarnation,
            env,
        );
        match submitted {
            None => {}
            Some(Err(error)) => self.fail_server_call(server_call, &error, env),
            // An owner sends by itself.
            Some(Ok(_)) if client_connection.owner.is_some() => {}
            Some(Ok(submitted)) => {
                client_connection.schedule_send(&mut env.network);
                if submitted == Submitted::Quiet {
                    self.end_server_call(server_call, ("quiet", false), env);
                }
            }
        }
    }

    /// Hands a reply to the call that waits for it; its values are in the connection.
    fn take_reply(
        &mut self,
        connection: ConnectionId,
        ticket: Ticket,
        reply: Reply,
        env: &mut Environment,
    ) {
        let client_connection = &mut self.connections[connection];
        client_connection.was_refused |= matches!(reply, Reply::Refused(_));
        let mixes_replies = env.is_sabotaged_by(Sabotage::MixesReplies);
        let Some(server_call) = client_connection.server_call_of_reply(ticket, mixes_replies)
        else {
            return;
        };
        let Some(engine) = &client_connection.engine else {
            return;
        };
        let Some((server_operation, reply_effect)) =
            self.calls.handle_reply(server_call, reply, engine, env)
        else {
            return;
        };
        match reply_effect {
            ReplyEffect::MoreReplies => {
                self.calls[server_call].server_operation = Some(server_operation);
            }
            ReplyEffect::NextRoundTrip => {
                self.begin_round_trip(connection, server_call, server_operation, env);
            }
            ReplyEffect::NextOperation(server_operation) => {
                self.begin_round_trip(connection, server_call, server_operation, env);
            }
            ReplyEffect::Ended(outcome_name) => {
                self.connections[connection].forget(server_call);
                self.end_server_call(server_call, (outcome_name, true), env);
            }
            ReplyEffect::Failed(error) => {
                env.check_error(server_call, self.calls[server_call].server, &error);
                self.connections[connection].forget(server_call);
                self.end_server_call(server_call, (error_name(&error), true), env);
            }
        }
    }

    /// Begins the next round trip, on the same connection if it takes requests.
    fn begin_round_trip(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        server_operation: ServerOperation,
        env: &mut Environment,
    ) {
        let client_connection = &mut self.connections[connection];
        client_connection.forget(server_call);
        self.calls[server_call].begin_round_trip(server_operation);
        if let Some(engine) = &mut client_connection.engine {
            engine.release();
        }
        if client_connection.accepts_requests() {
            self.submit(connection, server_call, env);
        } else {
            self.calls[server_call].connection = None;
            self.start_server_call(server_call, env);
        }
    }

    fn take_failure(
        &mut self,
        connection: ConnectionId,
        ticket: Ticket,
        failure: &Failure,
        env: &mut Environment,
    ) {
        let ClientConnection { process, server, .. } = self.connections[connection];
        let server_calls = self.connections[connection].server_calls_of(ticket);
        if server_calls.is_empty() {
            // Its caller gave up, but it may count against the server.
            let name = error_name(&failure.error);
            self.pool(process, server).add_bad_call(connection, env.now(), name);
        }
        for server_call in server_calls {
            self.handle_failed_attempt(connection, server_call, failure, env);
        }
        self.check_health(process, server, env);
    }

    /// Handles an attempt without a reply.
    fn handle_failed_attempt(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        failure: &Failure,
        env: &mut Environment,
    ) {
        self.connections[connection].forget(server_call);
        let (process, server) = self.calls.process_and_server(server_call);
        env.log(|| {
            format!("server call {server_call}: {:?} then {:?}", failure.error, failure.decision)
        });
        let repeats_additions = env.is_sabotaged_by(Sabotage::RepeatsAdditions);
        let decision = match failure.decision {
            RetryDecision::Fail(_) if repeats_additions && !self.calls[server_call].is_retry => {
                RetryDecision::Retry
            }
            decision => decision,
        };
        match decision {
            RetryDecision::Retry | RetryDecision::RetryClassic => {
                env.journal.count("retry");
                if decision == RetryDecision::RetryClassic {
                    self.calls[server_call].presumes_classic = true;
                } else {
                    self.close_idle(process, server, env);
                }
                self.calls[server_call].is_retry = true;
                self.calls[server_call].connection = None;
                self.replace_connection(connection, server_call, env);
                // A driver waits for a connection no longer than to the deadline of the call that needs it.
                let is_late = env.now() >= self.calls.call_of(server_call).deadline;
                if is_late && !self.calls[server_call].is_ended {
                    self.expire_server_call(server_call, env);
                }
            }
            RetryDecision::Fail(health_effect) => {
                let error_and_time =
                    (&failure.error, self.calls.call_of(server_call).allowed_time());
                self.pool(process, server).add_failed_call(connection, env.now(), error_and_time);
                if env.is_sabotaged_by(Sabotage::CountsFailuresTwice) {
                    self.pool(process, server).server_state.health.apply_effect(health_effect);
                }
                let client_connection = &self.connections[connection];
                let request_ids = &self.calls[server_call].request_ids;
                client_connection.record_uncertain(
                    request_ids,
                    client_connection.sent_bytes(),
                    env,
                );
                self.fail_server_call(server_call, &failure.error, env);
            }
        }
        self.check_health(process, server, env);
    }

    /// Ends a server call by an error.
    fn fail_server_call(
        &mut self,
        server_call: ServerCallId,
        error: &Error,
        env: &mut Environment,
    ) {
        if let Error::Unavailable(context, _) | Error::Deadline(context) = error
            && (context.retry_is_safe || env.is_sabotaged_by(Sabotage::DeniesWrites))
        {
            for request_id in &self.calls[server_call].request_ids {
                env.checker.record_unexecuted(*request_id);
            }
        }
        env.check_error(server_call, self.calls[server_call].server, error);
        if self.calls.call_of(server_call).must_succeed() {
            let text = format!("server call {server_call} ended by {error:?}");
            env.checker.report_broken(Invariant::CallsRecover, text);
        }
        self.end_server_call(server_call, (error_name(error), false), env);
    }

    /// Ends a server call, by a reply or without.
    fn end_server_call(
        &mut self,
        server_call: ServerCallId,
        (outcome_name, had_reply): (&'static str, bool),
        env: &mut Environment,
    ) {
        if !self.calls.mark_ended(server_call, &mut env.checker) {
            return;
        }
        env.journal.count(outcome_name);
        env.log(|| format!("server call {server_call} ends: {outcome_name}"));
        let (process, server) = self.calls.process_and_server(server_call);
        env.checker.record_call_end(
            self.processes[process].incarnation,
            server,
            (server_call, had_reply),
            env.network.execution_index(),
        );
        env.journal.add_result(server_call, outcome_name, env.network.schedule.now());
        if let Some(connection) = self.calls[server_call].connection.take() {
            self.release_connection(connection, server_call, env);
        }
        if env.is_sabotaged_by(Sabotage::EndsTwice) && outcome_name == "hit" {
            self.end_server_call(server_call, ("again", true), env);
        }
        let frozen_until = self.processes[process].frozen_until();
        self.calls.finish(server_call, frozen_until, env);
    }

    /// A server call has ended: its connection is given back, if it was its own.
    fn release_connection(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        env: &mut Environment,
    ) {
        let client_connection = &mut self.connections[connection];
        if !client_connection.detach(server_call) {
            return;
        }
        let ClientConnection { process, server, .. } = *client_connection;
        if let Some(engine) = &mut client_connection.engine {
            engine.release();
            let reuses_unread = env.is_sabotaged_by(Sabotage::ReusesUnreadConnections);
            if client_connection.is_ready && (reuses_unread || engine.is_ready_for_reuse()) {
                client_connection.begin_idle(env);
                self.pool(process, server).give_back(connection);
            } else {
                self.close_connection(connection, env);
            }
        }
        if let Some(connections_max) = self.processes[process].pooled_connections_max()
            && let Some(next) = self.pool(process, server).take_next_waiting(connections_max)
        {
            self.check_out(next, connections_max, env);
        }
    }

    /// Opens a new connection for a server call whose connection was of no use; the pool counts one for the other.
    fn replace_connection(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        env: &mut Environment,
    ) {
        let client_connection = &mut self.connections[connection];
        if !client_connection.detach(server_call) {
            return self.submit_on_shared(server_call, env);
        }
        let ClientConnection { process, server, .. } = *client_connection;
        self.close_connection(connection, env);
        self.pool(process, server).open_replacement();
        self.open_for(server_call, env);
    }

    /// Closes the idle connections of a pool.
    fn close_idle(&mut self, process: usize, server: usize, env: &mut Environment) {
        for connection in self.pool(process, server).take_all_idle() {
            self.close_connection(connection, env);
        }
    }

    /// Closes a connection; calls that are in flight on it fail.
    fn close_connection(&mut self, connection: ConnectionId, env: &mut Environment) {
        let client_connection = &mut self.connections[connection];
        let Some(closed) = client_connection.close(env) else {
            return;
        };
        let ClientConnection { process, server, is_shared, .. } = *client_connection;
        self.pool(process, server).remove(connection, is_shared);
        for (server_call, failure) in closed.failed_server_calls {
            let request_ids = &self.calls[server_call].request_ids;
            self.connections[connection].record_uncertain(request_ids, closed.sent_bytes, env);
            self.handle_failed_attempt(connection, server_call, &failure, env);
        }
        for server_call in std::mem::take(&mut self.connections[connection].waiting_server_calls) {
            self.calls[server_call].connection = None;
            self.start_server_call(server_call, env);
        }
    }

    fn finish_pump(&mut self, connection: ConnectionId, env: &mut Environment) {
        let client_connection = &mut self.connections[connection];
        client_connection.set_timer(&mut env.network);
        client_connection.forget_acknowledged();
        client_connection.check_held_bytes(&mut env.checker);
        let Some(engine) = &client_connection.engine else {
            return;
        };
        let quiet_server_call = client_connection
            .owner
            .filter(|server_call| self.calls[*server_call].quiet_begin_offset.is_some());
        let must_close = client_connection.is_open
            && engine.must_close()
            && !env.is_sabotaged_by(Sabotage::NeverCloses);
        match quiet_server_call {
            // If it must close, the engine has counted what the call wrote as lost.
            Some(server_call) if must_close || client_connection.has_sent_quiet_writes() => {
                self.end_server_call(server_call, ("quiet", false), env);
            }
            None if must_close => self.close_connection(connection, env),
            None if client_connection.owner.is_none()
                && client_connection.is_ready
                && engine.is_idle() =>
            {
                client_connection.check_in_sync(env);
            }
            _ => {}
        }
    }

    /// Ends the calls of a connection whose time is over.
    pub(super) fn tick(&mut self, connection: ConnectionId, env: &mut Environment) {
        if !self.connections[connection].tick(env) {
            return;
        }
        self.pump(connection, env);
        let client_connection = &self.connections[connection];
        let ClientConnection { process, server, .. } = *client_connection;
        if client_connection.is_unawaited() && !env.is_sabotaged_by(Sabotage::NeverCloses) {
            self.close_connection(connection, env);
        }
        self.check_health(process, server, env);
        self.connections[connection].set_timer(&mut env.network);
    }

    /// An event loop sends what its calls wrote.
    pub(super) fn send_shared(&mut self, connection: ConnectionId, env: &mut Environment) {
        if self.connections[connection].begin_send() {
            self.pump(connection, env);
        }
    }

    /// Has a server that has just gone down be probed, and closes its idle connections.
    fn check_health(&mut self, process: usize, server: usize, env: &mut Environment) {
        if self.pool(process, server).take_down(env) {
            self.close_idle(process, server, env);
            self.pool(process, server).schedule_probe(&mut env.network);
        }
    }

    /// Ends the server calls of a call that are not in flight at its deadline; the engine ends the others.
    pub(super) fn expire_call(&mut self, call_id: CallId, env: &mut Environment) {
        for server_call in self.calls.server_calls(call_id) {
            if !self.calls[server_call].is_ended {
                self.expire_server_call(server_call, env);
            }
        }
    }

    fn expire_server_call(&mut self, server_call: ServerCallId, env: &mut Environment) {
        let (process, server) = self.calls.process_and_server(server_call);
        let Some(connection) = self.calls[server_call].connection else {
            let pool = self.pool(process, server);
            pool.stop_waiting(server_call);
            let error = pool.deadline_error(Phase::Wait);
            return self.fail_server_call(server_call, &error, env);
        };
        if self.calls[server_call].quiet_begin_offset.is_some() {
            // They could not all be sent in time.
            let no_reply_reason = NoReplyReason::Deadline;
            if let Some(failure) =
                self.fail_quiet_writes(connection, server_call, no_reply_reason, env)
            {
                let error_and_time =
                    (&failure.error, self.calls.call_of(server_call).allowed_time());
                self.pool(process, server).add_failed_call(connection, env.now(), error_and_time);
                self.fail_server_call(server_call, &failure.error, env);
                self.check_health(process, server, env);
            }
            return;
        }
        let call = self.calls.call_of(server_call);
        if self.connections[connection].ends_in_time(server_call, call.deadline) {
            return;
        }
        let cause = FailureCause::Deadline(call.allowed_time());
        let pool = self.pool(process, server);
        pool.handle_connect_failure(cause);
        let error = pool.deadline_error(Phase::Connect);
        self.fail_server_call(server_call, &error, env);
        self.check_health(process, server, env);
    }

    /// Ends the quiet writes of a server call that were not all sent, if it has any.
    fn fail_quiet_writes(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
        no_reply_reason: NoReplyReason<'_>,
        env: &mut Environment,
    ) -> Option<Failure> {
        let attempt = self.calls.new_attempt(server_call);
        self.connections[connection].fail_quiet_writes(
            &self.calls[server_call],
            attempt,
            no_reply_reason,
            &mut env.checker,
        )
    }

    /// The caller of a call gives up.
    pub(super) fn cancel(&mut self, call_id: CallId, env: &mut Environment) {
        for server_call in self.calls.server_calls(call_id) {
            if self.calls[server_call].is_ended {
                continue;
            }
            let (process, server) = self.calls.process_and_server(server_call);
            match self.calls[server_call].connection {
                None => self.pool(process, server).stop_waiting(server_call),
                Some(_) if env.is_sabotaged_by(Sabotage::ReusesUnreadConnections) => {}
                Some(connection) if self.connections[connection].owner == Some(server_call) => {
                    // Its connection is closed, so what it has written is removed by the next call.
                    let client_connection = &mut self.connections[connection];
                    let request_ids = &self.calls[server_call].request_ids;
                    client_connection.record_uncertain(
                        request_ids,
                        client_connection.sent_bytes(),
                        env,
                    );
                    client_connection.forget(server_call);
                    self.close_connection(connection, env);
                }
                Some(connection) => self.connections[connection].forget(server_call),
            }
            self.end_server_call(server_call, ("cancelled", false), env);
        }
    }

    /// A process forks: what it had in flight is its parent's, which ends; the child goes on with a copy of its clients,
    /// and has servers of its own.
    pub(super) fn fork(&mut self, process: usize, env: &mut Environment) {
        let failures_before = self.processes[process].noreply_failures();
        for connection in 0..self.connections.count() {
            if self.connections[connection].process == process {
                for server_call in self.connections[connection].abandon(env) {
                    if !self.calls[server_call].is_ended {
                        self.end_forked(server_call, env);
                    }
                }
            }
        }
        if self.processes[process].noreply_failures() != failures_before {
            let text = "a child counts its parent's quiet writes as its own";
            env.checker.report_broken(Invariant::ForkLeavesParentAlone, text);
        }
        for server in 0..self.processes[process].server_pools.len() {
            for server_call in self.pool(process, server).take_all_waiting() {
                self.end_forked(server_call, env);
            }
            self.pool(process, server).end_probe(&mut env.network);
        }
        self.processes[process].begin_incarnation(env.checker.begin_incarnation());
    }

    /// A server call ends in the child of a fork; the parent still has it.
    fn end_forked(&mut self, server_call: ServerCallId, env: &mut Environment) {
        self.calls[server_call].connection = None;
        self.end_server_call(server_call, ("forked", false), env);
    }

    /// Once all calls have ended: closes all connections, and checks before that no more are open than are of use.
    pub(super) fn close_all(&mut self, env: &mut Environment) {
        for (process, process_state) in self.processes.iter().enumerate() {
            for server in 0..process_state.server_pools.len() {
                let open_count = self.connections.count_open(process, server);
                process_state.check_open_count(server, open_count, &mut env.checker);
            }
        }
        for connection in 0..self.connections.count() {
            self.close_connection(connection, env);
        }
    }
}
