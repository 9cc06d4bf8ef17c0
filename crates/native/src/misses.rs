//! Errors that a client returns as misses, and its counters of misses and of values that were not stored.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error;

/// Decides which errors are misses, and counts them.
#[derive(Debug)]
pub(crate) struct Misses {
    /// Decides which errors are counted misses; `None` raises all.
    counts_as_miss: Option<Py<PyAny>>,
    /// Keys for which an error was returned as a miss.
    missed_keys: AtomicU64,
    fills_not_stored: AtomicU64,
    incomplete_values: AtomicU64,
}

impl Misses {
    pub(crate) fn new(counts_as_miss: Option<Py<PyAny>>) -> Self {
        Self {
            counts_as_miss,
            missed_keys: AtomicU64::new(0),
            fills_not_stored: AtomicU64::new(0),
            incomplete_values: AtomicU64::new(0),
        }
    }

    /// Whether an error is a miss.
    pub(crate) fn is_miss(&self, py: Python<'_>, error: &PyErr) -> PyResult<bool> {
        error::is_counted_as_miss(py, self.counts_as_miss.as_ref(), error)
    }

    /// Whether errors may be misses: then a change that was not made may not be known to its caller.
    pub(crate) fn are_configured(&self) -> bool {
        self.counts_as_miss.is_some()
    }

    /// What a call about `key_count` keys returns that failed: a counted miss where that is configured, else the error.
    pub(crate) fn miss_or_raise<R>(
        &self,
        py: Python<'_>,
        error: PyErr,
        miss: R,
        key_count: u64,
    ) -> PyResult<R> {
        if !self.is_miss(py, &error)? {
            return Err(error);
        }
        self.missed_keys.fetch_add(key_count, Ordering::Relaxed);
        Ok(miss)
    }

    /// Counts a value that was computed and not stored, because its key was deleted, written or flushed meanwhile.
    pub(crate) fn count_fill_not_stored(&self) {
        self.fills_not_stored.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a read of a value in pieces that was a miss because a piece was lost or altered.
    pub(crate) fn count_incomplete(&self) {
        self.incomplete_values.fetch_add(1, Ordering::Relaxed);
    }

    /// A table of counters that begins with these.
    pub(crate) fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters_dict = PyDict::new(py);
        let counters = [
            ("fills_not_stored", &self.fills_not_stored),
            ("incomplete_values", &self.incomplete_values),
            ("misses_by_error", &self.missed_keys),
        ];
        for (name, counter) in counters {
            counters_dict.set_item(name, counter.load(Ordering::Relaxed))?;
        }
        Ok(counters_dict)
    }
}
