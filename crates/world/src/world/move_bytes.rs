//! What a driver does with a connection: moves bytes, hands out replies, tells the time.

use glasscache_client::engine::connection::{self, Connection, Progress, Ticket};
use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;

use super::bad_calls::BadCalls;
use super::job::Job;
use super::{PartId, SocketId, World, error_name, instant, micros};
use crate::checker::Invariant;
use crate::network::{End, Event, LinkId, Network, Received};
use crate::plan::{Micros, Sabotage};

/// Questions about quiet writes that may be open when a call of quiet writes ends.
const ACKNOWLEDGEMENTS_MAX: usize = 2;
/// An event loop sends what its calls wrote after so long at most.
const FLUSH_DELAY_MAX_MICROS: Micros = 50;
/// What a connection may have to send, at most: the requests of all tasks, and what is asked before them.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The longest reply, which has a value for each key; the longest value has 70 KiB.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// The longest line that a client takes for a reply.
const REPLY_LINE_BYTES_MAX: usize = 8 << 10;

impl World {
    /// Has a connection do what it can: take replies, send, receive.
    pub(super) fn pump(&mut self, socket: SocketId) {
        while self.checker.violation().is_none() {
            let state = &mut self.sockets[socket];
            let Some(engine) = &mut state.engine else {
                return;
            };
            // Whoever has a connection for itself looks at replies when all is sent.
            if state.owner.is_some() && !engine.is_all_sent() && !engine.must_close() {
                if self.move_bytes(socket) {
                    continue;
                }
                break;
            }
            let keeps_unparsed = self.sabotage == Some(Sabotage::KeepsUnparsed)
                && state.owner.is_none()
                && state.calls.is_empty()
                && engine.has_unacknowledged_writes()
                && !engine.must_close();
            if keeps_unparsed {
                if self.move_bytes(socket) {
                    continue;
                }
                break;
            }
            let was_over = engine.must_close();
            let progress = engine.poll();
            let broke_protocol = !was_over && engine.must_close();
            let bad_calls = &mut self.processes[state.process].servers[state.server].bad_calls;
            if matches!(progress, Progress::Reply(..)) {
                *bad_calls = BadCalls::default();
            } else if broke_protocol {
                bad_calls.add(socket, self.network.now, "protocol");
            }
            match progress {
                Progress::Ready => self.submit_waiting(socket),
                Progress::Reply(ticket, reply) => {
                    state.was_refused |= matches!(reply, Reply::Refused(_));
                    let calls = self.sockets[socket].calls.iter();
                    let part = if self.is_sabotaged_by(Sabotage::MixesReplies) {
                        calls.clone().next_back().map(|call| call.1)
                    } else {
                        calls
                            .clone()
                            .find(|call| call.0 == ticket)
                            .map(|call| call.1)
                    };
                    // Nobody waits for what a caller gave up.
                    if let Some(part) = part {
                        self.take_reply(socket, part, reply);
                    }
                }
                Progress::Failed(ticket, failure) => {
                    let parts = self.parts_of_ticket(socket, ticket);
                    if parts.is_empty() {
                        // Its caller gave up, but it may count against the server.
                        let (process, server) = self.process_and_server(socket);
                        let bad_calls = &mut self.processes[process].servers[server].bad_calls;
                        bad_calls.add(socket, self.network.now, error_name(&failure.error));
                    }
                    for part in parts {
                        self.handle_failed_attempt(socket, part, &failure);
                    }
                    let (process, server) = self.process_and_server(socket);
                    self.check_health(process, server);
                    if ticket == Ticket::OPENING {
                        return self.close_socket(socket); // it never takes requests
                    }
                }
                Progress::Needs(_) | Progress::Idle => {
                    if !self.move_bytes(socket) {
                        break;
                    }
                }
            }
        }
        self.finish_pump(socket);
    }

    /// The process and the server of a connection.
    fn process_and_server(&self, socket: SocketId) -> (usize, usize) {
        let state = &self.sockets[socket];
        (state.process, state.server)
    }

    /// Those whom a failure concerns: who waits while a connection is opened, or one call.
    fn parts_of_ticket(&self, socket: SocketId, ticket: Ticket) -> Vec<PartId> {
        if ticket == Ticket::OPENING {
            return self.waiting_on(socket);
        }
        let calls = self.sockets[socket].calls.iter();
        calls
            .filter(|call| call.0 == ticket)
            .map(|call| call.1)
            .collect()
    }

