//! One call about many keys, or to every server: requests on several connections, one result.
//!
//! The partitions, the meaning of a reply and what follows are decided by `glasscache_client::bulk`, which requests are
//! to be sent by `BulkRequests`. Where a server has no connection, Python makes one and then sends the request.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use glasscache_client::bulk::BulkReply;
use glasscache_client::engine::BulkRequests;
use glasscache_client::engine::connection::Failure;
use glasscache_client::pipeline::{Pipeline, Reply};
use glasscache_client::request::Request;
use glasscache_client::{Budget, Error};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::bulk_state::BulkState;
use super::delayed_call::seconds_left;
use super::pending_call::CallTiming;
use super::{is_done, running_loop, set_exception, set_result};
use crate::client_state::ClientState;
use crate::settings::Codec;

/// A call of several requests on several connections.
#[pyclass(module = "glasscache._native")]
pub(crate) struct BulkCall {
    client: Py<ClientState>,
    keys: Vec<Py<PyAny>>,
    state: BulkState,
    pub(super) requests: BulkRequests,
    timing: CallTiming,
    value_bytes: u64,
    decode_time: Duration,
    future: Option<Py<PyAny>>,
    has_manifests: bool,
    /// The result of the whole call.
    result: Option<PyResult<Py<PyAny>>>,
    /// The caller has the result, or waits no more.
    is_over: bool,
}

impl BulkCall {
    /// A call to the servers in these slots, one request each.
    pub(super) fn new(
        client: Py<ClientState>,
        keys: Vec<Py<PyAny>>,
        bulk_state: BulkState,
        slots: impl Iterator<Item = usize>,
        timing: CallTiming,
    ) -> Self {
        let value_bytes = match &bulk_state {
            BulkState::Store(bulk_store, ..) => bulk_store.bytes(),
            _ => 0,
        };
        Self {
            client,
            keys,
            state: bulk_state,
            requests: BulkRequests::new(slots),
            timing,
            value_bytes,
            decode_time: Duration::ZERO,
            future: None,
            has_manifests: false,
            result: None,
            is_over: false,
        }
    }

    /// Whether the caller waits for the result; a cancelled call is not awaited, nor one that has raised.
    pub(super) fn is_awaited(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.future {
            // The caller makes connections meanwhile.
            None => Ok(!self.is_over),
            Some(future) => Ok(!is_done(py, future)?),
        }
    }

    /// The attempt at a request, unless its server has no connection or the deadline passed: then it may have ended.
    pub(super) fn begin_attempt(
        &mut self,
        request_index: usize,
        has_connection: bool,
        deadline_error: impl FnOnce() -> Error,
    ) -> Option<CallTiming> {
        let times = (Instant::now(), self.timing.deadline);
        let retry_state =
            self.requests.begin_attempt(request_index, has_connection, times, deadline_error)?;
        Some(CallTiming { is_retry: retry_state.is_retry, ..self.timing })
    }

