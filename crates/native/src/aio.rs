//! The asyncio client's native half: an `asyncio.Protocol` over the client's pipeline.
//!
//! No thread and no runtime: the loop brings bytes, the pipeline says whose they are, futures are
//! resolved. Requests of one turn of the loop gather in a buffer that leaves in one write. A future
//! that was cancelled keeps its place in the pipeline, so its reply is read and meets nobody; a
//! connection on which a call passed its deadline takes no new requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use glasscache_client::StoreWord;
use glasscache_client::address::Place;
use glasscache_client::doubts::{OwnedKey, write_removals};
use glasscache_client::error::{Context, Phase};
use glasscache_client::options::KeyRule;
use glasscache_client::outcome::{Outcome, number, of_code, outcome, refused};
use glasscache_client::pipeline::{Answer, Expect, Pipeline, Progress};
use glasscache_client::pool::Server;
use glasscache_client::request::{Desk, Dialect, Item, Request};
use glasscache_client::{Arithmetic, WireKey};
use glasscache_client::{Client as Core, Error, Options};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

use crate::client::{exptime, key_bytes};
use crate::settings::{self, Codec};
use crate::{deadline as deadlines, error, value as conversion};

/// What a future waits for, and how its reply becomes a Python value.
enum Kind {
    Get {
        default: Option<Py<PyAny>>,
    },
    Gets,
    Inspect,
    Stored,
    /// A write of a value, with its key and length for an error.
    Written {
        key: Py<PyAny>,
        wire: OwnedKey,
        value_bytes: usize,
        is_cas: bool,
    },
    Number,
    Many(Vec<Py<PyAny>>),
    ManyStored {
        keys: Vec<Py<PyAny>>,
        wire: Vec<OwnedKey>,
    },
    /// One of many removals: the keys of the rest follow in the same future.
    ManyDeleted {
        keys: Vec<Py<PyAny>>,
        failures: Py<PyDict>,
        left: usize,
    },
    Version,
    Rows,
    Done,
    Probe,
    /// The answer to earlier writes that nobody waits for, removals of doubtful keys among them.
    Nobody(Vec<OwnedKey>),
}

/// A request in flight.
struct Op {
    kind: Kind,
    future: Option<Py<PyAny>>,
    deadline: Instant,
    is_repeatable: bool,
}

/// One connection of an event loop, as its transport calls it.
#[pyclass(module = "glasscache._native")]
pub(crate) struct Connection {
    server: Arc<Server>,
    codec: Py<Codec>,
    counters: Arc<Counters>,
    event_loop: Py<PyAny>,
    transport: Option<Py<PyAny>>,
    pipeline: Pipeline,
    ops: VecDeque<Op>,
    out: Vec<u8>,
    opaque: u32,
    unanswered: u32,
    replies: u64,
    presumes_classic: bool,
    will_flush: bool,
    is_paused: bool,
    /// A call on it was too late: what is in flight is still read, nothing new is sent.
    is_late: bool,
    timer: Option<Py<PyAny>>,
    /// Resolved with None when it may be used, or with an exception.
    ready: Option<Py<PyAny>>,
}

#[derive(Debug, Default)]
struct Counters {
    errors_are_misses: bool,
    misses_by_error: AtomicU64,
}

fn set_result(py: Python<'_>, future: &Py<PyAny>, value: Bound<'_, PyAny>) -> PyResult<()> {
    if !future
        .call_method0(py, intern!(py, "done"))?
        .is_truthy(py)?
    {
        future.call_method1(py, intern!(py, "set_result"), (value,))?;
    }
    Ok(())
}

fn set_exception(py: Python<'_>, future: &Py<PyAny>, error: PyErr) -> PyResult<()> {
    if !future
        .call_method0(py, intern!(py, "done"))?
        .is_truthy(py)?
    {
        future.call_method1(py, intern!(py, "set_exception"), (error.into_value(py),))?;
    }
    Ok(())
}

impl Connection {
    fn can_take(&self) -> bool {
        self.transport.is_some() && !self.is_late && !self.is_paused && self.ready.is_none()
    }

