//! Connections as drivers handle them: taken from a pool or shared, read, written, given back, closed.

use glasscache_client::engine::connection::{Connection, ConnectionEvent};
use glasscache_client::engine::retry::{FailedRequest, FailureCause, RetryDecision};
use glasscache_client::error::Phase;

use super::calls::has_quiet_writes;
use super::{EventReceiver, PartId, Socket, SocketId, World};
use crate::checker::Invariant;
use crate::network::Received;
use crate::plan::{Driver, Micros, Sabotage};

/// A connection idle for longer is looked at before it is used: the server may have closed it.
const TRUSTED_IDLE_MICROS: Micros = 20_000;

impl World {
    /// Takes a connection of a pool for a part, or makes one, or waits for one.
    pub(super) fn check_out(&mut self, part: PartId, connections_max: usize) {
        let (process, server) = self.process_and_server_of(part);
        while let Some(socket) = self.processes[process].servers[server].idle_sockets.pop() {
            let is_trusted =
                self.network.now - self.sockets[socket].idle_since < TRUSTED_IDLE_MICROS;
            if !is_trusted && !self.is_reusable(socket) {
                self.close_socket(socket);
                continue;
            }
            let state = &mut self.sockets[socket];
            state.owner = Some(part);
            if let Some(engine) = &mut state.engine {
                engine.mark_reused();
            }
            self.parts[part].socket = Some(socket);
            self.submit(socket, part);
            return self.pump(socket);
        }
        let pool = &mut self.processes[process].servers[server];
        if pool.open_count < connections_max {
            pool.open_count += 1;
            let socket = self.dial(process, server);
            self.sockets[socket].owner = Some(part);
            self.parts[part].socket = Some(socket);
        } else {
            pool.waiting_parts.push_back(part);
        }
    }

    /// Whether an idle connection was not closed by its peer, and nothing came that nobody asked for.
    fn is_reusable(&mut self, socket: SocketId) -> bool {
        let state = &mut self.sockets[socket];
        let Some(engine) = &mut state.engine else {
            return false;
        };
        if !engine.has_unacknowledged_writes() {
            return !self.network.is_readable(state.link);
        }
        loop {
            match engine.poll() {
                ConnectionEvent::NeedsBytes(_) => match self.network.receive(state.link) {
                    Received::Bytes(bytes) => engine.feed(&bytes),
                    Received::End(_) => return false,
                    Received::Nothing => return true,
                },
                ConnectionEvent::Idle => {
                    let is_usable = !engine.must_close();
                    if !is_usable {
                        let pool = &mut self.processes[state.process].servers[state.server];
                        pool.bad_calls.add(socket, self.network.now, "protocol");
                    }
                    return is_usable;
                }
                ConnectionEvent::Ready
                | ConnectionEvent::Reply(..)
                | ConnectionEvent::Failed(..) => return false,
            }
        }
    }

    /// Gives a part a place on the connection that an event loop has to its server.
    pub(super) fn submit_on_shared(&mut self, part: PartId) {
        let (process, server) = self.process_and_server_of(part);
        let shared = self.processes[process].servers[server].shared_socket;
        let usable_socket = shared.filter(|socket| {
            let state = &self.sockets[*socket];
            let accepts_requests = state
                .engine
                .as_ref()
                .is_some_and(Connection::accepts_requests);
            accepts_requests || state.engine.is_some() && !state.is_ready
        });
        let socket = usable_socket.unwrap_or_else(|| {
            let socket = self.dial(process, server);
            self.processes[process].servers[server].shared_socket = Some(socket);
            socket
        });
        self.parts[part].socket = Some(socket);
        if self.sockets[socket].is_ready {
            self.submit(socket, part);
        } else {
            self.sockets[socket].waiting_parts.push(part);
        }
    }

    fn dial(&mut self, process: usize, server: usize) -> SocketId {
        let link = self.network.connect(server);
        let socket = self.sockets.len();
        self.set_receiver(link, EventReceiver::Socket(socket));
        let state = self.processes[process].servers[server].state.clone();
        let value_bytes_max = self.processes[process].plan.value_bytes_max;
        self.next_opaque = self.next_opaque.wrapping_add(0x0100_0193);
        self.sockets.push(Socket {
            process,
            server,
            link,
            engine: Some(Connection::new(state, value_bytes_max, self.next_opaque)),
            is_open: false,
            is_ready: false,
            owner: None,
            calls: Vec::new(),
            waiting_parts: Vec::new(),
            idle_since: 0,
            timer: None,
            will_flush: false,
            was_refused: false,
            quiet_writes: Vec::new(),
        });
        self.note(|_| format!("socket {socket} to server {server} of process {process}"));
        socket
    }

