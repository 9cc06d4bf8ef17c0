//! The driver of a connection: moves bytes, hands out replies, passes the time to the engine.

use glasscache_client::engine::connection::{
    Connection, ConnectionEvent, Failure, NoReplyReason, Ticket,
};
use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;

use super::server_operation::ServerOperation;
use super::state::BadCalls;
use super::{ConnectionId, ServerCallId, World, error_name, instant, micros};
use crate::checker::Invariant;
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

impl World {
    /// Has a connection do what it can: take replies, send, receive.
    pub(super) fn pump(&mut self, connection: ConnectionId) {
        while self.checker.violation().is_none() {
            let client_connection = &mut self.connections[connection];
            let Some(engine) = &mut client_connection.engine_connection else {
                return;
            };
            // A call that has the connection for itself reads replies only when all is sent.
            if client_connection.owner.is_some() && !engine.is_all_sent() && !engine.must_close() {
                if self.move_bytes(connection) {
                    continue;
                }
                break;
            }
            let keeps_unparsed = self.sabotage == Some(Sabotage::KeepsUnparsedBytes)
                && client_connection.owner.is_none()
                && client_connection.server_calls_in_flight.is_empty()
                && engine.has_unacknowledged_writes()
                && !engine.must_close();
            if keeps_unparsed {
                if self.move_bytes(connection) {
                    continue;
                }
                break;
            }
            let had_to_close = engine.must_close();
            let event = engine.poll();
            let broke_protocol = !had_to_close && engine.must_close();
            let pool = &mut self.processes[client_connection.process].server_pools
                [client_connection.server];
            if matches!(event, ConnectionEvent::Reply(..)) {
                // Of a server that went down a moment ago, the cause is still to be checked.
                if !pool.server_state.health.is_down() {
                    pool.bad_calls = BadCalls::default();
                }
            } else if broke_protocol {
                pool.bad_calls.add(connection, self.network.now, "protocol");
            }
            match event {
                ConnectionEvent::Ready => self.submit_waiting(connection),
                ConnectionEvent::Reply(ticket, reply) => {
                    self.take_reply(connection, ticket, reply);
                }
                ConnectionEvent::Failed(ticket, failure) => {
                    self.take_failure(connection, ticket, &failure);
                    if ticket == Ticket::OPENING {
                        return self.close_connection(connection); // it never takes requests
                    }
                }
                ConnectionEvent::NeedsBytes(_) | ConnectionEvent::Idle => {
                    if !self.move_bytes(connection) {
                        break;
                    }
                }
            }
        }
        self.finish_pump(connection);
    }

    /// Hands a reply to the call that waits for it; one that was given up has no entry.
    fn take_reply(&mut self, connection: ConnectionId, ticket: Ticket, reply: Reply) {
        self.connections[connection].was_refused |= matches!(reply, Reply::Refused(_));
        let mut in_flight = self.connections[connection].server_calls_in_flight.iter();
        let ticket_and_server_call = if self.is_sabotaged_by(Sabotage::MixesReplies) {
            in_flight.next_back()
        } else {
            in_flight.find(|(other_ticket, _)| *other_ticket == ticket)
        };
        let server_call = ticket_and_server_call.map(|(_, server_call)| *server_call);
        if let Some(server_call) = server_call {
            self.dispatch_reply(connection, server_call, reply);
        }
    }

    fn take_failure(&mut self, connection: ConnectionId, ticket: Ticket, failure: &Failure) {
        let server_calls = self.server_calls_of_ticket(connection, ticket);
        let (process, server) = self.process_and_server(connection);
        if server_calls.is_empty() {
            // Its caller gave up, but it may count against the server.
            let bad_calls = &mut self.processes[process].server_pools[server].bad_calls;
            bad_calls.add(connection, self.network.now, error_name(&failure.error));
        }
        for server_call in server_calls {
            self.handle_failed_attempt(connection, server_call, failure);
        }
        self.check_health(process, server);
    }

    /// The process and the server of a connection.
    fn process_and_server(&self, connection: ConnectionId) -> (usize, usize) {
        let client_connection = &self.connections[connection];
        (client_connection.process, client_connection.server)
    }

    /// The server calls that fail with a ticket: those that wait while a connection is opened, or one.
    fn server_calls_of_ticket(
        &self,
        connection: ConnectionId,
        ticket: Ticket,
    ) -> Vec<ServerCallId> {
        if ticket == Ticket::OPENING {
            return self.waiting_on(connection);
        }
        let in_flight = self.connections[connection].server_calls_in_flight.iter();
        in_flight
            .filter(|(other_ticket, _)| *other_ticket == ticket)
            .map(|(_, server_call)| *server_call)
            .collect()
    }