    /// Writes a request behind those of this turn, and returns its future.
    fn submit<'py>(
        slf: &Bound<'py, Self>,
        request: &Request<'_>,
        kind: Kind,
        deadline: Instant,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        let future = this
            .event_loop
            .bind(py)
            .call_method0(intern!(py, "create_future"))?;
        let is_noreply = request.is_noreply();
        let doubts = if is_noreply {
            Vec::new()
        } else {
            this.server.doubts.take()
        };
        if !doubts.is_empty() {
            let dialect = this.server.dialect().unwrap_or(Dialect::Classic);
            let answered = write_removals(&doubts, &mut this.desk(dialect));
            this.unanswered += answered;
        }
        if this.unanswered > 0 && !is_noreply {
            let (count, first) = (this.unanswered, this.opaque.wrapping_sub(this.unanswered));
            this.out.extend_from_slice(b"mn\r\n");
            this.pipeline.expect(Expect::Quiet { first, count });
            this.unanswered = 0;
            let op = Op {
                kind: Kind::Nobody(doubts),
                future: None,
                deadline,
                is_repeatable: false,
            };
            this.ops.push_back(op);
        }
        let dialect = this.server.dialect().unwrap_or(Dialect::Classic);
        if let Err(unsaid) = request.write(&mut this.desk(dialect)) {
            let server = this.server.name.clone();
            return Err(error::of_client(
                py,
                &Error::Unsupported {
                    server,
                    what: unsaid.0,
                },
            ));
        }
        if let Some(body) = request.loose_body() {
            this.out.extend_from_slice(body);
            this.out.extend_from_slice(b"\r\n");
        }
        if is_noreply {
            this.unanswered += u32::from(dialect == Dialect::Meta);
            future.call_method1(intern!(py, "set_result"), (true,))?;
        } else {
            let is_repeatable = request.is_repeatable();
            let kept = future.clone().unbind();
            this.ops.push_back(Op {
                kind,
                future: Some(kept),
                deadline,
                is_repeatable,
            });
            if this.timer.is_none() {
                this.start_timer(slf, deadline)?;
            }
        }
        if !this.will_flush {
            this.will_flush = true;
            let flush = slf.getattr(intern!(py, "flush"))?;
            this.event_loop
                .bind(py)
                .call_method1(intern!(py, "call_soon"), (flush,))?;
        }
        Ok(future)
    }

    fn desk(&mut self, dialect: Dialect) -> Desk<'_> {
        Desk {
            dialect,
            pipeline: &mut self.pipeline,
            out: &mut self.out,
            opaque: &mut self.opaque,
        }
    }

    /// Notes what a write without an answer may have left behind.
    fn doubt(&self, op: &Op) {
        match &op.kind {
            Kind::Written { wire, .. } => self.server.doubts.add([wire.clone()]),
            Kind::ManyStored { wire, .. } | Kind::Nobody(wire) => {
                self.server.doubts.add(wire.iter().cloned());
            }
            _ => {}
        }
    }

    fn start_timer(&mut self, slf: &Bound<'_, Self>, deadline: Instant) -> PyResult<()> {
        let py = slf.py();
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_secs_f64();
        let look = slf.getattr(intern!(py, "look_at_deadlines"))?;
        let timer = self
            .event_loop
            .bind(py)
            .call_method1(intern!(py, "call_later"), (left, look))?;
        self.timer = Some(timer.unbind());
        Ok(())
    }

    fn context(&self, phase: Phase, retry_is_safe: bool) -> Context {
        Context {
            server: self.server.name.clone(),
            phase,
            retry_is_safe,
        }
    }

    /// Ends an op by an error: raised, or a counted miss where that was asked for.
    fn fail(
        &self,
        py: Python<'_>,
        kind: &Kind,
        future: Option<&Py<PyAny>>,
        error: PyErr,
    ) -> PyResult<()> {
        let Some(future) = future else { return Ok(()) };
        let is_internal = matches!(kind, Kind::Probe) || error::is_stale(py, &error);
        if !self.counters.errors_are_misses || is_internal || !error::is_missable(py, &error) {
            return set_exception(py, future, error);
        }
        let miss = match kind {
            Kind::Get {
                default: Some(default),
            } => default.bind(py).clone(),
            Kind::Get { default: None }
            | Kind::Gets
            | Kind::Inspect
            | Kind::Number
            | Kind::Written { is_cas: true, .. } => py.None().into_bound(py),
            Kind::Stored | Kind::Written { .. } => false.into_pyobject(py)?.to_owned().into_any(),
            Kind::Many(_) => PyDict::new(py).into_any(),
            _ => return set_exception(py, future, error),
        };
        self.counters
            .misses_by_error
            .fetch_add(1, Ordering::Relaxed);
        set_result(py, future, miss)
    }

    /// Resolves the oldest op by its whole reply.
    fn resolve(&mut self, py: Python<'_>, answer: Answer) -> PyResult<()> {
        self.replies += 1;
        let Some(mut op) = self.ops.pop_front() else {
            return Ok(());
        };
        let shown = self.show(py, &mut op, answer);
        // A removal of many has further replies before its future is done.
        if let (Kind::ManyDeleted { left: 1.., .. }, Ok(_)) = (&op.kind, &shown) {
            self.ops.push_front(op);
            return Ok(());
        }
        match (shown, &op.future) {
            (Ok(value), Some(future)) => set_result(py, future, value),
            (Err(error), future) => self.fail(py, &op.kind, future.as_ref(), error),
            (Ok(_), None) => Ok(()),
        }
    }

    /// The Python value of a reply.
    fn show<'py>(
        &self,
        py: Python<'py>,
        op: &mut Op,
        answer: Answer,
    ) -> PyResult<Bound<'py, PyAny>> {
        let told = |error: Error| error::of_client(py, &error);
        let server = self.server.name.as_str();
        let none = || py.None().into_bound(py);
        let truth = |truth: bool| -> PyResult<Bound<'py, PyAny>> {
            Ok(truth.into_pyobject(py)?.to_owned().into_any())
        };
        let first = || -> PyResult<Option<(Bound<'py, PyAny>, u64, usize)>> {
            let Some(found) = self.pipeline.found().first() else {
                return Ok(None);
            };
            let body = self.pipeline.body(found);
            let (value, _) = conversion::from_bytes(py, self.codec.get(), found.flags, body)?;
            Ok(Some((value, found.cas, found.value_bytes)))
        };
        match &mut op.kind {
            Kind::Get { default } => {
                refused(answer, server).map_err(told)?;
                let default = || default.as_ref().map_or_else(none, |d| d.bind(py).clone());
                Ok(first()?.map_or_else(default, |(value, ..)| value))
            }
            Kind::Gets => {
                refused(answer, server).map_err(told)?;
                match first()? {
                    Some((value, cas, _)) => Ok((value, cas).into_pyobject(py)?.into_any()),
                    None => Ok(none()),
                }
            }
            Kind::Inspect => match (refused(answer, server).map_err(told)?, first()?) {
                (Answer::Meta(m), Some((value, _, bytes))) => {
                    let all = (
                        value,
                        m.cas,
                        m.ttl_s,
                        m.last_access_s,
                        m.was_hit,
                        m.stale,
                        bytes,
                    );
                    Ok(all.into_pyobject(py)?.into_any())
                }
                _ => Ok(none()),
            },
            Kind::Stored => truth(outcome(answer, server).map_err(told)? == Outcome::Done),
            Kind::Written {
                key,
                value_bytes,
                is_cas,
                ..
            } => {
                let done = outcome(answer, server).map_err(|error| match error {
                    Error::Refused { refusal, .. } if refusal.message.contains("too large") => {
                        let key = key.bind(py).to_string();
                        told(Error::TooLarge {
                            key,
                            bytes: *value_bytes,
                            limit: 0,
                        })
                    }
                    error => told(error),
                })?;
                match (done, *is_cas) {
                    (Outcome::Done, _) => truth(true),
                    (Outcome::NotFound, true) => Ok(none()),
                    _ => truth(false),
                }
            }
            Kind::Number => Ok(number(answer, &self.pipeline, server)
                .map_err(told)?
                .into_pyobject(py)?),
            Kind::Many(keys) => {
                refused(answer, server).map_err(told)?;
                let values = PyDict::new(py);
                for found in self.pipeline.found() {
                    let Some(key) = keys.get(found.key_index) else {
                        continue;
                    };
                    let body = self.pipeline.body(found);
                    let value = conversion::from_bytes(py, self.codec.get(), found.flags, body)?.0;
                    values.set_item(key, value)?;
                }
                Ok(values.into_any())
            }
            Kind::ManyStored { keys, .. } => {
                let failures = PyDict::new(py);
                let Answer::Quiet(troubles, refusals) = answer else {
                    return Err(told(refused(answer, server).err().unwrap_or(Error::Closed)));
                };
                if !refusals.is_empty() {
                    return Ok(none()); // one of them was refused without its name: asked again singly
                }
                for (nth, code) in troubles {
                    let outcome = of_code(code).unwrap_or(Outcome::NotStored);
                    let error = Error::NotStored {
                        server: server.to_owned(),
                        outcome,
                    };
                    if let Some(key) = keys.get(nth) {
                        failures.set_item(key, told(error).into_value(py))?;
                    }
                }
                Ok(failures.into_any())
            }
            Kind::ManyDeleted {
                keys,
                failures,
                left,
            } => {
                let nth = keys.len().saturating_sub(*left);
                *left = left.saturating_sub(1);
                if let (Err(error), Some(key)) = (outcome(answer, server), keys.get(nth)) {
                    failures
                        .bind(py)
                        .set_item(key, told(error).into_value(py))?;
                }
                Ok(failures.bind(py).clone().into_any())
            }
            Kind::Version => match refused(answer, server).map_err(told)? {
                Answer::Version(version) => Ok(version.into_pyobject(py)?.into_any()),
                _ => Ok(none()),
            },
            Kind::Rows => match refused(answer, server).map_err(told)? {
                Answer::Rows(rows) => {
                    let dict = PyDict::new(py);
                    for (name, value) in rows {
                        dict.set_item(name, value)?;
                    }
                    Ok(dict.into_any())
                }
                _ => Ok(none()),
            },
            Kind::Done => {
                refused(answer, server).map_err(told)?;
                truth(true)
            }
            Kind::Probe => {
                let speaks_meta = matches!(answer, Answer::Probe(true));
                let dialect = if speaks_meta {
                    Dialect::Meta
                } else {
                    Dialect::Classic
                };
                self.server.learn_dialect(dialect);
                Ok(none())
            }
            Kind::Nobody(_) => {
                if let Answer::Quiet(troubles, refusals) = answer {
                    let lost = (troubles.len() + refusals.len()) as u64;
                    self.server
                        .noreply_failures
                        .fetch_add(lost, Ordering::Relaxed);
                }
                Ok(none())
            }
        }
    }

    /// Ends all ops in flight by what `error` makes of each.
    fn fail_all(&mut self, py: Python<'_>, error: impl Fn(&Self, &Op) -> PyErr) -> PyResult<()> {
        for op in std::mem::take(&mut self.ops) {
            let error = error(self, &op);
            // A call that was late before has been noted then.
            if op.future.is_some() || matches!(op.kind, Kind::Nobody(_)) {
                self.doubt(&op);
            }
            self.fail(py, &op.kind, op.future.as_ref(), error)?;
        }
        Ok(())
    }

    fn abort(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some(transport) = self.transport.take() {
            transport.call_method0(py, intern!(py, "abort"))?;
        }
        Ok(())
    }
}

