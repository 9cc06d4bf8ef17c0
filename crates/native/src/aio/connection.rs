//! One connection of an event loop: requests are collected in its buffer, replies resolve their futures.

use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use glasscache_client::costs::TimeSpent;
use glasscache_client::engine::connection::{
    Connection as Engine, ConnectionEvent, Failure, Ticket,
};
use glasscache_client::engine::health::HealthEffect;
use glasscache_client::engine::operation::Operation;
use glasscache_client::engine::retry::RetryDecision;
use glasscache_client::engine::uncertain::OwnedKey;
use glasscache_client::fork::Process;
use glasscache_client::near::as_package_call;
use glasscache_client::pool::Server;
use glasscache_client::request::Request;
use glasscache_client::{Error, StoreMode, WireKey};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit};

use super::bulk_call::BulkCall;
use super::pending_call::{CallKind, CallTiming, PendingCall};
use super::{is_done, set_exception, set_result};
use crate::client_state::ClientState;
use crate::error;
use crate::reply::ReplyForm;

/// A request in flight, by what receives its reply.
pub(super) enum PendingRequest {
    /// A call with a future of its own.
    Call(PendingCall),
    /// A call of several requests.
    Bulk(PendingBulkRequest),
}

impl PendingRequest {
    fn ticket(&self) -> Ticket {
        match self {
            Self::Call(pending_call) => pending_call.ticket,
            Self::Bulk(bulk_request) => bulk_request.ticket,
        }
    }
}

impl PendingRequest {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Call(pending_call) => visit.call(&pending_call.future),
            Self::Bulk(bulk_request) => visit.call(&bulk_request.bulk_call),
        }
    }
}

/// One request of a call about many keys, in flight.
pub(super) struct PendingBulkRequest {
    /// The number of the request on the connection.
    pub(super) ticket: Ticket,
    pub(super) bulk_call: Py<BulkCall>,
    pub(super) request_index: usize,
}

/// The key that a call changes by its first request. An `add` that was not made leaves what is there, which may be
/// another's lock.
fn changed_key<'r>(request: &Request<'r>) -> Option<WireKey<'r>> {
    match *request {
        Request::Store { mode, item, .. } if mode != StoreMode::Add => Some(item.key),
        Request::Extend { item, .. } => Some(item.key),
        Request::Delete { key, .. } | Request::Arithmetic { key, .. } | Request::Flags { key } => {
            Some(key)
        }
        _ => None,
    }
}

/// One connection of an event loop, as its transport calls it.
#[pyclass(module = "glasscache._native")]
pub(crate) struct Connection {
    pub(super) engine: Engine,
    pub(super) server: Arc<Server>,
    pub(super) client: Py<ClientState>,
    /// Weak: what belongs to a loop does not keep it.
    pub(super) event_loop: Py<PyWeakrefReference>,
    pub(super) transport: Option<Py<PyAny>>,
    /// The requests in flight, in the order of their tickets.
    pub(super) pending_requests: VecDeque<PendingRequest>,
    /// The process that made the connection; a child of a fork does not use it.
    pub(super) process: Process,
    /// The previous connection to this server was closed on the probe for its command set.
    pub(super) presumes_classic: bool,
    pub(super) is_flush_scheduled: bool,
    /// The requests that no write has sent yet, and those that the last write sent.
    pub(super) unsent_count: usize,
    pub(super) last_sent_count: usize,
    pub(super) is_writing_paused: bool,
    /// Resolved with None when the peer takes more again or the connection is gone.
    pub(super) resumed_future: Option<Py<PyAny>>,
    /// The running timer, and the moment it is set to: no later than the first deadline in flight.
    pub(super) timer: Option<(Instant, Py<PyAny>)>,
    /// Resolved with None when the connection may be used, or with an exception.
    pub(super) ready_future: Option<Py<PyAny>>,
}

