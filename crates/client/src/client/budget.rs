//! What one call may take: its time, and whether it continues after a signal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::costs::TimeSpent;
use crate::near::RequestScope;

/// How long a call may take, and what to do when a signal comes.
#[derive(Clone, Copy)]
pub struct Budget<'g> {
    /// When its time began to run.
    pub started: Instant,
    /// When it is over.
    pub deadline: Instant,
    /// Whether to continue after a signal.
    pub should_continue: &'g (dyn Fn() -> bool + Sync),
    /// What was spent on the value before, to be counted with the call.
    pub spent: TimeSpent,
    /// The request that a read belongs to, for a client with a strategy ([`Client::request_scope`](crate::Client::request_scope)).
    pub scope: Option<&'g Arc<RequestScope>>,
}

impl Budget<'_> {
    /// From now on for `timeout`, whatever signals come.
    pub fn new(timeout: Duration) -> Self {
        let started = Instant::now();
        Self::between(started, started + timeout)
    }

    /// From `started` until `deadline`, whatever signals come.
    pub fn between(started: Instant, deadline: Instant) -> Self {
        Self {
            started,
            deadline,
            should_continue: &|| true,
            spent: TimeSpent::default(),
            scope: None,
        }
    }

    /// What is left of it for a further request, with which the value's costs are not counted again.
    pub(crate) fn for_next_request(&self) -> Self {
        Self {
            spent: TimeSpent::default(),
            ..*self
        }
    }
}