#[pymethods]
impl Connection {
    /// Called by the loop: the connection is made. It is probed first if nobody has yet.
    fn connection_made(slf: &Bound<'_, Self>, transport: Py<PyAny>) -> PyResult<()> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        if this.server.dialect().is_some() || this.presumes_classic {
            if let Some(ready) = this.ready.take() {
                set_result(py, &ready, py.None().into_bound(py))?;
            }
        } else {
            this.pipeline.expect(Expect::Probe);
            let deadline = Instant::now() + Duration::from_hours(1); // who connects waits less
            let op = Op {
                kind: Kind::Probe,
                future: this.ready.take(),
                deadline,
                is_repeatable: true,
            };
            this.ops.push_back(op);
            transport.call_method1(py, intern!(py, "write"), (PyBytes::new(py, b"mn\r\n"),))?;
        }
        this.transport = Some(transport);
        Ok(())
    }

    /// Called by the loop: bytes have come.
    fn data_received(&mut self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.pipeline.feed(data);
        loop {
            match self.pipeline.poll() {
                Ok(Progress::Whole(answer)) => {
                    let more = matches!(
                        self.ops.front(),
                        Some(Op {
                            kind: Kind::ManyDeleted { .. },
                            ..
                        })
                    );
                    self.resolve(py, answer)?;
                    self.pipeline.release();
                    if !more && self.presumes_classic && self.server.dialect().is_none() {
                        self.server.learn_dialect(Dialect::Classic);
                    }
                }
                Ok(Progress::Idle) => {
                    self.server.health.good();
                    if self.is_late {
                        self.abort(py)?;
                    }
                    return Ok(());
                }
                Ok(Progress::Incomplete(_)) => return Ok(()),
                Err(fault) => {
                    self.server.faults.fetch_add(1, Ordering::Relaxed);
                    self.server.health.bad();
                    let server = self.server.name.clone();
                    let error = Error::Protocol { server, fault };
                    self.fail_all(py, |_, _| error::of_client(py, &error))?;
                    return self.abort(py);
                }
            }
        }
    }

    /// Called by the loop: the peer sends no more. The connection is closed.
    #[staticmethod]
    fn eof_received() -> bool {
        false
    }

    /// Called by the loop: the connection is gone.
    fn connection_lost(&mut self, py: Python<'_>, error: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.transport = None;
        if let Some(timer) = self.timer.take() {
            timer.call_method0(py, intern!(py, "cancel"))?;
        }
        let was_used = self.replies > 0;
        let is_stale = was_used && self.pipeline.is_untouched();
        if !self.ops.is_empty() && !is_stale {
            self.server.health.bad();
        }
        let why = error.map_or_else(|| "the connection was closed".to_owned(), |e| e.to_string());
        self.fail_all(py, |this, op| {
            if is_stale && op.is_repeatable {
                return error::stale(py);
            }
            let context = this.context(Phase::Read, op.is_repeatable);
            error::of_client(py, &Error::Unavailable(context, why.clone()))
        })
    }

    /// Called by the loop: the peer takes no more for now.
    fn pause_writing(&mut self) {
        self.is_paused = true;
    }

    /// Called by the loop: the peer takes more again.
    fn resume_writing(&mut self) {
        self.is_paused = false;
    }

    /// Send what was written in this turn of the loop.
    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        self.will_flush = false;
        if let (Some(transport), false) = (&self.transport, self.out.is_empty()) {
            let bytes = PyBytes::new(py, &self.out);
            self.out.clear();
            if self.out.capacity() > 1 << 20 {
                self.out = Vec::new();
            }
            transport.call_method1(py, intern!(py, "write"), (bytes,))?;
        }
        Ok(())
    }

    /// Ends the calls whose time is over; then looks again when the next one's may be.
    fn look_at_deadlines(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        this.timer = None;
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        let mut late = Vec::new();
        for index in 0..this.ops.len() {
            let Some(op) = this.ops.get_mut(index) else {
                break;
            };
            if op.future.is_none() {
                continue;
            }
            if op.deadline <= now {
                // The op keeps its place: its reply is still to be read, for nobody.
                late.push((index, op.future.take()));
            } else {
                next = Some(next.map_or(op.deadline, |next| next.min(op.deadline)));
            }
        }
        if !late.is_empty() {
            this.is_late = true;
            this.server.health.bad();
        }
        for (index, future) in &late {
            let Some(op) = this.ops.get(*index) else {
                break;
            };
            this.doubt(op);
            let context = this.context(Phase::Read, op.is_repeatable);
            let error = error::of_client(py, &Error::Deadline(context));
            this.fail(py, &op.kind, future.as_ref(), error)?;
        }
        match next {
            Some(next) => this.start_timer(slf, next),
            None if this.is_late => this.abort(py),
            None => Ok(()),
        }
    }

    /// Whether it takes requests.
    #[getter]
    fn is_usable(&self) -> bool {
        self.can_take()
    }

    /// Whether the peer takes no more for now.
    #[getter(is_paused)]
    fn paused(&self) -> bool {
        self.is_paused && self.transport.is_some() && !self.is_late
    }

    /// Whether nothing is in flight.
    #[getter]
    fn is_idle(&self) -> bool {
        self.ops.is_empty() && self.out.is_empty()
    }

    /// Close it; what is in flight fails.
    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        self.is_late = true;
        self.flush(py)?;
        if let Some(transport) = self.transport.take() {
            transport.call_method0(py, intern!(py, "close"))?;
        }
        Ok(())
    }
}

