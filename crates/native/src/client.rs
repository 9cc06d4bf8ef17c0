//! The synchronous client as Python calls it. The interpreter lock is released while a call waits.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use glasscache_client::StoreWord;
use glasscache_client::call::{Call, State};
use glasscache_client::costs::{Operation, Part, Spent};
use glasscache_client::key::KeyMaker;
use glasscache_client::options::KeyRule;
use glasscache_client::outcome::Outcome;
use glasscache_client::pipeline::{Answer, Found};
use glasscache_client::request::{Item, Request};
use glasscache_client::{Arithmetic, WireKey};
use glasscache_client::{Budget, Client as Core, Error, Options};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::settings::{self, Codec};
use crate::{deadline as deadlines, error, value as conversion};

/// TTLs up to 30 days are relative on the wire; longer ones must be a date.
const RELATIVE_MAX_S: i64 = 30 * 24 * 3600;

/// Values of fewer bytes become objects faster than the clock is read.
const TIMED_BYTES_MIN: usize = 512;

/// Numbers clients, so that the deadline blocks of one do not bind another.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The native half of `glasscache.Client`.
#[pyclass(frozen, subclass, module = "glasscache._native")]
pub(crate) struct Client {
    pub(crate) core: Core,
    pub(crate) codec: Py<Codec>,
    pub(crate) number: u64,
    pub(crate) timeout: Duration,
    pub(crate) errors_are_misses: bool,
    pub(crate) misses_by_error: AtomicU64,
}

/// The bytes of a key given as `str` or `bytes`.
pub(crate) fn key_bytes<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes());
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return Ok(bytes.as_bytes());
    }
    Err(PyTypeError::new_err(format!(
        "a key is str or bytes, not {}",
        key.get_type().name()?
    )))
}

