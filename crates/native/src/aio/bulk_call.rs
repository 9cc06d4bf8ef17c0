//! One call about many keys, or to every server: requests on several connections, one outcome.
//!
//! The partitions, the meaning of a reply and what follows are decided by `glasscache_client::bulk`; here the state is
//! kept until all connections have replied. Where a server has no connection, Python makes one and then sends the request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::bulk::{
    BulkDelete, BulkRead, BulkReply, BulkResult, Failures, Partition, Partitioned,
};
use glasscache_client::bulk::{BulkStore, StoreFailures};
use glasscache_client::engine::connection::Failure;
use glasscache_client::engine::operation::Operation;
use glasscache_client::engine::retry::Next;
use glasscache_client::engine::uncertain::OwnedKey;
use glasscache_client::engine::{Items, StepReply, Steps, StoreManySteps, interpret};
use glasscache_client::pipeline::{Pipeline, Reply};
use glasscache_client::request::{Item, Request};
use glasscache_client::{Budget, Client as Core, Error, WireKey};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::delayed_call::{TRIES_MAX, seconds_left};
use super::near_call::NearFetch;
use super::pending_call::CallTiming;
use super::{running_loop, set_exception, set_result};
use crate::bulk::{EncodedItems, FoundValues, WireKeys, failures_by_key};
use crate::keys::key_bytes;
use crate::misses::Misses;
use crate::settings::Codec;
use crate::{error, tables};

/// A request to every server.
pub(super) enum AdminRequest {
    Version,
    Stats(String),
    Flush(u32),
    /// Of the client's namespace.
    Clear(OwnedKey),
}

impl AdminRequest {
    pub(super) fn request(&self) -> Request<'_> {
        match self {
            Self::Version => Request::Version,
            Self::Stats(argument) => Request::Stats {
                argument: argument.as_bytes(),
            },
            &Self::Flush(delay_s) => Request::Flush { delay_s },
            Self::Clear(namespace) => Request::FlushPrefix {
                prefix: namespace.wire(),
            },
        }
    }
}

/// The kind of a call, and its results so far.
pub(super) enum BulkKind {
    Read(BulkRead, FoundValues),
    Store(BulkStore, EncodedItems, StoreFailures),
    /// What follows a store, step by step, and the result of the current one.
    FollowUpSteps(
        Box<StoreManySteps<EncodedItems>>,
        Option<Result<StepReply, Error>>,
    ),
    Remove(BulkDelete, Failures),
    /// A call of a read under a strategy.
    Near(Box<NearFetch>),
    Servers(AdminRequest, Vec<String>, Py<PyDict>),
    Finished,
}

/// One request, and its server.
struct ServerRequest {
    slot: usize,
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
    kind: BulkKind,
    requests: Vec<ServerRequest>,
    results: Vec<BulkResult>,
    timing: CallTiming,
    bytes: u64,
    decode_time: Duration,
    future: Option<Py<PyAny>>,
    has_manifests: bool,
    /// The result of the whole call.
    outcome: Option<PyResult<Py<PyAny>>>,
}

impl BulkCall {
    /// A call to the servers in these slots, one request each.
    pub(super) fn new(
        (core, misses): (Arc<Core>, Arc<Misses>),
        keys: Vec<Py<PyAny>>,
        kind: BulkKind,
        slots: impl Iterator<Item = usize>,
        timing: CallTiming,
    ) -> Self {
        let mut bulk_call = Self {
            core,
            misses,
            keys,
            kind,
            requests: Vec::new(),
            results: Vec::new(),
            timing,
            bytes: 0,
            decode_time: Duration::ZERO,
            future: None,
            has_manifests: false,
            outcome: None,
        };
        bulk_call.set_requests(slots);
        bulk_call
    }

    fn set_requests(&mut self, slots: impl Iterator<Item = usize>) {
        let request = |slot| ServerRequest {
            slot,
            state: State::Unsent,
            tries: 0,
            is_retry: false,
        };
        self.requests = slots.map(request).collect();
        self.results = self
            .requests
            .iter()
            .map(|_| BulkResult::default())
            .collect();
    }

