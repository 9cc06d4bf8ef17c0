//! What a connection and its driver exchange: tickets of calls, attempts, events and failures.

use std::time::Instant;

#[cfg(doc)]
use super::{Connection, Wire};
use crate::engine::health::HealthEffect;
use crate::engine::retry::RetryDecision;
use crate::error::Error;
use crate::pipeline::Reply;

/// A call on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

impl Ticket {
    /// The requests that precede the first call: login and probe.
    pub const OPENING: Self = Self(0);
}

/// One attempt at a call.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// When the call began.
    pub started: Instant,
    /// When it must end.
    pub deadline: Instant,
    /// The call was tried before, on a connection that had gone stale.
    pub is_retry: bool,
}

/// How the wait for a reply ended without one.
#[derive(Debug, Clone, Copy)]
pub enum NoReplyReason<'a> {
    /// The connection was closed.
    Closed {
        /// By its peer, without an error.
        is_orderly: bool,
        /// The reason, for the caller's error.
        reason: &'a str,
    },
    /// The call's deadline passed.
    Deadline,
}

/// Why a call got no reply, and what happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The error for its caller, unless the call is repeated.
    pub error: Error,
    /// Whether the call is repeated on another connection.
    pub decision: RetryDecision,
}

impl Failure {
    /// How the failure counts for the health of the server.
    pub(super) fn health_effect(&self) -> HealthEffect {
        match self.decision {
            RetryDecision::Fail(health_effect) => health_effect,
            RetryDecision::Retry | RetryDecision::RetryClassic => HealthEffect::None,
        }
    }
}

/// The next event of a connection, for its driver.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It accepts requests.
    Ready,
    /// A reply; its values are in [`Wire::pipeline`] until [`Connection::release`].
    Reply(Ticket, Reply),
    /// A call ended without a reply.
    Failed(Ticket, Box<Failure>),
    /// At least this many bytes are missing.
    NeedsBytes(usize),
    /// Nothing is in flight.
    Idle,
}
