//! Connections as drivers handle them: taken from a pool or shared, read, written, given back, closed.

use glasscache_client::engine::connection::{Connection, ConnectionEvent};
use glasscache_client::engine::retry::{FailedRequest, FailureCause, RetryDecision};
use glasscache_client::error::Phase;

use super::calls::has_quiet_writes;
use super::{ClientConnection, ConnectionId, EventReceiver, PartId, World};
use crate::checker::Invariant;
use crate::network::Received;
use crate::plan::{Driver, Micros, Sabotage};

/// A connection idle for longer is looked at before it is used: the server may have closed it.
const TRUSTED_IDLE_MICROS: Micros = 20_000;

impl World {
    /// Takes a connection of a pool for a part, or makes one, or waits for one.
    pub(super) fn check_out(&mut self, part: PartId, connections_max: usize) {
        let (process, server) = self.process_and_server_of(part);
        while let Some(connection) = self.processes[process].servers[server]
            .idle_connections
            .pop()
        {
            let is_trusted =
                self.network.now - self.connections[connection].idle_since < TRUSTED_IDLE_MICROS;
            if !is_trusted && !self.is_reusable(connection) {
                self.close_connection(connection);
                continue;
            }
            let client_connection = &mut self.connections[connection];
            client_connection.owner = Some(part);
            if let Some(engine) = &mut client_connection.engine_connection {
                engine.mark_reused();
            }
            self.parts[part].connection = Some(connection);
            self.submit(connection, part);
            return self.pump(connection);
        }
        let pool = &mut self.processes[process].servers[server];
        if pool.open_count < connections_max {
            pool.open_count += 1;
            let connection = self.open_connection(process, server);
            self.connections[connection].owner = Some(part);
            self.parts[part].connection = Some(connection);
        } else {
            pool.waiting_parts.push_back(part);
        }
    }

