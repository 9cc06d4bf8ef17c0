//! Recording of requests: the recorder as Python holds it, and the sizes that calls report to it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use glasscache_record as record;
use glasscache_record::{FileFormat, Options, Parent, ParentPatterns, RecordedReads};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString};

use crate::error;
use crate::keys::key_bytes;
use crate::recorded_read::{RecordedRead, take_decode_time};
use crate::ttl::whole_ttl_s;

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
    /// The methods of the context variable with the request of the current context, or None.
    current_request: VariableMethods,
    /// The blocks of this recorder that record: while there is none, no context has a request.
    open_blocks: AtomicUsize,
    /// The same number of entries, for the Python functions around calls.
    blocks: Py<PyList>,
}

/// The methods of a context variable. They are bound once: to look one up and bind it takes as long as the call.
struct VariableMethods {
    get: Py<PyAny>,
    set: Py<PyAny>,
    reset: Py<PyAny>,
}

impl VariableMethods {
    fn of(variable: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            get: variable.getattr("get")?.unbind(),
            set: variable.getattr("set")?.unbind(),
            reset: variable.getattr("reset")?.unbind(),
        })
    }
}

impl Recorder {
    /// Begins a request that is to be recorded, and logs it once if the recorder has stopped.
    fn begin_sampled(
        &self,
        py: Python<'_>,
        request_number: u64,
    ) -> PyResult<Option<RecordedRequest>> {
        if let Some(request) = self.inner.begin_sampled(request_number) {
            return Ok(Some(RecordedRequest(request)));
        }
        self.log_warning(py).map(|()| None)
    }

    /// The request of the current context, if it is recorded.
    pub(crate) fn current_request<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, RecordedRequest>>> {
        if self.open_blocks.load(Relaxed) == 0 {
            return Ok(None);
        }
        let request = self.current_request.get.bind(py).call0()?;
        if request.is_none() {
            return Ok(None);
        }
        Ok(Some(request.cast_into::<RecordedRequest>()?))
    }

    /// Begins that calls of the current context belong to this request, or to none; returns what ends it.
    fn set_current_request(&self, request: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Ok(self.current_request.set.bind(request.py()).call1((request,))?.unbind())
    }

    fn count_block(&self, py: Python<'_>) -> PyResult<()> {
        self.blocks.bind(py).append(py.None())?;
        self.open_blocks.fetch_add(1, Relaxed);
        OPEN_BLOCKS.fetch_add(1, Relaxed);
        Ok(())
    }

