//! Connections as drivers handle them: taken from a pool or shared, read, written, given back, closed.

use glasscache_client::engine::connection::{Connection, ConnectionEvent};
use glasscache_client::engine::retry::{FailedRequest, FailureCause, RetryDecision};
use glasscache_client::error::Phase;

use super::calls::acknowledges_quiet_writes;
use super::{ClientConnection, ConnectionId, EventReceiver, ServerCallId, World};
use crate::checker::Invariant;
use crate::network::Received;
use crate::plan::{Driver, Micros, Sabotage};

/// A connection idle for longer is looked at before it is used: the server may have closed it.
const TRUSTED_IDLE_MICROS: Micros = 20_000;

impl World {
    /// Takes a connection of a pool for a server call, or makes one, or waits for one.
    pub(super) fn check_out(&mut self, server_call: ServerCallId, connections_max: usize) {
        let (process, server) = self.process_and_server_of(server_call);
        while let Some(connection) =
            self.processes[process].server_pools[server].idle_connections.pop()
        {
            let is_trusted =
                self.network.now - self.connections[connection].idle_since < TRUSTED_IDLE_MICROS;
            if !is_trusted && !self.is_reusable(connection) {
                self.close_connection(connection);
                continue;
            }
            let client_connection = &mut self.connections[connection];
            client_connection.owner = Some(server_call);
            if let Some(engine) = &mut client_connection.engine_connection {
                engine.mark_reused();
            }
            self.server_calls[server_call].connection = Some(connection);
            self.submit(connection, server_call);
            return self.pump(connection);
        }
        let pool = &mut self.processes[process].server_pools[server];
        if pool.open_count < connections_max {
            pool.open_count += 1;
            let connection = self.open_connection(process, server);
            self.connections[connection].owner = Some(server_call);
            self.server_calls[server_call].connection = Some(connection);
        } else {
            pool.waiting_server_calls.push_back(server_call);
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
                        let pool = &mut self.processes[client_connection.process].server_pools
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

    /// Gives a server call a request slot on the connection that an event loop has to its server.
    pub(super) fn submit_on_shared(&mut self, server_call: ServerCallId) {
        let (process, server) = self.process_and_server_of(server_call);
        let shared_connection = self.processes[process].server_pools[server].shared_connection;
        let usable_connection = shared_connection.filter(|connection| {
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
            self.processes[process].server_pools[server].shared_connection = Some(connection);
            connection
        });
        self.server_calls[server_call].connection = Some(connection);
        if self.connections[connection].is_ready {
            self.submit(connection, server_call);
        } else {
            self.connections[connection].waiting_server_calls.push(server_call);
        }
    }

    fn open_connection(&mut self, process: usize, server: usize) -> ConnectionId {
        let link = self.network.connect(server);
        let connection = self.connections.len();
        self.set_receiver(link, EventReceiver::Connection(connection));
        let server_state = self.processes[process].server_pools[server].server_state.clone();
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
            server_calls_in_flight: Vec::new(),
            waiting_server_calls: Vec::new(),
            idle_since: 0,
            timer_at: None,
            is_send_scheduled: false,
            was_refused: false,
            quiet_writes: Vec::new(),
        });
        self.log_event(|_| {
            format!("connection {connection} to server {server} of process {process}")
        });
        connection
    }

    /// The server calls that wait for a connection that is being made or opened.
    pub(super) fn waiting_on(&self, connection: ConnectionId) -> Vec<ServerCallId> {
        let client_connection = &self.connections[connection];
        client_connection
            .owner
            .into_iter()
            .chain(client_connection.waiting_server_calls.iter().copied())
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
        let Some(&first_server_call) = self.waiting_on(connection).first() else {
            return self.close_connection(connection); // the call that needed it was given up
        };
        let server_call_state = &self.server_calls[first_server_call];
        let call = &self.calls[server_call_state.call_id];
        let attempt = call.new_attempt(server_call_state.is_retry);
        let presumes_classic = server_call_state.presumes_classic;
        let client_connection = &mut self.connections[connection];
        client_connection.is_open = true;
        if let Some(engine) = &mut client_connection.engine_connection {
            engine.handle_connected(presumes_classic, attempt);
        }
        self.pump(connection);
    }

    fn fail_refused_connection(&mut self, connection: ConnectionId) {
        let (process, server) =
            (self.connections[connection].process, self.connections[connection].server);
        let cause = FailureCause::Closed { is_orderly: false };
        if let RetryDecision::Fail(health_effect) = FailedRequest::CONNECTING.decide(cause) {
            let pool = &mut self.processes[process].server_pools[server];
            pool.server_state.health.apply_effect(health_effect);
            pool.bad_calls.was_unreachable = true;
        }
        let waiting_server_calls = self.waiting_on(connection);
        self.connections[connection].waiting_server_calls.clear();
        for server_call in waiting_server_calls {
            let error = self.unavailable_error(server, Phase::Connect, "refused");
            self.fail_server_call(server_call, &error);
        }
        self.close_connection(connection);
        self.check_health(process, server);
    }

    /// Checks that the network carries nothing for a connection on which no request is in flight.
    pub(super) fn check_in_sync(&mut self, connection: ConnectionId) {
        let client_connection = &self.connections[connection];
        let Some(engine) = &client_connection.engine_connection else {
            return;
        };
        let has_nothing_pending = acknowledges_quiet_writes(engine)
            && engine.accepts_requests()
            && !engine.has_unacknowledged_writes();
        if has_nothing_pending
            && !client_connection.was_refused
            && self.network.is_established(client_connection.link)
            && !self.network.has_misbehaved(client_connection.server)
            && !self.network.is_drained_both_ways(client_connection.link)
        {
            let text = format!("connection {connection} is idle, and something is under way on it");
            self.checker.report_broken(Invariant::ReusedConnectionIsInSync, text);
        }
    }

