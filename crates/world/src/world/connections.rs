//! All connections of the clients of a world, open and closed.

use std::ops::{Index, IndexMut};

use glasscache_client::engine::connection::Connection;

use super::ConnectionId;
use super::connection::ClientConnection;
use super::environment::Environment;
use super::process::Process;
use crate::network::Receiver;

/// From the first opaque of a connection to that of the next one, beginning after `FIRST_OPAQUE`.
const OPAQUE_STEP: u32 = 0x0100_0193;
const FIRST_OPAQUE: u32 = 1;

/// The connections, by number.
pub(super) struct Connections {
    connections: Vec<ClientConnection>,
    last_opaque: u32,
}

impl Default for Connections {
    fn default() -> Self {
        Self { connections: Vec::new(), last_opaque: FIRST_OPAQUE }
    }
}

impl Index<ConnectionId> for Connections {
    type Output = ClientConnection;

    fn index(&self, connection: ConnectionId) -> &ClientConnection {
        &self.connections[connection]
    }
}

impl IndexMut<ConnectionId> for Connections {
    fn index_mut(&mut self, connection: ConnectionId) -> &mut ClientConnection {
        &mut self.connections[connection]
    }
}

impl Connections {
    /// Opens a connection of a process to a server.
    pub(super) fn open(
        &mut self,
        process: &Process,
        server: usize,
        env: &mut Environment,
    ) -> ConnectionId {
        let connection = self.connections.len();
        let link = env.network.connect(server, Receiver::Connection(connection));
        self.last_opaque = self.last_opaque.wrapping_add(OPAQUE_STEP);
        let server_state = process.server_pools[server].server_state.clone();
        let engine = Connection::new(server_state, process.value_bytes_max(), self.last_opaque);
        let is_shared = process.pooled_connections_max().is_none();
        self.connections.push(ClientConnection::new(
            connection,
            (process.id, server),
            is_shared,
            link,
            engine,
        ));
        env.log(|| format!("connection {connection} to server {server} of process {}", process.id));
        connection
    }

    /// How many there are and were.
    pub(super) fn count(&self) -> usize {
        self.connections.len()
    }

    /// How many of a process to a server are open.
    pub(super) fn count_open(&self, process: usize, server: usize) -> usize {
        let is_open = |connection: &&ClientConnection| {
            connection.process == process
                && connection.server == server
                && connection.engine.is_some()
        };
        self.connections.iter().filter(is_open).count()
    }
}
