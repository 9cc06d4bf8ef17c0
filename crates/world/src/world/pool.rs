//! The connections of a process to one server, and what the process knows of the server's health.
//!
//! A server that is down is probed, so that no call has to find out whether it is back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use glasscache_client::engine::health::{
    COUNTED_TIMEOUT_MIN, HealthEffect, PROBE_TIMEOUT, probe_pause,
};
use glasscache_client::engine::retry::{FailedRequest, FailureCause, RetryDecision};
use glasscache_client::engine::server::ServerState;
use glasscache_client::error::{Context, Phase};
use glasscache_client::{Error, Login, Protocol};

use super::environment::Environment;
use super::event_names::error_name;
use super::{ConnectionId, ServerCallId};
use crate::checker::{Checker, Invariant};
use crate::network::{Event, LinkId, Network, PASSWORD, Received, Receiver, USER};
use crate::plan::{Micros, Sabotage};

/// Bad calls in a row after which a server counts as down.
const BAD_CALLS_MAX: u32 = 3;
/// Connections to a server, counted from 0, whose login has a wrong password.
const CONNECTIONS_WITH_WRONG_PASSWORD: std::ops::Range<u32> = 1..3;

/// The connections of a process to one server, and their state.
pub(super) struct ServerPool {
    process: usize,
    server: usize,
    /// Whether clients have to log in.
    pub(super) requires_login: bool,
    pub(super) server_state: Arc<ServerState>,
    /// Connections without a call; `open_count` counts those in use as well.
    idle_connections: Vec<ConnectionId>,
    open_count: usize,
    /// Server calls that wait for a connection.
    waiting_server_calls: VecDeque<ServerCallId>,
    /// The connection of an event loop.
    pub(super) shared_connection: Option<ConnectionId>,
    needs_probe: bool,
    probe: Option<Probe>,
    bad_calls: BadCalls,
    /// It has just gone down, and why is still to be checked.
    must_explain_down: bool,
}

/// A probe under way.
struct Probe {
    link: LinkId,
    is_sent: bool,
    /// What a good reply begins with.
    expected_prefix: &'static [u8],
    reply: Vec<u8>,
}