/// The native half of `glasscache.AsyncClient`.
#[pyclass(frozen, subclass, module = "glasscache._native")]
pub(crate) struct AsyncClient {
    core: Core,
    codec: Py<Codec>,
    timeout: Duration,
    counters: Arc<Counters>,
    connections: Mutex<Vec<Option<Py<Connection>>>>,
}

/// A future, or `None` where a connection must be made first.
type Started<'py> = PyResult<Option<Bound<'py, PyAny>>>;

static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    RUNNING_LOOP
        .import(py, "asyncio", "get_running_loop")?
        .call0()
}

impl AsyncClient {
    /// The connection to a server, if there is one that takes requests on the running loop.
    fn connection<'py>(
        &self,
        py: Python<'py>,
        place: usize,
    ) -> PyResult<Option<Bound<'py, Connection>>> {
        let connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(Some(connection)) = connections.get(place) else {
            return Ok(None);
        };
        let connection = connection.bind(py).clone();
        drop(connections);
        let is_good = {
            let this = connection.borrow();
            this.can_take() && this.event_loop.is(&running_loop(py)?)
        };
        Ok(is_good.then_some(connection))
    }

    fn wire<'a>(
        &self,
        key: &'a Bound<'_, PyAny>,
        scratch: &'a mut Vec<u8>,
    ) -> PyResult<WireKey<'a>> {
        let wire = self.core.keys().wire(key_bytes(key)?, scratch);
        wire.map_err(|error| error::of_client(key.py(), &error))
    }

    /// Sends a request to the server of its key; `None`: connect first, then ask again.
    fn submit<'py>(
        &self,
        py: Python<'py>,
        key: WireKey<'_>,
        request: &Request<'_>,
        kind: Kind,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let place = self.core.place_of(key.bytes);
        self.submit_to(py, place, request, kind, deadline)
    }

    fn submit_to<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        request: &Request<'_>,
        kind: Kind,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let Some(connection) = self.connection(py, place)? else {
            return Ok(None);
        };
        let now = Instant::now();
        let length = deadline
            .map(deadlines::seconds)
            .transpose()?
            .unwrap_or(self.timeout);
        Connection::submit(&connection, request, kind, now + length).map(Some)
    }

    fn server(&self, py: Python<'_>, place: usize) -> PyResult<Arc<Server>> {
        self.core
            .server(place)
            .map_err(|error| error::of_client(py, &error))
    }
}