/// A TTL in seconds as it goes on the wire: 0 never expires, below 0 is over at once.
pub(crate) fn exptime(ttl: Option<f64>) -> PyResult<i64> {
    let Some(ttl) = ttl else { return Ok(0) };
    if !ttl.is_finite() || ttl > 1e11 {
        return Err(PyTypeError::new_err(format!(
            "a ttl of {ttl} s: 0 is for ever"
        )));
    }
    let ttl = ttl.ceil() as i64;
    if ttl <= RELATIVE_MAX_S {
        return Ok(ttl.max(-1));
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(ttl.saturating_add(now.as_secs() as i64))
}

impl Client {
    pub(crate) fn codec(&self) -> &Codec {
        self.codec.get()
    }

    /// When a call that begins now began, and when it must end.
    pub(crate) fn times(&self, own: Option<f64>) -> PyResult<(Instant, Instant)> {
        let now = Instant::now();
        Ok((
            now,
            deadlines::of_call(self.number, own, self.timeout, now)?,
        ))
    }

    pub(crate) fn keys(&self) -> KeyMaker<'_> {
        self.core.keys()
    }

    /// Does `work` without the interpreter lock; a signal's handler may end it by raising.
    pub(crate) fn detached<R: Send>(
        &self,
        py: Python<'_>,
        times: (Instant, Instant),
        spent: Spent,
        work: impl FnOnce(&Core, &Budget<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let raised = Mutex::new(None);
        let result = py.detach(|| {
            let go_on = || {
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
                started: times.0,
                deadline: times.1,
                go_on: &go_on,
                spent,
            };
            work(&self.core, &budget)
        });
        result.map_err(|error| {
            let raised = raised.into_inner().ok().flatten();
            raised.unwrap_or_else(|| error::of_client(py, &error))
        })
    }

    /// What a failed call returns: its error, or a counted miss where that was asked for.
    pub(crate) fn missed<R>(&self, py: Python<'_>, result: PyResult<R>, miss: R) -> PyResult<R> {
        let Err(error) = result else { return result };
        if self.errors_are_misses && error::is_missable(py, &error) {
            self.misses_by_error.fetch_add(1, Ordering::Relaxed);
            return Ok(miss);
        }
        Err(error)
    }

    /// As [`Self::missed`], for a bulk read of which `count` keys failed.
    pub(crate) fn missed_many<R>(
        &self,
        py: Python<'_>,
        error: PyErr,
        arrived: R,
        count: u64,
    ) -> PyResult<R> {
        if self.errors_are_misses && error::is_missable(py, &error) {
            self.misses_by_error.fetch_add(count, Ordering::Relaxed);
            return Ok(arrived);
        }
        Err(error)
    }

    /// Reads one value outside a bulk read, under its deadline.
    pub(crate) fn read_one<'py>(
        &self,
        py: Python<'py>,
        key: WireKey<'_>,
        cas: bool,
        times: (Instant, Instant),
    ) -> PyResult<Option<(Bound<'py, PyAny>, u64)>> {
        let read = self.read(py, key, cas, times);
        self.missed(py, read, None)
    }

    fn wire<'a>(
        &self,
        py: Python<'_>,
        key: &'a Bound<'_, PyAny>,
        scratch: &'a mut Vec<u8>,
    ) -> PyResult<WireKey<'a>> {
        let key = key_bytes(key)?;
        self.keys()
            .wire(key, scratch)
            .map_err(|error| error::of_client(py, &error))
    }

    /// Reads one value: it is decoded from the receive buffer, or received into its own `bytes`.
    fn read<'py>(
        &self,
        py: Python<'py>,
        key: WireKey<'_>,
        cas: bool,
        times: (Instant, Instant),
    ) -> PyResult<Option<(Bound<'py, PyAny>, u64)>> {
        let requests = [Request::Get { key, cas }];
        let server = self.core.server(self.core.place_of(key.bytes));
        let server = server.map_err(|error| error::of_client(py, &error))?;
        let mut call = Call::new(server, &requests, times.0, times.1);
        call.hand_out_bodies();
        let mut result = None;
        let mut spent = Spent::default();
        let mut value_bytes = 0;
        loop {
            match py
                .detach(|| call.run())
                .map_err(|error| error::of_client(py, &error))?
            {
                State::Reply(Answer::Refused(refusal)) => {
                    let server = call.server().name.clone();
                    call.next();
                    return Err(error::of_client(py, &Error::Refused { server, refusal }));
                }
                State::Reply(_) => {
                    let found = call.pipeline().and_then(|p| p.found().first().copied());
                    value_bytes = found.map_or(value_bytes, |found| found.value_bytes);
                    if self.core.options().costs && value_bytes >= TIMED_BYTES_MIN {
                        call.note_arrival();
                    }
                    if let (Some(found), Some(pipeline)) = (found, call.pipeline()) {
                        let read = conversion::from_bytes(
                            py,
                            self.codec(),
                            found.flags,
                            pipeline.body(&found),
                        );
                        match read {
                            Ok((value, costs)) => {
                                spent.add_time(Part::Decompress, costs.compress);
                                result = Some((value, found.cas));
                            }
                            Err(error) => {
                                call.next(); // the reply is whole: the connection stays good
                                return Err(error);
                            }
                        }
                    }
                    call.next();
                    break;
                }
                State::Body(found) => {
                    value_bytes = found.value_bytes;
                    result = Some((self.receive_body(py, &mut call, &found)?, found.cas));
                }
                State::Finished => break,
                State::Interrupted => py.check_signals()?,
                State::Waiting => {}
            }
        }
        if self.core.options().costs {
            let unpacking = Duration::from_nanos(
                spent
                    .parts_ns
                    .get(Part::Decompress as usize)
                    .copied()
                    .unwrap_or_default(),
            );
            spent.add_time(
                Part::Deserialise,
                call.reading_time().saturating_sub(unpacking),
            );
            self.core.count(Operation::Read, value_bytes, &call, spent);
        }
        Ok(result)
    }

    /// Receives a large value; plain bytes go straight into the object that is returned.
    fn receive_body<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call<'_>,
        found: &Found,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut fill = |target: &mut [u8]| -> PyResult<()> {
            while !py
                .detach(|| call.receive_body(target))
                .map_err(|error| error::of_client(py, &error))?
            {
                py.check_signals()?;
            }
            Ok(())
        };
        if conversion::arrives_as_bytes(self.codec(), found.flags) {
            return Ok(PyBytes::new_with(py, found.value_bytes, fill)?.into_any());
        }
        let mut body = vec![0; found.value_bytes];
        fill(&mut body)?;
        Ok(conversion::from_bytes(py, self.codec(), found.flags, &body)?.0)
    }

    #[expect(clippy::too_many_arguments, reason = "the words of one write")]
    fn write(
        &self,
        py: Python<'_>,
        word: StoreWord,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Outcome> {
        let times = self.times(deadline)?;
        let exptime = exptime(ttl)?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        conversion::with_bytes(self.codec(), value, |flags, body, costs| {
            let mut spent = Spent::default();
            conversion::add_costs(&mut spent, costs);
            let item = Item { key, flags, body };
            let done = self.detached(py, times, spent, |core, budget| {
                core.store(word, item, exptime, noreply, budget)
            });
            self.missed(py, done, Outcome::NotStored)
        })
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (servers, codec, *, timeout, placement, namespace, errors_are_misses,
                        value_bytes_max, connections_max, base64_keys, costs))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a keyword of the Python face"
    )]
    fn new(
        py: Python<'_>,
        servers: Vec<String>,
        codec: Py<Codec>,
        timeout: f64,
        placement: &str,
        namespace: Vec<u8>,
        errors_are_misses: bool,
        value_bytes_max: u64,
        connections_max: usize,
        base64_keys: bool,
        costs: bool,
    ) -> PyResult<Self> {
        let timeout = deadlines::seconds(timeout)?;
        let keys = if base64_keys {
            KeyRule::Base64
        } else {
            KeyRule::Refuse
        };
        let options = Options {
            timeout,
            value_bytes_max,
            connections_max,
            namespace,
            keys,
            costs,
        };
        let core = settings::addresses(&servers)
            .and_then(|addresses| Core::new(&addresses, settings::named(placement)?, options))
            .map_err(|error| error::of_client(py, &error))?;
        Ok(Self {
            core,
            codec,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            timeout,
            errors_are_misses,
            misses_by_error: AtomicU64::new(0),
        })
    }

    /// Return the value under key, or default on a miss.
    ///
    /// Args:
    ///     key: 1 to 250 bytes in UTF-8, without spaces or control characters.
    ///     default: what a miss returns.
    ///     deadline: seconds for the whole call, connecting and a retry included; None takes the
    ///         client's timeout.
    ///
    /// Raises:
    ///     ServerUnavailable: the key's server is down. An error is never returned as a miss unless
    ///         on_error="miss" was asked for.
    ///     DeadlineExceeded: the time was over.
    ///     UnreadableValue: the value was not written in this client's dialect.
    ///
    /// >>> client.get("nobody", default="?")
    /// '?'
    #[pyo3(signature = (key, default=None, *, deadline=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let times = self.times(deadline)?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let read = self.read(py, key, false, times);
        let value = self.missed(py, read, None)?.map(|(value, _)| value);
        Ok(value
            .or(default)
            .unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Return (value, CAS unique) under key, or None on a miss; `cas` takes the unique.
    ///
    /// >>> client.set("n", 1)
    /// True
    /// >>> value, unique = client.gets("n")
    /// >>> client.cas("n", value + 1, unique)
    /// True
    #[pyo3(signature = (key, *, deadline=None))]
    fn gets<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, u64)>> {
        let times = self.times(deadline)?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let read = self.read(py, key, true, times);
        self.missed(py, read, None)
    }

    /// Store value under key for ttl seconds (0: no expiry); True when the server has it.
    ///
    /// With noreply the call does not wait: a failure is counted by `stats()` and not raised.
    ///
    /// Raises:
    ///     ValueTooLarge: the server does not take so many bytes; an older value is gone too.
    ///     UnwritableValue: the codec has no form for this type.
    ///
    /// >>> client.set("greeting", "hello", ttl=60)
    /// True
    #[pyo3(signature = (key, value, ttl=None, *, noreply=false, deadline=None))]
    fn set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        Ok(self.write(py, StoreWord::Set, key, value, ttl, noreply, deadline)? == Outcome::Done)
    }

    /// Store value only if there is none under key; whether it was stored.
    #[pyo3(signature = (key, value, ttl=None, *, noreply=false, deadline=None))]
    fn add(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        Ok(self.write(py, StoreWord::Add, key, value, ttl, noreply, deadline)? == Outcome::Done)
    }

    /// Store value only if there is one under key; whether it was stored.
    #[pyo3(signature = (key, value, ttl=None, *, noreply=false, deadline=None))]
    fn replace(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        Ok(
            self.write(py, StoreWord::Replace, key, value, ttl, noreply, deadline)?
                == Outcome::Done,
        )
    }

    /// Put str or bytes behind those under key; False if there are none.
    #[pyo3(signature = (key, value, *, noreply=false, deadline=None))]
    fn append(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        self.extend(py, StoreWord::Append, key, value, noreply, deadline)
    }

    /// Put str or bytes before those under key; False if there are none.
    #[pyo3(signature = (key, value, *, noreply=false, deadline=None))]
    fn prepend(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        self.extend(py, StoreWord::Prepend, key, value, noreply, deadline)
    }

    /// Store value if the CAS unique of `gets` still holds: True; False: it changed; None: gone.
    #[pyo3(signature = (key, value, cas, ttl=None, *, noreply=false, deadline=None))]
    #[expect(clippy::too_many_arguments, reason = "the words of a cas")]
    fn cas(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        cas: u64,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Option<bool>> {
        let word = StoreWord::Cas(cas);
        Ok(
            match self.write(py, word, key, value, ttl, noreply, deadline)? {
                Outcome::Done => Some(true),
                Outcome::NotFound => None,
                Outcome::Exists | Outcome::NotStored => Some(false),
            },
        )
    }

    /// Remove key; whether it was there.
    #[pyo3(signature = (key, *, noreply=false, deadline=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        let times = self.times(deadline)?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let done = self.detached(py, times, Spent::default(), |core, budget| {
            core.delete(key, noreply, budget)
        });
        self.missed(py, done, false)
    }

    /// Give key a new ttl in seconds; whether it was there.
    #[pyo3(signature = (key, ttl, *, noreply=false, deadline=None))]
    fn touch(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        ttl: f64,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        let times = self.times(deadline)?;
        let exptime = exptime(Some(ttl))?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let done = self.detached(py, times, Spent::default(), |core, budget| {
            core.touch(key, exptime, noreply, budget)
        });
        self.missed(py, done, false)
    }

    /// Return the value under key and give it a new ttl in seconds.
    #[pyo3(signature = (key, ttl, default=None, *, deadline=None))]
    fn gat<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        ttl: f64,
        default: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let times = self.times(deadline)?;
        let exptime = exptime(Some(ttl))?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let read = self.detached(py, times, Spent::default(), |core, budget| {
            core.get_and_touch(key, exptime, budget)
        });
        let read = read.and_then(|value| {
            let value = value.map(|v| conversion::from_bytes(py, self.codec(), v.flags, &v.bytes));
            Ok(value.transpose()?.map(|(value, _)| value))
        });
        let value = self.missed(py, read, None)?;
        Ok(value
            .or(default)
            .unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Add delta to the number under key and return the sum, or None if there is no such key.
    ///
    /// With initial a missing key is made with that number and ttl, and initial is returned.
    ///
    /// >>> client.incr("visits", initial=1, ttl=3600)
    /// 1
    /// >>> client.incr("visits", 10)
    /// 11
    #[pyo3(signature = (key, delta=1, *, initial=None, ttl=None, noreply=false, deadline=None))]
    #[expect(clippy::too_many_arguments, reason = "the words of an addition")]
    fn incr(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        delta: u64,
        initial: Option<u64>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Option<u64>> {
        self.arithmetic(py, key, (delta, false), initial, ttl, noreply, deadline)
    }

    /// Subtract delta from the number under key, not below 0, and return what is left.
    #[pyo3(signature = (key, delta=1, *, initial=None, ttl=None, noreply=false, deadline=None))]
    #[expect(clippy::too_many_arguments, reason = "the words of a subtraction")]
    fn decr(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        delta: u64,
        initial: Option<u64>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Option<u64>> {
        self.arithmetic(py, key, (delta, true), initial, ttl, noreply, deadline)
    }

    /// Return (value, CAS unique, seconds left or -1, seconds since access, fetched before, stale).
    #[pyo3(signature = (key, *, deadline=None))]
    fn inspect<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Option<Inspected<'py>>> {
        let times = self.times(deadline)?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let read = self.detached(py, times, Spent::default(), |core, budget| {
            core.inspect(key, budget)
        });
        let read = read.and_then(|found| {
            let Some((value, meta)) = found else {
                return Ok(None);
            };
            let (object, _) = conversion::from_bytes(py, self.codec(), value.flags, &value.bytes)?;
            let told = (meta.cas, meta.ttl_s, meta.last_access_s, meta.was_hit);
            Ok(Some((
                object,
                told.0,
                told.1,
                told.2,
                told.3,
                meta.stale,
                value.bytes.len(),
            )))
        });
        self.missed(py, read, None)
    }

    /// Close the idle connections, after what was sent without waiting has arrived.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.core.close());
    }

    /// The codec that values pass through.
    #[getter(codec)]
    fn own_codec(&self, py: Python<'_>) -> Py<Codec> {
        self.codec.clone_ref(py)
    }

    /// Open a block in which all calls of this thread share so many seconds.
    fn open_deadline(&self, length: f64) -> PyResult<()> {
        deadlines::open(self.number, length)
    }

    /// Close the block that was opened last.
    fn close_deadline(&self) {
        deadlines::close(self.number);
    }

    /// Return the bytes that a value would take on the wire, and its flags.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        conversion::with_bytes(self.codec(), value, |flags, bytes, _| {
            Ok((flags, PyBytes::new(py, bytes)))
        })
    }

    /// Return the name of the server that a key belongs to.
    fn server_of(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<String> {
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let server = self.core.server(self.core.place_of(key.bytes));
        server
            .map(|server| server.name.clone())
            .map_err(|error| error::of_client(py, &error))
    }

    /// Change the servers for all calls to come; a call in flight ends where it began.
    ///
    /// Connections to servers that stay are kept. See `glasscache.discovery` for who calls this.
    fn change_servers(&self, py: Python<'_>, servers: Vec<String>) -> PyResult<()> {
        settings::addresses(&servers)
            .and_then(|addresses| py.detach(|| self.core.set_servers(&addresses)))
            .map_err(|error| error::of_client(py, &error))
    }

    /// Return every server's own counters by its name; an exception in place of a failed one's.
    #[pyo3(signature = (argument="", *, deadline=None))]
    fn server_stats<'py>(
        &self,
        py: Python<'py>,
        argument: &str,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = Request::Stats {
            argument: argument.as_bytes(),
        };
        self.of_all(py, request, deadline, |answer| match answer {
            Answer::Rows(rows) => {
                let dict = PyDict::new(py);
                for (name, value) in rows {
                    dict.set_item(name, value)?;
                }
                Ok(dict.into_any())
            }
            _ => Ok(py.None().into_bound(py)),
        })
    }

    /// Return every server's version by its name; an exception in place of a failed one's.
    #[pyo3(signature = (*, deadline=None))]
    fn version<'py>(&self, py: Python<'py>, deadline: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        self.of_all(py, Request::Version, deadline, |answer| match answer {
            Answer::Version(version) => Ok(PyString::new(py, &version).into_any()),
            _ => Ok(py.None().into_bound(py)),
        })
    }

    /// Drop every item of every server, after delay seconds; name by name True or an exception.
    #[pyo3(signature = (delay=0, *, deadline=None))]
    fn flush<'py>(
        &self,
        py: Python<'py>,
        delay: u32,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = Request::Flush { delay_s: delay };
        self.of_all(py, request, deadline, |_| {
            Ok(true.into_pyobject(py)?.to_owned().into_any())
        })
    }
}