    fn submit_waiting(&mut self, connection: ConnectionId) {
        self.connections[connection].is_ready = true;
        let waiting_server_calls = self.waiting_on(connection);
        self.connections[connection].waiting_server_calls.clear();
        for server_call in waiting_server_calls {
            self.submit(connection, server_call);
        }
    }

    /// Sends and receives; false: there is nothing to be had at present.
    fn move_bytes(&mut self, connection: ConnectionId) -> bool {
        let client_connection = &mut self.connections[connection];
        let Some(engine) = &mut client_connection.engine_connection else {
            return false;
        };
        if !client_connection.is_open || engine.must_close() {
            return false;
        }
        let mut end = None;
        if !client_connection.is_send_scheduled && !engine.is_all_sent() {
            let server_operation = client_connection
                .owner
                .and_then(|server_call| self.server_calls[server_call].server_operation.as_ref());
            match send(&mut self.network, client_connection.link, engine, server_operation) {
                Ok(()) => {}
                Err(connection_end) => end = Some(connection_end),
            }
        }
        // A call that has the connection for itself reads only when a reply is due: what a server reports of quiet writes
        // is left in the socket until the engine requests it.
        let is_reply_due = client_connection.owner.is_none() || engine.awaits_replies();
        let received = match end {
            Some(end) => Received::End(end),
            None if is_reply_due => self.network.receive(client_connection.link),
            None => Received::Nothing,
        };
        match received {
            Received::Bytes(bytes) => {
                feed_received(engine, &bytes, client_connection.owner.is_some());
            }
            Received::End(end) => {
                let reason = if end == End::InOrder { "it was closed" } else { "it broke" };
                self.lose_transport(connection, end == End::InOrder, reason);
            }
            Received::Nothing => return false,
        }
        true
    }

    /// The transport of a connection is gone.
    fn lose_transport(&mut self, connection: ConnectionId, is_orderly: bool, reason: &str) {
        self.log_event(|_| format!("connection {connection}: {reason}"));
        self.fail_unsent_quiet(connection, is_orderly, reason);
        let forgets_quiet_writes = self.is_sabotaged_by(Sabotage::ForgetsQuietWrites);
        if let Some(engine) = &mut self.connections[connection].engine_connection {
            if forgets_quiet_writes {
                engine.abandon();
            }
            engine.handle_disconnect(is_orderly, reason);
        }
    }

    /// Reports to the calls that wait for the sending of quiet writes that these are not sent.
    fn fail_unsent_quiet(&mut self, connection: ConnectionId, is_orderly: bool, reason: &str) {
        let Some(server_call) = self.connections[connection].owner else {
            return;
        };
        let Some(begin_offset) = self.server_calls[server_call].quiet_begin_offset else {
            return;
        };
        let no_reply_reason = NoReplyReason::Closed { is_orderly, reason };
        let Some(failure) =
            self.fail_quiet_writes(connection, server_call, begin_offset, no_reply_reason)
        else {
            return;
        };
        self.server_calls[server_call].quiet_begin_offset = None;
        self.handle_failed_attempt(connection, server_call, &failure);
    }

    /// Schedules the next check of the deadlines of a connection's calls.
    pub(super) fn set_timer(&mut self, connection: ConnectionId) {
        let client_connection = &mut self.connections[connection];
        let deadline =
            client_connection.engine_connection.as_ref().and_then(Connection::next_deadline);
        let Some(deadline) = deadline.map(micros) else {
            return;
        };
        if client_connection.timer_at.is_none_or(|timer_at| deadline < timer_at) {
            client_connection.timer_at = Some(deadline);
            let wait = deadline.saturating_sub(self.network.now).max(1);
            self.network.schedule(wait, Event::Tick(connection));
        }
    }

    /// Ends the calls of a connection whose time is over.
    pub(super) fn tick(&mut self, connection: ConnectionId) {
        let (process, server) =
            (self.connections[connection].process, self.connections[connection].server);
        let now = instant(self.network.now);
        let client_connection = &mut self.connections[connection];
        client_connection.timer_at = None;
        let Some(engine) = &mut client_connection.engine_connection else {
            return;
        };
        if self.sabotage != Some(Sabotage::IgnoresDeadlines) {
            engine.tick(now);
        }
        self.pump(connection);
        self.close_unawaited(connection);
        self.check_health(process, server);
        self.set_timer(connection);
    }

