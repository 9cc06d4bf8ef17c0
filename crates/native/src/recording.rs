//! Recording of requests: the recorder as Python holds it, and the sizes that calls report to it.

use std::path::PathBuf;
use std::time::Duration;

use glasscache_record as record;
use glasscache_record::{FileFormat, Options, Parent, ParentPatterns};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error;
use crate::keys::key_bytes;
use crate::recorded_read::RecordedRead;

/// Writes a request log into a folder.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct Recorder(record::Recorder);

#[pymethods]
impl Recorder {
    #[new]
    #[pyo3(signature = (folder, *, sample, format, salt, parents, rotate_seconds, rotate_bytes, memory_bytes))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the settings of a recorder, by name"
    )]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        sample: f64,
        format: &str,
        salt: Option<Vec<u8>>,
        parents: Vec<String>,
        rotate_seconds: f64,
        rotate_bytes: usize,
        memory_bytes: usize,
    ) -> PyResult<Self> {
        let invalid_setting = |fault: String| error::bad_setting(py, fault);
        let format = match format {
            "parquet" => FileFormat::Parquet,
            "jsonl" => FileFormat::JsonLines,
            other => {
                return Err(invalid_setting(format!(
                    "format={other:?}: \"parquet\" or \"jsonl\""
                )));
            }
        };
        let parents =
            ParentPatterns::parse(parents).map_err(|fault| invalid_setting(fault.to_string()))?;
        let rotate_after = Duration::try_from_secs_f64(rotate_seconds).map_err(|fault| {
            invalid_setting(format!("rotate_seconds={rotate_seconds}: {fault}"))
        })?;
        let options = Options {
            sample,
            format,
            salt,
            parents,
            rotate_after,
            rotate_bytes,
            memory_bytes,
            ..Options::new(folder)
        };
        let recorder = record::Recorder::open(options);
        Ok(Self(
            recorder.map_err(|fault| invalid_setting(fault.to_string()))?,
        ))
    }

    /// Begin a request; None if it is not recorded.
    fn request(&self) -> Option<RecordedRequest> {
        self.0.begin_request().map(RecordedRequest)
    }

    /// Return the counts of requests and files so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, dict) = (self.0.stats(), PyDict::new(py));
        dict.set_item("requests", stats.requests)?;
        dict.set_item("recorded", stats.recorded)?;
        dict.set_item("dropped", stats.dropped)?;
        dict.set_item("parts", stats.parts)?;
        dict.set_item("bytes", stats.bytes)?;
        Ok(dict)
    }

    /// Return, once, why the recorder stopped; None while it goes on.
    fn take_warning(&self) -> Option<String> {
        self.0.take_warning()
    }

    /// Write what is not written yet, within a second; return whether the log is complete.
    fn close(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.close())
    }
}

/// A request while it is recorded.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct RecordedRequest(record::Request);

#[pymethods]
impl RecordedRequest {
    /// The number of the request in its process.
    #[getter]
    fn number(&self) -> u64 {
        self.0.number()
    }

    /// Name the item that the page is about.
    fn set_page(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.set_page(key_bytes(key)?);
        Ok(())
    }

    /// Name the kind of request.
    fn set_route(&self, route: &str) {
        self.0.set_route(route);
    }

    /// Note that a call begins which reads these keys, with their parents where these are known, which the call or the
    /// recorder's function named; `end` ends it.
    #[pyo3(signature = (keys, parents, is_named=false))]
    fn begin(
        &self,
        keys: Vec<Bound<'_, PyAny>>,
        parents: Vec<Option<Bound<'_, PyAny>>>,
        is_named: bool,
    ) -> PyResult<()> {
        let mut keys_with_parents = Vec::with_capacity(keys.len());
        for (index, key) in keys.iter().enumerate() {
            let parent = parents.get(index).and_then(Option::as_ref);
            let parent = parent.map(key_bytes).transpose()?;
            let parent = parent.map(|key| Parent { key, is_named });
            keys_with_parents.push((key_bytes(key)?, parent));
        }
        let request = self.0.clone();
        let call = request.begin_read(keys_with_parents);
        RecordedRead::new(request, call).leave_for_next_read();
        Ok(())
    }

    /// Note that a call begins which writes.
    fn begin_write(&self) {
        self.0.begin_write();
    }

    /// Note that the caller of a call has resumed.
    fn end(&self) {
        RecordedRead::take();
        self.0.end_call();
    }

    /// End the request; it is written soon.
    fn finish(&self) {
        self.0.finish();
    }
}
