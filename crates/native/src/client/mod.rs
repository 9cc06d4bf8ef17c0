//! The synchronous client as Python calls it. The interpreter lock is released while a call waits.

mod reading;
pub(crate) mod reserving;
mod servers;
mod writing;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use glasscache_client::WireKey;
use glasscache_client::costs::TimeSpent;
use glasscache_client::key::KeyEncoder;
use glasscache_client::{Budget, Client as Core, Error, Options};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDelta, PyDict};

use crate::keys::key_bytes;
use crate::misses::Misses;
use crate::near::{self, NearBinding, RequestScope, Strategy};
use crate::settings::{self, Codec};
use crate::{deadline as deadlines, error, interpreter_lock, value as conversion};

/// TTLs up to 30 days are relative on the wire; longer ones must be a date.
const RELATIVE_MAX_S: i64 = 30 * 24 * 3600;

/// Values of fewer bytes become objects faster than the clock is read.
pub(crate) const TIMED_BYTES_MIN: usize = 512;

/// Numbers clients, so that the deadline blocks of one do not apply to another.
static NEXT_CLIENT_ID: AtomicU64 = AtomicU64::new(0);

/// The native half of `glasscache.Client`.
#[pyclass(frozen, subclass, module = "glasscache._native")]
pub(crate) struct Client {
    pub(crate) core: Core,
    pub(crate) codec: Py<Codec>,
    pub(crate) id: u64,
    pub(crate) timeout: Duration,
    pub(crate) misses: Misses,
    pub(crate) near: Option<NearBinding>,
}

/// The bytes that `append` and `prepend` add.
pub(crate) fn appended_bytes<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    key_bytes(value).map_err(|_| PyTypeError::new_err("append and prepend take str or bytes"))
}

/// How much an `incr` or `decr` takes: protocol numbers have 64 bits and no sign.
pub(crate) fn amount(number: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = number.py();
    number.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(py) {
            return error;
        }
        let amount_max = u64::MAX;
        let text = number
            .str()
            .map_or_else(|_| "a longer number".to_owned(), |text| text.to_string());
        error::bad_setting(
            py,
            format!(
                "amount out of range: {text}, 0 to {amount_max} (decr subtracts what incr adds)"
            ),
        )
    })
}

/// As [`amount`], of a number that need not be given.
pub(crate) fn amount_if_any(number: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    (!number.is_none()).then(|| amount(number)).transpose()
}

/// The last second that servers know: they keep 32 bits with a sign.
const EXPTIME_MAX_S: i64 = i32::MAX as i64;

/// A TTL as Python gives it: seconds, or a `datetime.timedelta`.
#[derive(Clone, Copy)]
pub(crate) struct Ttl(f64);

impl<'py> FromPyObject<'_, 'py> for Ttl {
    type Error = PyErr;

    fn extract(argument: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(seconds) = argument.extract::<f64>() {
            return Ok(Self(seconds));
        }
        if let Ok(delta) = argument.cast::<PyDelta>() {
            return delta.call_method0("total_seconds")?.extract().map(Self);
        }
        let type_name = argument.get_type().name()?.to_string();
        Err(PyTypeError::new_err(format!(
            "ttl is a number of seconds or a timedelta, not {type_name}"
        )))
    }
}

