//! Recording of requests: the recorder as Python holds it, and the sizes that calls report to it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use glasscache_record as record;
use glasscache_record::{FileFormat, Options, Parent, ParentPatterns};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::error;
use crate::keys::key_bytes;
use crate::recorded_read::{RecordedRead, take_decode_time};

/// The blocks of this process that record a request now, of all recorders. A get looks for its request only while there
/// is one: after the system calls of the get before, each pointer it need not follow is a cache miss less.
static OPEN_BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// Whether any block of this process records a request.
pub(crate) fn has_open_blocks() -> bool {
    OPEN_BLOCKS.load(Relaxed) > 0
}

/// Writes a request log into a folder.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct Recorder {
    inner: record::Recorder,
    /// The context variable with the request of the current context, or None, and its method `get`.
    current_request_variable: Py<PyAny>,
    get_current_request: Py<PyAny>,
    /// An entry for each block of this recorder that records: while there is none, no context has a request.
    pub(crate) blocks: Py<PyList>,
}

impl Recorder {
    /// Begins a request, and logs it once if the recorder has stopped.
    pub(crate) fn begin_request(&self, py: Python<'_>) -> PyResult<Option<RecordedRequest>> {
        if let Some(request) = self.inner.begin_request() {
            return Ok(Some(RecordedRequest(request)));
        }
        self.log_warning(py).map(|()| None)
    }

    /// The request of the current context, if it is recorded.
    pub(crate) fn current_request<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, RecordedRequest>>> {
        if self.blocks.bind(py).is_empty() {
            return Ok(None);
        }
        let request = self.get_current_request.bind(py).call0()?;
        if request.is_none() {
            return Ok(None);
        }
        Ok(Some(request.cast_into::<RecordedRequest>()?))
    }

