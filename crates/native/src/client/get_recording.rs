//! The recording of a client's gets in the current request of a recorder.

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::recording::{RecordedRequest, Recorder};

/// Records gets without a Python function around each, which would cost more than what is recorded.
#[derive(Debug)]
pub(super) struct GetRecording {
    pub(super) recorder: Py<Recorder>,
    /// Begins the record of a call where a Python function knows the parents: (request, keys, parent) to bool.
    pub(super) begin_record: Option<Py<PyAny>>,
}

impl GetRecording {
    /// Begins the record of a get, if a request records it. An invalid key or parent begins nothing: the call itself
    /// refuses it.
    pub(super) fn begin_get(
        &self,
        key: &Bound<'_, PyAny>,
        parent: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<RecordedRequest>>> {
        let py = key.py();
        let Some(request) = self.recorder.get().current_request(py)? else {
            return Ok(None);
        };
        let has_begun = match &self.begin_record {
            None => request.get().begin_get(key, parent).is_ok(),
            Some(begin_record) => begin_record
                .bind(py)
                .call1((&request, PyList::new(py, [key])?, parent))?
                .is_truthy()?,
        };
        Ok(has_begun.then(|| request.unbind()))
    }
}