    /// A server call has ended: its connection is given back, if it was its own.
    pub(super) fn release_connection(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
    ) {
        self.connections[connection]
            .waiting_server_calls
            .retain(|other_server_call| *other_server_call != server_call);
        if self.connections[connection].owner != Some(server_call) {
            return;
        }
        let client_connection = &mut self.connections[connection];
        client_connection.owner = None;
        let (process, server) = (client_connection.process, client_connection.server);
        let reuses_unread = self.sabotage == Some(Sabotage::ReusesUnreadConnections);
        if let Some(engine) = &mut client_connection.engine_connection {
            engine.release();
            if client_connection.is_ready && (reuses_unread || engine.is_ready_for_reuse()) {
                client_connection.idle_since = self.network.now;
                self.check_in_sync(connection);
                self.processes[process].server_pools[server].idle_connections.push(connection);
            } else {
                self.close_connection(connection);
            }
        }
        self.start_next_waiting_server_call(process, server);
    }

    /// Starts the server call that has waited longest, if a connection is free or may be opened.
    fn start_next_waiting_server_call(&mut self, process: usize, server: usize) {
        let Driver::Pooled(connections_max) = self.processes[process].plan.driver else {
            return;
        };
        let pool = &mut self.processes[process].server_pools[server];
        if pool.idle_connections.is_empty() && pool.open_count >= connections_max {
            return;
        }
        if let Some(server_call) = pool.waiting_server_calls.pop_front() {
            self.check_out(server_call, connections_max);
        }
    }

    /// Opens a new connection for a server call whose connection was of no use; the pool counts one for the other.
    pub(super) fn replace_connection(
        &mut self,
        connection: ConnectionId,
        server_call: ServerCallId,
    ) {
        let client_connection = &mut self.connections[connection];
        client_connection
            .waiting_server_calls
            .retain(|other_server_call| *other_server_call != server_call);
        if client_connection.owner != Some(server_call) {
            return self.submit_on_shared(server_call);
        }
        client_connection.owner = None;
        let (process, server) = (client_connection.process, client_connection.server);
        self.close_connection(connection);
        self.processes[process].server_pools[server].open_count += 1;
        let new_connection = self.open_connection(process, server);
        self.connections[new_connection].owner = Some(server_call);
        self.server_calls[server_call].connection = Some(new_connection);
    }

    /// Closes the idle connections of a pool.
    pub(super) fn close_idle(&mut self, process: usize, server: usize) {
        for connection in
            std::mem::take(&mut self.processes[process].server_pools[server].idle_connections)
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
        let (process, server, link) =
            (client_connection.process, client_connection.server, client_connection.link);
        let quiet_writes = std::mem::take(&mut client_connection.quiet_writes);
        self.network.close(link);
        self.set_receiver(link, EventReceiver::Gone);
        let sent_bytes = engine.sent_bytes();
        let has_unacknowledged_writes = engine.has_unacknowledged_writes();
        if self.is_sabotaged_by(Sabotage::ForgetsQuietWrites) {
            engine.abandon();
        }
        let server_calls_in_flight =
            std::mem::take(&mut self.connections[connection].server_calls_in_flight);
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
        for request_id in quiet_writes {
            let request = self.checker.history.request(request_id);
            if has_unacknowledged_writes
                && request.end_offset <= sent_bytes
                && !self.checker.is_executed(request_id, &self.network)
            {
                self.checker.record_uncertain(request_id, &self.network);
            }
        }
        if !self.is_shared(connection) {
            let pool = &mut self.processes[process].server_pools[server];
            pool.open_count -= 1;
            pool.idle_connections.retain(|other_connection| *other_connection != connection);
        } else if self.processes[process].server_pools[server].shared_connection == Some(connection)
        {
            self.processes[process].server_pools[server].shared_connection = None;
        }
        for (server_call, failure) in failed_server_calls {
            for request_id in self.server_calls[server_call].request_ids.clone() {
                let request = self.checker.history.request(request_id);
                if request.link == link && request.end_offset <= sent_bytes {
                    self.checker.record_uncertain(request_id, &self.network);
                }
            }
            self.handle_failed_attempt(connection, server_call, &failure);
        }
        for server_call in std::mem::take(&mut self.connections[connection].waiting_server_calls) {
            self.server_calls[server_call].connection = None;
            self.start_server_call(server_call);
        }
    }

    /// Once all calls have ended no more connections are open than are of use.
    pub(super) fn check_connections(&mut self, process: usize) {
        for server in 0..self.server_count() {
            let is_of_server = |client_connection: &&ClientConnection| {
                client_connection.process == process
                    && client_connection.server == server
                    && client_connection.engine_connection.is_some()
            };
            let open_count = self.connections.iter().filter(is_of_server).count();
            let connections_max = match self.processes[process].plan.driver {
                Driver::Pooled(connections_max) => connections_max,
                Driver::Shared => 1,
            };
            if open_count > connections_max {
                let text =
                    format!("process {process} has {open_count} connections to server {server}");
                self.checker.report_broken(Invariant::UselessConnectionIsClosed, text);
            }
        }
    }
}