    fn log_warning(&self, py: Python<'_>) -> PyResult<()> {
        match self.inner.take_warning() {
            Some(warning) => error::log_warning(py, &warning),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl Recorder {
    #[new]
    #[pyo3(signature = (folder, *, sample, format, salt, salt_prefixes, parents, rotate_seconds, rotate_bytes, memory_bytes, current_request, blocks))]
    #[expect(clippy::too_many_arguments, reason = "the settings of a recorder, by name")]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        sample: f64,
        format: &str,
        salt: Option<Vec<u8>>,
        salt_prefixes: Vec<String>,
        parents: Vec<String>,
        rotate_seconds: f64,
        rotate_bytes: usize,
        memory_bytes: usize,
        current_request: Bound<'_, PyAny>,
        blocks: Py<PyList>,
    ) -> PyResult<Self> {
        let invalid_setting = |fault: String| error::bad_setting(py, fault);
        let format = match format {
            "parquet" => FileFormat::Parquet,
            "jsonl" => FileFormat::JsonLines,
            unknown => {
                return Err(invalid_setting(format!(
                    "format={unknown:?}: \"parquet\" or \"jsonl\""
                )));
            }
        };
        let parent_patterns =
            ParentPatterns::parse(parents).map_err(|fault| invalid_setting(fault.to_string()))?;
        let rotate_after = Duration::try_from_secs_f64(rotate_seconds).map_err(|fault| {
            invalid_setting(format!("rotate_seconds={rotate_seconds}: {fault}"))
        })?;
        let options = Options {
            sample,
            format,
            salt,
            salt_prefixes,
            parents: parent_patterns,
            rotate_after,
            rotate_bytes,
            memory_bytes,
            ..Options::new(folder)
        };
        let recorder = record::Recorder::open(options);
        Ok(Self {
            inner: recorder.map_err(|fault| invalid_setting(fault.to_string()))?,
            get_current_request: current_request.getattr("get")?.unbind(),
            current_request_variable: current_request.unbind(),
            blocks,
        })
    }

    /// Return a block that records its calls as one request about the item under the key `page`, of the kind `route`.
    #[pyo3(signature = (page=None, route=None))]
    fn request(
        slf: Py<Self>,
        page: Option<Bound<'_, PyAny>>,
        route: Option<Bound<'_, PyString>>,
    ) -> PyResult<RequestBlock> {
        // A page that is not a key is refused whether the request is recorded or not.
        page.as_ref().map(key_bytes).transpose()?;
        Ok(RequestBlock::new(slf, page.map(Bound::unbind), route.map(Bound::unbind)))
    }

    /// Return the counts of requests and files so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, dict) = (self.inner.stats(), PyDict::new(py));
        dict.set_item("requests", stats.requests)?;
        dict.set_item("recorded", stats.recorded)?;
        dict.set_item("dropped", stats.dropped)?;
        dict.set_item("parts", stats.parts)?;
        dict.set_item("bytes", stats.bytes)?;
        Ok(dict)
    }

    /// As `close`, at the end of an interpreter: the lock is kept, for one that ends does not give it back.
    #[pyo3(name = "_close_at_exit")]
    fn close_at_exit(&self) {
        self.inner.close();
    }

    /// Write what is not written yet, within a second; return whether the log is complete: no request was dropped.
    fn close(&self, py: Python<'_>) -> PyResult<bool> {
        let is_written = py.detach(|| self.inner.close());
        self.log_warning(py)?;
        Ok(is_written && self.inner.stats().dropped == 0)
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
    pub(crate) fn set_page(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.set_page(key_bytes(key)?);
        Ok(())
    }

    /// Name the kind of request.
    pub(crate) fn set_route(&self, route: &str) {
        self.0.set_route(route);
    }

    /// Note that a call begins which reads these keys; `end` ends it. Each key has the key of its parent where one is
    /// known: named by the call itself, or found by the recorder's function.
    #[pyo3(name = "begin", signature = (keys, parents, is_named=false))]
    fn begin_read(
        &self,
        keys: Vec<Bound<'_, PyAny>>,
        parents: Vec<Option<Bound<'_, PyAny>>>,
        is_named: bool,
    ) -> PyResult<()> {
        let mut keys_with_parents = Vec::with_capacity(keys.len());
        for (index, key) in keys.iter().enumerate() {
            let parent_key = parents.get(index).and_then(Option::as_ref);
            let parent_key_bytes = parent_key.map(key_bytes).transpose()?;
            let parent = parent_key_bytes.map(|key| Parent { key, is_named });
            keys_with_parents.push((key_bytes(key)?, parent));
        }
        self.begin_keys(keys_with_parents);
        Ok(())
    }

    /// Note that a call begins which writes.
    fn begin_write(&self) {
        self.0.begin_write();
    }

    /// Note that the application changes keys in place, or reads the uniques for it.
    fn note_changed(&self, keys: Vec<Bound<'_, PyAny>>) {
        // What is not a key the call itself refuses.
        for key in keys.iter().filter_map(|key| key_bytes(key).ok()) {
            self.0.note_changed_key(key);
        }
    }

    /// Note that the caller of a call has resumed.
    #[pyo3(name = "end")]
    pub(crate) fn end_call(&self) {
        RecordedRead::take_for_this_thread();
        self.0.end_call_after_decoding(take_decode_time());
    }

    /// End the request; it is written soon.
    pub(crate) fn finish(&self) {
        self.0.finish();
    }
}

impl RecordedRequest {
    /// Begins the record of a get.
    pub(crate) fn begin_get(
        &self,
        key: &Bound<'_, PyAny>,
        parent_key: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let parent = named_parent(parent_key)?;
        self.begin_keys([(key_bytes(key)?, parent)]);
        Ok(())
    }

    /// Begins the record of a bulk get.
    pub(crate) fn begin_get_many(
        &self,
        keys: &[&[u8]],
        parent_key: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let parent = named_parent(parent_key)?;
        self.begin_keys(keys.iter().map(|key| (*key, parent)));
        Ok(())
    }

    /// Begins the record of a read of these keys, each with its parent if that is known.
    fn begin_keys<'k>(&self, keys: impl IntoIterator<Item = (&'k [u8], Option<Parent<'k>>)>) {
        let request = self.0.clone();
        take_decode_time();
        let recorded_reads = request.begin_read(keys);
        RecordedRead::new(request, recorded_reads).store_for_this_thread();
    }
}

/// The parent that a call names for its keys.
fn named_parent<'k>(parent_key: Option<&'k Bound<'_, PyAny>>) -> PyResult<Option<Parent<'k>>> {
    let key = parent_key.map(key_bytes).transpose()?;
    Ok(key.map(|key| Parent { key, is_named: true }))
}

/// The block of a program that a recorder records as one request: what is called inside belongs to it, and not to a
/// block around it. It is entered and left at every request, most of which are not recorded, so it is not a Python class.
#[pyclass(module = "glasscache._native")]
pub(crate) struct RequestBlock {
    recorder: Py<Recorder>,
    page: Option<Py<PyAny>>,
    route: Option<Py<PyString>>,
    /// The request, if it is recorded.
    request: Option<Py<RecordedRequest>>,
    /// What the context variable had before.
    token: Option<Py<PyAny>>,
}

impl RequestBlock {
    pub(crate) fn new(
        recorder: Py<Recorder>,
        page: Option<Py<PyAny>>,
        route: Option<Py<PyString>>,
    ) -> Self {
        Self { recorder, page, route, request: None, token: None }
    }
}

#[pymethods]
impl RequestBlock {
    /// Begin the request.
    fn __enter__(&mut self, py: Python<'_>) -> PyResult<()> {
        let recorder = self.recorder.get();
        let request = match recorder.begin_request(py)? {
            Some(request) => Py::new(py, request)?,
            None if recorder.current_request(py)?.is_none() => return Ok(()),
            None => {
                self.token = Some(set_current_request(recorder, py.None().into_bound(py))?);
                return Ok(());
            }
        };
        if let Some(page) = &self.page {
            request.get().set_page(page.bind(py))?;
        }
        if let Some(route) = &self.route {
            request.get().set_route(&route.bind(py).to_string_lossy());
        }
        self.token = Some(set_current_request(recorder, request.bind(py).clone().into_any())?);
        recorder.blocks.bind(py).append(py.None())?;
        OPEN_BLOCKS.fetch_add(1, Relaxed);
        self.request = Some(request);
        Ok(())
    }

    /// End the request; it is written soon.
    #[pyo3(signature = (*_error))]
    fn __exit__(&mut self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        static RESET_VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Some(token) = self.token.take() else {
            return Ok(());
        };
        let recorder = self.recorder.get();
        if let Some(request) = self.request.take() {
            OPEN_BLOCKS.fetch_sub(1, Relaxed);
            recorder.blocks.bind(py).call_method0(intern!(py, "pop"))?;
            request.get().finish();
        }
        let reset_variable = RESET_VARIABLE.import(py, "glasscache._contexts", "reset_variable")?;
        let variable = recorder.current_request_variable.bind(py);
        reset_variable.call1((variable, token)).map(drop)
    }
}

fn set_current_request(recorder: &Recorder, request: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let py = request.py();
    let variable = recorder.current_request_variable.bind(py);
    Ok(variable.call_method1(intern!(py, "set"), (request,))?.unbind())
}