    fn discount_block(&self, py: Python<'_>) -> PyResult<()> {
        OPEN_BLOCKS.fetch_sub(1, Relaxed);
        self.open_blocks.fetch_sub(1, Relaxed);
        self.blocks.bind(py).del_item(0)
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
            current_request: VariableMethods::of(&current_request)?,
            open_blocks: AtomicUsize::new(0),
            blocks,
        })
    }

    /// Return a block that records its calls as one request about the item under the key `page`, of the kind `route`.
    ///
    /// Whether it records is decided here, so that most requests make no object. The block is to be entered at once.
    #[pyo3(signature = (page=None, route=None))]
    fn request<'py>(
        slf: &Bound<'py, Self>,
        page: Option<&Bound<'py, PyAny>>,
        route: Option<&Bound<'py, PyString>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // A page that is not a key is refused whether the request is recorded or not.
        page.map(key_bytes).transpose()?;
        let recorder = slf.get();
        let sampled_number = recorder.inner.next_sampled();
        if sampled_number.is_none() && recorder.open_blocks.load(Relaxed) == 0 {
            return UnrecordedBlock::shared(slf.py());
        }
        let block = RequestBlock {
            recorder: slf.clone().unbind(),
            sampling: Sampling::Decided(sampled_number),
            page: page.cloned().map(Bound::unbind),
            route: route.cloned().map(Bound::unbind),
            request: None,
            token: None,
        };
        Bound::new(slf.py(), block).map(Bound::into_any)
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

    /// Note that keys are stored with a ttl.
    fn note_ttl(&self, keys: Vec<Bound<'_, PyAny>>, ttl: &Bound<'_, PyAny>) {
        // As above; one that is longer than any near cache keeps a value says nothing.
        let Ok(Some(ttl_s)) = ttl.extract().map(whole_ttl_s) else {
            return;
        };
        for key in keys.iter().filter_map(|key| key_bytes(key).ok()) {
            self.0.note_ttl(key, ttl_s);
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
    /// Begins the record of a get that began at a time.
    pub(crate) fn begin_get(
        &self,
        began_at: Instant,
        key: &Bound<'_, PyAny>,
        parent_key: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<RecordedReads> {
        let read = (key_bytes(key)?, named_parent(parent_key)?);
        take_decode_time();
        Ok(self.0.begin_read_at(began_at, [read]))
    }

    /// Ends the record of a get of a value of this many bytes, 0 if unknown.
    pub(crate) fn end_get(&self, recorded_reads: RecordedReads, value_bytes: usize) {
        self.0.end_read(recorded_reads, value_bytes, take_decode_time());
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

/// Whether the request of a block is recorded.
enum Sampling {
    /// Decided when the block was made, with the number of the request if it is; for the first time that it is entered.
    Decided(Option<u64>),
    /// Decided when the block is entered.
    Due,
}

/// The block of a program that a recorder records as one request: what is called inside belongs to it, and not to a
/// block around it.
#[pyclass(module = "glasscache._native")]
pub(crate) struct RequestBlock {
    recorder: Py<Recorder>,
    sampling: Sampling,
    page: Option<Py<PyAny>>,
    route: Option<Py<PyString>>,
    /// The request, if it is recorded.
    request: Option<Py<RecordedRequest>>,
    /// What the context variable had before.
    token: Option<Py<PyAny>>,
}

#[pymethods]
impl RequestBlock {
    /// Begin the request.
    fn __enter__(&mut self, py: Python<'_>) -> PyResult<()> {
        let recorder = self.recorder.get();
        let sampled_number = match std::mem::replace(&mut self.sampling, Sampling::Due) {
            Sampling::Decided(sampled_number) => sampled_number,
            Sampling::Due => recorder.inner.next_sampled(),
        };
        let request = match sampled_number {
            Some(number) => recorder.begin_sampled(py, number)?,
            None => None,
        };
        let Some(request) = request else {
            if recorder.current_request(py)?.is_some() {
                self.token = Some(recorder.set_current_request(py.None().into_bound(py))?);
            }
            return Ok(());
        };
        if let Some(page) = &self.page {
            request.set_page(page.bind(py))?;
        }
        if let Some(route) = &self.route {
            request.set_route(&route.bind(py).to_string_lossy());
        }
        let request = Bound::new(py, request)?;
        self.token = Some(recorder.set_current_request(request.clone().into_any())?);
        recorder.count_block(py)?;
        self.request = Some(request.unbind());
        Ok(())
    }

    /// End the request; it is written soon.
    #[pyo3(signature = (_error_type=None, _error=None, _traceback=None))]
    fn __exit__(
        &mut self,
        py: Python<'_>,
        _error_type: Option<&Bound<'_, PyAny>>,
        _error: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let Some(token) = self.token.take() else {
            return Ok(());
        };
        let recorder = self.recorder.get();
        if let Some(request) = self.request.take() {
            recorder.discount_block(py)?;
            request.get().finish();
        }
        match recorder.current_request.reset.bind(py).call1((token,)) {
            // A block that is left in another context, as by a generator that a framework finishes elsewhere: that
            // context keeps what it had.
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(()),
            reset_result => reset_result.map(drop),
        }
    }
}

/// The block of a request that is not recorded, where no other one is: the same object for all.
///
/// Its methods are functions that the interpreter need not bind to it, which would take longer than all the rest. What
/// calls them by their class passes the object too.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct UnrecordedBlock;

impl UnrecordedBlock {
    fn shared(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        static SHARED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let block = SHARED.get_or_try_init(py, || Py::new(py, Self).map(Py::into_any))?;
        Ok(block.bind(py).clone())
    }
}

#[pymethods]
impl UnrecordedBlock {
    #[new]
    fn new() -> Self {
        Self
    }

    #[classattr]
    #[pyo3(name = "__enter__")]
    fn enter(py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(wrap_pyfunction!(do_nothing, py)?.into_any().unbind())
    }

    #[classattr]
    #[pyo3(name = "__exit__")]
    fn exit(py: Python<'_>) -> PyResult<Py<PyAny>> {
        Self::enter(py)
    }
}

/// Enter or leave a block that does nothing.
#[pyfunction]
#[pyo3(signature = (_first=None, _second=None, _third=None, _fourth=None))]
fn do_nothing(
    _first: Option<&Bound<'_, PyAny>>,
    _second: Option<&Bound<'_, PyAny>>,
    _third: Option<&Bound<'_, PyAny>>,
    _fourth: Option<&Bound<'_, PyAny>>,
) {
}
