//! The recording of a client's gets, single and bulk, in the current request of a recorder.

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
    pub(super) fn begin_record<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        parent_key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Py<RecordedRequest>>> {
        let list_key = || PyList::new(key.py(), [key]);
        let begin = |request: &RecordedRequest| request.begin_get(key, parent_key);
        self.begin_call(key.py(), begin, list_key, parent_key)
    }

    /// As [`Self::begin_record`], of a read of these keys by one call.
    pub(super) fn begin_record_of_keys<'py>(
        &self,
        py: Python<'py>,
        (key_objects, key_slices): (&[Bound<'py, PyAny>], &[&[u8]]),
        parent_key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Py<RecordedRequest>>> {
        let begin = |request: &RecordedRequest| request.begin_get_many(key_slices, parent_key);
        self.begin_call(py, begin, || PyList::new(py, key_objects), parent_key)
    }

    fn begin_call<'py>(
        &self,
        py: Python<'py>,
        begin: impl FnOnce(&RecordedRequest) -> PyResult<()>,
        list_keys: impl FnOnce() -> PyResult<Bound<'py, PyList>>,
        parent_key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Py<RecordedRequest>>> {
        let Some(recorded_request) = self.recorder.get().current_request(py)? else {
            return Ok(None);
        };
        let has_begun = match &self.begin_in_python {
            None => begin(recorded_request.get()).is_ok(),
            Some(begin_in_python) => begin_in_python
                .bind(py)
                .call1((&recorded_request, list_keys()?, parent_key))?
                .is_truthy()?,
        };
        Ok(has_begun.then(|| recorded_request.unbind()))
    }
}
