//! One call about many keys, or to every server: requests on several connections, one outcome.
//!
//! What belongs to whom, what a reply means and what follows is the client's (`glasscache_client::bulk`); here it is
//! kept until all connections have replied. Where a server has none, Python makes it and has the request sent then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::bulk::{Ended, Failures, Part, Partitioned, Reads, Removals, Reply};
use glasscache_client::bulk::{Stored, Stores};
use glasscache_client::engine::connection::Failure;
use glasscache_client::engine::loss::Next;
use glasscache_client::engine::operation::Operation;
use glasscache_client::engine::{Done, Items, Steps, StoredMany, interpret};
use glasscache_client::pipeline::{Answer, Pipeline};
use glasscache_client::request::{Item, Request};
use glasscache_client::{Budget, Client as Core, Error, WireKey};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::delayed_call::{TRIES_MAX, left};
use super::op::Times;
use super::{running_loop, set_exception, set_result};
use crate::bulk::{FoundValues, MadeItems, WireKeys, told};
use crate::client::key_bytes;
use crate::misses::Misses;
use crate::settings::Codec;
use crate::{error, tables};

/// What is asked of every server.
pub(super) enum AdminRequest {
    Version,
    Stats(String),
    Flush(u32),
}

impl AdminRequest {
    pub(super) fn request(&self) -> Request<'_> {
        match self {
            Self::Version => Request::Version,
            Self::Stats(argument) => Request::Stats {
                argument: argument.as_bytes(),
            },
            &Self::Flush(delay_s) => Request::Flush { delay_s },
        }
    }
}

/// What is asked, and what came of it so far.
pub(super) enum BulkKind {
    Read(Reads, FoundValues),
    Store(Stores, MadeItems, Stored),
    /// What follows a store, step by step, and what came of the present one.
    Rest(Box<StoredMany<MadeItems>>, Option<Result<Done, Error>>),
    Remove(Removals, Failures),
    Servers(AdminRequest, Vec<String>, Py<PyDict>),
    Over,
}

/// One request, and its server.
struct ServerRequest {
    place: usize,
    state: State,
    /// How often its server had no connection.
    tries: u8,
    is_retry: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unsent,
    InFlight,
    Ended,
}

/// A call of several requests on several connections.
#[pyclass(module = "glasscache._native")]
pub(crate) struct BulkCall {
    core: Arc<Core>,
    misses: Arc<Misses>,
    keys: Vec<Py<PyAny>>,
    what: BulkKind,
    asks: Vec<ServerRequest>,
    ended: Vec<Ended>,
    times: Times,
    bytes: u64,
    reading: Duration,
    future: Option<Py<PyAny>>,
    /// What came of the whole call.
    outcome: Option<PyResult<Py<PyAny>>>,
}

impl BulkCall {
    /// A call to the servers at these places, one request each.
    pub(super) fn new(
        (core, misses): (Arc<Core>, Arc<Misses>),
        keys: Vec<Py<PyAny>>,
        what: BulkKind,
        places: impl Iterator<Item = usize>,
        times: Times,
    ) -> Self {
        let mut many = Self {
            core,
            misses,
            keys,
            what,
            asks: Vec::new(),
            ended: Vec::new(),
            times,
            bytes: 0,
            reading: Duration::ZERO,
            future: None,
            outcome: None,
        };
        many.ask(places);
        many
    }

    fn ask(&mut self, places: impl Iterator<Item = usize>) {
        let ask = |place| ServerRequest {
            place,
            state: State::Unsent,
            tries: 0,
            is_retry: false,
        };
        self.asks = places.map(ask).collect();
        self.ended = self.asks.iter().map(|_| Ended::default()).collect();
    }

    /// The requests that are not sent, each with the place of its server.
    pub(super) fn unsent(&self) -> Vec<(usize, usize)> {
        let asks = self.asks.iter().enumerate();
        let unsent = asks.filter(|(_, ask)| ask.state == State::Unsent);
        unsent.map(|(index, ask)| (index, ask.place)).collect()
    }

    /// The attempt to be made at a request, unless its server has no connection or time is over: then it may have ended.
    pub(super) fn attempt(
        &mut self,
        index: usize,
        has_connection: bool,
        late: impl FnOnce() -> Error,
    ) -> Option<Times> {
        let mut times = self.times;
        let ask = self.asks.get_mut(index)?;
        let is_over = Instant::now() >= times.deadline;
        if has_connection && !is_over {
            times.is_retry = ask.is_retry;
            ask.state = State::InFlight;
            return Some(times);
        }
        ask.tries += 1;
        if ask.tries > TRIES_MAX || is_over {
            self.fail_ask(index, late());
        }
        None
    }