    fn submit_waiting(&mut self, socket: SocketId) {
        self.sockets[socket].is_ready = true;
        let waiting_parts = self.waiting_on(socket);
        self.sockets[socket].waiting_parts.clear();
        for part in waiting_parts {
            self.submit(socket, part);
        }
    }

    /// Sends and receives; false: there is nothing to be had at present.
    fn move_bytes(&mut self, socket: SocketId) -> bool {
        let state = &mut self.sockets[socket];
        let Some(engine) = &mut state.engine else {
            return false;
        };
        if !state.is_open || engine.must_close() {
            return false;
        }
        let mut end = None;
        if !state.will_flush && !engine.is_all_sent() {
            let body = state.owner.and_then(|part| self.parts[part].job.as_ref());
            match send(&mut self.network, state.link, engine, body) {
                Ok(()) => {}
                Err(error) => end = Some(error),
            }
        }
        // Whoever has a connection for itself reads when a reply is due: what a server did not do of quiet writes
        // is left in the socket until it is asked for.
        let is_reply_due = state.owner.is_none() || engine.awaits_replies();
        let received = match end {
            Some(end) => Received::End(end),
            None if is_reply_due => self.network.receive(state.link),
            None => Received::Nothing,
        };
        match received {
            Received::Bytes(bytes) => feed_received(engine, &bytes, state.owner.is_some()),
            Received::End(end) => {
                let reason = if end == End::InOrder {
                    "it was closed"
                } else {
                    "it broke"
                };
                self.lose_transport(socket, end == End::InOrder, reason);
            }
            Received::Nothing => return false,
        }
        true
    }

    /// The transport of a connection is gone.
    fn lose_transport(&mut self, socket: SocketId, is_orderly: bool, reason: &str) {
        self.note(|_| format!("socket {socket}: {reason}"));
        self.fail_unsent_quiet(socket, is_orderly, reason);
        let forgets = self.is_sabotaged_by(Sabotage::ForgetsQuiet);
        if let Some(engine) = &mut self.sockets[socket].engine {
            if forgets {
                engine.abandon();
            }
            engine.handle_disconnect(is_orderly, reason);
        }
    }

    /// Whoever waits until quiet writes are sent is told that they are not.
    fn fail_unsent_quiet(&mut self, socket: SocketId, is_orderly: bool, reason: &str) {
        let Some(part) = self.sockets[socket].owner else {
            return;
        };
        let Some(begin_offset) = self.parts[part].quiet_begin_offset else {
            return;
        };
        let end = connection::End::Closed { is_orderly, reason };
        let Some(failure) = self.fail_quiet_writes(socket, part, begin_offset, end) else {
            return;
        };
        self.parts[part].quiet_begin_offset = None;
        self.handle_failed_attempt(socket, part, &failure);
    }

    /// Sees to it that deadlines of a connection's calls are looked at in time.
    pub(super) fn set_timer(&mut self, socket: SocketId) {
        let state = &mut self.sockets[socket];
        let deadline = state.engine.as_ref().and_then(Connection::next_deadline);
        let Some(deadline) = deadline.map(micros) else {
            return;
        };
        if state.timer.is_none_or(|timer| deadline < timer) {
            state.timer = Some(deadline);
            let wait = deadline.saturating_sub(self.network.now).max(1);
            self.network.schedule(wait, Event::Tick(socket));
        }
    }

    /// Ends the calls of a connection whose time is over.
    pub(super) fn tick(&mut self, socket: SocketId) {
        let (process, server) = (self.sockets[socket].process, self.sockets[socket].server);
        let now = instant(self.network.now);
        let state = &mut self.sockets[socket];
        state.timer = None;
        let Some(engine) = &mut state.engine else {
            return;
        };
        if self.sabotage != Some(Sabotage::IgnoresDeadlines) {
            engine.tick(now);
        }
        self.pump(socket);
        self.close_unawaited(socket);
        self.check_health(process, server);
        self.set_timer(socket);
    }

