//! What the event loop calls: the methods of an `asyncio.Protocol`, and the look at deadlines.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use glasscache_client::Error;
use glasscache_client::costs::Class;
use glasscache_client::engine::health::Mark;
use glasscache_client::engine::loss::{Cause, Next, Stage, Unanswered};
use glasscache_client::error::Phase;
use glasscache_client::pipeline::{Expect, Progress};
use glasscache_client::request::Dialect;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::connection::Connection;
use super::op::{Kind, Op, Sent, Times};
use super::set_result;
use crate::error;

#[pymethods]
impl Connection {
    /// Called by the loop: the connection is made. It is probed first if nobody has yet.
    fn connection_made(slf: &Bound<'_, Self>, transport: Py<PyAny>) -> PyResult<()> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        if this.is_late {
            // Whoever wanted it gave up while the loop still connected.
            drop(this);
            return transport.call_method0(py, intern!(py, "close")).map(drop);
        }
        if this.server.dialect().is_some() || this.presumes_classic {
            if let Some(ready) = this.ready.take() {
                set_result(py, &ready, py.None().into_bound(py))?;
            }
        } else {
            this.pipeline.expect(Expect::Probe);
            let op = Op {
                kind: Kind::Probe,
                future: this.ready.take(),
                times: Times::now(), // who connects has a deadline of its own
                sent: Sent {
                    is_repeatable: true,
                    class: Class::Uncounted,
                    uncertain: Vec::new(),
                },
            };
            this.ops.push_back(op);
            transport.call_method1(py, intern!(py, "write"), (PyBytes::new(py, b"mn\r\n"),))?;
        }
        this.transport = Some(transport);
        Ok(())
    }

    /// Called by the loop: bytes have come.
    fn data_received(slf: &Bound<'_, Self>, data: &[u8]) -> PyResult<()> {
        let mut this = slf.borrow_mut();
        this.read(slf.py(), data)?;
        let has_next_steps = !this.out.is_empty() && !this.will_flush;
        drop(this);
        if has_next_steps {
            return Self::flush(slf);
        }
        Ok(())
    }

    /// Called by the loop: the peer sends no more. The connection is closed.
    #[staticmethod]
    fn eof_received() -> bool {
        false
    }

    /// Called by the loop: the connection is gone.
    fn connection_lost(&mut self, py: Python<'_>, error: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.transport = None;
        self.tell_resumed(py)?;
        self.cancel_timer(py)?;
        let cause = Cause::Closed {
            in_order: error.is_none(),
        };
        let why = error.map_or_else(|| "the connection was closed".to_owned(), |e| e.to_string());
        let (was_late, mark) = (self.is_late, Cell::new(Mark::None));
        self.fail_all(py, |this, op| {
            let Next::End(its_mark) = this.unanswered(op).next(cause) else {
                return None;
            };
            // Nobody waited for the others.
            if op.future.is_some() {
                mark.set(mark.get().max(its_mark));
            }
            let phase = match op.kind {
                Kind::Probe => Phase::Connect,
                _ => Phase::Read,
            };
            let context = this.context(phase, op.sent.is_repeatable);
            Some(Error::Unavailable(context, why.clone()))
        })?;
        // One that was late is closed by us, and was taken note of when it was late.
        if !was_late {
            self.server.health.note(mark.get());
        }
        Ok(())
    }

    /// Called by the loop: the peer takes no more for now.
    fn pause_writing(&mut self) {
        self.is_paused = true;
    }

    /// Called by the loop: the peer takes more again.
    fn resume_writing(&mut self, py: Python<'_>) -> PyResult<()> {
        self.is_paused = false;
        self.tell_resumed(py)
    }

    /// A future, the same for all who ask, that is done when the peer takes more again or the connection is gone.
    fn resumed(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(future) = &self.resumed {
            return Ok(future.clone_ref(py));
        }
        let create = intern!(py, "create_future");
        let future = self.event_loop.call_method0(py, create)?;
        Ok(self.resumed.insert(future).clone_ref(py))
    }

    /// Send what was written in this turn of the loop.
    fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let written = slf.borrow_mut().take_written(py);
        // Not borrowed here: the transport may say at once that the peer takes no more.
        written.map_or(Ok(()), |(transport, bytes)| {
            transport
                .call_method1(py, intern!(py, "write"), (bytes,))
                .map(drop)
        })
    }

    /// Ends the calls whose time is over; then looks again when the next one's may be.
    fn look_at_deadlines(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        this.timer = None;
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        let (mut late, mut mark) = (Vec::new(), Mark::None);
        for index in 0..this.ops.len() {
            let Some(op) = this.ops.get(index).filter(|op| op.future.is_some()) else {
                continue;
            };
            let Times {
                started, deadline, ..
            } = op.times;
            if deadline > now {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
                continue;
            }
            let over = Cause::Deadline(deadline.saturating_duration_since(started));
            if let Next::End(its_mark) = this.unanswered(op).next(over) {
                mark = mark.max(its_mark);
            }
            // The op keeps its place: its reply is still to be read, for nobody.
            let future = this.ops.get_mut(index).and_then(|op| op.future.take());
            late.push((index, future));
        }
        if !late.is_empty() {
            this.is_late = true;
            // Who waits to send on it goes to another.
            this.tell_resumed(py)?;
        }
        this.server.health.note(mark);
        for (index, future) in &late {
            let Some(op) = this.ops.get(*index) else {
                break;
            };
            this.note_uncertain(op);
            let error = Error::Deadline(this.context(Phase::Read, op.sent.is_repeatable));
            let Some(op) = this.ops.get_mut(*index) else {
                break;
            };
            let error = error::of_client(py, &op.kind.failed(error));
            let Some(op) = this.ops.get(*index) else {
                break;
            };
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
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        slf.borrow_mut().is_late = true;
        slf.borrow_mut().tell_resumed(py)?;
        Self::flush(slf)?;
        let transport = slf.borrow_mut().transport.take();
        transport.map_or(Ok(()), |transport| {
            transport.call_method0(py, intern!(py, "close")).map(drop)
        })
    }
}

