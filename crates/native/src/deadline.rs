//! Deadlines of Python calls: time-outs, and blocks (`with client.deadline(...)`), which `glasscache._contexts` keeps.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error;

/// Longest time-out that is taken as such; longer ones, and infinity, wait this long.
const TIMEOUT_MAX: Duration = Duration::from_hours(365 * 24);

/// Seconds as Python gives them, as a duration; refuses NaN and anything up to 0.
pub(crate) fn parse_timeout(seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds <= 0.0 {
        let message = format!("a time-out of {seconds} s: it must be above 0");
        return Err(Python::attach(|py| error::bad_setting(py, message)));
    }
    Ok(Duration::try_from_secs_f64(seconds).map_or(TIMEOUT_MAX, |time| time.min(TIMEOUT_MAX)))
}

/// When the time of this context's blocks of a client is over; `None`: it has none.
pub(crate) fn block_deadline(state: &Py<PyAny>, now: Instant) -> PyResult<Option<Instant>> {
    Python::attach(|py| {
        static SECONDS_LEFT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let seconds_left = SECONDS_LEFT.import(py, "glasscache._contexts", "seconds_left")?;
        let seconds: Option<f64> = seconds_left.call1((state,))?.extract()?;
        Ok(seconds.map(|seconds| now + Duration::from_secs_f64(seconds)))
    })
}
