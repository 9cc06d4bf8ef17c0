//! A connection of a client: its engine, and the link whose bytes the engine sends and receives.
//!
//! It moves bytes, passes the time to the engine, and knows the server calls that use it or wait for it. What becomes of
//! these is decided by the clients.

use std::sync::atomic::Ordering;

use glasscache_client::Error;
use glasscache_client::engine::connection::{
    Attempt, Connection, ConnectionEvent, Failure, NoReplyReason, Ticket,
};
use glasscache_client::request::{CommandSet, Request};

use super::calls::ServerCall;
use super::clock::{instant, micros};
use super::environment::Environment;
use super::server_operation::ServerOperation;
use super::{ConnectionId, ServerCallId};
use crate::checker::{Checker, Invariant, KnownOutcome, RecordedRequest, RequestId};
use crate::network::{End, Event, LinkId, Network, Received};
use crate::plan::{Micros, Sabotage};

/// Requests for an acknowledgement that may be in flight when a call of quiet writes ends, at most.
const ACKNOWLEDGEMENTS_MAX: usize = 2;
/// An event loop sends what its calls wrote after so long at most.
const SEND_DELAY_MICROS_MAX: Micros = 50;
/// What a connection may have to send, at most: the requests of all tasks, and those of login and probe before them.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The longest reply, which has a value for each key; the longest value has 70 KiB.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// The longest line that a client takes for a reply.
const REPLY_LINE_BYTES_MAX: usize = 8 << 10;
/// A connection idle for longer is looked at before it is used: the server may have closed it.
const TRUSTED_IDLE_MICROS: Micros = 20_000;

/// A connection of a client.
pub(super) struct ClientConnection {
    id: ConnectionId,
    pub(super) process: usize,
    pub(super) server: usize,
    /// All calls of its process use it, as in an event loop.
    pub(super) is_shared: bool,
    pub(super) link: LinkId,
    /// `None` once it is closed.
    pub(super) engine: Option<Connection>,
    pub(super) is_open: bool,
    /// It takes requests.
    pub(super) is_ready: bool,
    /// The only server call that may use it, if it comes from a pool.
    pub(super) owner: Option<ServerCallId>,
    server_calls_in_flight: Vec<(Ticket, ServerCallId)>,
    /// Server calls that wait until it takes requests.
    pub(super) waiting_server_calls: Vec<ServerCallId>,
    idle_since: Micros,
    /// When the deadlines of its calls are checked next.
    timer_at: Option<Micros>,
    is_send_scheduled: bool,
    /// A request on it was refused, perhaps before its value was read.
    pub(super) was_refused: bool,
    /// Quiet writes that are perhaps not acknowledged.
    quiet_writes: Vec<RequestId>,
}

/// What a server call waits for after its requests were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Submitted {
    /// Their reply.
    WithReply,
    /// That they are sent: they have no reply.
    Quiet,
}

/// What an idle connection is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleState {
    /// It can be used.
    Usable,
    /// It was closed by its peer, or received bytes that were not requested.
    Unusable,
    /// What it received breaks the protocol.
    BrokeProtocol,
}

/// What came of moving bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Movement {
    /// There is nothing to be had at present.
    Nothing,
    /// The engine has more to parse.
    Received,
    /// The transport is gone.
    Ended(End),
}

/// What a closed connection leaves behind.
pub(super) struct ClosedConnection {
    pub(super) sent_bytes: u64,
    pub(super) failed_server_calls: Vec<(ServerCallId, Box<Failure>)>,
}

impl ClientConnection {
    /// A connection whose link is being made.
    pub(super) fn new(
        id: ConnectionId,
        (process, server): (usize, usize),
        is_shared: bool,
        link: LinkId,
        engine: Connection,
    ) -> Self {
        Self {
            id,
            process,
            server,
            is_shared,
            link,
            engine: Some(engine),
            is_open: false,
            is_ready: false,
            owner: None,
            server_calls_in_flight: Vec::new(),
            waiting_server_calls: Vec::new(),
            idle_since: 0,
            timer_at: None,
            is_send_scheduled: false,
            was_refused: false,
            quiet_writes: Vec::new(),
        }
    }

