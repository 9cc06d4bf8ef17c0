//! The state of a world: processes, connections, calls and tasks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use glasscache_client::engine::connection::{Attempt, Connection, Ticket};
use glasscache_client::engine::server::ServerState;
use glasscache_client::{Login, Protocol};

use super::clock::instant;
use super::server_operation::{ReadUnique, ServerOperation};
use crate::checker::RequestId;
use crate::network::{ExecutionIndex, LinkId, PASSWORD, USER};
use crate::plan::{Key, Micros, ProcessPlan, TaskStep};

/// Connections to a server, counted from 0, whose login has a wrong password.
pub(super) const CONNECTIONS_WITH_WRONG_PASSWORD: std::ops::Range<u32> = 1..3;

pub(super) type CallId = usize;
pub(super) type ServerCallId = usize;
pub(super) type ConnectionId = usize;

/// One process with clients of all servers.
pub(super) struct Process {
    pub(super) plan: ProcessPlan,
    pub(super) incarnation: usize,
    pub(super) server_pools: Vec<ServerPool>,
    pub(super) frozen_until: Micros,
}

/// The connections of a process to one server, and their state.
pub(super) struct ServerPool {
    /// Whether clients have to log in.
    pub(super) requires_login: bool,
    pub(super) server_state: Arc<ServerState>,
    /// Connections without a call; `open_count` counts those in use as well.
    pub(super) idle_connections: Vec<ConnectionId>,
    pub(super) open_count: usize,
    /// Server calls that wait for a connection.
    pub(super) waiting_server_calls: VecDeque<ServerCallId>,
    /// The connection of an event loop.
    pub(super) shared_connection: Option<ConnectionId>,
    pub(super) needs_probe: bool,
    pub(super) probe: Option<Probe>,
    pub(super) bad_calls: BadCalls,
    /// It has just gone down, and why is still to be checked.
    pub(super) must_explain_down: bool,
}

/// A probe under way.
pub(super) struct Probe {
    pub(super) link: LinkId,
    pub(super) is_sent: bool,
    /// What a good reply begins with.
    pub(super) expected_prefix: &'static [u8],
    pub(super) reply: Vec<u8>,
}

/// What may have made a server count as down, since its last good reply.
#[derive(Default)]
pub(super) struct BadCalls {
    /// How often calls on a connection failed; those that fail together count once.
    pub(super) count: u32,
    /// It could not be connected to.
    pub(super) was_unreachable: bool,
    last: Option<(ConnectionId, Micros, &'static str)>,
}

impl BadCalls {
    /// Counts a failure of this name on a connection.
    pub(super) fn add(&mut self, connection: ConnectionId, now: Micros, name: &'static str) {
        let failure = Some((connection, now, name));
        if self.last != failure {
            self.last = failure;
            self.count += 1;
        }
    }
}

/// A connection of a client: its engine, and the link whose bytes the engine sends and receives.
pub(super) struct ClientConnection {
    pub(super) process: usize,
    pub(super) server: usize,
    pub(super) link: LinkId,
    /// `None` once it is closed.
    pub(super) engine_connection: Option<Connection>,
    pub(super) is_open: bool,
    /// It takes requests.
    pub(super) is_ready: bool,
    /// The only server call that may use it, if it comes from a pool.
    pub(super) owner: Option<ServerCallId>,
    pub(super) server_calls_in_flight: Vec<(Ticket, ServerCallId)>,
    /// Server calls that wait until it takes requests.
    pub(super) waiting_server_calls: Vec<ServerCallId>,
    pub(super) idle_since: Micros,
    /// When the deadlines of its calls are checked next.
    pub(super) timer_at: Option<Micros>,
    pub(super) is_send_scheduled: bool,
    /// A request on it was refused, perhaps before its value was read.
    pub(super) was_refused: bool,
    /// Quiet writes that are perhaps not acknowledged.
    pub(super) quiet_writes: Vec<RequestId>,
}

/// A call in flight or ended.
pub(super) struct CallState {
    pub(super) task: usize,
    pub(super) process: usize,
    pub(super) serial: u32,
    pub(super) started: Micros,
    /// The index after everything that was executed before it.
    pub(super) start_index: ExecutionIndex,
    pub(super) deadline: Micros,
    pub(super) server_calls: Vec<ServerCallId>,
    pub(super) server_calls_left: usize,
    pub(super) is_ended: bool,
    pub(super) must_succeed: bool,
}

/// The requests of a call that go to one server.
pub(super) struct ServerCall {
    pub(super) call_id: CallId,
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

/// One task: the steps that it has yet to take.
pub(super) struct Task {
    pub(super) steps: VecDeque<TaskStep>,
    pub(super) uniques: HashMap<Key, ReadUnique>,
}

/// The servers as a new process knows them.
pub(super) fn new_server_pools(
    requires_login_by_server: impl Iterator<Item = bool>,
    protocol: Protocol,
) -> Vec<ServerPool> {
    let new_pool = |(server, requires_login)| new_server_pool(server, requires_login, protocol);
    requires_login_by_server.enumerate().map(new_pool).collect()
}

pub(super) fn new_server_pool(
    server: usize,
    requires_login: bool,
    protocol: Protocol,
) -> ServerPool {
    let login = requires_login.then(new_login);
    ServerPool {
        requires_login,
        server_state: Arc::new(
            ServerState::new(format!("s{server}"))
                .with_login(login)
                .with_command_set(protocol.command_set()),
        ),
        idle_connections: Vec::new(),
        open_count: 0,
        waiting_server_calls: VecDeque::new(),
        shared_connection: None,
        needs_probe: false,
        probe: None,
        bad_calls: BadCalls::default(),
        must_explain_down: false,
    }
}

/// The login of one process at one server: after the first connection the password is wrong twice, as one that has
/// just been changed.
pub(super) fn new_login() -> Login {
    let connection_count = AtomicU32::new(0);
    Login::with_provider(USER, move || {
        let is_wrong = CONNECTIONS_WITH_WRONG_PASSWORD
            .contains(&connection_count.fetch_add(1, Ordering::Relaxed));
        Ok(if is_wrong { "wrong" } else { PASSWORD }.into())
    })
}

impl CallState {
    /// An attempt at a server call.
    pub(super) fn new_attempt(&self, is_retry: bool) -> Attempt {
        Attempt { started: instant(self.started), deadline: instant(self.deadline), is_retry }
    }
}
