//! A connection as the two sockets and what is between them: bytes under way, bytes arrived, ends.

use std::collections::VecDeque;

use glasscache_server::InMemoryConnection;

use super::digest::Digest;
use super::executions::{ExecutionIndex, index_in_run};
use super::flood::Flood;
use crate::plan::Micros;

/// The number of a connection in its world.
pub(crate) type LinkId = usize;

/// What a client's socket gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The end.
    End(End),
    /// Nothing yet.
    Nothing,
}

/// The part of a client that is notified of what happens on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Receiver {
    /// A connection of a client, by its number.
    Connection(usize),
    /// The probe of a process at a server.
    Probe(usize, usize),
}

/// What arrived at a server requires of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Nothing.
    Nothing,
    /// Bytes arrived after the end of the server's side, so their sender gets a reset.
    Late,
    /// It serves the connection.
    Serve,
    /// It serves the connection a last time.
    ServeAndEnd,
    /// It ends the connection.
    End,
}

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
    /// Adds a packet that arrives at `arrival`, or with those before it if these are late; returns when.
    pub(super) fn push(&mut self, packet: Packet, arrival: Micros) -> Micros {
        self.last_arrival = self.last_arrival.max(arrival);
        if let Packet::Bytes(bytes) = &packet {
            self.bytes_in_transit += bytes.len();
        }
        self.packets.push_back(packet);
        self.last_arrival
    }

    /// Takes the packet that arrives.
    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        if let Packet::Bytes(bytes) = &packet {
            self.bytes_in_transit -= bytes.len();
        }
        Some(packet)
    }

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
pub(crate) struct Link {
    pub(super) id: LinkId,
    pub(super) server: usize,
    receiver: Receiver,
    /// Whether the client's side is connected.
    is_connected: bool,
    /// How the connection ended, as the client has received it.
    end_at_client: Option<End>,
    is_closed_by_client: bool,
    /// Arrived at the client and not received.
    client_input: Vec<u8>,
    to_client: Pipe,
    to_server: Pipe,
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
    executions: Vec<ExecutionMark>,
    pub(super) last_reply: Vec<u8>,
    /// The refusals that the server sends without end.
    pub(super) flood: Option<Flood>,
}