    fn finish_pump(&mut self, connection: ConnectionId) {
        self.set_timer(connection);
        let client_connection = &mut self.connections[connection];
        let Some(engine) = &client_connection.engine_connection else {
            return;
        };
        if !engine.has_unacknowledged_writes() {
            client_connection.quiet_writes.clear();
        }
        if engine.output().len() > OUTPUT_BYTES_MAX {
            let text =
                format!("connection {connection} has {} bytes to send", engine.output().len());
            self.checker.report_broken(Invariant::MemoryIsBounded, text);
        }
        self.check_received_bytes(connection);
        let client_connection = &self.connections[connection];
        let Some(engine) = &client_connection.engine_connection else {
            return;
        };
        if client_connection.is_open
            && engine.must_close()
            && !self.is_sabotaged_by(Sabotage::NeverCloses)
        {
            let quiet_server_call = client_connection
                .owner
                .filter(|server_call| self.server_calls[*server_call].quiet_begin_offset.is_some());
            return match quiet_server_call {
                // The engine has counted what it wrote as lost.
                Some(server_call) => self.finish_server_call(server_call, "quiet"),
                None => self.close_connection(connection),
            };
        }
        if let Some(server_call) = client_connection.owner {
            let is_sent =
                engine.is_all_sent() && engine.acknowledgements_in_flight() <= ACKNOWLEDGEMENTS_MAX;
            if self.server_calls[server_call].quiet_begin_offset.is_some() && is_sent {
                self.finish_server_call(server_call, "quiet");
            }
        } else if client_connection.is_ready && engine.is_idle() {
            self.check_in_sync(connection);
        }
    }

    /// Checks that a connection keeps at most the longest reply and one line for each quiet write of what it received.
    fn check_received_bytes(&mut self, connection: ConnectionId) {
        let client_connection = &self.connections[connection];
        let Some(engine) = &client_connection.engine_connection else {
            return;
        };
        let received_bytes = engine.pipeline().received_bytes();
        let refusals_bytes_max = client_connection.quiet_writes.len() * REPLY_LINE_BYTES_MAX;
        if received_bytes > REPLY_BYTES_MAX + refusals_bytes_max {
            let text =
                format!("connection {connection} keeps {received_bytes} bytes that were received");
            self.checker.report_broken(Invariant::MemoryIsBounded, text);
        }
    }

    /// Closes a connection that takes no more requests, and for whose replies no call waits.
    pub(super) fn close_unawaited(&mut self, connection: ConnectionId) {
        let client_connection = &self.connections[connection];
        let is_unused = client_connection.engine_connection.as_ref().is_some_and(|engine| {
            client_connection.is_ready
                && !engine.accepts_requests()
                && engine.next_deadline().is_none()
        });
        if is_unused && !self.is_sabotaged_by(Sabotage::NeverCloses) {
            self.close_connection(connection);
        }
    }

    fn send_delay(&mut self) -> Micros {
        self.network.random().below(SEND_DELAY_MICROS_MAX)
    }

    /// An event loop sends what its calls wrote after all of them have run in this iteration.
    pub(super) fn schedule_send(&mut self, connection: ConnectionId) {
        if std::mem::replace(&mut self.connections[connection].is_send_scheduled, true) {
            return;
        }
        let wait = self.send_delay();
        let process = self.connections[connection].process;
        self.network.schedule(wait, Event::SendOutput(process, connection));
    }

    pub(super) fn send_shared(&mut self, connection: ConnectionId) {
        let client_connection = &mut self.connections[connection];
        client_connection.is_send_scheduled = false;
        if let Some(engine) = &mut client_connection.engine_connection {
            engine.request_acknowledgement();
            self.pump(connection);
        }
    }
}

/// Gives a connection what was received: in place if `is_direct`, as a call that reads the socket itself does, or by copy.
fn feed_received(engine: &mut Connection, mut bytes: &[u8], is_direct: bool) {
    if !is_direct {
        return engine.feed(bytes);
    }
    while !bytes.is_empty() {
        let receive_buffer = engine.receive_space(1);
        let (fitting_bytes, remaining_bytes) =
            bytes.split_at(bytes.len().min(receive_buffer.len()));
        receive_buffer[..fitting_bytes.len()].copy_from_slice(fitting_bytes);
        engine.mark_received(fitting_bytes.len());
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
    let output = engine.output();
    if !output.is_empty() {
        let output_bytes = output.len();
        let sent_bytes = network.send(link, output)?;
        engine.mark_sent(sent_bytes);
        if sent_bytes < output_bytes {
            return Ok(());
        }
    }
    if engine.is_all_sent() {
        return Ok(());
    }
    let sent_body_bytes = engine.sent_external_body_bytes();
    let unsent_body = server_operation.map(|server_operation| {
        server_operation.with_requests(true, |requests| {
            let body = requests.first().and_then(Request::external_body);
            let mut unsent_body = body.unwrap_or_default().to_vec();
            unsent_body.extend_from_slice(engine.body_end());
            unsent_body.split_off(sent_body_bytes)
        })
    });
    let sent_bytes = network.send(link, &unsent_body.unwrap_or_default())?;
    engine.mark_sent(sent_bytes);
    Ok(())
}
