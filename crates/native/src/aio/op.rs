//! A request in flight on an event loop: what its future waits for, and who is told in the end.

use std::time::{Duration, Instant};

use glasscache_client::costs::{Class, Costs, Part, Spent};
use glasscache_client::engine::pending::PendingWrites;
use glasscache_client::engine::uncertain::OwnedKey;
use glasscache_client::engine::{Counter, Step, Steps, TooLarge};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A future, or `None` where a connection must be made first.
pub(super) type Started<'py> = PyResult<Option<Bound<'py, PyAny>>>;

/// What a future waits for, and how its reply becomes a Python value. What is rare and long lies elsewhere.
pub(super) enum Kind {
    Get {
        default: Option<Py<PyAny>>,
    },
    Gets,
    Inspect,
    /// Whether something was done.
    Truth,
    /// A reservation is read.
    Reservation,
    /// A write of a value.
    Written(Written),
    /// What follows where a value was too large.
    TooLarge(Box<TooLarge>, Written),
    Number,
    /// A number that is made where there is none.
    Counter(Box<Counter>),
    Many(Vec<Py<PyAny>>),
    ManyStored(Vec<Py<PyAny>>),
    /// One of many removals: the keys of the rest follow in the same future.
    ManyDeleted {
        keys: Vec<Py<PyAny>>,
        failures: Py<PyDict>,
        left: usize,
    },
    Version,
    Rows,
    Done,
    Probe,
    /// The acknowledgement of earlier writes that nobody waits for, removals of uncertain keys among them.
    Nobody(Box<PendingWrites>),
}

/// How the outcome of a write becomes a Python value.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) value_bytes: usize,
    pub(super) is_cas: bool,
    /// It is a reservation, whose failure is None where errors are misses.
    pub(super) is_reservation: bool,
}

impl Kind {
    /// What is next in a call of several requests.
    pub(super) fn step(&self) -> Option<Step<'_>> {
        match self {
            Self::TooLarge(steps, _) => steps.step(),
            Self::Counter(steps) => steps.step(),
            _ => None,
        }
    }
}

/// What a reply means for the future of its op.
pub(super) enum Shown<'py> {
    /// It is resolved.
    Value(Bound<'py, PyAny>),
    /// Further replies to the same request follow.
    More,
    /// Another request follows.
    Step,
}

/// What is known of a request that was written.
pub(super) struct Sent {
    pub(super) is_repeatable: bool,
    pub(super) class: Class,
    /// Keys that may be left with an older value if the outcome stays unknown.
    pub(super) uncertain: Vec<OwnedKey>,
}

/// A request in flight.
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) future: Option<Py<PyAny>>,
    pub(super) times: Times,
    pub(super) sent: Sent,
}

/// When a call began, when it must end, and what was spent on it before it was written.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) spent: Spent,
}

impl Times {
    /// Those of an op that has no deadline of its own: who waits for it, if anybody, waits less.
    pub(super) fn now() -> Self {
        let started = Instant::now();
        Self {
            started,
            deadline: started + Duration::from_hours(1),
            spent: Spent::default(),
        }
    }
}

impl Op {
    /// Counts the call, whose reply with so many bytes of values arrived at a moment.
    ///
    /// Network and server are what passed since the call: the turn of the loop in which its request
    /// left, and the one in which its reply was found, are part of it.
    pub(super) fn count(&self, costs: &Costs, found_bytes: usize, arrived: Instant) {
        let mut spent = self.times.spent;
        spent.add_time(
            Part::Wire,
            arrived.saturating_duration_since(self.times.started),
        );
        costs.count_as(self.sent.class, found_bytes, &spent);
    }
}
