//! The hook after each call: every client reports its finished calls here, and observers count or record them.

use std::fmt;

use glasscache_protocol::meta::request::WireKey;

use crate::costs::{CallClass, Costs, OperationKind, TimeSpent};

/// A finished call.
#[derive(Debug, Clone, Copy)]
pub struct RequestSummary<'a> {
    /// The key on the wire of a call about one key; `None` for several keys, and where an event loop does not keep it
    /// (meta reads, expiry, arithmetic).
    pub key: Option<WireKey<'a>>,
    /// Its kind, with the bytes of values that it sent.
    pub class: CallClass,
    /// Bytes of the values in its reply.
    pub found_bytes: usize,
    /// Whether its reply has a value; see [`Self::is_hit`].
    pub has_value: bool,
    /// Its duration by parts.
    pub spent: TimeSpent,
}

impl RequestSummary<'_> {
    /// Whether a read of one key was a hit; `None` for any other call.
    pub fn is_hit(&self) -> Option<bool> {
        matches!(self.class, CallClass::Single(OperationKind::Read, _)).then_some(self.has_value)
    }
}

/// What receives the finished calls of a client, on the thread of each call.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Takes a call that has just finished. It delays the caller, so it must not wait.
    fn observe(&self, summary: &RequestSummary<'_>);
}

impl Observer for Costs {
    fn observe(&self, summary: &RequestSummary<'_>) {
        self.count_call(summary.class, summary.found_bytes, &summary.spent);
    }
}
