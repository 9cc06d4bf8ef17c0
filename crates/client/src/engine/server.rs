//! The state of one server, shared by all its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use glasscache_protocol::binary::{MAGIC_RESPONSE, opcode};

use super::health::{Health, probe_request_and_reply};
use super::uncertain::UncertainKeys;
use crate::login::Login;
use crate::near::{ClientNearCache, NearWriteGuard};
use crate::request::{CommandSet, Request};

/// How the response to a login by SASL begins, if it is accepted: magic, opcode, three lengths and types, status.
const SASL_SUCCESS_START: &[u8] = &[MAGIC_RESPONSE, opcode::SASL_AUTH, 0, 0, 0, 0, 0, 0];

/// The state of one server, which its connections share.
#[derive(Debug, Default)]
pub struct ServerState {
    /// Its name in errors and counters.
    pub name: String,
    /// Whether calls should be tried.
    pub health: Health,
    /// Protocol faults seen.
    pub faults: AtomicU64,
    /// Refusals and lost quiet writes, found out when the next call had the connection.
    pub noreply_failures: AtomicU64,
    /// Keys to be removed before any other request.
    pub uncertain: UncertainKeys,
    /// Each connection logs in with it before any other request.
    login: Option<Login>,
    command_set: AtomicU8,
    /// What the client keeps in the process, if it runs a strategy.
    near: Option<Arc<ClientNearCache>>,
}

impl ServerState {
    /// The state of a server whose name is all that is known.
    pub fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// The same server of a client that runs a strategy.
    #[must_use]
    pub fn with_near(mut self, near: Option<Arc<ClientNearCache>>) -> Self {
        self.near = near;
        self
    }

    /// Marks the keys that requests change until what is returned is dropped; they end at `call_deadline`.
    #[inline]
    pub(super) fn guard_writes(
        &self,
        requests: &[Request<'_>],
        call_deadline: Instant,
    ) -> Option<Box<NearWriteGuard>> {
        NearWriteGuard::new(self.near.as_deref()?, requests, call_deadline).map(Box::new)
    }

    /// As [`Self::guard_writes`], for a quiet write.
    pub(super) fn guard_quiet_write(&self, request: &Request<'_>) -> Option<NearWriteGuard> {
        NearWriteGuard::for_quiet_write(self.near.as_deref()?, request)
    }

    /// The same, with a login.
    #[must_use]
    pub fn with_login(mut self, login: Option<Login>) -> Self {
        self.login = login;
        self
    }

    /// The same, with the command set that is configured; `None`: the first connection finds out.
    #[must_use]
    pub fn with_command_set(self, command_set: Option<CommandSet>) -> Self {
        if let Some(command_set) = command_set {
            self.learn_command_set(command_set);
        }
        self
    }

    /// The login, if there is one.
    pub(crate) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// What a probe sends to see whether the server is back, and what a good reply begins with; `None`: the password
    /// cannot be obtained. A login that is accepted shows that requests are served.
    pub fn probe_request_and_reply(&self) -> Option<(Vec<u8>, &'static [u8])> {
        let Some(login) = &self.login else {
            let (request, reply_start) = probe_request_and_reply(self.command_set());
            return Some((request.to_vec(), reply_start));
        };
        let mut request = Vec::new();
        if self.command_set() == Some(CommandSet::Binary) {
            login.write_binary(&mut request, 0).ok()?;
            return Some((request, SASL_SUCCESS_START));
        }
        login.write(&mut request).ok()?;
        Some((request, b"STORED\r\n"))
    }

    /// Which commands the server understands; `None` until the first connection was probed.
    pub fn command_set(&self) -> Option<CommandSet> {
        // Relaxed: the number is all there is.
        match self.command_set.load(Ordering::Relaxed) {
            1 => Some(CommandSet::Meta),
            2 => Some(CommandSet::Classic),
            3 => Some(CommandSet::Binary),
            _ => None,
        }
    }

    /// The command set in which requests are written: classic text as long as it is unknown.
    pub(super) fn written_command_set(&self) -> CommandSet {
        self.command_set().unwrap_or(CommandSet::Classic)
    }

    /// Notes which commands the server understands.
    pub fn learn_command_set(&self, command_set: CommandSet) {
        let encoded_command_set = match command_set {
            CommandSet::Meta => 1,
            CommandSet::Classic => 2,
            CommandSet::Binary => 3,
        };
        self.command_set.store(encoded_command_set, Ordering::Relaxed);
    }
}
