//! A request in flight on an event loop: what its future waits for, and who is told in the end.

use std::time::{Duration, Instant};

use glasscache_client::costs::{Costs, Operation, Part, Spent};
use glasscache_client::doubts::OwnedKey;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A future, or `None` where a connection must be made first.
pub(super) type Started<'py> = PyResult<Option<Bound<'py, PyAny>>>;

/// What a future waits for, and how its reply becomes a Python value.
pub(super) enum Kind {
    Get {
        default: Option<Py<PyAny>>,
    },
    Gets,
    Inspect,
    Stored,
    /// A reservation is read.
    Reservation,
    /// A removal, with its key for the case that its outcome stays unknown.
    Removed(OwnedKey),
    /// A write of a value, with its key and length for an error.
    Written {
        key: Py<PyAny>,
        wire: OwnedKey,
        value_bytes: usize,
        is_cas: bool,
        /// It is a reservation, whose failure is None where errors are misses.
        is_reservation: bool,
    },
    Number,
    Many(Vec<Py<PyAny>>),
    ManyStored {
        keys: Vec<Py<PyAny>>,
        wire: Vec<OwnedKey>,
        bytes: u64,
    },
    /// One of many removals: the keys of the rest follow in the same future.
    ManyDeleted {
        keys: Vec<Py<PyAny>>,
        wire: Vec<OwnedKey>,
        failures: Py<PyDict>,
        left: usize,
    },
    Version,
    Rows,
    Done,
    Probe,
    /// The answer to earlier writes that nobody waits for, removals of doubtful keys among them.
    Nobody(Vec<OwnedKey>),
}

/// A request in flight.
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) future: Option<Py<PyAny>>,
    pub(super) times: Times,
    pub(super) is_repeatable: bool,
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
    pub(super) fn count(&self, costs: &Costs, found_bytes: u64, arrived: Instant) {
        let mut spent = self.times.spent;
        spent.add_time(
            Part::Wire,
            arrived.saturating_duration_since(self.times.started),
        );
        match &self.kind {
            Kind::Get { .. } | Kind::Gets | Kind::Inspect => {
                costs.count(Operation::Read, found_bytes, &spent);
            }
            Kind::Written { value_bytes, .. } => {
                costs.count(Operation::Write, *value_bytes as u64, &spent);
            }
            Kind::Stored | Kind::Removed(_) | Kind::Number => {
                costs.count(Operation::Other, 0, &spent);
            }
            Kind::Many(keys) => costs.count_bulk(keys.len(), found_bytes, &spent),
            Kind::ManyStored { keys, bytes, .. } => costs.count_bulk(keys.len(), *bytes, &spent),
            Kind::ManyDeleted { keys, left: 0, .. } => costs.count_bulk(keys.len(), 0, &spent),
            Kind::ManyDeleted { .. }
            | Kind::Version
            | Kind::Rows
            | Kind::Done
            | Kind::Reservation
            | Kind::Probe
            | Kind::Nobody(_) => {}
        }
    }
}
