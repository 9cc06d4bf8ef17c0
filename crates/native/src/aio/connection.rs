//! One connection of an event loop: requests gather in its buffer, replies resolve their futures.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use glasscache_client::Error;
use glasscache_client::costs::{Class, Part, Spent};
use glasscache_client::engine::operation::Operation;
use glasscache_client::engine::pending::PendingWrites;
use glasscache_client::engine::uncertain::{OwnedKey, keys_of, write_removals};
use glasscache_client::error::{Context, Phase};
use glasscache_client::fork::Process;
use glasscache_client::pipeline::{Answer, Expect, Pipeline};
use glasscache_client::pool::Server;
use glasscache_client::request::{Desk, Dialect, Request};
use pyo3::intern;
use pyo3::prelude::*;

use super::op::{Kind, Op, Sent, Shown, Times};
use super::{Counters, set_exception, set_result};
use crate::client::TIMED_BYTES_MIN;
use crate::error;
use crate::settings::Codec;

/// One connection of an event loop, as its transport calls it.
#[pyclass(module = "glasscache._native")]
pub(crate) struct Connection {
    pub(super) server: Arc<Server>,
    pub(super) codec: Py<Codec>,
    pub(super) counters: Arc<Counters>,
    pub(super) event_loop: Py<PyAny>,
    pub(super) transport: Option<Py<PyAny>>,
    pub(super) pipeline: Pipeline,
    pub(super) ops: VecDeque<Op>,
    pub(super) out: Vec<u8>,
    pub(super) opaque: u32,
    /// The process that made it; a child of a fork does not use it.
    pub(super) process: Process,
    /// Quiet writes that no `mn` was written behind yet.
    pub(super) pending: PendingWrites,
    pub(super) replies: u64,
    pub(super) presumes_classic: bool,
    pub(super) will_flush: bool,
    pub(super) is_paused: bool,
    /// Resolved with None when the peer takes more again or the connection is gone.
    pub(super) resumed: Option<Py<PyAny>>,
    /// A call on it was too late: what is in flight is still read, nothing new is sent.
    pub(super) is_late: bool,
    /// The running timer, and the moment it is set to: no later than the first deadline in flight.
    pub(super) timer: Option<(Instant, Py<PyAny>)>,
    /// Resolved with None when it may be used, or with an exception.
    pub(super) ready: Option<Py<PyAny>>,
}

impl Connection {
    pub(super) fn can_take(&self) -> bool {
        self.transport.is_some() && !self.is_late && !self.is_paused && self.ready.is_none()
    }

