//! Calls and the server calls that each consists of, from start to end.

use std::collections::HashMap;
use std::ops::{Index, IndexMut, Range};
use std::time::Duration;

use glasscache_client::engine::connection::{Attempt, Connection};
use glasscache_client::pipeline::Reply;

use super::clock::instant;
use super::environment::Environment;
use super::handle_replies::{ReplyContext, ReplyEffect};
use super::server_operation::{ReadUnique, ServerOperation};
use super::{CallId, ConnectionId, ServerCallId};
use crate::checker::{Checker, Invariant, RequestId};
use crate::network::{Event, ExecutionIndex};
use crate::plan::{Call, Key, Micros, Sabotage};

/// The serial of calls that must succeed.
pub(super) const MUST_SUCCEED_CALL_SERIAL: u32 = u32::MAX;

/// A call in flight or ended.
pub(super) struct CallState {
    task: usize,
    process: usize,
    serial: u32,
    started: Micros,
    /// The index after everything that was executed before it.
    start_index: ExecutionIndex,
    pub(super) deadline: Micros,
    server_calls: Range<ServerCallId>,
    server_calls_left: usize,
    is_ended: bool,
}

impl CallState {
    /// How long it may take.
    pub(super) fn allowed_time(&self) -> Duration {
        Duration::from_micros(self.deadline - self.started)
    }

    /// Whether it may not fail.
    pub(super) fn must_succeed(&self) -> bool {
        self.serial == MUST_SUCCEED_CALL_SERIAL
    }
}

/// The requests of a call that go to one server.
pub(super) struct ServerCall {
    call_id: CallId,
    pub(super) server: usize,
    /// `None` while it handles a reply, and after its end.
    pub(super) server_operation: Option<ServerOperation>,
    pub(super) connection: Option<ConnectionId>,
    pub(super) is_retry: bool,
    pub(super) presumes_classic: bool,
    pub(super) is_ended: bool,
    /// The requests of the current round trip.
    pub(super) request_ids: Vec<RequestId>,
    /// The first byte of quiet writes that are not all sent.
    pub(super) quiet_begin_offset: Option<u64>,
}

impl ServerCall {
    /// The next round trip begins, with this operation.
    pub(super) fn begin_round_trip(&mut self, server_operation: ServerOperation) {
        self.server_operation = Some(server_operation);
        self.request_ids.clear();
        self.is_retry = false;
    }
}

/// All calls of a world, and what the tasks keep of them.
pub(super) struct Calls {
    states: Vec<CallState>,
    /// The server calls of all calls.
    by_server: Vec<ServerCall>,
    /// The CAS uniques that each task has read.
    uniques_by_task: Vec<HashMap<Key, ReadUnique>>,
}

impl Index<ServerCallId> for Calls {
    type Output = ServerCall;

    fn index(&self, server_call: ServerCallId) -> &ServerCall {
        &self.by_server[server_call]
    }
}

impl IndexMut<ServerCallId> for Calls {
    fn index_mut(&mut self, server_call: ServerCallId) -> &mut ServerCall {
        &mut self.by_server[server_call]
    }
}

impl Calls {
    pub(super) fn new(task_count: usize) -> Self {
        let uniques_by_task = (0..task_count).map(|_| HashMap::new()).collect();
        Self { states: Vec::new(), by_server: Vec::new(), uniques_by_task }
    }

    /// Adds a call of a task, of these operations by server, and has its deadline come; returns its server calls.
    pub(super) fn begin(
        &mut self,
        (task, process): (usize, usize),
        call: &Call,
        operations_by_server: Vec<(usize, ServerOperation)>,
        env: &mut Environment,
    ) -> Range<ServerCallId> {
        let call_id = self.states.len();
        let first_server_call = self.by_server.len();
        self.by_server.extend(operations_by_server.into_iter().map(
            |(server, server_operation)| ServerCall {
                call_id,
                server,
                server_operation: Some(server_operation),
                connection: None,
                is_retry: false,
                presumes_classic: false,
                is_ended: false,
                request_ids: Vec::new(),
                quiet_begin_offset: None,
            },
        ));
        let server_calls = first_server_call..self.by_server.len();
        let now = env.now();
        self.states.push(CallState {
            task,
            process,
            serial: call.serial,
            started: now,
            start_index: env.network.execution_index(),
            deadline: now + call.timeout,
            server_calls_left: server_calls.len(),
            server_calls: server_calls.clone(),
            is_ended: false,
        });
        let schedule = &mut env.network.schedule;
        schedule.add(call.timeout, Event::Deadline(call_id));
        schedule.add(call.timeout + 2, Event::Overdue(call_id));
        if let Some(wait) = call.cancel_after {
            schedule.add(wait, Event::Cancel(call_id));
        }
        server_calls
    }

    /// The process of a call.
    pub(super) fn process(&self, call_id: CallId) -> usize {
        self.states[call_id].process
    }

