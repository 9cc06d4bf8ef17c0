//! How long a call may take, and calls that had to wait for a connection before they could be sent.

use std::time::{Duration, Instant};

use glasscache_client::costs::{CostPart, TimeSpent};
use glasscache_client::engine::RetryState;
use pyo3::intern;
use pyo3::prelude::*;

use super::pending_call::CallTiming;
use crate::deadline as deadlines;
use crate::recorded_read::RecordedRead;

/// A call that waits for a connection: one deadline spans the waiting and the call.
#[pyclass(module = "glasscache._native")]
#[derive(Debug, Clone)]
pub(crate) struct DelayedCall {
    deadline: Instant,
    /// When it began to wait.
    wait_start: Instant,
    retry_state: RetryState,
    /// The recorded read that it is, if it is recorded: each attempt gets it.
    pub(super) recorded_read: Option<RecordedRead>,
}

#[pymethods]
impl DelayedCall {
    /// A call whose first attempt found no connection, or ended with the error of a stale one.
    #[new]
    fn new(seconds: f64, stale_error: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let wait_start = Instant::now();
        let mut delayed_call = Self {
            deadline: wait_start + deadlines::parse_timeout(seconds)?,
            wait_start,
            retry_state: RetryState::new(false),
            // An attempt without a connection has left it there.
            recorded_read: RecordedRead::take_for_this_thread(),
        };
        stale_error.map_or(Ok(()), |stale_error| delayed_call.mark_stale(stale_error))?;
        Ok(delayed_call)
    }

    /// The seconds that are left.
    #[getter]
    fn seconds_left(&self) -> f64 {
        seconds_left(self.deadline)
    }

    /// Note that the connection on which it was sent had gone stale.
    fn mark_stale(&mut self, stale_error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.retry_state.is_retry = true;
        let recorded_read = stale_error.getattr(intern!(stale_error.py(), "recorded_read"))?;
        if !recorded_read.is_none() {
            self.recorded_read = Some(recorded_read.extract::<RecordedRead>()?);
        }
        Ok(())
    }
}

pub(super) fn seconds_left(deadline: Instant) -> f64 {
    let time_left = deadline.saturating_duration_since(Instant::now());
    time_left.as_secs_f64()
}

impl DelayedCall {
    /// Begins to wait for a connection once more; false: it has tried often enough, or its time is over.
    pub(super) fn begin_next_attempt(&mut self) -> bool {
        self.wait_start = Instant::now();
        self.retry_state.count_connection_wait(self.wait_start, self.deadline)
    }
}

/// How long a call may take: a number of seconds, or what is left of one that has waited.
#[derive(Debug, Clone)]
pub(super) enum TimeLimit {
    Seconds(f64),
    Delayed(DelayedCall),
}

impl<'py> FromPyObject<'_, 'py> for TimeLimit {
    type Error = PyErr;

    fn extract(argument: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match argument.cast::<DelayedCall>() {
            Ok(delayed) => Ok(Self::Delayed(delayed.borrow().clone())),
            Err(_) => argument.extract().map(Self::Seconds),
        }
    }
}

impl TimeLimit {
    /// The recorded read of a call that has this limit and begins now.
    pub(super) fn take_recorded_read(time_limit: Option<&Self>) -> Option<RecordedRead> {
        match time_limit {
            Some(Self::Delayed(delayed)) => delayed.recorded_read.clone(),
            _ => RecordedRead::take_for_this_thread(),
        }
    }

    /// When a call begins that is sent now, and when it must end.
    pub(super) fn call_timing(
        time_limit: Option<Self>,
        timeout: Duration,
        mut spent: TimeSpent,
    ) -> PyResult<CallTiming> {
        let started = Instant::now();
        let mut is_retry = false;
        let deadline = match time_limit {
            None => started + timeout,
            Some(Self::Seconds(seconds)) => started + deadlines::parse_timeout(seconds)?,
            Some(Self::Delayed(delayed)) => {
                spent.add_time(
                    CostPart::Wait,
                    started.saturating_duration_since(delayed.wait_start),
                );
                is_retry = delayed.retry_state.is_retry;
                delayed.deadline
            }
        };
        Ok(CallTiming { started, deadline, is_retry, spent })
    }
}