    /// Makes a request, for `then` to write it.
    pub(super) fn with_request(
        &self,
        py: Python<'_>,
        index: usize,
        then: impl FnOnce(&Request<'_>) -> PyResult<Result<(), Error>>,
    ) -> PyResult<Result<(), Error>> {
        let keys = |parts: &[Part]| {
            let indices = parts.get(index).map_or(&[][..], |part| &part.indices);
            let keys = indices.iter().filter_map(|&index| self.keys.get(index));
            keys.map(|key| key.bind(py)).collect::<Vec<_>>()
        };
        match &self.what {
            BulkKind::Read(reads, _) => {
                let keys = keys(reads.parts());
                let things = keys.iter().map(|key| key_bytes(key));
                let things: Vec<&[u8]> = things.collect::<PyResult<_>>()?;
                then(&reads.request(index, &things))
            }
            BulkKind::Store(stores, items, _) => {
                let indices = stores.parts().get(index).map(|part| &part.indices);
                let indices = indices.into_iter().flatten();
                let things: Vec<Item<'_>> = indices.filter_map(|&at| items.item(at)).collect();
                then(&stores.request(index, &things))
            }
            BulkKind::Remove(removals, _) => {
                let keys = keys(removals.parts());
                let maker = self.core.keys();
                let wire = WireKeys::new(py, maker, keys.into_iter())?;
                let things: Vec<WireKey<'_>> = wire.all();
                then(&removals.request(index, &things))
            }
            BulkKind::Servers(question, ..) => then(&question.request()),
            BulkKind::Rest(steps, _) => match steps.step() {
                Some(step) => then(&step.request()),
                None => Ok(Err(Error::Closed)),
            },
            BulkKind::Over => Ok(Err(Error::Closed)),
        }
    }

    /// Takes a reply to one of the requests, which may be its last.
    pub(super) fn take(
        &mut self,
        py: Python<'_>,
        codec: &Codec,
        index: usize,
        (answer, pipeline, server): (Answer, &Pipeline, &str),
        is_last: bool,
    ) -> PyResult<()> {
        let begin = matches!(self.what, BulkKind::Read(..)).then(Instant::now);
        let nth = self.ended.get(index).map_or(0, |ended| ended.replies);
        let reply = Reply {
            ask: index,
            nth,
            answer,
            pipeline,
            server,
        };
        let taken = self.interpret(py, codec, reply);
        self.reading += begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        let goes_on = !is_last && matches!(taken, Ok(Ok(())));
        match (taken, self.ended.get_mut(index)) {
            (Err(raised), _) => self.outcome = self.outcome.take().or(Some(Err(raised))),
            (Ok(Err(error)), _) => self.fail_ask(index, error),
            (Ok(Ok(())), Some(ended)) => ended.replies += 1,
            (Ok(Ok(())), None) => {}
        }
        if let Some(ask) = self.asks.get_mut(index).filter(|_| is_last) {
            ask.state = State::Ended;
        }
        // Nothing ends by one of many replies, as to a bulk removal.
        if goes_on { Ok(()) } else { self.look(py) }
    }

    /// What a reply means. An exception is nobody's outcome and ends the whole call.
    fn interpret(
        &mut self,
        py: Python<'_>,
        codec: &Codec,
        reply: Reply<'_>,
    ) -> PyResult<Result<(), Error>> {
        match &mut self.what {
            BulkKind::Read(reads, found_values) => {
                let mut raised = Ok(());
                let read = reads.values(reply, |index, found, body| {
                    let key = self.keys.get(index).map(|key| key.bind(py));
                    if let Some(key) = key.filter(|_| raised.is_ok()) {
                        raised = found_values.take(codec, (index, key), found, body);
                    }
                });
                raised?;
                return Ok(read.map(|bytes| self.bytes += bytes));
            }
            BulkKind::Store(stores, items, stored) => stores.take(reply, items, stored),
            BulkKind::Remove(removals, failures) => failures.extend(removals.failure(reply)),
            BulkKind::Servers(question, names, answers) => {
                let answer = match interpret::refused(reply.answer, reply.server) {
                    Ok(answer) => answer,
                    Err(error) => return Ok(Err(error)),
                };
                if let Some(name) = names.get(reply.ask) {
                    let answer = tables::answer(py, &question.request(), answer)?;
                    answers.bind(py).set_item(name, answer)?;
                }
            }
            BulkKind::Rest(steps, done) => {
                *done = steps
                    .step()
                    .map(|step| step.read(reply.answer, reply.pipeline, reply.server));
            }
            BulkKind::Over => {}
        }
        Ok(Ok(()))
    }

    /// Takes the end of a request that got no reply; one that may be made again is, on another connection.
    pub(super) fn failed(
        &mut self,
        py: Python<'_>,
        index: usize,
        failure: Failure,
    ) -> PyResult<()> {
        match (failure.next, self.asks.get_mut(index)) {
            (Next::Retry | Next::RetryClassic, Some(ask)) => {
                ask.state = State::Unsent;
                ask.is_retry = true;
            }
            _ => self.fail_ask(index, failure.error),
        }
        self.look(py)
    }

    pub(super) fn fail_ask(&mut self, index: usize, error: Error) {
        if let (Some(ask), Some(ended)) = (self.asks.get_mut(index), self.ended.get_mut(index)) {
            ask.state = State::Ended;
            if let BulkKind::Rest(_, done) = &mut self.what {
                *done = Some(Err(error.clone()));
            }
            ended.error = Some(error);
        }
    }

    /// Goes on where all requests have ended, and resolves the future if there is something to do.
    pub(super) fn look(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.outcome.is_none() && self.asks.iter().all(|ask| ask.state == State::Ended) {
            self.go_on(py);
        }
        let has_unsent = self.asks.iter().any(|ask| ask.state == State::Unsent);
        if self.outcome.is_none() && !has_unsent {
            return Ok(());
        }
        let Some(future) = self.future.take() else {
            return Ok(());
        };
        match self.outcome.take() {
            None => set_result(py, &future, py.None().into_bound(py)),
            Some(Ok(outcome)) => set_result(py, &future, outcome.into_bound(py)),
            Some(Err(error)) => set_exception(py, &future, error),
        }
    }

    /// Begins the next step of a call, or ends it.
    fn go_on(&mut self, py: Python<'_>) {
        self.what = match std::mem::replace(&mut self.what, BulkKind::Over) {
            BulkKind::Store(stores, items, stored) => {
                self.bytes = stores.bytes();
                BulkKind::Rest(Box::new(stores.rest(items, &self.ended, stored)), None)
            }
            BulkKind::Rest(mut steps, done) => {
                steps.take(done.unwrap_or(Err(Error::Closed)));
                BulkKind::Rest(steps, None)
            }
            what => what,
        };
        if let BulkKind::Rest(steps, _) = &self.what
            && let Some(step) = steps.step()
        {
            let place = self.core.place_of(step.key.bytes);
            return self.ask(std::iter::once(place));
        }
        let what = std::mem::replace(&mut self.what, BulkKind::Over);
        if !matches!(what, BulkKind::Servers(..)) {
            let budget = Budget {
                started: self.times.started,
                deadline: self.times.deadline,
                go_on: &|| true,
                spent: self.times.spent,
            };
            self.core
                .count_bulk(self.keys.len(), self.bytes, &budget, self.reading);
        }
        self.outcome = Some(self.conclude(py, what).map(|dict| dict.into_any().unbind()));
    }

    /// What came of a call whose requests have all ended.
    fn conclude<'py>(&self, py: Python<'py>, what: BulkKind) -> PyResult<Bound<'py, PyDict>> {
        let key = |index: usize| self.keys.get(index).map(|key| key.bind(py).clone());
        match what {
            BulkKind::Read(reads, found) => {
                let failures = reads.unanswered(&self.ended);
                found.finish(py, failures, &self.misses, key)
            }
            BulkKind::Rest(steps, _) => {
                let failures = steps.finish();
                let failures = failures.map_err(|error| error::of_client(py, &error))?;
                told(py, failures, key)
            }
            BulkKind::Remove(removals, mut failures) => {
                failures.extend(removals.unanswered(&self.ended));
                told(py, failures, key)
            }
            BulkKind::Servers(_, names, answers) => {
                let answers = answers.into_bound(py);
                for (name, ended) in names.iter().zip(&self.ended) {
                    if let Some(error) = &ended.error {
                        answers.set_item(name, error::outcome_of(py, error)?)?;
                    }
                }
                Ok(answers)
            }
            BulkKind::Store(..) | BulkKind::Over => Ok(PyDict::new(py)),
        }
    }
}

#[pymethods]
impl BulkCall {
    /// Return a future of the outcome; its result is None where connections are missing, or more is to be sent.
    fn wait(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let future = running_loop(py)?.call_method0(intern!(py, "create_future"))?;
        let mut this = slf.borrow_mut();
        this.future = Some(future.clone().unbind());
        this.look(py)?;
        Ok(future.unbind())
    }

    /// Return the places of the servers that something is to be sent to.
    fn places(&self) -> BTreeSet<usize> {
        self.unsent().into_iter().map(|(_, place)| place).collect()
    }

    /// The seconds that are left.
    #[getter]
    fn left(&self) -> f64 {
        left(self.times.deadline)
    }
}
