//! Calls in flight on an event loop, each with its future: how a reply becomes the result of the future.

use std::time::Instant;

use glasscache_client::WireKey;
use glasscache_client::costs::{CallClass, CostPart, TimeSpent};
use glasscache_client::engine::connection::{Attempt, Ticket};
use glasscache_client::engine::uncertain::OwnedKey;
use glasscache_client::engine::{Counter, Extending, RefusedValueSteps, Step, Steps};
use glasscache_client::observe::RequestSummary;
use glasscache_client::pipeline::FoundValue;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::recorded_read::RecordedRead;
use crate::reply::ReplyForm;

/// A future, or `None` where a connection must be made first.
pub(super) type FutureResult<'py> = PyResult<Option<Bound<'py, PyAny>>>;

/// The kind of a call with a future of its own: how its reply becomes a Python value, and for some the steps that may
/// follow. What is rare and large is boxed.
pub(super) enum CallKind {
    /// One reply in this form, or this value on a miss.
    Single(ReplyForm, Option<Py<PyAny>>),
    /// As `Single`, of a request that is recorded.
    Recorded(Box<(ReplyForm, Option<Py<PyAny>>, RecordedRead)>),
    /// A read of a reservation.
    Reservation,
    /// A write of a value.
    ValueWrite(ValueWrite),
    /// A write of a value that was too large, and the steps that follow the refusal.
    TooLarge(Box<RefusedValueSteps>, ValueWrite),
    /// An `incr` or `decr` that creates a missing number.
    Counter(Box<Counter>),
    /// An `append` or `prepend`.
    Extending(Box<Extending>),
}

/// How the outcome of a write becomes a Python value.
#[derive(Clone, Copy)]
pub(super) struct ValueWrite {
    pub(super) reply_form: ReplyForm,
    pub(super) value_bytes: usize,
}

impl CallKind {
    /// What the call returns for an error that counts as a miss.
    pub(super) fn miss_value<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Self::Single(_, Some(default)) => default.bind(py).clone(),
            Self::ValueWrite(value_write) | Self::TooLarge(_, value_write)
                if value_write.reply_form == ReplyForm::Reserved =>
            {
                py.None().into_bound(py)
            }
            Self::Single(ReplyForm::Bool | ReplyForm::Touched, _)
            | Self::ValueWrite(_)
            | Self::TooLarge(..)
            | Self::Extending(_) => PyBool::new(py, false).to_owned().into_any(),
            _ => py.None().into_bound(py),
        }
    }

    /// The next step of a call of several requests.
    pub(super) fn next_step(&self) -> Option<Step<'_>> {
        match self {
            Self::TooLarge(steps, _) => steps.step(),
            Self::Counter(steps) => steps.step(),
            Self::Extending(steps) => steps.step(),
            _ => None,
        }
    }
}

/// What a reply means for the future of its call.
pub(super) enum Resolution<'py> {
    /// It is resolved.
    Value(Bound<'py, PyAny>),
    /// Another request follows.
    Step,
}

/// A call whose current request is in flight.
pub(super) struct PendingCall {
    /// The number of the request on the connection.
    pub(super) ticket: Ticket,
    pub(super) kind: CallKind,
    pub(super) future: Py<PyAny>,
    pub(super) timing: CallTiming,
    /// What the costs of the request are counted under.
    pub(super) cost_class: CallClass,
    /// The key that it changes, where an error may be a miss: then the key is removed later.
    pub(super) changed_key: Option<Box<OwnedKey>>,
}

/// When a call began, when it must end, and what was spent on it before it was written.
#[derive(Clone, Copy)]
pub(super) struct CallTiming {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    /// It was sent before, on a connection that had gone stale.
    pub(super) is_retry: bool,
    pub(super) spent: TimeSpent,
}

impl CallTiming {
    /// The attempt that the engine makes.
    pub(super) fn attempt(&self) -> Attempt {
        Attempt { started: self.started, deadline: self.deadline, is_retry: self.is_retry }
    }
}

impl PendingCall {
    /// Makes a recorded call an ordinary one, and returns where its size is recorded.
    pub(super) fn take_recorded_read(&mut self) -> Option<RecordedRead> {
        if !matches!(self.kind, CallKind::Recorded(_)) {
            return None;
        }
        match std::mem::replace(&mut self.kind, CallKind::Reservation) {
            CallKind::Recorded(form_default_and_read) => {
                let (reply_form, default, recorded_read) = *form_default_and_read;
                self.kind = CallKind::Single(reply_form, default);
                Some(recorded_read)
            }
            _ => None,
        }
    }

    /// The finished call, whose reply with this many bytes of values arrived at `arrived_at`.
    ///
    /// Network and server are the time since the call: the loop iteration in which its request
    /// left, and the one in which its reply was found, are part of it.
    pub(super) fn request_summary<'k>(
        &self,
        key: Option<WireKey<'k>>,
        found_values: &[FoundValue],
        arrived_at: Instant,
    ) -> RequestSummary<'k> {
        let mut spent = self.timing.spent;
        spent.add_time(CostPart::Wire, arrived_at.saturating_duration_since(self.timing.started));
        RequestSummary {
            key,
            class: self.cost_class,
            found_bytes: found_values.iter().map(|found| found.value_bytes).sum(),
            has_value: !found_values.is_empty(),
            spent,
        }
    }
}