    /// The server calls that wait for it while it is being made or opened.
    pub(super) fn waiting(&self) -> Vec<ServerCallId> {
        self.owner.into_iter().chain(self.waiting_server_calls.iter().copied()).collect()
    }

    /// The server calls that fail with a ticket: those that wait while it is opened, or one.
    pub(super) fn server_calls_of(&self, ticket: Ticket) -> Vec<ServerCallId> {
        if ticket == Ticket::OPENING {
            return self.waiting();
        }
        let in_flight = self.server_calls_in_flight.iter();
        in_flight
            .filter(|(other_ticket, _)| *other_ticket == ticket)
            .map(|(_, server_call)| *server_call)
            .collect()
    }

    /// The server call that waits for the reply to a ticket; one that was given up has no entry. With `mixes_replies`,
    /// which a test plants, it is another one.
    pub(super) fn server_call_of_reply(
        &self,
        ticket: Ticket,
        mixes_replies: bool,
    ) -> Option<ServerCallId> {
        let mut in_flight = self.server_calls_in_flight.iter();
        let ticket_and_server_call = if mixes_replies {
            in_flight.next_back()
        } else {
            in_flight.find(|(other_ticket, _)| *other_ticket == ticket)
        };
        ticket_and_server_call.map(|(_, server_call)| *server_call)
    }

    /// Whether its engine ends a server call that has this deadline.
    pub(super) fn ends_in_time(&self, server_call: ServerCallId, deadline: Micros) -> bool {
        // The first deadline that the engine knows is that of the call for which it opens the connection.
        let opening_deadline = self.engine.as_ref().and_then(Connection::next_deadline);
        let opens_for_call = !self.is_ready
            && opening_deadline
                .is_some_and(|opening_deadline| micros(opening_deadline) <= deadline);
        let mut in_flight = self.server_calls_in_flight.iter();
        opens_for_call || in_flight.any(|(_, other_server_call)| *other_server_call == server_call)
    }

    /// Forgets that a server call is in flight.
    pub(super) fn forget(&mut self, server_call: ServerCallId) {
        self.server_calls_in_flight
            .retain(|(_, other_server_call)| *other_server_call != server_call);
    }

    /// A server call no longer uses the connection; returns whether it was its owner.
    pub(super) fn detach(&mut self, server_call: ServerCallId) -> bool {
        self.stop_waiting(server_call);
        let was_owner = self.owner == Some(server_call);
        if was_owner {
            self.owner = None;
        }
        was_owner
    }

    /// Forgets that a server call waits for it.
    fn stop_waiting(&mut self, server_call: ServerCallId) {
        self.waiting_server_calls.retain(|other_server_call| *other_server_call != server_call);
    }

    pub(super) fn accepts_requests(&self) -> bool {
        self.engine.as_ref().is_some_and(Connection::accepts_requests)
    }

    /// Whether it can serve more calls of an event loop, now or once it is opened.
    pub(super) fn is_shareable(&self) -> bool {
        self.accepts_requests() || self.engine.is_some() && !self.is_ready
    }

    /// Has it idle from now on.
    pub(super) fn begin_idle(&mut self, env: &mut Environment) {
        self.idle_since = env.now();
        self.check_in_sync(env);
    }

    /// Whether it was not closed by its peer, and received no byte that was not requested. One that was used a moment
    /// ago is not looked at.
    pub(super) fn check_idle(&mut self, network: &mut Network) -> IdleState {
        if network.schedule.now() - self.idle_since < TRUSTED_IDLE_MICROS {
            return IdleState::Usable;
        }
        let Some(engine) = &mut self.engine else {
            return IdleState::Unusable;
        };
        let link = network.link(self.link);
        if !engine.has_unacknowledged_writes() {
            return if link.is_readable() { IdleState::Unusable } else { IdleState::Usable };
        }
        loop {
            match engine.poll() {
                ConnectionEvent::NeedsBytes(_) => match link.receive() {
                    Received::Bytes(bytes) => engine.wire_mut().feed(&bytes),
                    Received::End(_) => return IdleState::Unusable,
                    Received::Nothing => return IdleState::Usable,
                },
                ConnectionEvent::Idle if engine.must_close() => return IdleState::BrokeProtocol,
                ConnectionEvent::Idle => return IdleState::Usable,
                ConnectionEvent::Ready
                | ConnectionEvent::Reply(..)
                | ConnectionEvent::Failed(..) => return IdleState::Unusable,
            }
        }
    }

