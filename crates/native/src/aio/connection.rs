//! One connection of an event loop: requests are collected in its buffer, replies resolve their futures.

use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use glasscache_client::Error;
use glasscache_client::costs::{CallClass, TimeSpent};
use glasscache_client::engine::connection::{
    Connection as Engine, ConnectionEvent, Failure, Ticket,
};
use glasscache_client::engine::operation::Operation;
use glasscache_client::engine::retry::RetryDecision;
use glasscache_client::fork::Process;
use glasscache_client::pool::Server;
use glasscache_client::request::Request;
use pyo3::intern;
use pyo3::prelude::*;

use super::bulk_call::BulkCall;
use super::pending_call::{CallTiming, PendingCall, PendingOperation};
use super::{is_done, set_exception, set_result};
use crate::client_state::ClientState;
use crate::error;
use crate::reply::ReplyForm;

/// One connection of an event loop, as its transport calls it.
#[pyclass(module = "glasscache._native")]
pub(crate) struct Connection {
    pub(super) engine: Engine,
    pub(super) server: Arc<Server>,
    pub(super) client: Py<ClientState>,
    pub(super) event_loop: Py<PyAny>,
    pub(super) transport: Option<Py<PyAny>>,
    /// The calls in flight, in the order of their tickets.
    pub(super) pending_calls: VecDeque<PendingCall>,
    /// The process that made it; a child of a fork does not use it.
    pub(super) process: Process,
    /// The connection before was closed on the probe for its command set.
    pub(super) presumes_classic: bool,
    pub(super) is_flush_scheduled: bool,
    pub(super) is_writing_paused: bool,
    /// Resolved with None when the peer takes more again or the connection is gone.
    pub(super) resumed_future: Option<Py<PyAny>>,
    /// The running timer, and the moment it is set to: no later than the first deadline in flight.
    pub(super) timer: Option<(Instant, Py<PyAny>)>,
    /// Resolved with None when it may be used, or with an exception.
    pub(super) ready_future: Option<Py<PyAny>>,
}

impl Connection {
    pub(super) fn can_take_requests(&self) -> bool {
        self.transport.is_some()
            && self.engine.accepts_requests()
            && !self.is_writing_paused
            && self.ready_future.is_none()
    }