    /// Writes a request behind those of this turn, and returns its future; `None`: the first step of `kind`.
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
        let sent = this.write(request, times);
        let sent = sent.map_err(|error| error::of_client(py, &error))?;
        if request.is_noreply() {
            future.call_method1(intern!(py, "set_result"), (true,))?;
        } else {
            this.ops.push_back(Op {
                kind,
                future: Some(future.clone().unbind()),
                times,
                sent,
            });
            let is_covered = matches!(&this.timer, Some((set_to, _)) if *set_to <= times.deadline);
            if !is_covered {
                this.start_timer(slf, times.deadline)?;
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

    /// Writes a request, and before it what has to be asked first.
    fn write(&mut self, request: &Request<'_>, times: Times) -> Result<Sent, Error> {
        let dialect = self.server.dialect().unwrap_or(Dialect::Classic);
        let is_noreply = request.is_noreply();
        if !is_noreply {
            let uncertain = self.server.uncertain.take();
            if !uncertain.is_empty() {
                self.begin_pending();
                self.pending.count += write_removals(&uncertain, &mut self.desk(dialect));
            }
            if !self.pending.is_empty() {
                self.request_acknowledgement(uncertain, times);
            }
        } else if dialect == Dialect::Meta {
            self.begin_pending();
        }
        if let Err(unsaid) = request.write(&mut self.desk(dialect)) {
            let server = self.server.name.clone();
            return Err(Error::Unsupported {
                server,
                what: unsaid.0,
            });
        }
        if let Some(body) = request.loose_body() {
            self.out.extend_from_slice(body);
            self.out.extend_from_slice(b"\r\n");
        }
        if is_noreply && dialect == Dialect::Meta {
            self.pending.note(request);
        }
        Ok(Sent {
            is_repeatable: request.is_repeatable(),
            class: request.class(),
            uncertain: keys_of(request).filter(|_| !is_noreply).collect(),
        })
    }

    /// Makes the next step of a call, whose request before was answered, for the same future.
    fn go_on(&mut self, py: Python<'_>, mut op: Op, now: Instant) -> PyResult<()> {
        let step = op.kind.step();
        let Some(request) = step.as_ref().map(Operation::request) else {
            return Ok(());
        };
        if self.transport.is_none() || self.is_late {
            // It takes no more requests: the call begins anew on another connection.
            return self.fail(py, &op.kind, op.future.as_ref(), error::stale(py));
        }
        match self.write(&request, op.times) {
            Ok(sent) => op.sent = sent,
            Err(error) => {
                let error = error::of_client(py, &error);
                return self.fail(py, &op.kind, op.future.as_ref(), error);
            }
        }
        op.times.started = now;
        op.times.spent = Spent::default();
        self.ops.push_back(op);
        Ok(())
    }

    pub(super) fn desk(&mut self, dialect: Dialect) -> Desk<'_> {
        Desk {
            dialect,
            pipeline: &mut self.pipeline,
            out: &mut self.out,
            opaque: &mut self.opaque,
        }
    }

    /// Gets ready to note quiet writes that are about to be written.
    fn begin_pending(&mut self) {
        if self.pending.is_empty() {
            self.pending = PendingWrites::new(&self.server.state, self.opaque);
        }
    }

    /// Asks how the quiet writes so far went, the removal of `uncertain` keys among them; the answer meets nobody.
    pub(super) fn request_acknowledgement(&mut self, uncertain: Vec<OwnedKey>, times: Times) {
        let pending = std::mem::take(&mut self.pending);
        let (first, count) = (pending.first, pending.count);
        self.out.extend_from_slice(b"mn\r\n");
        self.pipeline.expect(Expect::Quiet { first, count });
        self.ops.push_back(Op {
            kind: Kind::Nobody(Box::new(pending)),
            future: None,
            times,
            sent: Sent {
                is_repeatable: false,
                class: Class::Uncounted,
                uncertain,
            },
        });
    }

    /// Notes what a write without an answer may have left behind.
    pub(super) fn note_uncertain(&self, op: &Op) {
        // That of another process is its parent's.
        if self.process.is_current() && !op.sent.uncertain.is_empty() {
            self.server.uncertain.add(op.sent.uncertain.iter().cloned());
        }
    }

    /// Sets the timer to a deadline, in place of a later one.
    pub(super) fn start_timer(&mut self, slf: &Bound<'_, Self>, deadline: Instant) -> PyResult<()> {
        let py = slf.py();
        self.cancel_timer(py)?;
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_secs_f64();
        let look = slf.getattr(intern!(py, "look_at_deadlines"))?;
        let timer = self
            .event_loop
            .bind(py)
            .call_method1(intern!(py, "call_later"), (left, look))?;
        self.timer = Some((deadline, timer.unbind()));
        Ok(())
    }

    pub(super) fn cancel_timer(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some((_, timer)) = self.timer.take() {
            timer.call_method0(py, intern!(py, "cancel"))?;
        }
        Ok(())
    }

    pub(super) fn context(&self, phase: Phase, retry_is_safe: bool) -> Context {
        Context {
            server: self.server.name.clone(),
            phase,
            retry_is_safe,
        }
    }

    /// Ends an op by an error: raised, or a counted miss where that was asked for.
    pub(super) fn fail(
        &self,
        py: Python<'_>,
        kind: &Kind,
        future: Option<&Py<PyAny>>,
        error: PyErr,
    ) -> PyResult<()> {
        let Some(future) = future else { return Ok(()) };
        let is_internal = matches!(kind, Kind::Probe) || error::is_stale(py, &error);
        let miss = match kind {
            Kind::Get {
                default: Some(default),
            } => default.bind(py).clone(),
            Kind::Get { default: None }
            | Kind::Gets
            | Kind::Inspect
            | Kind::Reservation
            | Kind::Number
            | Kind::Counter(_) => py.None().into_bound(py),
            Kind::Written(written) | Kind::TooLarge(_, written) if written.is_reservation => {
                py.None().into_bound(py)
            }
            Kind::Truth | Kind::Written(_) | Kind::TooLarge(..) => {
                false.into_pyobject(py)?.to_owned().into_any()
            }
            _ => return set_exception(py, future, error),
        };
        if is_internal || !error::is_missable(py, self.counters.missable.as_ref(), &error)? {
            return set_exception(py, future, error);
        }
        self.counters
            .misses_by_error
            .fetch_add(1, Ordering::Relaxed);
        set_result(py, future, miss)
    }

    /// Resolves the oldest op by its whole reply, which arrived at a moment.
    pub(super) fn resolve(
        &mut self,
        py: Python<'_>,
        answer: Answer,
        arrived: Instant,
    ) -> PyResult<()> {
        self.replies += 1;
        let Some(mut op) = self.ops.pop_front() else {
            return Ok(());
        };
        let found = self.pipeline.found();
        let found_bytes: usize = found.iter().map(|found| found.value_bytes).sum();
        let codec = &self.codec.get().rust;
        let is_long = found_bytes >= TIMED_BYTES_MIN
            || found
                .first()
                .is_some_and(|found| !codec.is_quick(found.flags));
        let is_timed = self.counters.is_counting && is_long;
        let begin = is_timed.then(Instant::now);
        let shown = self.show(py, &mut op, answer);
        if let Some(begin) = begin {
            let took = begin.elapsed().as_nanos() as u64;
            let unpacking = op.times.spent.of(Part::Decompress);
            let rest = took.saturating_sub(unpacking);
            op.times.spent.add(Part::Deserialise, rest);
        }
        if self.counters.is_counting && !matches!(shown, Ok(Shown::More)) {
            op.count(&self.counters.costs, found_bytes, arrived);
        }
        match shown {
            Ok(Shown::More) => self.ops.push_front(op),
            Ok(Shown::Step) => self.go_on(py, op, arrived)?,
            Ok(Shown::Value(value)) => {
                if let Some(future) = &op.future {
                    set_result(py, future, value)?;
                }
            }
            Err(error) => self.fail(py, &op.kind, op.future.as_ref(), error)?,
        }
        Ok(())
    }

    /// Ends all ops in flight by what `error` makes of each; without an error it is to begin anew elsewhere.
    pub(super) fn fail_all(
        &mut self,
        py: Python<'_>,
        error: impl Fn(&Self, &Op) -> Option<Error>,
    ) -> PyResult<()> {
        for mut op in std::mem::take(&mut self.ops) {
            let error = match error(self, &op) {
                Some(error) => error::of_client(py, &op.kind.failed(error)),
                None => error::stale(py),
            };
            // A call that was late before has been noted then.
            if op.future.is_some() || matches!(op.kind, Kind::Nobody(_)) {
                self.note_uncertain(&op);
            }
            self.fail(py, &op.kind, op.future.as_ref(), error)?;
        }
        Ok(())
    }

    /// Forgets the quiet writes of another process, which acknowledges them.
    fn forget_pending(&mut self) {
        std::mem::take(&mut self.pending).forget();
        for op in &mut self.ops {
            if let Kind::Nobody(pending) = &mut op.kind {
                std::mem::take(&mut **pending).forget();
            }
        }
    }

    /// In a child after a fork: ends its calls, and puts a dead socket in the place of the child's copy.
    ///
    /// To close the transport would take the socket out of the epoll instance that the child may share with its
    /// parent; a dead socket under the same number is an end of file to the child's loop and nothing to the parent.
    pub(super) fn leave_to_parent(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let Ok(mut this) = slf.try_borrow_mut() else {
            return Ok(());
        };
        this.is_late = true;
        this.out.clear();
        this.forget_pending();
        this.cancel_timer(py)?;
        let transport = this.transport.take();
        for op in std::mem::take(&mut this.ops) {
            let why = "the process was forked amid the call".to_owned();
            let error = Error::Unavailable(this.context(Phase::Read, op.sent.is_repeatable), why);
            let error = error::of_client(py, &error);
            this.fail(py, &op.kind, op.future.as_ref(), error)?;
        }
        drop(this);
        let Some(transport) = transport else {
            return Ok(());
        };
        let (dead, _) = UnixStream::pair()?;
        let socket = transport.call_method1(py, intern!(py, "get_extra_info"), ("socket",))?;
        let number: i32 = socket
            .call_method0(py, intern!(py, "fileno"))?
            .extract(py)?;
        if number >= 0 {
            let is_inherited_by_programs = false;
            let numbers = (dead.as_raw_fd(), number, is_inherited_by_programs);
            py.import("os")?.call_method1("dup2", numbers)?;
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
            self.forget_pending();
        }
    }
}