    /// Writes the next round trip of a server call and records it, to be sent later; `None`: the connection is closed.
    pub(super) fn submit(
        &mut self,
        (server_call_id, server_call): (ServerCallId, &mut ServerCall),
        attempt: Attempt,
        incarnation: usize,
        env: &mut Environment,
    ) -> Option<Result<Submitted, Error>> {
        let engine = self.engine.as_mut()?;
        let server_operation = server_call.server_operation.as_ref()?;
        if env.is_sabotaged_by(Sabotage::ForgetsUncertainKeys) {
            engine.server().uncertain.take_all();
        }
        let acknowledges_quiet = acknowledges_quiet_writes(engine);
        let begin_offset = engine.wire().appended_bytes();
        let is_owned = self.owner.is_some();
        let (ticket, is_repeatable) =
            server_operation.with_requests(acknowledges_quiet, |requests| {
                let is_repeatable = requests.iter().all(Request::is_repeatable);
                // A driver that has the connection for itself sends a long body from its own buffer.
                let ticket = if is_owned {
                    engine.submit_without_body(requests, attempt)
                } else {
                    engine.submit(requests, attempt)
                };
                (ticket, is_repeatable)
            });
        let end_offset = engine.wire().appended_bytes();
        let ticket = match ticket {
            Ok(ticket) => ticket,
            Err(error) => return Some(Err(error)),
        };
        let effects = server_operation.effects();
        let request = RecordedRequest {
            server: self.server,
            link: self.link,
            begin_offset,
            end_offset,
            known_outcomes: vec![KnownOutcome::Unknown; effects.len()],
            effects,
            is_repeatable,
            incarnation,
            is_multi_step: server_operation.is_multi_step(),
        };
        let is_flush = matches!(server_operation, ServerOperation::Flush);
        let is_counted = ticket.is_none() && acknowledges_quiet;
        let request_id = env.checker.record_request(request, is_flush, is_counted);
        env.log(|| {
            let id = self.id;
            format!("connection {id} request {request_id} of server call {server_call_id}: {begin_offset} to {end_offset}")
        });
        server_call.connection = Some(self.id);
        server_call.request_ids.push(request_id);
        if let Some(ticket) = ticket {
            self.server_calls_in_flight.push((ticket, server_call_id));
        } else {
            server_call.quiet_begin_offset = Some(begin_offset);
            self.quiet_writes.extend(acknowledges_quiet.then_some(request_id));
        }
        self.set_timer(&mut env.network);
        Some(Ok(if ticket.is_some() { Submitted::WithReply } else { Submitted::Quiet }))
    }

    /// Whether bytes have to be moved before replies are read. With `keeps_unparsed`, which a test plants, this is so
    /// also while no call waits for a reply.
    pub(super) fn must_move_bytes_first(&self, keeps_unparsed: bool) -> bool {
        let Some(engine) = &self.engine else {
            return false;
        };
        // A call that has the connection for itself reads replies only when all is sent.
        let must_send_first = self.owner.is_some() && !engine.wire().is_all_sent();
        let keeps_unparsed = keeps_unparsed
            && self.owner.is_none()
            && self.server_calls_in_flight.is_empty()
            && engine.has_unacknowledged_writes();
        (must_send_first || keeps_unparsed) && !engine.must_close()
    }

    /// Sends and receives; `server_operation` is that of its owner.
    pub(super) fn move_bytes(
        &mut self,
        server_operation: Option<&ServerOperation>,
        network: &mut Network,
    ) -> Movement {
        let Some(engine) = &mut self.engine else {
            return Movement::Nothing;
        };
        if !self.is_open || engine.must_close() {
            return Movement::Nothing;
        }
        if !self.is_send_scheduled
            && !engine.wire().is_all_sent()
            && let Err(end) = send(network, self.link, engine, server_operation)
        {
            return Movement::Ended(end);
        }
        // A call that has the connection for itself reads only when a reply is due: what a server reports of quiet writes
        // is left in the socket until the engine requests it.
        let is_reply_due = self.owner.is_none() || engine.awaits_replies();
        if !is_reply_due {
            return Movement::Nothing;
        }
        match network.link(self.link).receive() {
            Received::Bytes(bytes) => {
                feed_received(engine, &bytes, self.owner.is_some());
                Movement::Received
            }
            Received::End(end) => Movement::Ended(end),
            Received::Nothing => Movement::Nothing,
        }
    }