    /// Writes a request after those of this loop iteration, and returns its future; `None`: the first step of
    /// `operation`.
    pub(super) fn submit<'py>(
        slf: &Bound<'py, Self>,
        request: Option<&Request<'_>>,
        operation: PendingOperation,
        timing: CallTiming,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        let future = this
            .event_loop
            .bind(py)
            .call_method0(intern!(py, "create_future"))?;
        let step = operation.step();
        let first_request = step.as_ref().map(Operation::request);
        let Some(request) = request.or(first_request.as_ref()) else {
            return Err(error::from_client_error(py, &Error::Closed));
        };
        let (class, ticket) = (
            request.class(),
            this.submit_to_engine(slf, request, &timing)?,
        );
        match ticket.map_err(|error| error::from_client_error(py, &error))? {
            // The new number of a quiet request is not known.
            None => {
                let is_outcome_known =
                    !matches!(operation, PendingOperation::Single(ReplyForm::Number, _));
                let immediate_result = is_outcome_known.then_some(true);
                future.call_method1(intern!(py, "set_result"), (immediate_result,))?;
            }
            Some(ticket) => this.pending_calls.push_back(PendingCall {
                ticket,
                operation,
                future: future.clone().unbind(),
                timing,
                class,
            }),
        }
        Ok(future)
    }

    /// Writes a request of a call about many keys.
    pub(super) fn submit_bulk(
        slf: &Bound<'_, Self>,
        request: &Request<'_>,
        (call, request_index): (&Bound<'_, BulkCall>, usize),
        timing: CallTiming,
    ) -> PyResult<Result<(), Error>> {
        let mut this = slf.borrow_mut();
        let submit_result = this.submit_to_engine(slf, request, &timing)?;
        Ok(submit_result.map(|ticket| {
            this.pending_calls.extend(ticket.map(|ticket| PendingCall {
                ticket,
                operation: PendingOperation::BulkRequest(request_index),
                future: call.clone().into_any().unbind(),
                timing,
                class: CallClass::Uncounted,
            }));
        }))
    }

    /// Writes a request, to be sent at the end of this loop iteration.
    fn submit_to_engine(
        &mut self,
        slf: &Bound<'_, Self>,
        request: &Request<'_>,
        timing: &CallTiming,
    ) -> PyResult<Result<Option<Ticket>, Error>> {
        let py = slf.py();
        let ticket = self
            .engine
            .submit(slice::from_ref(request), timing.attempt());
        let has_earlier_timer =
            matches!(&self.timer, Some((timer_deadline, _)) if *timer_deadline <= timing.deadline);
        if matches!(ticket, Ok(Some(_))) && !has_earlier_timer {
            self.start_timer(slf, timing.deadline)?;
        }
        if ticket.is_ok() && !self.is_flush_scheduled {
            self.is_flush_scheduled = true;
            let flush = slf.getattr(intern!(py, "flush"))?;
            self.event_loop
                .bind(py)
                .call_method1(intern!(py, "call_soon"), (flush,))?;
        }
        Ok(ticket)
    }

    /// Makes the next step of a call, after the reply to the previous one, for the same future.
    pub(super) fn continue_call(
        &mut self,
        py: Python<'_>,
        mut pending_call: PendingCall,
        now: Instant,
    ) -> PyResult<()> {
        let step = pending_call.operation.step();
        let Some(request) = step.as_ref().map(Operation::request) else {
            return Ok(());
        };
        if self.transport.is_none() || !self.engine.accepts_requests() {
            // It takes no more requests: the call starts again on another connection.
            return self.fail(py, &pending_call, error::stale_connection_error(py));
        }
        let requests = slice::from_ref(&request);
        match self.engine.submit(requests, pending_call.timing.attempt()) {
            Ok(Some(ticket)) => pending_call.ticket = ticket,
            Ok(None) => {} // no step is quiet
            Err(error) => {
                let error = error::from_client_error(py, &error);
                return self.fail(py, &pending_call, error);
            }
        }
        pending_call.class = request.class();
        pending_call.timing.started = now;
        pending_call.timing.spent = TimeSpent::default();
        self.pending_calls.push_back(pending_call);
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
        for pending_call in &self.pending_calls {
            let is_awaited = match pending_call.operation {
                PendingOperation::BulkRequest(_) => {
                    let call = pending_call.future.bind(py).cast::<BulkCall>()?;
                    call.borrow().is_awaited(py)?
                }
                _ => !is_done(py, &pending_call.future)?,
            };
            if is_awaited {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn take_pending_call(&mut self, ticket: Ticket) -> Option<PendingCall> {
        let index = self
            .pending_calls
            .iter()
            .position(|pending_call| pending_call.ticket == ticket)?;
        self.pending_calls.remove(index)
    }

    /// Ends a call without a reply. One that is to be repeated starts again on another connection.
    fn handle_failure(&mut self, py: Python<'_>, ticket: Ticket, failure: Failure) -> PyResult<()> {
        let is_stale = matches!(
            failure.decision,
            RetryDecision::Retry | RetryDecision::RetryClassic
        );
        let exception = |error: Error| {
            if is_stale {
                error::stale_connection_error(py)
            } else {
                error::from_client_error(py, &error)
            }
        };
        if ticket == Ticket::OPENING {
            let ready_future = self.ready_future.take();
            return ready_future.map_or(Ok(()), |ready_future| {
                set_exception(py, &ready_future, exception(failure.error))
            });
        }
        let Some(mut pending_call) = self.take_pending_call(ticket) else {
            return Ok(());
        };
        if let PendingOperation::BulkRequest(request_index) = pending_call.operation {
            let call = pending_call.future.bind(py).cast::<BulkCall>()?;
            return call.borrow_mut().handle_failure(py, request_index, failure);
        }
        pending_call.take_recorded_read();
        let error = if is_stale {
            exception(failure.error)
        } else {
            exception(pending_call.operation.handle_failure(failure.error))
        };
        self.fail(py, &pending_call, error)
    }

    /// Ends a call by an error: raised, or a counted miss where that is configured.
    pub(super) fn fail(
        &self,
        py: Python<'_>,
        pending_call: &PendingCall,
        error: PyErr,
    ) -> PyResult<()> {
        if error::is_stale(py, &error) {
            return set_exception(py, &pending_call.future, error);
        }
        let (client, miss_value) = (self.client.get(), pending_call.operation.miss_value(py));
        match client.misses.miss_or_raise(py, error, miss_value, 1) {
            Ok(miss_value) => set_result(py, &pending_call.future, miss_value),
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