    /// The call that a server call belongs to.
    pub(super) fn call_of(&self, server_call: ServerCallId) -> &CallState {
        &self.states[self.by_server[server_call].call_id]
    }

    /// The process and the server of a server call.
    pub(super) fn process_and_server(&self, server_call: ServerCallId) -> (usize, usize) {
        (self.call_of(server_call).process, self.by_server[server_call].server)
    }

    /// An attempt at a server call.
    pub(super) fn new_attempt(&self, server_call: ServerCallId) -> Attempt {
        let CallState { started, deadline, .. } = *self.call_of(server_call);
        Attempt {
            started: instant(started),
            deadline: instant(deadline),
            is_retry: self.by_server[server_call].is_retry,
        }
    }

    /// The CAS uniques that a task has read.
    pub(super) fn uniques(&mut self, task: usize) -> &mut HashMap<Key, ReadUnique> {
        &mut self.uniques_by_task[task]
    }

    /// Interprets and checks a reply to a server call, whose values are in the connection. Returns what it came to, with
    /// the operation, which the server call does not have meanwhile; `None` if no reply is awaited.
    pub(super) fn handle_reply(
        &mut self,
        server_call: ServerCallId,
        reply: Reply,
        engine: &Connection,
        env: &mut Environment,
    ) -> Option<(ServerOperation, ReplyEffect)> {
        let server_call_state = &mut self.by_server[server_call];
        let mut server_operation = server_call_state.server_operation.take()?;
        let request_id = *server_call_state.request_ids.last()?;
        let handles_per_value =
            if env.is_sabotaged_by(Sabotage::HandlesValuesTwice) { 2 } else { 1 };
        let (network, checker) = (&env.network, &mut env.checker);
        // A refusal comes as soon as the line is read, before the value.
        if !network.has_misbehaved(server_call_state.server) && !matches!(reply, Reply::Refused(_))
        {
            checker.check_executed(request_id, network);
        }
        let call = &self.states[server_call_state.call_id];
        let reply_effect = server_operation.handle_reply(
            reply,
            ReplyContext {
                pipeline: engine.wire().pipeline(),
                server_name: &engine.server().name,
                request_id,
                network,
                checker,
                handles_per_value,
                uniques: &mut self.uniques_by_task[call.task],
            },
        );
        env.log(|| format!("server call {server_call}: reply {reply_effect:?}"));
        if matches!(reply_effect, ReplyEffect::Ended(_))
            && let Some(key) = server_operation.removed_key()
        {
            let range = (call.start_index, env.network.execution_index());
            env.checker.record_removal(request_id, key, range, &env.network);
        }
        Some((server_operation, reply_effect))
    }

    pub(super) fn server_calls(&self, call_id: CallId) -> Range<ServerCallId> {
        self.states[call_id].server_calls.clone()
    }

    /// Marks a server call as ended; `false`: it had ended before, which breaks an invariant.
    pub(super) fn mark_ended(&mut self, server_call: ServerCallId, checker: &mut Checker) -> bool {
        let had_ended = std::mem::replace(&mut self[server_call].is_ended, true);
        if had_ended {
            let text = format!("server call {server_call} ended twice");
            checker.report_broken(Invariant::CallEndsOnce, text);
        }
        !had_ended
    }

    /// A server call is done with; after the last one its call ends, and the task goes on. The process stood still
    /// until `frozen_until`.
    pub(super) fn finish(
        &mut self,
        server_call: ServerCallId,
        frozen_until: Micros,
        env: &mut Environment,
    ) {
        let call = &mut self.states[self.by_server[server_call].call_id];
        call.server_calls_left -= 1;
        if call.server_calls_left > 0 {
            return;
        }
        call.is_ended = true;
        let CallState { task, serial, deadline, .. } = *call;
        let now = env.now();
        if now > deadline.max(frozen_until) + 1 {
            let text = format!("call {serial} ended at {now}, not by {deadline}");
            env.checker.report_broken(Invariant::CallEndsByDeadline, text);
        }
        env.network.schedule.add(0, Event::Task(task));
    }

    /// A call that is not over after its deadline breaks an invariant. Its process stood still until `frozen_until`.
    pub(super) fn check_overdue(
        &self,
        call_id: CallId,
        frozen_until: Micros,
        env: &mut Environment,
    ) {
        if frozen_until > 0 && env.now() == frozen_until {
            // Events that waited for the process to continue come first.
            return env.network.schedule.add(2, Event::Overdue(call_id));
        }
        let CallState { serial, is_ended, .. } = self.states[call_id];
        if !is_ended {
            let text = format!("call {serial} is not over after its deadline");
            env.checker.report_broken(Invariant::CallEndsByDeadline, text);
        }
    }

    /// Each call has ended once the world is over.
    pub(super) fn check_all_ended(&self, checker: &mut Checker) {
        if self.states.iter().any(|call| !call.is_ended) {
            checker.report_broken(Invariant::CallEndsOnce, "a call has not ended");
        }
    }
}