/// A TTL as it goes on the wire: 0 never expires, below 0 is over at once.
pub(crate) fn exptime(ttl: Option<Ttl>) -> PyResult<i64> {
    let Some(Ttl(ttl)) = ttl else { return Ok(0) };
    if !ttl.is_finite() || ttl > 1e11 {
        let sentence = format!("a ttl of {ttl} s: 0 is for ever");
        return Err(Python::attach(|py| error::bad_setting(py, sentence)));
    }
    // Away from 0, which would be for ever: a part of a second lives for one, and less than none is over.
    let ttl = if ttl < 0.0 { ttl.floor() } else { ttl.ceil() } as i64;
    if ttl <= RELATIVE_MAX_S {
        return Ok(ttl.max(-1));
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(ttl.saturating_add(now.as_secs() as i64).min(EXPTIME_MAX_S))
}

impl Drop for Client {
    /// Sends what is gathered without the interpreter lock: a server that hangs must not stop other threads.
    fn drop(&mut self) {
        if self.core.has_buffered_writes() {
            // Without an interpreter, at its very end, the core's own drop does it.
            Python::try_attach(|py| py.detach(|| self.core.flush_before_drop()));
        }
    }
}

impl Client {
    pub(crate) fn codec(&self) -> &Codec {
        self.codec.get()
    }

    /// When a call that begins now began, and when it must end.
    pub(crate) fn start_and_deadline(
        &self,
        call_timeout_s: Option<f64>,
    ) -> PyResult<(Instant, Instant)> {
        let now = Instant::now();
        Ok((
            now,
            deadlines::call_deadline(self.id, call_timeout_s, self.timeout, now)?,
        ))
    }

    pub(crate) fn keys(&self) -> KeyEncoder<'_> {
        self.core.keys()
    }

    /// Does `work` without the interpreter lock; a signal's handler may end it by raising.
    pub(crate) fn run_detached<R: Send>(
        &self,
        py: Python<'_>,
        start_and_deadline: (Instant, Instant),
        spent: TimeSpent,
        work: impl FnOnce(&Core, &Budget<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let raised = Mutex::new(None);
        let result = interpreter_lock::run_detached(py, || {
            let should_continue = || {
                Python::attach(|py| match py.check_signals() {
                    Ok(()) => true,
                    Err(error) => {
                        if let Ok(mut raised) = raised.lock() {
                            *raised = Some(error);
                        }
                        false
                    }
                })
            };
            let budget = Budget {
                started: start_and_deadline.0,
                deadline: start_and_deadline.1,
                should_continue: &should_continue,
                spent,
                scope: None,
            };
            work(&self.core, &budget)
        });
        // First of all: whatever the result of the call, its caller is to stop.
        if let Some(raised) = raised.into_inner().ok().flatten() {
            return Err(raised);
        }
        result.map_err(|error| error::from_client_error(py, &error))
    }

    /// What a failed call returns: its error, or a counted miss where that is configured.
    pub(crate) fn or_counted_miss<R>(
        &self,
        py: Python<'_>,
        result: PyResult<R>,
        miss: R,
    ) -> PyResult<R> {
        result.or_else(|error| self.misses.miss_or_raise(py, error, miss, 1))
    }

    /// Makes a call about one key without the interpreter lock; `miss` is what an error returns that is one.
    pub(crate) fn with_key<R: Send>(
        &self,
        key: &Bound<'_, PyAny>,
        deadline: Option<f64>,
        miss: R,
        work: impl FnOnce(&Core, WireKey<'_>, &Budget<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let py = key.py();
        let start_and_deadline = self.start_and_deadline(deadline)?;
        let mut scratch = Vec::new();
        let key = self.wire_key(py, key, &mut scratch)?;
        let call_result = self.run_detached(
            py,
            start_and_deadline,
            TimeSpent::default(),
            |core, budget| work(core, key, budget),
        );
        self.or_counted_miss(py, call_result, miss)
    }

    pub(crate) fn wire_key<'a>(
        &self,
        py: Python<'_>,
        key: &'a Bound<'_, PyAny>,
        scratch: &'a mut Vec<u8>,
    ) -> PyResult<WireKey<'a>> {
        let key = key_bytes(key)?;
        self.keys()
            .wire(key, scratch)
            .map_err(|error| error::from_client_error(py, &error))
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (servers, codec, *, timeout, placement, namespace, counts_as_miss,
                        value_bytes_max, connections_max, base64_keys, binary, login, tls,
                        costs, strategy))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a keyword of the Python constructor"
    )]
    fn new(
        py: Python<'_>,
        servers: Vec<String>,
        codec: Py<Codec>,
        timeout: f64,
        placement: &str,
        namespace: Vec<u8>,
        counts_as_miss: Option<Py<PyAny>>,
        value_bytes_max: u64,
        connections_max: usize,
        base64_keys: bool,
        binary: bool,
        login: Option<(Vec<u8>, Py<PyAny>)>,
        tls: Option<settings::TlsArguments>,
        costs: bool,
        strategy: Option<Py<Strategy>>,
    ) -> PyResult<Self> {
        let timeout = deadlines::seconds(timeout)?;
        let options = Options {
            timeout,
            value_bytes_max,
            connections_max,
            namespace,
            keys: settings::key_encoding(base64_keys),
            protocol: settings::protocol(binary),
            login: login.map(|login| settings::login(py, login)),
            tls: tls.map(|tls| settings::tls(py, tls)).transpose()?,
            costs,
            strategy: strategy.as_ref().map(|it| it.get().options.clone()),
            ..Options::default()
        };
        let core = settings::build_client(py, &servers, placement, options)?;
        let near = NearBinding::new(py, &core, strategy.as_ref());
        Ok(Self {
            core,
            near,
            codec,
            id: NEXT_CLIENT_ID.fetch_add(1, Ordering::Relaxed),
            timeout,
            misses: Misses::new(counts_as_miss),
        })
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        settings::repr(&slf.get_type(), &slf.get().core)
    }

    /// Close the idle connections, after quiet writes have arrived.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.core.close());
    }

    /// Send the noreply writes that are still gathered, from the last millisecond; what cannot be sent is counted.
    ///
    /// The next call does this too, and so do `close()`, the end of a `with` block and of the program. Use it
    /// before another way to leave, such as `os._exit`, or before another client reads what was written.
    #[pyo3(name = "send_gathered", signature = (*, deadline=None))]
    fn flush_quiet_writes(&self, py: Python<'_>, deadline: Option<f64>) -> PyResult<()> {
        let flush_timeout = deadline.map_or(Ok(self.timeout), deadlines::seconds)?;
        py.detach(|| self.core.flush_quiet_writes(flush_timeout));
        Ok(())
    }

    /// Return the roll-out of the strategy as JSON, or None without a strategy.
    #[pyo3(name = "_rollout_json")]
    fn rollout_json(&self) -> Option<String> {
        near::rollout_json(self.near.as_ref())
    }

    /// Return a scope for a request about the item under `page`; None if the client has no strategy.
    #[pyo3(name = "_begin_request")]
    fn begin_request(
        &self,
        py: Python<'_>,
        page: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<RequestScope>> {
        near::begin_request(py, self.near.as_ref(), page)
    }

    /// Forget what the process keeps under a key that was changed on other servers.
    #[pyo3(name = "_forget_near")]
    fn forget_near(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        near::forget(self.near.as_ref(), key)
    }

    /// Return the counters of the strategy, or None without one.
    #[pyo3(name = "_near_stats")]
    fn near_stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        near::stats(py, self.near.as_ref())
    }

    /// The codec that values pass through.
    #[getter(codec)]
    fn own_codec(&self, py: Python<'_>) -> Py<Codec> {
        self.codec.clone_ref(py)
    }

    /// Open a block in which all calls of this thread share this many seconds.
    #[pyo3(name = "_open_deadline")]
    fn open_deadline(&self, block_seconds: f64) -> PyResult<()> {
        deadlines::open(self.id, block_seconds)
    }

    /// Close the block that was opened last.
    #[pyo3(name = "_close_deadline")]
    fn close_deadline(&self) {
        deadlines::close(self.id);
    }

    /// Return the bytes that a value would take on the wire, and its flags.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        conversion::encode_value(self.codec(), value, |flags, bytes, _| {
            Ok((flags, PyBytes::new(py, bytes)))
        })
    }

    /// Return the name of the server that a key belongs to.
    fn server_of(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<String> {
        let mut scratch = Vec::new();
        let key = self.wire_key(py, key, &mut scratch)?;
        let server = self.core.server_of(key.bytes);
        server
            .map(|server| server.name.clone())
            .map_err(|error| error::from_client_error(py, &error))
    }

    /// Change the servers for all calls to come; a call in flight ends where it began.
    ///
    /// Connections to servers that stay are kept. `glasscache.discovery` calls this.
    #[pyo3(name = "_change_servers")]
    fn change_servers(&self, py: Python<'_>, servers: Vec<String>) -> PyResult<()> {
        settings::addresses(&servers)
            .and_then(|addresses| py.detach(|| self.core.set_servers(&addresses)))
            .map_err(|error| error::from_client_error(py, &error))
    }
}