impl Connection {
    /// How a request stands that gets no reply on this connection.
    fn unanswered(&self, op: &Op) -> Unanswered {
        Unanswered {
            stage: match op.kind {
                Kind::Probe => Stage::Probing,
                _ => Stage::Exchange,
            },
            was_used: self.replies > 0,
            is_untouched: self.pipeline.is_untouched(),
            was_sent: true,
            is_repeatable: op.sent.is_repeatable,
            was_retried: false,
        }
    }

    /// Reads bytes that have come, and resolves the futures of the replies that are whole.
    fn read(&mut self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if !self.process.is_current() {
            return Ok(()); // the parent's: its loop must not be run by a child (docs/decisions/0057)
        }
        let arrived = Instant::now();
        self.pipeline.feed(data);
        loop {
            match self.pipeline.poll() {
                Ok(Progress::Whole(answer)) => {
                    self.resolve(py, answer, arrived)?;
                    self.pipeline.release();
                    if self.presumes_classic && self.server.dialect().is_none() {
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
                    self.server.health.note(Mark::Bad);
                    let server = self.server.name.clone();
                    let error = Error::Protocol { server, fault };
                    self.fail_all(py, |_, _| Some(error.clone()))?;
                    return self.abort(py);
                }
            }
        }
    }

    fn tell_resumed(&mut self, py: Python<'_>) -> PyResult<()> {
        self.resumed.take().map_or(Ok(()), |future| {
            set_result(py, &future, py.None().into_bound(py))
        })
    }

    /// The transport, and what was written for it in this turn of the loop.
    fn take_written<'py>(&mut self, py: Python<'py>) -> Option<(Py<PyAny>, Bound<'py, PyBytes>)> {
        self.will_flush = false;
        if !self.process.is_current() {
            self.out.clear();
            return None;
        }
        if !self.pending.is_empty() {
            // What a server refuses is read as an answer then, and not as bytes that nobody asked for.
            self.request_acknowledgement(Vec::new(), Times::now());
        }
        let transport = self.transport.as_ref().filter(|_| !self.out.is_empty())?;
        let bytes = PyBytes::new(py, &self.out);
        let transport = transport.clone_ref(py);
        self.out.clear();
        if self.out.capacity() > 1 << 20 {
            self.out = Vec::new();
        }
        Some((transport, bytes))
    }
}