impl Connection {
    /// Its loop, which runs whenever the connection does something.
    pub(super) fn event_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let event_loop = self.event_loop.bind(py).upgrade();
        event_loop.ok_or_else(|| PyRuntimeError::new_err("the event loop is gone"))
    }

    pub(super) fn can_take_requests(&self) -> bool {
        self.transport.is_some()
            && self.engine.accepts_requests()
            && !self.is_writing_paused
            && self.ready_future.is_none()
    }

    /// Writes the first request of a call after those of this loop iteration, and returns the call's future. Without
    /// `request` it is the first step of `call_kind`.
    pub(super) fn submit<'py>(
        slf: &Bound<'py, Self>,
        request: Option<&Request<'_>>,
        call_kind: CallKind,
        timing: CallTiming,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        let future = this.event_loop(py)?.call_method0(intern!(py, "create_future"))?;
        let first_step = call_kind.next_step();
        let step_request = first_step.as_ref().map(Operation::request);
        let Some(request) = request.or(step_request.as_ref()) else {
            return Err(error::from_client_error(py, &Error::Closed));
        };
        let (cost_class, ticket) = (request.class(), this.submit_to_engine(slf, request, &timing)?);
        let are_misses_configured = this.client.get().misses.are_configured();
        let changed_key = changed_key(request).filter(|_| are_misses_configured);
        let changed_key = changed_key.map(|key| Box::new(OwnedKey::from(key)));
        match ticket.map_err(|error| error::from_client_error(py, &error))? {
            // The new number of a quiet request is not known.
            None => {
                let is_outcome_known = !matches!(call_kind, CallKind::Single(ReplyForm::Number, _));
                let immediate_result = is_outcome_known.then_some(true);
                future.call_method1(intern!(py, "set_result"), (immediate_result,))?;
            }
            Some(ticket) => {
                let pending_call = PendingCall {
                    ticket,
                    kind: call_kind,
                    future: future.clone().unbind(),
                    timing,
                    cost_class,
                    changed_key,
                };
                this.pending_requests.push_back(PendingRequest::Call(pending_call));
            }
        }
        drop(this);
        Self::flush_unscheduled(slf)?;
        Ok(future)
    }

    /// Writes one request of a call about many keys.
    pub(super) fn submit_bulk(
        slf: &Bound<'_, Self>,
        request: &Request<'_>,
        (bulk_call, request_index): (&Bound<'_, BulkCall>, usize),
        timing: CallTiming,
    ) -> PyResult<Result<(), Error>> {
        let mut this = slf.borrow_mut();
        let submit_result = this.submit_to_engine(slf, request, &timing)?;
        let submit_result = submit_result.map(|ticket| {
            this.pending_requests.extend(ticket.map(|ticket| {
                PendingRequest::Bulk(PendingBulkRequest {
                    ticket,
                    bulk_call: bulk_call.clone().unbind(),
                    request_index,
                })
            }));
        });
        drop(this);
        Self::flush_unscheduled(slf)?;
        Ok(submit_result)
    }

    /// Writes a request, to be sent at the end of this loop iteration, or at once if it is likely the only one of it.
    fn submit_to_engine(
        &mut self,
        slf: &Bound<'_, Self>,
        request: &Request<'_>,
        timing: &CallTiming,
    ) -> PyResult<Result<Option<Ticket>, Error>> {
        let py = slf.py();
        let near_binding = self.client.get().near_binding.as_ref();
        let is_package_call = near_binding.map(|binding| binding.is_package_call(py));
        let mut submit = || self.engine.submit(slice::from_ref(request), timing.attempt());
        let ticket = match is_package_call {
            Some(is_package_call) => as_package_call(is_package_call, submit),
            None => submit(),
        };
        let has_earlier_timer =
            matches!(&self.timer, Some((timer_deadline, _)) if *timer_deadline <= timing.deadline);
        if matches!(ticket, Ok(Some(_))) && !has_earlier_timer {
            self.start_timer(slf, timing.deadline)?;
        }
        if let Ok(ticket) = &ticket {
            self.unsent_count += 1;
            let is_sent_at_once = ticket.is_some() && self.expects_lone_request(py)?;
            if !is_sent_at_once && !self.is_flush_scheduled {
                self.is_flush_scheduled = true;
                let flush = slf.getattr(intern!(py, "flush"))?;
                self.event_loop(py)?.call_method1(intern!(py, "call_soon"), (flush,))?;
            }
        }
        Ok(ticket)
    }

    /// Whether the request that was just written is likely the only one of this loop iteration: none is in flight, and
    /// the last write had no other. A task that makes one call after the other then waits one iteration less for each,
    /// and of a burst only the first request is sent by itself.
    fn expects_lone_request(&self, py: Python<'_>) -> PyResult<bool> {
        let is_lone = self.pending_requests.is_empty()
            && self.unsent_count == 1
            && self.last_sent_count <= 1
            && !self.is_flush_scheduled;
        match &self.transport {
            // One that is closing would not send it: the call is repeated when its end has been noticed.
            Some(transport) if is_lone => {
                Ok(!transport.call_method0(py, intern!(py, "is_closing"))?.is_truthy(py)?)
            }
            _ => Ok(false),
        }
    }

    /// Makes the next step of a call, after the reply to the previous one, for the same future.
    pub(super) fn continue_call(
        &mut self,
        py: Python<'_>,
        mut pending_call: PendingCall,
        now: Instant,
    ) -> PyResult<()> {
        let step = pending_call.kind.next_step();
        let Some(request) = step.as_ref().map(Operation::request) else {
            return Ok(());
        };
        if self.transport.is_none() || !self.engine.accepts_requests() {
            // It takes no more requests: the call starts again on another connection.
            return self.end_with_error_or_miss(
                py,
                &pending_call,
                error::stale_connection_error(py),
            );
        }
        let requests = slice::from_ref(&request);
        match self.engine.submit(requests, pending_call.timing.attempt()) {
            Ok(Some(ticket)) => pending_call.ticket = ticket,
            Ok(None) => {} // no step is quiet
            Err(error) => {
                let error = error::from_client_error(py, &error);
                return self.end_with_error_or_miss(py, &pending_call, error);
            }
        }
        pending_call.cost_class = request.class();
        pending_call.timing.started = now;
        pending_call.timing.spent = TimeSpent::default();
        self.pending_requests.push_back(PendingRequest::Call(pending_call));
        Ok(())
    }

    /// Handles all events of the engine: resolves the futures of calls that have ended.
    pub(super) fn process_events(&mut self, py: Python<'_>) -> PyResult<()> {
        let arrived_at = Instant::now();
        loop {
            match self.engine.poll() {
                ConnectionEvent::Ready => {
                    if let Some(ready_future) = self.ready_future.take() {
                        set_result(py, &ready_future, py.None().into_bound(py))?;
                    }
                }
                ConnectionEvent::Reply(ticket, reply) => {
                    self.resolve(py, ticket, reply, arrived_at)?;
                }
                ConnectionEvent::Failed(ticket, failure) => {
                    self.handle_failure(py, ticket, *failure)?;
                }
                ConnectionEvent::NeedsBytes(_) | ConnectionEvent::Idle => break,
            }
        }
        if self.engine.must_close() {
            self.abort(py)?;
        }
        Ok(())
    }

    /// Whether a caller waits for a reply; a cancelled call is not awaited.
    pub(super) fn is_awaited(&self, py: Python<'_>) -> PyResult<bool> {
        for pending_request in &self.pending_requests {
            let is_awaited = match pending_request {
                PendingRequest::Call(pending_call) => !is_done(py, &pending_call.future)?,
                PendingRequest::Bulk(bulk_request) => {
                    bulk_request.bulk_call.bind(py).borrow().is_awaited(py)?
                }
            };
            if is_awaited {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn take_pending_request(&mut self, ticket: Ticket) -> Option<PendingRequest> {
        let index = self
            .pending_requests
            .iter()
            .position(|pending_request| pending_request.ticket() == ticket)?;
        self.pending_requests.remove(index)
    }

    /// The objects that it refers to, for the collection of cycles: its transport refers to it.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let futures = [&self.resumed_future, &self.ready_future];
        let timer = self.timer.as_ref().map(|(_, timer)| timer);
        visit.call(&self.client)?;
        for object in futures.into_iter().flatten().chain(&self.transport).chain(timer) {
            visit.call(object)?;
        }
        self.pending_requests.iter().try_for_each(|pending_request| pending_request.traverse(visit))
    }

    /// Ends a call without a reply. One that is retried starts again on another connection.
    fn handle_failure(
        &mut self,
        py: Python<'_>,
        ticket: Ticket,
        mut failure: Failure,
    ) -> PyResult<()> {
        if let Err(closed) = self.client.get().core.check_open() {
            failure = Failure { error: closed, decision: RetryDecision::Fail(HealthEffect::None) };
        }
        let is_retried =
            matches!(failure.decision, RetryDecision::Retry | RetryDecision::RetryClassic);
        let to_exception = |error: Error| {
            if is_retried {
                error::stale_connection_error(py)
            } else {
                error::from_client_error(py, &error)
            }
        };
        if ticket == Ticket::OPENING {
            let ready_future = self.ready_future.take();
            return ready_future.map_or(Ok(()), |ready_future| {
                set_exception(py, &ready_future, to_exception(failure.error))
            });
        }
        let mut pending_call = match self.take_pending_request(ticket) {
            None => return Ok(()),
            Some(PendingRequest::Bulk(bulk_request)) => {
                let mut bulk_call = bulk_request.bulk_call.bind(py).borrow_mut();
                return bulk_call.handle_failure(py, bulk_request.request_index, failure);
            }
            Some(PendingRequest::Call(pending_call)) => pending_call,
        };
        let recorded_read = pending_call.take_recorded_read();
        let error = if is_retried {
            let stale_error = to_exception(failure.error);
            stale_error.value(py).setattr(intern!(py, "recorded_read"), recorded_read)?;
            stale_error
        } else {
            to_exception(pending_call.kind.handle_failure(failure.error))
        };
        self.end_with_error_or_miss(py, &pending_call, error)
    }

    /// Ends a call by an error: raised, or a counted miss where that is configured.
    pub(super) fn end_with_error_or_miss(
        &self,
        py: Python<'_>,
        pending_call: &PendingCall,
        error: PyErr,
    ) -> PyResult<()> {
        if error::is_stale(py, &error) {
            return set_exception(py, &pending_call.future, error);
        }
        let (client, miss_value) = (self.client.get(), pending_call.kind.miss_value(py));
        match client.misses.miss_or_raise(py, error, miss_value, 1) {
            Ok(miss_value) => {
                if let Some(key) = &pending_call.changed_key {
                    client.core.mark_uncertain(key.wire_key());
                }
                set_result(py, &pending_call.future, miss_value)
            }
            Err(error) => set_exception(py, &pending_call.future, error),
        }
    }

    pub(super) fn abort(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some(transport) = self.transport.take() {
            transport.call_method0(py, intern!(py, "abort"))?;
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.process.is_current() {
            self.engine.abandon();
        }
    }
}