    /// The transport is gone.
    pub(super) fn handle_disconnect(&mut self, is_orderly: bool, reason: &str, env: &Environment) {
        if let Some(engine) = &mut self.engine {
            if env.is_sabotaged_by(Sabotage::ForgetsQuietWrites) {
                engine.abandon();
            }
            engine.handle_disconnect(is_orderly, reason);
        }
    }

    /// Schedules the next check of the deadlines of its calls.
    pub(super) fn set_timer(&mut self, network: &mut Network) {
        let deadline = self.engine.as_ref().and_then(Connection::next_deadline);
        let Some(deadline) = deadline.map(micros) else {
            return;
        };
        if self.timer_at.is_none_or(|timer_at| deadline < timer_at) {
            self.timer_at = Some(deadline);
            let wait = deadline.saturating_sub(network.schedule.now()).max(1);
            network.schedule.add(wait, Event::Tick(self.id));
        }
    }

    /// Passes the time to the engine; `false`: it is closed.
    pub(super) fn tick(&mut self, env: &Environment) -> bool {
        self.timer_at = None;
        let Some(engine) = &mut self.engine else {
            return false;
        };
        if !env.is_sabotaged_by(Sabotage::IgnoresDeadlines) {
            engine.tick(instant(env.now()));
        }
        true
    }

    /// An event loop sends what its calls wrote after all of them have run in this iteration.
    pub(super) fn schedule_send(&mut self, network: &mut Network) {
        if std::mem::replace(&mut self.is_send_scheduled, true) {
            return;
        }
        let wait = network.random().below(SEND_DELAY_MICROS_MAX);
        network.schedule.add(wait, Event::SendOutput(self.process, self.id));
    }

    /// An event loop sends now, with a request for the acknowledgement of quiet writes; `false`: it is closed.
    pub(super) fn begin_send(&mut self) -> bool {
        self.is_send_scheduled = false;
        if let Some(engine) = &mut self.engine {
            engine.request_acknowledgement();
        }
        self.engine.is_some()
    }

    /// Forgets quiet writes that are acknowledged.
    pub(super) fn forget_acknowledged(&mut self) {
        if !self.engine.as_ref().is_some_and(Connection::has_unacknowledged_writes) {
            self.quiet_writes.clear();
        }
    }

