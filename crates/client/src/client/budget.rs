//! What one call may take: its time, whether it continues after a signal, and the request that it belongs to.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::costs::{self, CallClass, TimeSpent};
use crate::engine::operation::Operation;
use crate::key::KeyEncoder;
use crate::near::{RequestScope, is_noted_change};
use crate::request::Request;
use crate::request_record::{RecordedCall, RequestRecord};

/// How long a call may take, what to do when a signal comes, and the request that it belongs to.
#[derive(Clone, Copy)]
pub struct Budget<'g> {
    /// When its time began to run.
    pub started: Instant,
    /// When its time is over.
    pub deadline: Instant,
    /// Whether to continue after a signal.
    pub should_continue: &'g (dyn Fn() -> bool + Sync),
    /// What was spent on the value before, to be counted with the call.
    pub spent: TimeSpent,
    /// The request that a read belongs to, for a client with a strategy ([`Client::request_scope`](crate::Client::request_scope)).
    pub scope: Option<&'g Arc<RequestScope>>,
    /// The record of the request that a call belongs to.
    pub record: Option<&'g dyn RequestRecord>,
    /// For the record: the key, without its namespace, of the item whose children the call reads.
    pub parent: Option<&'g [u8]>,
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
            record: None,
            parent: None,
        }
    }

    /// What is left of it for a further request of the same call: neither the value's costs nor the call are counted again.
    pub(crate) fn for_next_request(&self) -> Self {
        Self { spent: TimeSpent::default(), record: None, ..*self }
    }
}

impl<'g> Budget<'g> {
    /// The same, for a call of a request with this record, if it is recorded.
    #[must_use]
    pub fn recorded_by(self, record: Option<&'g impl RequestRecord>) -> Self {
        Self { record: record.map(|record| record as _), ..self }
    }

    /// Notes in the record that a call begins which reads these keys (without their namespace).
    pub(crate) fn begin_read<'k>(
        &self,
        keys: impl Iterator<Item = Cow<'k, [u8]>>,
    ) -> RecordedCall<'g> {
        RecordedCall::begin_read(self.record, keys, self.parent)
    }

    /// Notes in the record that a call begins which writes.
    pub(crate) fn begin_write(&self) -> RecordedCall<'g> {
        RecordedCall::begin_write(self.record)
    }

    /// Notes in the record, if there is one, the key that an operation of the application changes in place, and the TTL
    /// with which it stores one.
    pub(crate) fn note_write(&self, operation: &impl Operation, encoder: KeyEncoder<'_>) {
        if self.record.is_some() {
            self.note_write_request(&operation.request(), encoder);
        }
    }

    /// As [`Self::note_write`], of a request.
    pub(crate) fn note_write_request(&self, request: &Request<'_>, encoder: KeyEncoder<'_>) {
        let Some(record) = self.record else {
            return;
        };
        if is_noted_change(request) {
            request.for_each_key(|key| record.note_changed_key(&encoder.decode(key)));
        }
        if let Some(ttl_s) = request.ttl_s() {
            request.for_each_key(|key| record.note_ttl(&encoder.decode(key), ttl_s));
        }
    }

    /// Notes in the record that a call about one key begins.
    pub(crate) fn begin_operation(
        &self,
        operation: &impl Operation,
        encoder: KeyEncoder<'_>,
    ) -> RecordedCall<'g> {
        if self.record.is_none() {
            return RecordedCall::default();
        }
        self.note_write(operation, encoder);
        match operation.class() {
            CallClass::Single(costs::OperationKind::Read, _) => {
                self.begin_read(std::iter::once(encoder.decode(operation.key())))
            }
            _ => self.begin_write(),
        }
    }
}
