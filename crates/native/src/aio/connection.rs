//! One connection of an event loop: requests gather in its buffer, replies resolve their futures.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use glasscache_client::Error;
use glasscache_client::costs::Part;
use glasscache_client::doubts::{OwnedKey, write_removals};
use glasscache_client::error::{Context, Phase};
use glasscache_client::fork::Process;
use glasscache_client::pipeline::{Answer, Expect, Pipeline};
use glasscache_client::pool::Server;
use glasscache_client::request::{Desk, Dialect, Request};
use pyo3::intern;
use pyo3::prelude::*;

use super::op::{Kind, Op, Times};
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
    pub(super) unanswered: u32,
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

    /// Writes a request behind those of this turn, and returns its future.
    pub(super) fn submit<'py>(
        slf: &Bound<'py, Self>,
        request: &Request<'_>,
        kind: Kind,
        times: Times,
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
            this.ask_for_unanswered(doubts, times);
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
                times,
                is_repeatable,
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

    pub(super) fn desk(&mut self, dialect: Dialect) -> Desk<'_> {
        Desk {
            dialect,
            pipeline: &mut self.pipeline,
            out: &mut self.out,
            opaque: &mut self.opaque,
        }
    }

    /// Asks how the quiet writes so far went, `doubts` among them; the answer meets nobody.
    pub(super) fn ask_for_unanswered(&mut self, doubts: Vec<OwnedKey>, times: Times) {
        let (count, first) = (self.unanswered, self.opaque.wrapping_sub(self.unanswered));
        self.out.extend_from_slice(b"mn\r\n");
        self.pipeline.expect(Expect::Quiet { first, count });
        self.unanswered = 0;
        self.ops.push_back(Op {
            kind: Kind::Nobody(doubts),
            future: None,
            times,
            is_repeatable: false,
        });
    }

    /// Notes what a write without an answer may have left behind.
    pub(super) fn doubt(&self, op: &Op) {
        if !self.process.is_current() {
            return; // the write is the parent's
        }
        match &op.kind {
            Kind::Written { wire, .. } | Kind::Removed(wire) => {
                self.server.doubts.add([wire.clone()]);
            }
            Kind::ManyStored { wire, .. } | Kind::ManyDeleted { wire, .. } | Kind::Nobody(wire) => {
                self.server.doubts.add(wire.iter().cloned());
            }
            _ => {}
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
            | Kind::Written {
                is_reservation: true,
                ..
            } => py.None().into_bound(py),
            Kind::Stored | Kind::Removed(_) | Kind::Written { .. } => {
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
        if self.counters.is_counting {
            op.count(&self.counters.costs, found_bytes as u64, arrived);
        }
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

    /// Ends all ops in flight by what `error` makes of each.
    pub(super) fn fail_all(
        &mut self,
        py: Python<'_>,
        error: impl Fn(&Self, &Op) -> PyErr,
    ) -> PyResult<()> {
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
        this.unanswered = 0;
        this.cancel_timer(py)?;
        let transport = this.transport.take();
        for op in std::mem::take(&mut this.ops) {
            let why = "the process was forked amid the call".to_owned();
            let error = Error::Unavailable(this.context(Phase::Read, op.is_repeatable), why);
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
