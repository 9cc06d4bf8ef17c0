//! A connection as the two sockets and the wire between them: bytes under way, bytes arrived, ends.

use std::collections::VecDeque;

use glasscache_server::InMemoryConnection;

use crate::plan::Micros;

/// The number of a connection in its world.
pub(crate) type LinkId = usize;

/// What a server sends to one connection without end.
#[derive(Debug)]
pub(super) struct Flood {
    pub(super) refusal: Vec<u8>,
    pub(super) writes_left: u32,
}

/// An index in the order in which all servers of a world executed requests.
pub(crate) type ExecutionIndex = u64;

/// Bits of a [`ExecutionIndex`] below the number of the run.
pub(super) const RUN_SHIFT: u32 = 24;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer closed it.
    InOrder,
    /// It broke.
    Reset,
}

/// What arrives at one side.
#[derive(Debug)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    End(End),
}

/// Where something on a connection travels to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub(super) packets: VecDeque<Packet>,
    /// When the last of them arrives.
    pub(super) last_arrival: Micros,
    pub(super) bytes_in_transit: usize,
}

impl Pipe {
    /// What was under way is lost; the events of its arrival find nothing.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes_in_transit = 0;
    }
}

/// A session of a server, and the worker that it belongs to.
pub(super) struct Session {
    pub(super) worker_index: usize,
    pub(super) connection: InMemoryConnection,
}

/// One connection.
pub(super) struct Link {
    pub(super) server: usize,
    /// Whether the client's side is connected.
    pub(super) is_connected: bool,
    /// How the connection ended, as the client has received it.
    pub(super) end_at_client: Option<End>,
    /// The client has closed its side.
    pub(super) is_closed_by_client: bool,
    /// Arrived at the client and not received.
    pub(super) client_input: Vec<u8>,
    pub(super) to_client: Pipe,
    pub(super) to_server: Pipe,
    /// Arrived at the server and not read.
    pub(super) server_input: Vec<u8>,
    /// The server's side.
    pub(super) session: Option<Session>,
    /// The proxy before the server has looked at the first bytes.
    pub(super) has_passed_proxy: bool,
    /// The client could not send all that it wanted to.
    pub(super) is_blocked: bool,
    /// The end that the client sent has arrived at a paused server.
    pub(super) has_pending_end: bool,
    pub(super) bytes_passed_to_session: u64,
    pub(super) executions: Vec<ExecutionMark>,
    pub(super) last_reply: Vec<u8>,
    /// The refusals that the server sends without end.
    pub(super) flood: Option<Flood>,
}

/// What a server had executed of a connection's requests after one run of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutionMark {
    /// Bytes of the connection that were used up.
    pub(super) used_bytes: u64,
    /// The same before the run.
    pub(super) used_bytes_before: u64,
    pub(super) run_number: u64,
    /// The second on the server's clock.
    pub(super) second: u32,
}

/// Whether the requests up to a byte of a connection were executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecutionState {
    /// Yes, there, and at this second of the server's clock.
    At(ExecutionIndex, u32),
    /// Not yet.
    NotYet,
    /// No, and they never will be.
    Never,
}

impl Link {
    pub(super) fn new(server: usize) -> Self {
        Self {
            server,
            is_connected: false,
            end_at_client: None,
            is_closed_by_client: false,
            client_input: Vec::new(),
            to_client: Pipe::default(),
            to_server: Pipe::default(),
            server_input: Vec::new(),
            session: None,
            has_passed_proxy: false,
            is_blocked: false,
            has_pending_end: false,
            bytes_passed_to_session: 0,
            executions: Vec::new(),
            last_reply: Vec::new(),
            flood: None,
        }
    }

    /// The server's side is gone, and with it what it had not read.
    pub(super) fn end_session(&mut self) {
        self.session = None;
        self.server_input = Vec::new();
    }

    /// Records what was used up in a run.
    pub(super) fn record_execution(&mut self, run_number: u64, second: u32) {
        let pending_bytes =
            self.session.as_ref().map_or(0, |session| session.connection.pending_bytes());
        let used_bytes = self.bytes_passed_to_session.saturating_sub(pending_bytes as u64);
        let used_bytes_before = self.executions.last().map_or(0, |mark| mark.used_bytes);
        if used_bytes > used_bytes_before {
            self.executions.push(ExecutionMark {
                used_bytes,
                used_bytes_before,
                run_number,
                second,
            });
        }
    }

    /// Whether the requests before byte `end_offset` were executed.
    pub(super) fn execution_state(&self, end_offset: u64) -> ExecutionState {
        let mark_index = self.executions.partition_point(|mark| mark.used_bytes < end_offset);
        match self.executions.get(mark_index) {
            Some(mark) => {
                let offset_in_run = (end_offset - mark.used_bytes_before).min((1 << RUN_SHIFT) - 2);
                ExecutionState::At((mark.run_number << RUN_SHIFT) + offset_in_run, mark.second)
            }
            None if self.session.is_some() => ExecutionState::NotYet,
            None if !self.is_connected
                && self.end_at_client.is_none()
                && !self.is_closed_by_client =>
            {
                ExecutionState::NotYet
            }
            None => ExecutionState::Never,
        }
    }
}