/// What may have made a server count as down, since its last good reply.
#[derive(Default)]
struct BadCalls {
    /// How often calls on a connection failed; those that fail together count once.
    count: u32,
    /// It could not be connected to.
    was_unreachable: bool,
    last: Option<(ConnectionId, Micros, &'static str)>,
}

impl ServerPool {
    pub(super) fn new(
        process: usize,
        server: usize,
        requires_login: bool,
        protocol: Protocol,
    ) -> Self {
        let server_state = ServerState::new(format!("s{server}"))
            .with_login(requires_login.then(new_login))
            .with_command_set(protocol.command_set());
        Self {
            process,
            server,
            requires_login,
            server_state: Arc::new(server_state),
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

    /// Takes the connection that was used last, of those without a call.
    pub(super) fn take_idle(&mut self) -> Option<ConnectionId> {
        self.idle_connections.pop()
    }

    pub(super) fn take_all_idle(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.idle_connections)
    }

    pub(super) fn give_back(&mut self, connection: ConnectionId) {
        self.idle_connections.push(connection);
    }

    /// Counts one more open connection, unless there are as many as there may be.
    pub(super) fn may_open(&mut self, connections_max: usize) -> bool {
        let may_open = self.open_count < connections_max;
        if may_open {
            self.open_count += 1;
        }
        may_open
    }

    /// Counts a connection that is opened for one that was closed.
    pub(super) fn open_replacement(&mut self) {
        self.open_count += 1;
    }

    /// A connection is closed.
    pub(super) fn remove(&mut self, connection: ConnectionId, is_shared: bool) {
        if !is_shared {
            self.open_count -= 1;
            self.idle_connections.retain(|other_connection| *other_connection != connection);
        } else if self.shared_connection == Some(connection) {
            self.shared_connection = None;
        }
    }

    /// Has a server call wait for a connection.
    pub(super) fn wait(&mut self, server_call: ServerCallId) {
        self.waiting_server_calls.push_back(server_call);
    }

    pub(super) fn stop_waiting(&mut self, server_call: ServerCallId) {
        self.waiting_server_calls.retain(|other_server_call| *other_server_call != server_call);
    }

    /// Takes the server call that has waited longest, if a connection is free or may be opened.
    pub(super) fn take_next_waiting(&mut self, connections_max: usize) -> Option<ServerCallId> {
        if self.idle_connections.is_empty() && self.open_count >= connections_max {
            return None;
        }
        self.waiting_server_calls.pop_front()
    }

    pub(super) fn take_all_waiting(&mut self) -> VecDeque<ServerCallId> {
        std::mem::take(&mut self.waiting_server_calls)
    }

    /// The error of a call that had no connection by its deadline.
    pub(super) fn deadline_error(&self, phase: Phase) -> Error {
        Error::Deadline(self.error_context(phase))
    }

    /// The error of a call that could not get a connection.
    pub(super) fn unavailable_error(&self, reason: &str) -> Error {
        Error::Unavailable(self.error_context(Phase::Connect), reason.to_owned())
    }

    fn error_context(&self, phase: Phase) -> Context {
        Context { server: self.server_state.name.clone(), phase, retry_is_safe: true }
    }

    /// A connection could not be made, for this cause.
    pub(super) fn handle_connect_failure(&mut self, cause: FailureCause) {
        if let RetryDecision::Fail(health_effect) = FailedRequest::CONNECTING.decide(cause) {
            self.server_state.health.apply_effect(health_effect);
            self.bad_calls.was_unreachable |= health_effect == HealthEffect::Down;
        }
    }

    /// A good reply came.
    pub(super) fn handle_reply(&mut self) {
        // Of a server that went down a moment ago, the cause is still to be checked.
        if !self.server_state.health.is_down() {
            self.bad_calls = BadCalls::default();
        }
    }

    /// Counts a failure of this name on a connection.
    pub(super) fn add_bad_call(
        &mut self,
        connection: ConnectionId,
        now: Micros,
        name: &'static str,
    ) {
        let failure = Some((connection, now, name));
        if self.bad_calls.last != failure {
            self.bad_calls.last = failure;
            self.bad_calls.count += 1;
        }
    }

    /// Counts a call that failed, unless it was allowed too little time for that.
    pub(super) fn add_failed_call(
        &mut self,
        connection: ConnectionId,
        now: Micros,
        (error, allowed_time): (&Error, Duration),
    ) {
        if !matches!(error, Error::Deadline(_)) || allowed_time >= COUNTED_TIMEOUT_MIN {
            self.add_bad_call(connection, now, error_name(error));
        }
    }

    /// Whether the server has just gone down, so that it has to be probed.
    pub(super) fn take_down(&mut self, env: &mut Environment) -> bool {
        if !self.server_state.health.take_needs_probe() {
            return false;
        }
        self.needs_probe = true;
        self.must_explain_down = true;
        env.journal.count("down");
        env.log(|| format!("process {}: server {} is down", self.process, self.server));
        true
    }

    /// Checks why the server went down by what has just happened. Not before all of it is counted: calls that fail
    /// together are handled one by one.
    pub(super) fn check_cause_of_down(&mut self, checker: &mut Checker) {
        let is_due = std::mem::take(&mut self.must_explain_down);
        let Self { process, server, bad_calls: BadCalls { count, was_unreachable, .. }, .. } = self;
        if is_due && *count < BAD_CALLS_MAX && !*was_unreachable {
            let text =
                format!("process {process}: server {server} is down after {count} bad calls");
            checker.report_broken(Invariant::DownHasACause, text);
        }
    }

    /// Has the server be probed after a pause.
    pub(super) fn schedule_probe(&self, network: &mut Network) {
        let pause = probe_pause(network.random().next_u64()).as_micros() as Micros;
        network.schedule.add(pause, Event::Probe(self.process, self.server));
    }

    pub(super) fn begin_probe(&mut self, env: &mut Environment) {
        if !self.needs_probe || env.is_sabotaged_by(Sabotage::NeverProbes) {
            return;
        }
        let (process, server) = (self.process, self.server);
        let link = env.network.connect(server, Receiver::Probe(process, server));
        self.probe = Some(Probe { link, is_sent: false, expected_prefix: b"", reply: Vec::new() });
        let timeout = PROBE_TIMEOUT.as_micros() as Micros;
        env.network.schedule.add(timeout, Event::ProbeTimeout(process, server));
    }

    /// The network has something for the probe.
    pub(super) fn handle_probe_ready(&mut self, env: &mut Environment) {
        let Some(probe) = &mut self.probe else { return };
        if env.network.link(probe.link).connect_result() != Some(true) {
            return;
        }
        if !probe.is_sent {
            probe.is_sent = true;
            let (request, expected_prefix) =
                self.server_state.probe_request_and_reply().unwrap_or_default();
            probe.expected_prefix = expected_prefix;
            let _ = env.network.send(probe.link, &request);
        }
        if let Received::Bytes(bytes) = env.network.link(probe.link).receive() {
            probe.reply.extend_from_slice(&bytes);
            if probe.reply.starts_with(probe.expected_prefix) {
                self.server_state.health.mark_up();
                self.needs_probe = false;
                self.bad_calls = BadCalls::default();
                self.end_probe(&mut env.network);
                env.journal.count("up");
                env.log(|| format!("process {}: server {} is up", self.process, self.server));
            }
        }
    }

    pub(super) fn handle_probe_timeout(&mut self, network: &mut Network) {
        if self.probe.is_some() {
            self.end_probe(network);
            self.schedule_probe(network);
        }
    }

    pub(super) fn end_probe(&mut self, network: &mut Network) {
        if let Some(probe) = self.probe.take() {
            network.close(probe.link);
        }
    }
}

/// The login of one process at one server: after the first connection the password is wrong twice, as one that has
/// just been changed.
fn new_login() -> Login {
    let connection_count = AtomicU32::new(0);
    Login::with_provider(USER, move || {
        let is_wrong = CONNECTIONS_WITH_WRONG_PASSWORD
            .contains(&connection_count.fetch_add(1, Ordering::Relaxed));
        Ok(if is_wrong { "wrong" } else { PASSWORD }.into())
    })
}