    fn finish_pump(&mut self, socket: SocketId) {
        self.set_timer(socket);
        let state = &mut self.sockets[socket];
        let Some(engine) = &state.engine else { return };
        if !engine.has_unacknowledged_writes() {
            state.quiet_writes.clear();
        }
        if engine.output().len() > OUTPUT_BYTES_MAX {
            let text = format!(
                "socket {socket} has {} bytes to send",
                engine.output().len()
            );
            self.checker.report_broken(Invariant::MemoryIsBounded, text);
        }
        self.check_received_bytes(socket);
        let state = &self.sockets[socket];
        let Some(engine) = &state.engine else { return };
        if state.is_open && engine.must_close() && !self.is_sabotaged_by(Sabotage::NeverCloses) {
            let quiet_part = state
                .owner
                .filter(|part| self.parts[*part].quiet_begin_offset.is_some());
            return match quiet_part {
                // The engine has counted what it wrote as lost.
                Some(part) => self.finish_part(part, "quiet"),
                None => self.close_socket(socket),
            };
        }
        if let Some(part) = state.owner {
            let is_sent =
                engine.is_all_sent() && engine.acknowledgements_in_flight() <= ACKNOWLEDGEMENTS_MAX;
            if self.parts[part].quiet_begin_offset.is_some() && is_sent {
                self.finish_part(part, "quiet");
            }
        } else if state.is_ready && engine.is_idle() {
            self.check_in_sync(socket);
        }
    }

    /// What a connection has received and not used is no more than the longest reply and a line for each quiet write.
    fn check_received_bytes(&mut self, socket: SocketId) {
        let state = &self.sockets[socket];
        let Some(engine) = &state.engine else { return };
        let received_bytes = engine.pipeline().received_bytes();
        let refusals_bytes_max = state.quiet_writes.len() * REPLY_LINE_BYTES_MAX;
        if received_bytes > REPLY_BYTES_MAX + refusals_bytes_max {
            let text = format!("socket {socket} keeps {received_bytes} bytes that were received");
            self.checker.report_broken(Invariant::MemoryIsBounded, text);
        }
    }

    /// Closes a connection that takes no more requests, and for whose replies nobody waits.
    pub(super) fn close_unawaited(&mut self, socket: SocketId) {
        let state = &self.sockets[socket];
        let is_unused = state.engine.as_ref().is_some_and(|engine| {
            state.is_ready && !engine.takes_requests() && engine.next_deadline().is_none()
        });
        if is_unused && !self.is_sabotaged_by(Sabotage::NeverCloses) {
            self.close_socket(socket);
        }
    }

    fn flush_delay(&mut self) -> Micros {
        self.network.random().below(FLUSH_DELAY_MAX_MICROS)
    }

    /// An event loop sends what its calls wrote when they have all had their turn.
    pub(super) fn flush_later(&mut self, socket: SocketId) {
        if std::mem::replace(&mut self.sockets[socket].will_flush, true) {
            return;
        }
        let wait = self.flush_delay();
        let process = self.sockets[socket].process;
        self.network.schedule(wait, Event::Flush(process, socket));
    }

    pub(super) fn flush_shared(&mut self, socket: SocketId) {
        let state = &mut self.sockets[socket];
        state.will_flush = false;
        if let Some(engine) = &mut state.engine {
            engine.request_acknowledgement();
            self.pump(socket);
        }
    }
}

/// Gives a connection what was received: in place, as whoever reads a socket himself does, or by copy.
fn feed_received(engine: &mut Connection, mut bytes: &[u8], is_direct: bool) {
    if !is_direct {
        return engine.feed(bytes);
    }
    while !bytes.is_empty() {
        let receive_buffer = engine.receive_space(1);
        let (now, remaining_bytes) = bytes.split_at(bytes.len().min(receive_buffer.len()));
        receive_buffer[..now.len()].copy_from_slice(now);
        engine.mark_received(now.len());
        bytes = remaining_bytes;
    }
}

/// Sends what the peer takes: the output, then the body that was left out of it.
fn send(
    network: &mut Network,
    link: LinkId,
    engine: &mut Connection,
    job: Option<&Job>,
) -> Result<(), End> {
    let output = engine.output();
    if !output.is_empty() {
        let length = output.len();
        let bytes = network.send(link, output)?;
        engine.mark_sent(bytes);
        if bytes < length {
            return Ok(());
        }
    }
    if engine.is_all_sent() {
        return Ok(());
    }
    let sent = engine.sent_external_body_bytes();
    let unsent_body = job.map(|job| {
        job.with_requests(true, |requests| {
            let body = requests.first().and_then(Request::external_body);
            let mut unsent_body = body.unwrap_or_default().to_vec();
            unsent_body.extend_from_slice(engine.body_end());
            unsent_body.split_off(sent)
        })
    });
    let bytes = network.send(link, &unsent_body.unwrap_or_default())?;
    engine.mark_sent(bytes);
    Ok(())
}