/// What a server had executed of a connection's requests after one run of the server.
#[derive(Debug, Clone, Copy)]
struct ExecutionMark {
    /// Bytes of the connection that were used up.
    used_bytes: u64,
    /// The same before the run.
    used_bytes_before: u64,
    run_number: u64,
    /// The second on the server's clock.
    second: u32,
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
    /// A connection that a client begins to make.
    pub(super) fn new(id: LinkId, server: usize, receiver: Receiver) -> Self {
        Self {
            id,
            server,
            receiver,
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

    /// The part of the client that is notified of what happens; `None` once the client has closed its side.
    pub(crate) fn receiver(&self) -> Option<Receiver> {
        (!self.is_closed_by_client).then_some(self.receiver)
    }

    /// Whether the connection was made, `None` while that is not known.
    pub(crate) fn connect_result(&self) -> Option<bool> {
        match (self.is_connected, self.end_at_client) {
            (true, _) => Some(true),
            (false, Some(_)) => Some(false),
            (false, None) => None,
        }
    }

    /// Whether neither side has more for the other.
    pub(crate) fn is_drained_both_ways(&self) -> bool {
        let bytes_in_transit = self.to_client.bytes_in_transit + self.to_server.bytes_in_transit;
        bytes_in_transit + self.pending_bytes() + self.client_input.len() + self.server_input.len()
            == 0
    }

    /// Whether both sides are open.
    pub(crate) fn is_established(&self) -> bool {
        self.session.is_some() && self.end_at_client.is_none() && !self.is_closed_by_client
    }

    /// Whether the client has something to receive.
    pub(crate) fn is_readable(&self) -> bool {
        !self.client_input.is_empty() || self.end_at_client.is_some()
    }

    /// Takes what has arrived at the client.
    pub(crate) fn receive(&mut self) -> Received {
        if !self.client_input.is_empty() {
            return Received::Bytes(std::mem::take(&mut self.client_input));
        }
        self.end_at_client.map_or(Received::Nothing, Received::End)
    }

    /// Whether the client has received a reset.
    pub(super) fn is_reset(&self) -> bool {
        self.end_at_client == Some(End::Reset)
    }

    /// Closes the client's side; returns whether the server has to receive the end.
    pub(super) fn close_by_client(&mut self) -> bool {
        !std::mem::replace(&mut self.is_closed_by_client, true) && self.session.is_some()
    }

    /// The server accepts the connection by a session, or refuses it.
    pub(super) fn finish_connect(&mut self, session: Option<Session>) {
        match session {
            Some(session) => {
                self.session = Some(session);
                self.is_connected = true;
            }
            None => self.end_at_client = Some(End::Reset),
        }
    }

    pub(super) fn pipe(&mut self, direction: Direction) -> &mut Pipe {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    /// Bytes that were sent to the client, which has not received them.
    pub(super) fn unread_bytes_of_client(&self) -> usize {
        self.to_client.bytes_in_transit + self.client_input.len()
    }

    /// Bytes that were sent to the server, which has not read them.
    pub(super) fn unread_bytes_of_server(&self) -> usize {
        self.to_server.bytes_in_transit + self.server_input.len()
    }

    /// Bytes that the server has read and not used up.
    pub(super) fn pending_bytes(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.connection.pending_bytes())
    }

    /// Whether what the server sends may reach the client.
    pub(super) fn can_reach_client(&self) -> bool {
        self.session.is_some() && self.end_at_client.is_none()
    }

    /// What was sent last arrives at the client; `false`: it was lost.
    pub(super) fn arrive_at_client(&mut self, digest: &mut Digest) -> bool {
        match self.to_client.pop() {
            Some(Packet::Bytes(bytes)) => {
                digest.add(&bytes);
                // Nothing is received behind an end.
                if self.end_at_client.is_none() {
                    append_arrived(&mut self.client_input, bytes);
                }
            }
            Some(Packet::End(end)) => {
                if end == End::Reset {
                    self.client_input.clear();
                }
                self.end_at_client = Some(end);
            }
            None => return false,
        }
        true
    }

    /// What was sent last arrives at the server; returns what the server has to do.
    pub(super) fn arrive_at_server(&mut self, is_serving: bool, digest: &mut Digest) -> Arrival {
        match self.to_server.pop() {
            None => Arrival::Nothing,
            // The server's side is gone, so the sender gets a reset.
            Some(Packet::Bytes(_)) if self.session.is_none() && self.end_at_client.is_none() => {
                Arrival::Late
            }
            Some(_) if self.session.is_none() => Arrival::Nothing,
            Some(Packet::Bytes(bytes)) => {
                digest.add(&bytes);
                append_arrived(&mut self.server_input, bytes);
                Arrival::Serve
            }
            Some(Packet::End(End::InOrder)) if !is_serving => {
                self.has_pending_end = true;
                Arrival::Nothing
            }
            Some(Packet::End(End::InOrder)) => Arrival::ServeAndEnd,
            Some(Packet::End(End::Reset)) => Arrival::End,
        }
    }

    /// The server's side is gone, and with it what it had not read.
    pub(super) fn end_session(&mut self) {
        self.session = None;
        self.server_input = Vec::new();
    }

    /// Records what was used up in a run.
    pub(super) fn record_execution(&mut self, run_number: u64, second: u32) {
        let used_bytes = self.bytes_passed_to_session.saturating_sub(self.pending_bytes() as u64);
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
                let offset_in_run = end_offset - mark.used_bytes_before;
                ExecutionState::At(index_in_run(mark.run_number, offset_in_run), mark.second)
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

/// Appends what has arrived to what has not been read: mostly there is nothing, and nothing is copied.
fn append_arrived(unread: &mut Vec<u8>, arrived: Vec<u8>) {
    if unread.is_empty() {
        *unread = arrived;
    } else {
        unread.extend_from_slice(&arrived);
    }
}