#[pymethods]
impl AsyncClient {
    #[new]
    #[pyo3(signature = (servers, codec, *, timeout, placement, namespace, errors_are_misses,
                        value_bytes_max, base64_keys))]
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
        base64_keys: bool,
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
            namespace,
            keys,
            costs: false,
            ..Options::default()
        };
        let core = settings::addresses(&servers)
            .and_then(|addresses| Core::new(&addresses, settings::named(placement)?, options))
            .map_err(|error| error::of_client(py, &error))?;
        let connections = (0..core.places_count()).map(|_| None).collect();
        let counters = Counters {
            errors_are_misses,
            misses_by_error: AtomicU64::new(0),
        };
        let connections = Mutex::new(connections);
        Ok(Self {
            core,
            codec,
            timeout,
            counters: Arc::new(counters),
            connections,
        })
    }

    /// Return a protocol for a new connection to a server, whose `ready` future this is.
    fn new_connection(
        &self,
        py: Python<'_>,
        place: usize,
        ready: Py<PyAny>,
        presumes_classic: bool,
    ) -> PyResult<Py<Connection>> {
        let connection = Connection {
            server: self.server(py, place)?,
            codec: self.codec.clone_ref(py),
            counters: self.counters.clone(),
            event_loop: running_loop(py)?.unbind(),
            transport: None,
            pipeline: Pipeline::new(self.core.options().value_bytes_max),
            ops: VecDeque::new(),
            out: Vec::new(),
            opaque: 1,
            unanswered: 0,
            replies: 0,
            presumes_classic,
            will_flush: false,
            is_paused: false,
            is_late: false,
            timer: None,
            ready: Some(ready),
        };
        Py::new(py, connection)
    }

    /// Take a connection into use for a server; return the one that it replaces.
    fn use_connection(
        &self,
        place: usize,
        connection: Option<Py<Connection>>,
    ) -> Option<Py<Connection>> {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections
            .get_mut(place)
            .and_then(|slot| std::mem::replace(slot, connection))
    }

    /// Return the connection of a server, whatever its state.
    fn connection_of(&self, py: Python<'_>, place: usize) -> Option<Py<Connection>> {
        let connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections
            .get(place)?
            .as_ref()
            .map(|connection| connection.clone_ref(py))
    }

    /// Return the place of a key's server in `addresses`.
    fn place_of(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut scratch = Vec::new();
        let key = self.wire(key, &mut scratch)?;
        Ok(self.core.place_of(key.bytes))
    }

    /// Return (host, port) or (path, None) of the server at a place.
    fn address_of(&self, py: Python<'_>, place: usize) -> PyResult<(String, Option<u16>)> {
        Ok(match &self.server(py, place)?.place {
            Place::Tcp(host, port) => (host.clone(), Some(*port)),
            Place::Unix(path) => (path.display().to_string(), None),
        })
    }

    /// Return the name of each present server by its place; one that left keeps its place unused.
    #[getter]
    fn names(&self) -> BTreeMap<usize, String> {
        let name = |(place, server): (usize, Arc<Server>)| (place, server.name.clone());
        self.core.servers().into_iter().map(name).collect()
    }

    /// Return the place of the only server, or None if there are several.
    #[getter]
    fn only_place(&self) -> Option<usize> {
        self.core.only_place()
    }

    /// Return how many places there are: one for each server that there has been.
    #[getter]
    fn places_count(&self) -> usize {
        self.core.places_count()
    }

    /// Change the servers for all calls to come; return the connections to those that left, by place.
    fn change_servers(
        &self,
        py: Python<'_>,
        servers: Vec<String>,
    ) -> PyResult<BTreeMap<usize, Option<Py<Connection>>>> {
        settings::addresses(&servers)
            .and_then(|addresses| self.core.set_servers(&addresses))
            .map_err(|error| error::of_client(py, &error))?;
        let present = self.names();
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections.resize_with(self.core.places_count(), || None);
        let left = connections
            .iter_mut()
            .enumerate()
            .filter(|(place, _)| !present.contains_key(place));
        Ok(left
            .map(|(place, connection)| (place, connection.take()))
            .collect())
    }

    /// Note that the client is closed: later calls raise.
    fn mark_closed(&self, py: Python<'_>) {
        py.detach(|| self.core.close());
    }

    /// Whether a server is down, so that calls fail at once.
    fn is_down(&self, py: Python<'_>, place: usize) -> PyResult<bool> {
        Ok(self.server(py, place)?.health.is_down())
    }

    /// Return the exception for a server that cannot be reached.
    fn unreachable(&self, py: Python<'_>, place: usize, why: &str) -> Py<PyAny> {
        self.unavailable(py, place, why).into_value(py).into_any()
    }

    /// Return the exception for a connection that was not made in time.
    fn too_late(&self, py: Python<'_>, place: usize) -> PyResult<Py<PyAny>> {
        let server = self.server(py, place)?.name.clone();
        let context = Context {
            server,
            phase: Phase::Connect,
            retry_is_safe: true,
        };
        Ok(error::of_client(py, &Error::Deadline(context))
            .into_value(py)
            .into_any())
    }

    /// Note that a server cannot be connected to.
    fn note_down(&self, py: Python<'_>, place: usize) -> PyResult<()> {
        self.server(py, place)?.health.down();
        Ok(())
    }

    /// Note that a server answers again.
    fn note_up(&self, py: Python<'_>, place: usize) -> PyResult<()> {
        self.server(py, place)?.health.up();
        Ok(())
    }

    /// Count a read that failed as a miss; False if errors are to be raised.
    fn count_miss(&self) -> bool {
        if self.counters.errors_are_misses {
            self.counters
                .misses_by_error
                .fetch_add(1, Ordering::Relaxed);
        }
        self.counters.errors_are_misses
    }

    /// Return this client's counters. No network.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        all.set_item(
            "misses_by_error",
            self.counters.misses_by_error.load(Ordering::Relaxed),
        )?;
        all.set_item("servers", crate::tables::servers(py, &self.core)?)?;
        Ok(all)
    }

    /// The codec that values pass through.
    #[getter(codec)]
    fn own_codec(&self, py: Python<'_>) -> Py<Codec> {
        self.codec.clone_ref(py)
    }

    fn start_get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Py<PyAny>>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut scratch = Vec::new();
        let key = self.wire(key, &mut scratch)?;
        self.submit(
            py,
            key,
            &Request::Get { key, cas: false },
            Kind::Get { default },
            deadline,
        )
    }

    fn start_gets<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut scratch = Vec::new();
        let key = self.wire(key, &mut scratch)?;
        self.submit(
            py,
            key,
            &Request::Get { key, cas: true },
            Kind::Gets,
            deadline,
        )
    }

    fn start_gat<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        ttl: f64,
        default: Option<Py<PyAny>>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut scratch = Vec::new();
        let key = self.wire(key, &mut scratch)?;
        let request = Request::GetAndTouch {
            key,
            exptime: exptime(Some(ttl))?,
        };
        self.submit(py, key, &request, Kind::Get { default }, deadline)
    }

    fn start_inspect<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut scratch = Vec::new();
        let key = self.wire(key, &mut scratch)?;
        self.submit(py, key, &Request::Inspect { key }, Kind::Inspect, deadline)
    }

    #[expect(clippy::too_many_arguments, reason = "the words of one write")]
    fn start_store<'py>(
        &self,
        py: Python<'py>,
        word: &str,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
        cas: Option<u64>,
    ) -> Started<'py> {
        let exptime = exptime(ttl)?;
        let mut scratch = Vec::new();
        let wire = self.wire(key, &mut scratch)?;
        let (word, is_joined) = match (word, cas) {
            ("cas", Some(unique)) => (StoreWord::Cas(unique), false),
            ("set", _) => (StoreWord::Set, false),
            ("add", _) => (StoreWord::Add, false),
            ("replace", _) => (StoreWord::Replace, false),
            ("append", _) => (StoreWord::Append, true),
            ("prepend", _) => (StoreWord::Prepend, true),
            (word, _) => return Err(PyValueError::new_err(format!("no store {word:?}"))),
        };
        let send = |flags: u32, body: &[u8]| {
            let limit = self.core.options().value_bytes_max;
            if body.len() as u64 > limit {
                let key = String::from_utf8_lossy(wire.bytes).into_owned();
                let error = Error::TooLarge {
                    key,
                    bytes: body.len(),
                    limit,
                };
                return Err(error::of_client(py, &error));
            }
            let kind = Kind::Written {
                key: key.clone().unbind(),
                wire: wire.into(),
                value_bytes: body.len(),
                is_cas: cas.is_some(),
            };
            let item = Item {
                key: wire,
                flags,
                body,
            };
            let request = Request::Store {
                word,
                item,
                exptime,
                noreply,
            };
            self.submit(py, wire, &request, kind, deadline)
        };
        if is_joined {
            return send(0, key_bytes(value)?);
        }
        conversion::with_bytes(self.codec.get(), value, |flags, body, _| send(flags, body))
    }

    fn start_delete<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut scratch = Vec::new();
        let key = self.wire(key, &mut scratch)?;
        self.submit(
            py,
            key,
            &Request::Delete { key, noreply },
            Kind::Stored,
            deadline,
        )
    }

    fn start_touch<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        ttl: f64,
        noreply: bool,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut scratch = Vec::new();
        let key = self.wire(key, &mut scratch)?;
        let request = Request::Touch {
            key,
            exptime: exptime(Some(ttl))?,
            noreply,
        };
        self.submit(py, key, &request, Kind::Stored, deadline)
    }

    #[expect(clippy::too_many_arguments, reason = "the words of an addition")]
    fn start_arithmetic<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        delta: u64,
        down: bool,
        initial: Option<u64>,
        ttl: Option<f64>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let exptime = exptime(ttl)?;
        let mut scratch = Vec::new();
        let key = self.wire(key, &mut scratch)?;
        let by = Arithmetic {
            delta,
            down,
            initial: initial.map(|number| (number, exptime)),
        };
        self.submit(
            py,
            key,
            &Request::Arithmetic { key, by, noreply },
            Kind::Number,
            deadline,
        )
    }

    /// Read keys of one server; the future's result is a dict of those that were found.
    fn start_get_many<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        keys: Vec<Bound<'py, PyAny>>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut scratch = Vec::new();
        let mut bytes: Vec<&[u8]> = Vec::with_capacity(keys.len());
        for key in &keys {
            if self.wire(key, &mut scratch)?.is_base64 {
                let why = "a bulk read takes plain keys: read it by get";
                let key = String::from_utf8_lossy(key_bytes(key)?).into_owned();
                return Err(error::of_client(py, &Error::BadKey { key, why }));
            }
            bytes.push(key_bytes(key)?);
        }
        let prefix = self.core.keys().namespace;
        let request = Request::GetMany {
            cas: false,
            prefix,
            keys: &bytes,
        };
        let kind = Kind::Many(keys.iter().map(|key| key.clone().unbind()).collect());
        self.submit_to(py, place, &request, kind, deadline)
    }

    /// Store pairs at one server; the result is a dict of failures, or None: store them singly.
    fn start_set_many<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        pairs: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
        ttl: Option<f64>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let exptime = exptime(ttl)?;
        let mut made: Vec<(Vec<u8>, bool, u32, Vec<u8>)> = Vec::with_capacity(pairs.len());
        for (key, value) in &pairs {
            let mut scratch = Vec::new();
            let wire = self.wire(key, &mut scratch)?;
            let (bytes, is_base64) = (wire.bytes.to_vec(), wire.is_base64);
            conversion::with_bytes(self.codec.get(), value, |flags, body, _| {
                made.push((bytes, is_base64, flags, body.to_vec()));
                Ok(())
            })?;
        }
        let items: Vec<Item<'_>> = made
            .iter()
            .map(|(bytes, is_base64, flags, body)| {
                let key = WireKey {
                    bytes,
                    is_base64: *is_base64,
                };
                Item {
                    key,
                    flags: *flags,
                    body,
                }
            })
            .collect();
        // A connection without a known dialect is one on which classic text is being tried.
        let is_classic = match self.server(py, place)?.dialect() {
            Some(dialect) => dialect == Dialect::Classic,
            None => self.connection(py, place)?.is_some(),
        };
        if is_classic {
            let future = running_loop(py)?.call_method0(intern!(py, "create_future"))?;
            future.call_method1(intern!(py, "set_result"), (py.None(),))?;
            return Ok(Some(future));
        }
        let request = Request::StoreMany {
            word: StoreWord::Set,
            items: &items,
            exptime,
            quiet: true,
        };
        let kind = Kind::ManyStored {
            keys: pairs.iter().map(|(key, _)| key.clone().unbind()).collect(),
            wire: items.iter().map(|item| item.key.into()).collect(),
        };
        self.submit_to(py, place, &request, kind, deadline)
    }

    /// Remove keys at one server; the result is a dict of failures.
    fn start_delete_many<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        keys: Vec<Bound<'py, PyAny>>,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let mut made: Vec<(Vec<u8>, bool)> = Vec::with_capacity(keys.len());
        for key in &keys {
            let mut scratch = Vec::new();
            let wire = self.wire(key, &mut scratch)?;
            made.push((wire.bytes.to_vec(), wire.is_base64));
        }
        let wire: Vec<WireKey<'_>> = made
            .iter()
            .map(|(bytes, is_base64)| WireKey {
                bytes,
                is_base64: *is_base64,
            })
            .collect();
        let kind = Kind::ManyDeleted {
            keys: keys.iter().map(|key| key.clone().unbind()).collect(),
            failures: PyDict::new(py).unbind(),
            left: keys.len(),
        };
        self.submit_to(
            py,
            place,
            &Request::DeleteMany { keys: &wire },
            kind,
            deadline,
        )
    }

    /// Ask one server: "version", "stats" with an argument, or "flush" with a delay.
    fn start_ask<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        what: &str,
        argument: &str,
        delay: u32,
        deadline: Option<f64>,
    ) -> Started<'py> {
        let (request, kind) = match what {
            "version" => (Request::Version, Kind::Version),
            "stats" => (
                Request::Stats {
                    argument: argument.as_bytes(),
                },
                Kind::Rows,
            ),
            _ => (Request::Flush { delay_s: delay }, Kind::Done),
        };
        self.submit_to(py, place, &request, kind, deadline)
    }
}

impl AsyncClient {
    fn unavailable(&self, py: Python<'_>, place: usize, why: &str) -> PyErr {
        let server = self
            .server(py, place)
            .map(|server| server.name.clone())
            .unwrap_or_default();
        let context = Context {
            server,
            phase: Phase::Connect,
            retry_is_safe: true,
        };
        error::of_client(py, &Error::Unavailable(context, why.to_owned()))
    }
}