    /// Builds a request and passes it to `write_request`, which writes it.
    pub(super) fn with_request(
        &self,
        py: Python<'_>,
        request_index: usize,
        write_request: impl FnOnce(&Request<'_>) -> PyResult<Result<(), Error>>,
    ) -> PyResult<Result<(), Error>> {
        self.state.with_request(py, &self.keys, request_index, write_request)
    }

    /// Interprets a reply to one of the requests, which may be its last.
    pub(super) fn handle_reply(
        &mut self,
        py: Python<'_>,
        codec: &Codec,
        request_index: usize,
        (parsed, pipeline, server): (Reply, &Pipeline, &str),
        is_last: bool,
    ) -> PyResult<()> {
        let Some(reply_index) = self.requests.next_reply_index(request_index) else {
            self.requests.record_reply_result(request_index, Ok(()), is_last);
            return if is_last { self.advance(py) } else { Ok(()) };
        };
        let is_read = matches!(self.state, BulkState::Read(..) | BulkState::Near(_));
        let decode_start = is_read.then(Instant::now);
        let reply = BulkReply { request_index, reply_index, parsed, pipeline, server };
        let reply_result = self.state.interpret(py, codec, &self.keys, reply);
        self.decode_time +=
            decode_start.map_or(Duration::ZERO, |decode_start| decode_start.elapsed());
        let has_more = !is_last && reply_result.is_ok();
        match reply_result {
            Ok(reply_result) => {
                let reply_result = reply_result.map(|value_bytes| self.value_bytes += value_bytes);
                self.requests.record_reply_result(request_index, reply_result, is_last);
            }
            Err(exception) => self.result = self.result.take().or(Some(Err(exception))),
        }
        // One of many replies, as to a bulk removal, ends nothing.
        if has_more { Ok(()) } else { self.advance(py) }
    }

    /// Ends a request without a reply, or repeats it on another connection if it may be repeated.
    pub(super) fn handle_failure(
        &mut self,
        py: Python<'_>,
        request_index: usize,
        failure: Failure,
    ) -> PyResult<()> {
        self.requests.record_failure(request_index, failure);
        self.advance(py)
    }

    /// Continues when all requests have ended, and resolves the future if there is something to do.
    pub(super) fn advance(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.result.is_none() && self.requests.have_ended() {
            self.finish_step(py);
        }
        let has_unsent = self.requests.unsent().next().is_some();
        if self.result.is_none() && !has_unsent {
            return Ok(());
        }
        let Some(future) = self.future.take() else {
            return Ok(());
        };
        self.is_over = self.result.is_some();
        match self.result.take() {
            None => set_result(py, &future, py.None().into_bound(py)),
            Some(Ok(result)) => set_result(py, &future, result.into_bound(py)),
            Some(Err(error)) => set_exception(py, &future, error),
        }
    }

    /// Ends a step, all of whose requests have ended: the next step begins, or the call ends.
    fn finish_step(&mut self, py: Python<'_>) {
        let (client, request_results) = (self.client.get(), self.requests.results());
        let bulk_state = std::mem::replace(&mut self.state, BulkState::Finished)
            .into_next_state(request_results);
        if let Some(step) = bulk_state.step() {
            let slot = client.core.slot_of(step.key.bytes);
            self.requests = BulkRequests::new(std::iter::once(slot));
            self.state = bulk_state;
            return;
        }
        self.count_costs(&bulk_state);
        self.has_manifests =
            matches!(&bulk_state, BulkState::Read(_, found) if found.has_manifests());
        let call_result = bulk_state.finish(py, &self.keys, request_results, client);
        self.result = Some(call_result.map(|dict| dict.into_any().unbind()));
    }

    fn count_costs(&self, bulk_state: &BulkState) {
        let (core, decode_time) = (&self.client.get().core, self.decode_time);
        let budget = Budget {
            spent: self.timing.spent,
            ..Budget::between(self.timing.started, self.timing.deadline)
        };
        match bulk_state {
            BulkState::AllServers(..) | BulkState::Finished => {}
            BulkState::Near(near_fetch) => {
                core.count_fetch(
                    &near_fetch.fetch.keys(),
                    &near_fetch.fetched,
                    &budget,
                    decode_time,
                );
            }
            _ => core.count_bulk(self.keys.len(), self.value_bytes, &budget, decode_time),
        }
    }
}

#[pymethods]
impl BulkCall {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.client)?;
        self.keys.iter().chain(&self.future).try_for_each(|object| visit.call(object))
    }

    fn __clear__(&mut self) {
        (self.future, self.keys) = (None, Vec::new());
    }

    /// Return a future of the result; its result is None where connections are missing, or more is to be sent.
    fn wait(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let future = running_loop(py)?.call_method0(intern!(py, "create_future"))?;
        let mut this = slf.borrow_mut();
        this.future = Some(future.clone().unbind());
        this.advance(py)?;
        Ok(future.unbind())
    }

    /// Note that the caller no longer waits.
    fn abandon(&mut self) {
        self.is_over = true;
    }

    /// Return the slots of the servers that requests are to be sent to.
    fn slots(&self) -> BTreeSet<usize> {
        self.requests.unsent().map(|(_, slot)| slot).collect()
    }

    /// Whether the result has manifests of values in pieces.
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
