//! One connection of an event loop: requests gather in its buffer, replies resolve their futures.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use glasscache_client::costs::{CallClass, CostPart, TimeSpent};
use glasscache_client::engine::connection::{Connection as Engine, Failure, Progress, Ticket};
use glasscache_client::engine::operation::Operation;
use glasscache_client::engine::retry::Next;
use glasscache_client::fork::Process;
use glasscache_client::pipeline::Reply;
use glasscache_client::pool::Server;
use glasscache_client::request::Request;
use glasscache_client::{Client as Core, Error};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::bulk_call::BulkCall;
use super::pending_call::{CallTiming, PendingCall, PendingKind, Resolution};
use super::{set_exception, set_result};
use crate::client::TIMED_BYTES_MIN;
use crate::error;
use crate::misses::Misses;
use crate::reply::ReplyForm;
use crate::settings::Codec;

/// One connection of an event loop, as its transport calls it.
#[pyclass(module = "glasscache._native")]
pub(crate) struct Connection {
    pub(super) engine: Engine,
    pub(super) server: Arc<Server>,
    pub(super) core: Arc<Core>,
    pub(super) codec: Py<Codec>,
    pub(super) misses: Arc<Misses>,
    pub(super) event_loop: Py<PyAny>,
    pub(super) transport: Option<Py<PyAny>>,
    /// The calls in flight, in the order of their tickets.
    pub(super) pending_calls: VecDeque<PendingCall>,
    /// The process that made it; a child of a fork does not use it.
    pub(super) process: Process,
    /// The connection before was closed on the probe for its command set.
    pub(super) presumes_classic: bool,
    pub(super) is_flush_scheduled: bool,
    pub(super) is_paused: bool,
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
            && self.engine.takes_requests()
            && !self.is_paused
            && self.ready_future.is_none()
    }

    /// Writes a request after those of this loop iteration, and returns its future; `None`: the first step of `kind`.
    pub(super) fn submit<'py>(
        slf: &Bound<'py, Self>,
        request: Option<&Request<'_>>,
        kind: PendingKind,
        timing: CallTiming,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        let future = this
            .event_loop
            .bind(py)
            .call_method0(intern!(py, "create_future"))?;
        let step = kind.step();
        let first_request = step.as_ref().map(Operation::request);
        let Some(request) = request.or(first_request.as_ref()) else {
            return Err(error::from_client_error(py, &Error::Closed));
        };
        let (class, ticket) = (request.class(), this.write(slf, request, &timing)?);
        match ticket.map_err(|error| error::from_client_error(py, &error))? {
            // The number of a quiet request is not known.
            None => {
                let immediate_result = !matches!(kind, PendingKind::Single(ReplyForm::Number, _));
                let immediate_result = immediate_result.then_some(true);
                future.call_method1(intern!(py, "set_result"), (immediate_result,))?;
            }
            Some(ticket) => this.pending_calls.push_back(PendingCall {
                ticket,
                kind,
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
        (call, index): (&Bound<'_, BulkCall>, usize),
        timing: CallTiming,
    ) -> PyResult<Result<(), Error>> {
        let mut this = slf.borrow_mut();
        let written = this.write(slf, request, &timing)?;
        Ok(written.map(|ticket| {
            this.pending_calls.extend(ticket.map(|ticket| PendingCall {
                ticket,
                kind: PendingKind::BulkRequest(index),
                future: call.clone().into_any().unbind(),
                timing,
                class: CallClass::Uncounted,
            }));
        }))
    }

    /// Writes a request, to be sent at the end of this loop iteration.
    fn write(
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
    fn continue_call(
        &mut self,
        py: Python<'_>,
        mut pending_call: PendingCall,
        now: Instant,
    ) -> PyResult<()> {
        let step = pending_call.kind.step();
        let Some(request) = step.as_ref().map(Operation::request) else {
            return Ok(());
        };
        if self.transport.is_none() || !self.engine.takes_requests() {
            // It takes no more requests: the call starts again on another connection.
            return self.fail(py, &pending_call, error::stale(py));
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
                Progress::Ready => {
                    if let Some(ready) = self.ready_future.take() {
                        set_result(py, &ready, py.None().into_bound(py))?;
                    }
                }
                Progress::Reply(ticket, reply) => self.resolve(py, ticket, reply, arrived_at)?,
                Progress::Failed(ticket, failure) => self.handle_failure(py, ticket, *failure)?,
                Progress::Needs(_) | Progress::Idle => break,
            }
        }
        if self.engine.must_close() {
            self.abort(py)?;
        }
        Ok(())
    }

    fn take_pending_call(&mut self, ticket: Ticket) -> Option<PendingCall> {
        let index = self
            .pending_calls
            .iter()
            .position(|pending_call| pending_call.ticket == ticket)?;
        self.pending_calls.remove(index)
    }

    /// Ends a call without a reply. One that is to be repeated starts again on another connection.
    fn handle_failure(&mut self, py: Python<'_>, ticket: Ticket, failure: Failure) -> PyResult<()> {
        let is_stale = matches!(failure.next, Next::Retry | Next::RetryClassic);
        let exception = |error: Error| {
            if is_stale {
                error::stale(py)
            } else {
                error::from_client_error(py, &error)
            }
        };
        if ticket == Ticket::OPENING {
            let ready = self.ready_future.take();
            return ready.map_or(Ok(()), |ready| {
                set_exception(py, &ready, exception(failure.error))
            });
        }
        let Some(mut pending_call) = self.take_pending_call(ticket) else {
            return Ok(());
        };
        if let PendingKind::BulkRequest(index) = pending_call.kind {
            let call = pending_call.future.bind(py).cast::<BulkCall>()?;
            return call.borrow_mut().handle_failure(py, index, failure);
        }
        pending_call.take_recorded();
        let error = if is_stale {
            exception(failure.error)
        } else {
            exception(pending_call.kind.handle_failure(failure.error))
        };
        self.fail(py, &pending_call, error)
    }

    /// Sets the timer to a deadline, which replaces a later one.
    pub(super) fn start_timer(&mut self, slf: &Bound<'_, Self>, deadline: Instant) -> PyResult<()> {
        let py = slf.py();
        self.cancel_timer(py)?;
        let seconds_left = deadline
            .saturating_duration_since(Instant::now())
            .as_secs_f64();
        let check_deadlines = slf.getattr(intern!(py, "check_deadlines"))?;
        let timer = self
            .event_loop
            .bind(py)
            .call_method1(intern!(py, "call_later"), (seconds_left, check_deadlines))?;
        self.timer = Some((deadline, timer.unbind()));
        Ok(())
    }

    pub(super) fn cancel_timer(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some((_, timer)) = self.timer.take() {
            timer.call_method0(py, intern!(py, "cancel"))?;
        }
        Ok(())
    }

    /// Ends an op by an error: raised, or a counted miss where that is configured.
    fn fail(&self, py: Python<'_>, pending_call: &PendingCall, error: PyErr) -> PyResult<()> {
        let miss = match &pending_call.kind {
            PendingKind::Single(_, Some(default)) => default.bind(py).clone(),
            PendingKind::ValueWrite(written) | PendingKind::TooLarge(_, written)
                if written.form == ReplyForm::Reserved =>
            {
                py.None().into_bound(py)
            }
            PendingKind::Single(ReplyForm::Bool, _)
            | PendingKind::ValueWrite(_)
            | PendingKind::TooLarge(..) => PyBool::new(py, false).to_owned().into_any(),
            _ => py.None().into_bound(py),
        };
        if error::is_stale(py, &error) {
            return set_exception(py, &pending_call.future, error);
        }
        match self.misses.miss_or_raise(py, error, miss, 1) {
            Ok(miss) => set_result(py, &pending_call.future, miss),
            Err(error) => set_exception(py, &pending_call.future, error),
        }
    }

    /// Resolves a call by its whole reply, which arrived at a moment.
    fn resolve(
        &mut self,
        py: Python<'_>,
        ticket: Ticket,
        reply: Reply,
        arrived_at: Instant,
    ) -> PyResult<()> {
        let Some(mut pending_call) = self.take_pending_call(ticket) else {
            return Ok(());
        };
        if let PendingKind::BulkRequest(index) = pending_call.kind {
            return self.take_bulk_reply(py, pending_call, index, reply);
        }
        let found = self.engine.pipeline().found_values();
        let found_bytes: usize = found.iter().map(|found| found.value_bytes).sum();
        if let Some(recorded) = pending_call.take_recorded() {
            recorded.set_size(0, found_bytes);
        }
        let codec = &self.codec.get().inner;
        let is_slow_to_decode = found_bytes >= TIMED_BYTES_MIN
            || found
                .first()
                .is_some_and(|found| !codec.is_cheap_to_decode(found.flags));
        let is_counting = self.core.is_observed();
        let is_timed = is_counting && is_slow_to_decode;
        let decode_start = is_timed.then(Instant::now);
        let resolution = self.interpret(py, &mut pending_call, reply);
        if let Some(decode_start) = decode_start {
            let elapsed_ns = decode_start.elapsed().as_nanos() as u64;
            let decompress_ns = pending_call.timing.spent.part_ns(CostPart::Decompress);
            let decode_ns = elapsed_ns.saturating_sub(decompress_ns);
            pending_call
                .timing
                .spent
                .add(CostPart::Deserialise, decode_ns);
        }
        if is_counting {
            let found = self.engine.pipeline().found_values();
            let summary =
                pending_call.request_summary(self.engine.replied_key(), found, arrived_at);
            self.core.observe(&summary);
        }
        match resolution {
            Ok(Resolution::Step) => self.continue_call(py, pending_call, arrived_at),
            Ok(Resolution::Value(value)) => set_result(py, &pending_call.future, value),
            Err(error) => self.fail(py, &pending_call, error),
        }
    }

    /// Hands a reply to the call about many keys that waits for it.
    fn take_bulk_reply(
        &mut self,
        py: Python<'_>,
        pending_call: PendingCall,
        index: usize,
        reply: Reply,
    ) -> PyResult<()> {
        let is_last = self.engine.is_last_reply();
        let (pipeline, server) = (self.engine.pipeline(), &self.server.name);
        let call = pending_call.future.bind(py).cast::<BulkCall>()?;
        let codec = self.codec.get();
        call.borrow_mut()
            .take(py, codec, index, (reply, pipeline, server), is_last)?;
        if !is_last {
            self.pending_calls.push_front(pending_call);
        }
        Ok(())
    }

    /// In a child after a fork: ends its calls, and replaces the child's copy of the socket by a dead one.
    ///
    /// To close the transport would take the socket out of the epoll instance that the child may share with its
    /// parent; a dead socket under the same number is an end of file to the child's loop and nothing to the parent.
    pub(super) fn leave_to_parent(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let Ok(mut this) = slf.try_borrow_mut() else {
            return Ok(());
        };
        this.engine.abandon();
        this.cancel_timer(py)?;
        let transport = this.transport.take();
        this.process_events(py)?;
        drop(this);
        let Some(transport) = transport else {
            return Ok(());
        };
        let (dead_socket, _) = UnixStream::pair()?;
        let socket = transport.call_method1(py, intern!(py, "get_extra_info"), ("socket",))?;
        let descriptor: i32 = socket
            .call_method0(py, intern!(py, "fileno"))?
            .extract(py)?;
        if descriptor >= 0 {
            let is_inherited_by_programs = false;
            let dup_arguments = (
                dead_socket.as_raw_fd(),
                descriptor,
                is_inherited_by_programs,
            );
            py.import("os")?.call_method1("dup2", dup_arguments)?;
        }
        Ok(())
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
