//! The recording of a client's gets, single and bulk, in the current request of a recorder.

use std::time::Instant;

use glasscache_record::RecordedReads;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::recorded_read::RecordedRead;
use crate::recording::{RecordedRequest, Recorder};

/// Records gets without a Python function around each, which would cost more than what is recorded.
#[derive(Debug)]
pub(super) struct GetRecording {
    pub(super) recorder: Py<Recorder>,
    /// Set where an application's function names the parents, `parent_of`: the Python function that calls it and begins
    /// the record, given (recorded request, keys, parent's key or None). It returns whether it has begun one.
    pub(super) begin_in_python: Option<Py<PyAny>>,
}

/// A get that the current request records, until it ends.
pub(super) struct RecordedGet<'py> {
    request: Bound<'py, RecordedRequest>,
    recorded_reads: RecordedReads,
}

impl RecordedGet<'_> {
    /// Ends the record of a get of a value of this many bytes, 0 if unknown.
    pub(super) fn end(self, value_bytes: usize) {
        self.request.get().end_get(self.recorded_reads, value_bytes);
    }
}

impl GetRecording {
    /// Begins the record of a get, if the current request is recorded. An invalid key or parent begins nothing: the call
    /// itself refuses it.
    pub(super) fn begin_get<'py>(
        &self,
        began_at: Instant,
        key: &Bound<'py, PyAny>,
        parent_key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<RecordedGet<'py>>> {
        let py = key.py();
        let Some(request) = self.recorder.get().current_request(py)? else {
            return Ok(None);
        };
        let Some(begin_in_python) = &self.begin_in_python else {
            let recorded_reads = request.get().begin_get(began_at, key, parent_key).ok();
            return Ok(recorded_reads.map(|recorded_reads| RecordedGet { request, recorded_reads }));
        };
        let keys = PyList::new(py, [key])?;
        if !begin_in_python.bind(py).call1((&request, keys, parent_key))?.is_truthy()? {
            return Ok(None);
        }
        let recorded_read = RecordedRead::take_for_this_thread();
        Ok(recorded_read.map(|read| RecordedGet { request, recorded_reads: read.recorded_reads }))
    }

    /// Begins the record of a read of these keys by one call, if the current request is recorded, and returns that request.
    pub(super) fn begin_get_many<'py>(
        &self,
        py: Python<'py>,
        (key_objects, key_slices): (&[Bound<'py, PyAny>], &[&[u8]]),
        parent_key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Py<RecordedRequest>>> {
        let Some(recorded_request) = self.recorder.get().current_request(py)? else {
            return Ok(None);
        };
        let has_begun = match &self.begin_in_python {
            None => recorded_request.get().begin_get_many(key_slices, parent_key).is_ok(),
            Some(begin_in_python) => begin_in_python
                .bind(py)
                .call1((&recorded_request, PyList::new(py, key_objects)?, parent_key))?
                .is_truthy()?,
        };
        Ok(has_begun.then(|| recorded_request.unbind()))
    }
}