    /// Those who wait for a connection that is being made or opened.
    pub(super) fn waiting_on(&self, socket: SocketId) -> Vec<PartId> {
        let state = &self.sockets[socket];
        state
            .owner
            .into_iter()
            .chain(state.waiting_parts.iter().copied())
            .collect()
    }

    /// The network has something for a connection.
    pub(super) fn handle_socket_ready(&mut self, socket: SocketId) {
        let state = &self.sockets[socket];
        if state.engine.is_none() {
            return;
        }
        if state.is_open {
            // Nobody looks at an idle connection of a pool.
            if state.owner.is_some() || self.is_shared(socket) {
                self.pump(socket);
            }
            return;
        }
        match self.network.is_connected(state.link) {
            Some(true) => self.handle_connected(socket),
            Some(false) => self.fail_refused_socket(socket),
            None => {}
        }
    }

    fn is_shared(&self, socket: SocketId) -> bool {
        let process = self.sockets[socket].process;
        self.processes[process].plan.driver == Driver::Shared
    }

    fn handle_connected(&mut self, socket: SocketId) {
        let Some(&first) = self.waiting_on(socket).first() else {
            return self.close_socket(socket); // whoever wanted it gave up
        };
        let part = &self.parts[first];
        let attempt = self.calls[part.call].new_attempt(part.is_retry);
        let presumes_classic = part.presumes_classic;
        let state = &mut self.sockets[socket];
        state.is_open = true;
        if let Some(engine) = &mut state.engine {
            engine.handle_connected(presumes_classic, attempt);
        }
        self.pump(socket);
    }

    fn fail_refused_socket(&mut self, socket: SocketId) {
        let (process, server) = (self.sockets[socket].process, self.sockets[socket].server);
        let cause = FailureCause::Closed { is_orderly: false };
        if let RetryDecision::Fail(effect) = FailedRequest::CONNECTING.decide(cause) {
            let pool = &mut self.processes[process].servers[server];
            pool.state.health.apply_effect(effect);
            pool.bad_calls.was_unreachable = true;
        }
        let waiting_parts = self.waiting_on(socket);
        self.sockets[socket].waiting_parts.clear();
        for part in waiting_parts {
            let error = self.unavailable_error(server, Phase::Connect, "refused");
            self.fail_part(part, &error);
        }
        self.close_socket(socket);
        self.check_health(process, server);
    }

    /// A connection without anything in flight has nothing under way either.
    pub(super) fn check_in_sync(&mut self, socket: SocketId) {
        let state = &self.sockets[socket];
        let Some(engine) = &state.engine else { return };
        let is_settled = has_quiet_writes(engine)
            && engine.accepts_requests()
            && !engine.has_unacknowledged_writes();
        if is_settled
            && !state.was_refused
            && self.network.is_established(state.link)
            && !self.network.has_misbehaved(state.server)
            && !self.network.is_drained_both_ways(state.link)
        {
            let text = format!("socket {socket} is idle, and something is under way on it");
            self.checker
                .report_broken(Invariant::ReusedConnectionIsInSync, text);
        }
    }

    /// A part has ended: its connection is given back, if it was its own.
    pub(super) fn release_connection(&mut self, socket: SocketId, part: PartId) {
        self.sockets[socket]
            .waiting_parts
            .retain(|other_part| *other_part != part);
        if self.sockets[socket].owner != Some(part) {
            return;
        }
        let state = &mut self.sockets[socket];
        state.owner = None;
        let (process, server) = (state.process, state.server);
        let keeps_unread = self.sabotage == Some(Sabotage::ReusesUnreadConnections);
        if let Some(engine) = &mut state.engine {
            engine.release();
            if state.is_ready && (keeps_unread || engine.is_ready_for_reuse()) {
                state.idle_since = self.network.now;
                self.check_in_sync(socket);
                self.processes[process].servers[server]
                    .idle_sockets
                    .push(socket);
            } else {
                self.close_socket(socket);
            }
        }
        self.serve_next(process, server);
    }