/// What `inspect` returns.
type Inspected<'py> = (
    Bound<'py, PyAny>,
    Option<u64>,
    Option<i64>,
    Option<u64>,
    Option<bool>,
    bool,
    usize,
);

impl Client {
    fn extend(
        &self,
        py: Python<'_>,
        word: StoreWord,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<bool> {
        // What is joined must be as it is: a compressed piece would spoil the whole.
        let times = self.times(deadline)?;
        let body = key_bytes(value)
            .map_err(|_| PyTypeError::new_err("append and prepend take str or bytes"))?;
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let item = Item {
            key,
            flags: 0,
            body,
        };
        let done = self.detached(py, times, Spent::default(), |core, budget| {
            core.store(word, item, 0, noreply, budget)
        });
        Ok(self.missed(py, done, Outcome::NotStored)? == Outcome::Done)
    }

    #[expect(clippy::too_many_arguments, reason = "the words of an addition")]
    fn arithmetic(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        (delta, down): (u64, bool),
        initial: Option<u64>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let times = self.times(deadline)?;
        let exptime = exptime(ttl)?;
        let by = Arithmetic {
            delta,
            down,
            initial: initial.map(|number| (number, exptime)),
        };
        let mut scratch = Vec::new();
        let key = self.wire(py, key, &mut scratch)?;
        let done = self.detached(py, times, Spent::default(), |core, budget| {
            core.arithmetic(key, by, noreply, budget)
        });
        self.missed(py, done, None)
    }

    fn of_all<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_>,
        deadline: Option<f64>,
        show: impl Fn(Answer) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let times = self.times(deadline)?;
        let answers = self.detached(py, times, Spent::default(), |core, budget| {
            Ok(core.ask_all(request, budget))
        })?;
        let dict = PyDict::new(py);
        for (server, answer) in answers {
            match answer {
                Ok(answer) => dict.set_item(server, show(answer)?)?,
                Err(error) => dict.set_item(server, error::of_client(py, &error).into_value(py))?,
            }
        }
        Ok(dict)
    }
}
