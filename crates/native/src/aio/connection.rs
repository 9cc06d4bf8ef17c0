//! One connection of an event loop: requests gather in its buffer, replies resolve their futures.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use glasscache_client::costs::{Class, Part, Spent};
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
use super::pending_call::{Kind, Op, Resolution, Times};
use super::{set_exception, set_result};
use crate::client::TIMED_BYTES_MIN;
use crate::error;
use crate::misses::Misses;
use crate::reply::Form;
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
    pub(super) ops: VecDeque<Op>,
    /// The process that made it; a child of a fork does not use it.
    pub(super) process: Process,
    /// The connection before was closed on the probe for its command set.
    pub(super) presumes_classic: bool,
    pub(super) will_flush: bool,
    pub(super) is_paused: bool,
    /// Resolved with None when the peer takes more again or the connection is gone.
    pub(super) resumed: Option<Py<PyAny>>,
    /// The running timer, and the moment it is set to: no later than the first deadline in flight.
    pub(super) timer: Option<(Instant, Py<PyAny>)>,
    /// Resolved with None when it may be used, or with an exception.
    pub(super) ready: Option<Py<PyAny>>,
}

impl Connection {
    pub(super) fn can_take(&self) -> bool {
        self.transport.is_some()
            && self.engine.takes_requests()
            && !self.is_paused
            && self.ready.is_none()
    }