    /// Whoever waits longest for a connection gets what there is now.
    fn serve_next(&mut self, process: usize, server: usize) {
        let Driver::Pooled(connections_max) = self.processes[process].plan.driver else {
            return;
        };
        let pool = &mut self.processes[process].servers[server];
        if pool.idle_sockets.is_empty() && pool.open_count >= connections_max {
            return;
        }
        if let Some(next) = pool.waiting_parts.pop_front() {
            self.check_out(next, connections_max);
        }
    }

    /// Begins anew for a part whose connection was of no use; its place in the pool is kept.
    pub(super) fn replace(&mut self, socket: SocketId, part: PartId) {
        let state = &mut self.sockets[socket];
        state.waiting_parts.retain(|other_part| *other_part != part);
        if state.owner != Some(part) {
            return self.submit_on_shared(part);
        }
        state.owner = None;
        let (process, server) = (state.process, state.server);
        self.close_socket(socket);
        self.processes[process].servers[server].open_count += 1;
        let new_socket = self.dial(process, server);
        self.sockets[new_socket].owner = Some(part);
        self.parts[part].socket = Some(new_socket);
    }

    /// Closes the connections of a pool that nobody uses.
    pub(super) fn close_idle(&mut self, process: usize, server: usize) {
        for socket in std::mem::take(&mut self.processes[process].servers[server].idle_sockets) {
            self.close_socket(socket);
        }
    }

    /// Closes a connection; calls that are in flight on it fail.
    pub(super) fn close_socket(&mut self, socket: SocketId) {
        let Some(mut engine) = self.sockets[socket].engine.take() else {
            return;
        };
        self.note(|_| format!("socket {socket} is closed"));
        let state = &mut self.sockets[socket];
        let (process, server, link) = (state.process, state.server, state.link);
        let quiet_writes = std::mem::take(&mut state.quiet_writes);
        self.network.close(link);
        self.set_receiver(link, EventReceiver::Gone);
        let sent_bytes = engine.sent_bytes();
        let has_pending = engine.has_unacknowledged_writes();
        if self.is_sabotaged_by(Sabotage::ForgetsQuiet) {
            engine.abandon();
        }
        let calls = std::mem::take(&mut self.sockets[socket].calls);
        let mut failed_parts = Vec::new();
        if !calls.is_empty() {
            engine.handle_disconnect(false, "it was closed");
            while let ConnectionEvent::Failed(ticket, failure) = engine.poll() {
                let parts = calls.iter().filter(|call| call.0 == ticket);
                failed_parts.extend(parts.map(|call| (call.1, failure.clone())));
            }
        }
        drop(engine);
        for id in quiet_writes {
            let request = self.checker.history.request(id);
            if has_pending
                && request.end_offset <= sent_bytes
                && !self.checker.is_executed(id, &self.network)
            {
                self.checker.record_uncertain(id, &self.network);
            }
        }
        if !self.is_shared(socket) {
            let pool = &mut self.processes[process].servers[server];
            pool.open_count -= 1;
            pool.idle_sockets.retain(|other_part| *other_part != socket);
        } else if self.processes[process].servers[server].shared_socket == Some(socket) {
            self.processes[process].servers[server].shared_socket = None;
        }
        for (part, failure) in failed_parts {
            for id in self.parts[part].requests.clone() {
                let request = self.checker.history.request(id);
                if request.link == link && request.end_offset <= sent_bytes {
                    self.checker.record_uncertain(id, &self.network);
                }
            }
            self.handle_failed_attempt(socket, part, &failure);
        }
        for part in std::mem::take(&mut self.sockets[socket].waiting_parts) {
            self.parts[part].socket = None;
            self.start_part(part);
        }
    }

    /// Once all calls have ended no more connections are open than are of use.
    pub(super) fn check_connections(&mut self, process: usize) {
        for server in 0..self.server_count() {
            let is_of_server = |socket: &&Socket| {
                socket.process == process && socket.server == server && socket.engine.is_some()
            };
            let open_count = self.sockets.iter().filter(is_of_server).count();
            let connections_max = match self.processes[process].plan.driver {
                Driver::Pooled(connections_max) => connections_max,
                Driver::Shared => 1,
            };
            if open_count > connections_max {
                let text =
                    format!("process {process} has {open_count} connections to server {server}");
                self.checker
                    .report_broken(Invariant::UselessConnectionIsClosed, text);
            }
        }
    }
}
