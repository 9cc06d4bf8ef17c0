//! The recording of a client's gets in the current request of a recorder.

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::recording::{RecordedRequest, Recorder};

/// Records gets without a Python function around each, which would cost more than what is recorded.
#[derive(Debug)]
pub(super) struct GetRecording {
    pub(super) recorder: Py<Recorder>,
    /// Set where an application's function names the parents, `parent_of`: the Python function that calls it and begins
    /// the record, given (recorded request, keys, parent's key or None). It returns whether it has begun one.
    pub(super) begin_in_python: Option<Py<PyAny>>,
}

impl GetRecording {
    /// Begins the record of a get, if the current request is recorded, and returns that request. An invalid key or
    /// parent begins nothing: the call itself refuses it.
    pub(super) fn begin_record(
        &self,
        key: &Bound<'_, PyAny>,
        parent_key: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<RecordedRequest>>> {
        let py = key.py();
        let Some(recorded_request) = self.recorder.get().current_request(py)? else {
            return Ok(None);
        };
        let has_begun = match &self.begin_in_python {
            None => recorded_request.get().begin_get(key, parent_key).is_ok(),
            Some(begin_in_python) => begin_in_python
                .bind(py)
                .call1((&recorded_request, PyList::new(py, [key])?, parent_key))?
                .is_truthy()?,
        };
        Ok(has_begun.then(|| recorded_request.unbind()))
    }
}