    /// Whether the quiet writes of its owner are all sent.
    pub(super) fn has_sent_quiet_writes(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| {
            engine.wire().is_all_sent()
                && engine.acknowledgements_in_flight() <= ACKNOWLEDGEMENTS_MAX
        })
    }

    /// Whether it takes no more requests, and no call waits for its replies.
    pub(super) fn is_unawaited(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| {
            self.is_ready && !engine.accepts_requests() && engine.next_deadline().is_none()
        })
    }

    /// Checks that it keeps at most the requests of all tasks, and of what it received at most the longest reply and one
    /// line for each quiet write.
    pub(super) fn check_held_bytes(&self, checker: &mut Checker) {
        let Some(engine) = &self.engine else {
            return;
        };
        if engine.wire().output().len() > OUTPUT_BYTES_MAX {
            let text = format!(
                "connection {} has {} bytes to send",
                self.id,
                engine.wire().output().len()
            );
            checker.report_broken(Invariant::MemoryIsBounded, text);
        }
        let received_bytes = engine.wire().pipeline().received_bytes();
        let refusals_bytes_max = self.quiet_writes.len() * REPLY_LINE_BYTES_MAX;
        if received_bytes > REPLY_BYTES_MAX + refusals_bytes_max {
            let text =
                format!("connection {} keeps {received_bytes} bytes that were received", self.id);
            checker.report_broken(Invariant::MemoryIsBounded, text);
        }
    }

    /// Checks that the network carries nothing for it while no request is in flight on it.
    pub(super) fn check_in_sync(&self, env: &mut Environment) {
        let Some(engine) = &self.engine else {
            return;
        };
        let has_nothing_pending = acknowledges_quiet_writes(engine)
            && engine.accepts_requests()
            && !engine.has_unacknowledged_writes();
        if has_nothing_pending
            && !self.was_refused
            && env.network.link(self.link).is_established()
            && !env.network.has_misbehaved(self.server)
            && !env.network.link(self.link).is_drained_both_ways()
        {
            let text = format!("connection {} is idle, and something is under way on it", self.id);
            env.checker.report_broken(Invariant::ReusedConnectionIsInSync, text);
        }
    }

    /// Ends quiet writes that were not all sent, with the connection: their caller gets the error, so they do not count
    /// as lost; those of earlier calls on the connection may.
    pub(super) fn fail_quiet_writes(
        &mut self,
        server_call: &ServerCall,
        attempt: Attempt,
        no_reply_reason: NoReplyReason<'_>,
        checker: &mut Checker,
    ) -> Option<Failure> {
        let engine = self.engine.as_mut()?;
        let server_operation = server_call.server_operation.as_ref()?;
        let begin_offset = server_call.quiet_begin_offset?;
        let server_state = engine.server().clone();
        let counted_before = server_state.noreply_failures.load(Ordering::Relaxed);
        let failure = server_operation.with_requests(true, |requests| {
            engine.fail_quiet(requests, attempt, begin_offset, no_reply_reason)
        });
        let (is_orderly, reason) = match no_reply_reason {
            NoReplyReason::Closed { is_orderly, reason } => (is_orderly, reason),
            NoReplyReason::Deadline => (false, "quiet writes were late"),
        };
        engine.handle_disconnect(is_orderly, reason);
        let request_ids = &server_call.request_ids;
        self.quiet_writes.retain(|quiet_write| !request_ids.contains(quiet_write));
        for request_id in request_ids {
            checker.forget_quiet_write(*request_id);
        }
        let earlier_count = self.quiet_writes.len() as u64;
        let counted_failures =
            server_state.noreply_failures.load(Ordering::Relaxed) - counted_before;
        if counted_failures > earlier_count {
            let text = format!(
                "connection {} had {earlier_count} quiet writes of earlier calls, {counted_failures} counted as failed",
                self.id
            );
            checker.report_broken(Invariant::QuietWriteIsCounted, text);
        }
        Some(failure)
    }

    /// What it has sent; nothing once it is closed.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.engine.as_ref().map_or(0, |engine| engine.wire().sent_bytes())
    }

    /// Records requests that were sent whole, among the first `sent_bytes`, and whose outcome is unknown.
    pub(super) fn record_uncertain(
        &self,
        request_ids: &[RequestId],
        sent_bytes: u64,
        env: &mut Environment,
    ) {
        for request_id in request_ids {
            let request = env.checker.history.request(*request_id);
            if request.link == self.link && request.end_offset <= sent_bytes {
                env.checker.record_uncertain(*request_id, &env.network);
            }
        }
    }

    /// Closes it; `None`: it is closed. Server calls that are in flight on it fail.
    pub(super) fn close(&mut self, env: &mut Environment) -> Option<ClosedConnection> {
        let mut engine = self.engine.take()?;
        env.log(|| format!("connection {} is closed", self.id));
        env.network.close(self.link);
        let sent_bytes = engine.wire().sent_bytes();
        let has_unacknowledged_writes = engine.has_unacknowledged_writes();
        if env.is_sabotaged_by(Sabotage::ForgetsQuietWrites) {
            engine.abandon();
        }
        let server_calls_in_flight = std::mem::take(&mut self.server_calls_in_flight);
        let mut failed_server_calls = Vec::new();
        if !server_calls_in_flight.is_empty() {
            engine.handle_disconnect(false, "it was closed");
            while let ConnectionEvent::Failed(ticket, failure) = engine.poll() {
                let server_calls_of_ticket = server_calls_in_flight
                    .iter()
                    .filter(|(other_ticket, _)| *other_ticket == ticket);
                failed_server_calls.extend(
                    server_calls_of_ticket.map(|(_, server_call)| (*server_call, failure.clone())),
                );
            }
        }
        drop(engine);
        let quiet_writes = std::mem::take(&mut self.quiet_writes);
        for request_id in quiet_writes.into_iter().filter(|_| has_unacknowledged_writes) {
            let request = env.checker.history.request(request_id);
            if request.end_offset <= sent_bytes
                && !env.checker.is_executed(request_id, &env.network)
            {
                env.checker.record_uncertain(request_id, &env.network);
            }
        }
        Some(ClosedConnection { sent_bytes, failed_server_calls })
    }

    /// It is the parent's of a fork: the child sends nothing, and ends the calls that this returns.
    pub(super) fn abandon(&mut self, env: &mut Environment) -> Vec<ServerCallId> {
        let Some(mut engine) = self.engine.take() else {
            return Vec::new();
        };
        let uncertain_keys = engine.server().uncertain.take_all();
        let key_count_before = uncertain_keys.len();
        engine.server().uncertain.add(uncertain_keys);
        if !env.is_sabotaged_by(Sabotage::KeepsParentConnections) {
            engine.abandon();
        }
        if !engine.must_close() {
            let text = format!("connection {} is used behind a fork", self.id);
            env.checker.report_broken(Invariant::ForkLeavesParentAlone, text);
        }
        let server_state = engine.server().clone();
        drop(engine);
        let keys_after = server_state.uncertain.take_all();
        if keys_after.len() != key_count_before {
            let text = format!("a child removes keys of its parent's calls: {keys_after:?}");
            env.checker.report_broken(Invariant::ForkLeavesParentAlone, text);
        }
        server_state.uncertain.add(keys_after);
        env.network.close(self.link);
        let in_flight = std::mem::take(&mut self.server_calls_in_flight);
        let waiting = std::mem::take(&mut self.waiting_server_calls);
        let in_flight = in_flight.into_iter().map(|(_, server_call)| server_call);
        self.owner.take().into_iter().chain(waiting).chain(in_flight).collect()
    }
}