    /// The requests that are not sent, each with the slot of its server.
    pub(super) fn unsent(&self) -> Vec<(usize, usize)> {
        let requests = self.requests.iter().enumerate();
        let unsent = requests.filter(|(_, request)| request.state == State::Unsent);
        unsent
            .map(|(index, request)| (index, request.slot))
            .collect()
    }

    /// The attempt at a request, unless its server has no connection or the deadline passed: then it may have ended.
    pub(super) fn begin_attempt(
        &mut self,
        index: usize,
        has_connection: bool,
        timed_out: impl FnOnce() -> Error,
    ) -> Option<CallTiming> {
        let mut timing = self.timing;
        let request = self.requests.get_mut(index)?;
        let is_over = Instant::now() >= timing.deadline;
        if has_connection && !is_over {
            timing.is_retry = request.is_retry;
            request.state = State::InFlight;
            return Some(timing);
        }
        request.tries += 1;
        if request.tries > TRIES_MAX || is_over {
            self.fail_request(index, timed_out());
        }
        None
    }

    /// Builds a request and passes it to `write_request`, which writes it.
    pub(super) fn with_request(
        &self,
        py: Python<'_>,
        index: usize,
        write_request: impl FnOnce(&Request<'_>) -> PyResult<Result<(), Error>>,
    ) -> PyResult<Result<(), Error>> {
        let keys = |partitions: &[Partition]| {
            let indices = partitions
                .get(index)
                .map_or(&[][..], |partition| &partition.indices);
            let keys = indices.iter().filter_map(|&index| self.keys.get(index));
            keys.map(|key| key.bind(py)).collect::<Vec<_>>()
        };
        match &self.kind {
            BulkKind::Read(bulk_read, _) => {
                let keys = keys(bulk_read.partitions());
                let entries = keys.iter().map(|key| key_bytes(key));
                let entries: Vec<&[u8]> = entries.collect::<PyResult<_>>()?;
                write_request(&bulk_read.request(index, &entries))
            }
            BulkKind::Store(bulk_store, items, _) => {
                let indices = bulk_store
                    .partitions()
                    .get(index)
                    .map(|partition| &partition.indices);
                let indices = indices.into_iter().flatten();
                let entries: Vec<Item<'_>> = indices
                    .filter_map(|&key_index| items.item(key_index))
                    .collect();
                write_request(&bulk_store.request(index, &entries))
            }
            BulkKind::Remove(bulk_delete, _) => {
                let keys = keys(bulk_delete.partitions());
                let key_encoder = self.core.keys();
                let wire_keys = WireKeys::new(py, key_encoder, keys.into_iter())?;
                let entries: Vec<WireKey<'_>> = wire_keys.all();
                write_request(&bulk_delete.request(index, &entries))
            }
            BulkKind::Near(near) => {
                let keys = near.fetch.keys();
                let partition = near.bulk_fetch.partitions().get(index);
                let indices = partition.into_iter().flat_map(|it| &it.indices);
                let entries: Vec<WireKey<'_>> = indices
                    .filter_map(|&key_index| keys.get(key_index))
                    .copied()
                    .collect();
                write_request(&near.bulk_fetch.request(index, &entries))
            }
            BulkKind::Servers(admin, ..) => write_request(&admin.request()),
            BulkKind::FollowUpSteps(steps, _) => match steps.step() {
                Some(step) => write_request(&step.request()),
                None => Ok(Err(Error::Closed)),
            },
            BulkKind::Finished => Ok(Err(Error::Closed)),
        }
    }

    /// Takes a reply to one of the requests, which may be its last.
    pub(super) fn take(
        &mut self,
        py: Python<'_>,
        codec: &Codec,
        index: usize,
        (parsed, pipeline, server): (Reply, &Pipeline, &str),
        is_last: bool,
    ) -> PyResult<()> {
        let is_read = matches!(self.kind, BulkKind::Read(..) | BulkKind::Near(_));
        let decode_start = is_read.then(Instant::now);
        let reply_index = self.results.get(index).map_or(0, |results| results.replies);
        let reply = BulkReply {
            request: index,
            reply_index,
            parsed,
            pipeline,
            server,
        };
        let reply_result = self.interpret(py, codec, reply);
        self.decode_time +=
            decode_start.map_or(Duration::ZERO, |decode_start| decode_start.elapsed());
        let has_more = !is_last && matches!(reply_result, Ok(Ok(())));
        match (reply_result, self.results.get_mut(index)) {
            (Err(raised), _) => self.outcome = self.outcome.take().or(Some(Err(raised))),
            (Ok(Err(error)), _) => self.fail_request(index, error),
            (Ok(Ok(())), Some(results)) => results.replies += 1,
            (Ok(Ok(())), None) => {}
        }
        if let Some(request) = self.requests.get_mut(index).filter(|_| is_last) {
            request.state = State::Ended;
        }
        // One of many replies, as to a bulk removal, ends nothing.
        if has_more { Ok(()) } else { self.advance(py) }
    }

    /// Interprets a reply. An exception is not the outcome of a key and ends the whole call.
    fn interpret(
        &mut self,
        py: Python<'_>,
        codec: &Codec,
        reply: BulkReply<'_>,
    ) -> PyResult<Result<(), Error>> {
        match &mut self.kind {
            BulkKind::Read(bulk_read, found_values) => {
                let mut raised = Ok(());
                let read = bulk_read.values(reply, |index, found, body| {
                    let key = self.keys.get(index).map(|key| key.bind(py));
                    if let Some(key) = key.filter(|_| raised.is_ok()) {
                        let flags_and_cas = (found.flags, found.cas);
                        raised = found_values.take(codec, (index, key), flags_and_cas, body);
                    }
                });
                raised?;
                return Ok(read.map(|bytes| self.bytes += bytes));
            }
            BulkKind::Store(bulk_store, items, stored) => bulk_store.take(reply, items, stored),
            BulkKind::Remove(bulk_delete, failures) => failures.extend(bulk_delete.failure(reply)),
            BulkKind::Near(near) => return Ok(near.bulk_fetch.take(reply, &mut near.fetched)),
            BulkKind::Servers(admin, names, replies) => {
                let parsed = match interpret::refusal_to_error(reply.parsed, reply.server) {
                    Ok(parsed) => parsed,
                    Err(error) => return Ok(Err(error)),
                };
                if let Some(name) = names.get(reply.request) {
                    let parsed = tables::admin_reply(py, &admin.request(), parsed)?;
                    replies.bind(py).set_item(name, parsed)?;
                }
            }
            BulkKind::FollowUpSteps(steps, step_result) => {
                *step_result = steps
                    .step()
                    .map(|step| step.read(reply.parsed, reply.pipeline, reply.server));
            }
            BulkKind::Finished => {}
        }
        Ok(Ok(()))
    }

    /// Ends a request without a reply, or repeats it on another connection if it may be repeated.
    pub(super) fn handle_failure(
        &mut self,
        py: Python<'_>,
        index: usize,
        failure: Failure,
    ) -> PyResult<()> {
        match (failure.next, self.requests.get_mut(index)) {
            (Next::Retry | Next::RetryClassic, Some(request)) => {
                request.state = State::Unsent;
                request.is_retry = true;
            }
            _ => self.fail_request(index, failure.error),
        }
        self.advance(py)
    }

    pub(super) fn fail_request(&mut self, index: usize, error: Error) {
        if let (Some(request), Some(results)) =
            (self.requests.get_mut(index), self.results.get_mut(index))
        {
            request.state = State::Ended;
            if let BulkKind::FollowUpSteps(_, step_result) = &mut self.kind {
                *step_result = Some(Err(error.clone()));
            }
            results.error = Some(error);
        }
    }

    /// Continues when all requests have ended, and resolves the future if there is something to do.
    pub(super) fn advance(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.outcome.is_none()
            && self
                .requests
                .iter()
                .all(|request| request.state == State::Ended)
        {
            self.finish_step(py);
        }
        let has_unsent = self
            .requests
            .iter()
            .any(|request| request.state == State::Unsent);
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
    fn finish_step(&mut self, py: Python<'_>) {
        self.kind = match std::mem::replace(&mut self.kind, BulkKind::Finished) {
            BulkKind::Store(bulk_store, items, stored) => {
                self.bytes = bulk_store.bytes();
                BulkKind::FollowUpSteps(
                    Box::new(bulk_store.remaining_steps(items, &self.results, stored)),
                    None,
                )
            }
            BulkKind::FollowUpSteps(mut steps, step_result) => {
                steps.take_result(step_result.unwrap_or(Err(Error::Closed)));
                BulkKind::FollowUpSteps(steps, None)
            }
            kind => kind,
        };
        if let BulkKind::FollowUpSteps(steps, _) = &self.kind
            && let Some(step) = steps.step()
        {
            let slot = self.core.slot_of(step.key.bytes);
            return self.set_requests(std::iter::once(slot));
        }
        let kind = std::mem::replace(&mut self.kind, BulkKind::Finished);
        if !matches!(kind, BulkKind::Servers(..)) {
            let budget = Budget {
                started: self.timing.started,
                deadline: self.timing.deadline,
                should_continue: &|| true,
                spent: self.timing.spent,
                scope: None,
            };
            if let BulkKind::Near(near) = &kind {
                let keys = near.fetch.keys();
                self.core
                    .count_fetch(&keys, &near.fetched, &budget, self.decode_time);
            } else {
                self.core
                    .count_bulk(self.keys.len(), self.bytes, &budget, self.decode_time);
            }
        }
        self.has_manifests = matches!(&kind, BulkKind::Read(_, found) if found.has_manifests());
        self.outcome = Some(
            self.finish_call(py, kind)
                .map(|dict| dict.into_any().unbind()),
        );
    }

    /// The result of a call whose requests have all ended.
    fn finish_call<'py>(&self, py: Python<'py>, kind: BulkKind) -> PyResult<Bound<'py, PyDict>> {
        let key = |index: usize| self.keys.get(index).map(|key| key.bind(py).clone());
        match kind {
            BulkKind::Read(bulk_read, found) => {
                let failures = bulk_read.failures_without_reply(&self.results);
                found.finish(py, failures, &self.misses, key)
            }
            BulkKind::FollowUpSteps(steps, _) => {
                let failures = steps.finish();
                let failures = failures.map_err(|error| error::from_client_error(py, &error))?;
                failures_by_key(py, failures, key)
            }
            BulkKind::Remove(bulk_delete, mut failures) => {
                failures.extend(bulk_delete.failures_without_reply(&self.results));
                failures_by_key(py, failures, key)
            }
            BulkKind::Near(near) => {
                let failures = near.bulk_fetch.failures_without_reply(&self.results);
                near.finish_call(py, failures);
                Ok(PyDict::new(py))
            }
            BulkKind::Servers(_, names, replies) => {
                let replies = replies.into_bound(py);
                for (name, results) in names.iter().zip(&self.results) {
                    if let Some(error) = &results.error {
                        replies.set_item(name, error::outcome_of(py, error)?)?;
                    }
                }
                Ok(replies)
            }
            BulkKind::Store(..) | BulkKind::Finished => Ok(PyDict::new(py)),
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
        this.advance(py)?;
        Ok(future.unbind())
    }

    /// Return the slots of the servers that requests are to be sent to.
    fn slots(&self) -> BTreeSet<usize> {
        self.unsent().into_iter().map(|(_, slot)| slot).collect()
    }

    /// Whether the outcome has manifests of values in pieces.
    #[getter]
    fn has_manifests(&self) -> bool {
        self.has_manifests
    }

    /// The seconds that are left.
    #[getter]
    fn seconds_left(&self) -> f64 {
        seconds_left(self.timing.deadline)
    }
}