    /// Whether an idle connection was not closed by its peer, and received no byte that was not requested.
    fn is_reusable(&mut self, connection: ConnectionId) -> bool {
        let client_connection = &mut self.connections[connection];
        let Some(engine) = &mut client_connection.engine_connection else {
            return false;
        };
        if !engine.has_unacknowledged_writes() {
            return !self.network.is_readable(client_connection.link);
        }
        loop {
            match engine.poll() {
                ConnectionEvent::NeedsBytes(_) => {
                    match self.network.receive(client_connection.link) {
                        Received::Bytes(bytes) => engine.feed(&bytes),
                        Received::End(_) => return false,
                        Received::Nothing => return true,
                    }
                }
                ConnectionEvent::Idle => {
                    let is_usable = !engine.must_close();
                    if !is_usable {
                        let pool = &mut self.processes[client_connection.process].servers
                            [client_connection.server];
                        pool.bad_calls.add(connection, self.network.now, "protocol");
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
        let shared = self.processes[process].servers[server].shared_connection;
        let usable_connection = shared.filter(|connection| {
            let client_connection = &self.connections[*connection];
            let accepts_requests = client_connection
                .engine_connection
                .as_ref()
                .is_some_and(Connection::accepts_requests);
            accepts_requests
                || client_connection.engine_connection.is_some() && !client_connection.is_ready
        });
        let connection = usable_connection.unwrap_or_else(|| {
            let connection = self.open_connection(process, server);
            self.processes[process].servers[server].shared_connection = Some(connection);
            connection
        });
        self.parts[part].connection = Some(connection);
        if self.connections[connection].is_ready {
            self.submit(connection, part);
        } else {
            self.connections[connection].waiting_parts.push(part);
        }
    }

    fn open_connection(&mut self, process: usize, server: usize) -> ConnectionId {
        let link = self.network.connect(server);
        let connection = self.connections.len();
        self.set_receiver(link, EventReceiver::Connection(connection));
        let server_state = self.processes[process].servers[server].server_state.clone();
        let value_bytes_max = self.processes[process].plan.value_bytes_max;
        self.next_opaque = self.next_opaque.wrapping_add(0x0100_0193);
        self.connections.push(ClientConnection {
            process,
            server,
            link,
            engine_connection: Some(Connection::new(
                server_state,
                value_bytes_max,
                self.next_opaque,
            )),
            is_open: false,
            is_ready: false,
            owner: None,
            calls: Vec::new(),
            waiting_parts: Vec::new(),
            idle_since: 0,
            timer: None,
            is_send_scheduled: false,
            was_refused: false,
            quiet_writes: Vec::new(),
        });
        self.log_event(|_| {
            format!("connection {connection} to server {server} of process {process}")
        });
        connection
    }

    /// The parts that wait for a connection that is being made or opened.
    pub(super) fn waiting_on(&self, connection: ConnectionId) -> Vec<PartId> {
        let client_connection = &self.connections[connection];
        client_connection
            .owner
            .into_iter()
            .chain(client_connection.waiting_parts.iter().copied())
            .collect()
    }

    /// The network has something for a connection.
    pub(super) fn handle_connection_ready(&mut self, connection: ConnectionId) {
        let client_connection = &self.connections[connection];
        if client_connection.engine_connection.is_none() {
            return;
        }
        if client_connection.is_open {
            // Nobody looks at an idle connection of a pool.
            if client_connection.owner.is_some() || self.is_shared(connection) {
                self.pump(connection);
            }
            return;
        }
        match self.network.is_connected(client_connection.link) {
            Some(true) => self.handle_connected(connection),
            Some(false) => self.fail_refused_connection(connection),
            None => {}
        }
    }

    fn is_shared(&self, connection: ConnectionId) -> bool {
        let process = self.connections[connection].process;
        self.processes[process].plan.driver == Driver::Shared
    }

    fn handle_connected(&mut self, connection: ConnectionId) {
        let Some(&first) = self.waiting_on(connection).first() else {
            return self.close_connection(connection); // whoever wanted it gave up
        };
        let part = &self.parts[first];
        let attempt = self.calls[part.call].new_attempt(part.is_retry);
        let presumes_classic = part.presumes_classic;
        let client_connection = &mut self.connections[connection];
        client_connection.is_open = true;
        if let Some(engine) = &mut client_connection.engine_connection {
            engine.handle_connected(presumes_classic, attempt);
        }
        self.pump(connection);
    }

    fn fail_refused_connection(&mut self, connection: ConnectionId) {
        let (process, server) = (
            self.connections[connection].process,
            self.connections[connection].server,
        );
        let cause = FailureCause::Closed { is_orderly: false };
        if let RetryDecision::Fail(effect) = FailedRequest::CONNECTING.decide(cause) {
            let pool = &mut self.processes[process].servers[server];
            pool.server_state.health.apply_effect(effect);
            pool.bad_calls.was_unreachable = true;
        }
        let waiting_parts = self.waiting_on(connection);
        self.connections[connection].waiting_parts.clear();
        for part in waiting_parts {
            let error = self.unavailable_error(server, Phase::Connect, "refused");
            self.fail_part(part, &error);
        }
        self.close_connection(connection);
        self.check_health(process, server);
    }

    /// A connection without anything in flight has nothing under way either.
    pub(super) fn check_in_sync(&mut self, connection: ConnectionId) {
        let client_connection = &self.connections[connection];
        let Some(engine) = &client_connection.engine_connection else {
            return;
        };
        let has_nothing_pending = has_quiet_writes(engine)
            && engine.accepts_requests()
            && !engine.has_unacknowledged_writes();
        if has_nothing_pending
            && !client_connection.was_refused
            && self.network.is_established(client_connection.link)
            && !self.network.has_misbehaved(client_connection.server)
            && !self.network.is_drained_both_ways(client_connection.link)
        {
            let text = format!("connection {connection} is idle, and something is under way on it");
            self.checker
                .report_broken(Invariant::ReusedConnectionIsInSync, text);
        }
    }

    /// A part has ended: its connection is given back, if it was its own.
    pub(super) fn release_connection(&mut self, connection: ConnectionId, part: PartId) {
        self.connections[connection]
            .waiting_parts
            .retain(|other_part| *other_part != part);
        if self.connections[connection].owner != Some(part) {
            return;
        }
        let client_connection = &mut self.connections[connection];
        client_connection.owner = None;
        let (process, server) = (client_connection.process, client_connection.server);
        let keeps_unread = self.sabotage == Some(Sabotage::ReusesUnreadConnections);
        if let Some(engine) = &mut client_connection.engine_connection {
            engine.release();
            if client_connection.is_ready && (keeps_unread || engine.is_ready_for_reuse()) {
                client_connection.idle_since = self.network.now;
                self.check_in_sync(connection);
                self.processes[process].servers[server]
                    .idle_connections
                    .push(connection);
            } else {
                self.close_connection(connection);
            }
        }
        self.start_next_waiting_part(process, server);
    }

    /// Whoever waits longest for a connection gets what there is now.
    fn start_next_waiting_part(&mut self, process: usize, server: usize) {
        let Driver::Pooled(connections_max) = self.processes[process].plan.driver else {
            return;
        };
        let pool = &mut self.processes[process].servers[server];
        if pool.idle_connections.is_empty() && pool.open_count >= connections_max {
            return;
        }
        if let Some(next) = pool.waiting_parts.pop_front() {
            self.check_out(next, connections_max);
        }
    }

    /// Begins anew for a part whose connection was of no use; its place in the pool is kept.
    pub(super) fn replace_connection(&mut self, connection: ConnectionId, part: PartId) {
        let client_connection = &mut self.connections[connection];
        client_connection
            .waiting_parts
            .retain(|other_part| *other_part != part);
        if client_connection.owner != Some(part) {
            return self.submit_on_shared(part);
        }
        client_connection.owner = None;
        let (process, server) = (client_connection.process, client_connection.server);
        self.close_connection(connection);
        self.processes[process].servers[server].open_count += 1;
        let new_connection = self.open_connection(process, server);
        self.connections[new_connection].owner = Some(part);
        self.parts[part].connection = Some(new_connection);
    }

    /// Closes the idle connections of a pool.
    pub(super) fn close_idle(&mut self, process: usize, server: usize) {
        for connection in
            std::mem::take(&mut self.processes[process].servers[server].idle_connections)
        {
            self.close_connection(connection);
        }
    }

    /// Closes a connection; calls that are in flight on it fail.
    pub(super) fn close_connection(&mut self, connection: ConnectionId) {
        let Some(mut engine) = self.connections[connection].engine_connection.take() else {
            return;
        };
        self.log_event(|_| format!("connection {connection} is closed"));
        let client_connection = &mut self.connections[connection];
        let (process, server, link) = (
            client_connection.process,
            client_connection.server,
            client_connection.link,
        );
        let quiet_writes = std::mem::take(&mut client_connection.quiet_writes);
        self.network.close(link);
        self.set_receiver(link, EventReceiver::Gone);
        let sent_bytes = engine.sent_bytes();
        let has_pending = engine.has_unacknowledged_writes();
        if self.is_sabotaged_by(Sabotage::ForgetsQuietWrites) {
            engine.abandon();
        }
        let calls = std::mem::take(&mut self.connections[connection].calls);
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
        if !self.is_shared(connection) {
            let pool = &mut self.processes[process].servers[server];
            pool.open_count -= 1;
            pool.idle_connections
                .retain(|other_part| *other_part != connection);
        } else if self.processes[process].servers[server].shared_connection == Some(connection) {
            self.processes[process].servers[server].shared_connection = None;
        }
        for (part, failure) in failed_parts {
            for id in self.parts[part].requests.clone() {
                let request = self.checker.history.request(id);
                if request.link == link && request.end_offset <= sent_bytes {
                    self.checker.record_uncertain(id, &self.network);
                }
            }
            self.handle_failed_attempt(connection, part, &failure);
        }
        for part in std::mem::take(&mut self.connections[connection].waiting_parts) {
            self.parts[part].connection = None;
            self.start_part(part);
        }
    }

    /// Once all calls have ended no more connections are open than are of use.
    pub(super) fn check_connections(&mut self, process: usize) {
        for server in 0..self.server_count() {
            let is_of_server = |connection: &&ClientConnection| {
                connection.process == process
                    && connection.server == server
                    && connection.engine_connection.is_some()
            };
            let open_count = self.connections.iter().filter(is_of_server).count();
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