/// Whether quiet writes are acknowledged by a request after them.
fn acknowledges_quiet_writes(engine: &Connection) -> bool {
    let command_set = engine.server().command_set();
    command_set.is_some_and(|command_set| command_set != CommandSet::Classic)
}

/// Gives a connection what was received: in place if `is_direct`, as a call that reads the socket itself does, or by copy.
fn feed_received(engine: &mut Connection, mut bytes: &[u8], is_direct: bool) {
    if !is_direct {
        return engine.wire_mut().feed(bytes);
    }
    while !bytes.is_empty() {
        let receive_buffer = engine.wire_mut().receive_space(1);
        let (fitting_bytes, remaining_bytes) =
            bytes.split_at(bytes.len().min(receive_buffer.len()));
        receive_buffer[..fitting_bytes.len()].copy_from_slice(fitting_bytes);
        engine.wire_mut().mark_received(fitting_bytes.len());
        bytes = remaining_bytes;
    }
}

/// Sends what the peer takes: the output, then the body that was left out of it.
fn send(
    network: &mut Network,
    link: LinkId,
    engine: &mut Connection,
    server_operation: Option<&ServerOperation>,
) -> Result<(), End> {
    let output = engine.wire().output();
    if !output.is_empty() {
        let output_bytes = output.len();
        let sent_bytes = network.send(link, output)?;
        engine.wire_mut().mark_sent(sent_bytes);
        if sent_bytes < output_bytes {
            return Ok(());
        }
    }
    if engine.wire().is_all_sent() {
        return Ok(());
    }
    let sent_body_bytes = engine.wire().sent_external_body_bytes();
    let unsent_body = server_operation.map(|server_operation| {
        server_operation.with_requests(true, |requests| {
            let body = requests.first().and_then(Request::external_body);
            let mut unsent_body = body.unwrap_or_default().to_vec();
            unsent_body.extend_from_slice(engine.wire().body_end());
            unsent_body.split_off(sent_body_bytes)
        })
    });
    let sent_bytes = network.send(link, &unsent_body.unwrap_or_default())?;
    engine.wire_mut().mark_sent(sent_bytes);
    Ok(())
}