    /// Writes a request after those of this loop iteration, and returns its future; `None`: the first step of `kind`.
    pub(super) fn submit<'py>(
        slf: &Bound<'py, Self>,
        request: Option<&Request<'_>>,
        kind: Kind,
        times: Times,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        let future = this
            .event_loop
            .bind(py)
            .call_method0(intern!(py, "create_future"))?;
        let step = kind.step();
        let first = step.as_ref().map(Operation::request);
        let Some(request) = request.or(first.as_ref()) else {
            return Err(error::of_client(py, &Error::Closed));
        };
        let (class, ticket) = (request.class(), this.write(slf, request, &times)?);
        match ticket.map_err(|error| error::of_client(py, &error))? {
            // The number of a quiet request is not known.
            None => {
                let immediate_result = !matches!(kind, Kind::Single(Form::Number, _));
                let immediate_result = immediate_result.then_some(true);
                future.call_method1(intern!(py, "set_result"), (immediate_result,))?;
            }
            Some(ticket) => this.ops.push_back(Op {
                ticket,
                kind,
                future: future.clone().unbind(),
                times,
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
        times: Times,
    ) -> PyResult<Result<(), Error>> {
        let mut this = slf.borrow_mut();
        let written = this.write(slf, request, &times)?;
        Ok(written.map(|ticket| {
            this.ops.extend(ticket.map(|ticket| Op {
                ticket,
                kind: Kind::OfBulk(index),
                future: call.clone().into_any().unbind(),
                times,
                class: Class::Uncounted,
            }));
        }))
    }

    /// Writes a request, to be sent at the end of this loop iteration.
    fn write(
        &mut self,
        slf: &Bound<'_, Self>,
        request: &Request<'_>,
        times: &Times,
    ) -> PyResult<Result<Option<Ticket>, Error>> {
        let py = slf.py();
        let ticket = self
            .engine
            .submit(slice::from_ref(request), times.attempt());
        let is_covered =
            matches!(&self.timer, Some((timer_deadline, _)) if *timer_deadline <= times.deadline);
        if matches!(ticket, Ok(Some(_))) && !is_covered {
            self.start_timer(slf, times.deadline)?;
        }
        if ticket.is_ok() && !self.will_flush {
            self.will_flush = true;
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
        mut pending_call: Op,
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
        match self.engine.submit(requests, pending_call.times.attempt()) {
            Ok(Some(ticket)) => pending_call.ticket = ticket,
            Ok(None) => {} // no step is quiet
            Err(error) => {
                let error = error::of_client(py, &error);
                return self.fail(py, &pending_call, error);
            }
        }
        pending_call.class = request.class();
        pending_call.times.started = now;
        pending_call.times.spent = Spent::default();
        self.ops.push_back(pending_call);
        Ok(())
    }

    /// Handles all events of the engine: resolves the futures of calls that have ended.
    pub(super) fn process_events(&mut self, py: Python<'_>) -> PyResult<()> {
        let arrived = Instant::now();
        loop {
            match self.engine.poll() {
                Progress::Ready => {
                    if let Some(ready) = self.ready.take() {
                        set_result(py, &ready, py.None().into_bound(py))?;
                    }
                }
                Progress::Reply(ticket, reply) => self.resolve(py, ticket, reply, arrived)?,
                Progress::Failed(ticket, failure) => self.failed(py, ticket, *failure)?,
                Progress::Needs(_) | Progress::Idle => break,
            }
        }
        if self.engine.must_close() {
            self.abort(py)?;
        }
        Ok(())
    }

    fn take_op(&mut self, ticket: Ticket) -> Option<Op> {
        let index = self
            .ops
            .iter()
            .position(|pending_call| pending_call.ticket == ticket)?;
        self.ops.remove(index)
    }

    /// Ends a call without a reply. One that is to be repeated starts again on another connection.
    fn failed(&mut self, py: Python<'_>, ticket: Ticket, failure: Failure) -> PyResult<()> {
        let is_stale = matches!(failure.next, Next::Retry | Next::RetryClassic);
        let exception = |error: Error| {
            if is_stale {
                error::stale(py)
            } else {
                error::of_client(py, &error)
            }
        };
        if ticket == Ticket::OPENING {
            let ready = self.ready.take();
            return ready.map_or(Ok(()), |ready| {
                set_exception(py, &ready, exception(failure.error))
            });
        }
        let Some(mut pending_call) = self.take_op(ticket) else {
            return Ok(());
        };
        if let Kind::OfBulk(index) = pending_call.kind {
            let call = pending_call.future.bind(py).cast::<BulkCall>()?;
            return call.borrow_mut().failed(py, index, failure);
        }
        pending_call.take_recorded();
        let error = if is_stale {
            exception(failure.error)
        } else {
            exception(pending_call.kind.failed(failure.error))
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
    fn fail(&self, py: Python<'_>, pending_call: &Op, error: PyErr) -> PyResult<()> {
        let miss = match &pending_call.kind {
            Kind::Single(_, Some(default)) => default.bind(py).clone(),
            Kind::Written(written) | Kind::TooLarge(_, written)
                if written.form == Form::Reserved =>
            {
                py.None().into_bound(py)
            }
            Kind::Single(Form::Truth, _) | Kind::Written(_) | Kind::TooLarge(..) => {
                PyBool::new(py, false).to_owned().into_any()
            }
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
        arrived: Instant,
    ) -> PyResult<()> {
        let Some(mut pending_call) = self.take_op(ticket) else {
            return Ok(());
        };
        if let Kind::OfBulk(index) = pending_call.kind {
            return self.take_bulk_reply(py, pending_call, index, reply);
        }
        let found = self.engine.pipeline().found_values();
        let found_bytes: usize = found.iter().map(|found| found.value_bytes).sum();
        if let Some(recorded) = pending_call.take_recorded() {
            recorded.set_size(0, found_bytes);
        }
        let codec = &self.codec.get().rust;
        let is_long = found_bytes >= TIMED_BYTES_MIN
            || found
                .first()
                .is_some_and(|found| !codec.is_quick(found.flags));
        let is_counting = self.core.is_observed();
        let is_timed = is_counting && is_long;
        let begin = is_timed.then(Instant::now);
        let resolution = self.interpret(py, &mut pending_call, reply);
        if let Some(begin) = begin {
            let elapsed_ns = begin.elapsed().as_nanos() as u64;
            let unpacking = pending_call.times.spent.part_ns(Part::Decompress);
            let decode_ns = elapsed_ns.saturating_sub(unpacking);
            pending_call.times.spent.add(Part::Deserialise, decode_ns);
        }
        if is_counting {
            let found = self.engine.pipeline().found_values();
            let observed = pending_call.observed(self.engine.replied_key(), found, arrived);
            self.core.observe(&observed);
        }
        match resolution {
            Ok(Resolution::Step) => self.continue_call(py, pending_call, arrived),
            Ok(Resolution::Value(value)) => set_result(py, &pending_call.future, value),
            Err(error) => self.fail(py, &pending_call, error),
        }
    }

    /// Hands a reply to the call about many keys that waits for it.
    fn take_bulk_reply(
        &mut self,
        py: Python<'_>,
        pending_call: Op,
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
            self.ops.push_front(pending_call);
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
        let (dead, _) = UnixStream::pair()?;
        let socket = transport.call_method1(py, intern!(py, "get_extra_info"), ("socket",))?;
        let descriptor: i32 = socket
            .call_method0(py, intern!(py, "fileno"))?
            .extract(py)?;
        if descriptor >= 0 {
            let is_inherited_by_programs = false;
            let dup_arguments = (dead.as_raw_fd(), descriptor, is_inherited_by_programs);
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
