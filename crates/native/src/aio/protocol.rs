//! The methods that an event loop calls: those of an `asyncio.Protocol`, and the check of deadlines.

use std::time::{Duration, Instant};

use glasscache_client::TcpOptions;
use glasscache_client::engine::connection::Attempt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, PyVisit};

use super::connection::Connection;
use super::set_result;

#[pymethods]
impl Connection {
    /// Called by the loop: the connection is made. It is probed first if its command set is unknown.
    fn connection_made(slf: &Bound<'_, Self>, transport: Py<PyAny>) -> PyResult<()> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        if this.engine.must_close() {
            // The call that needed it ended while the loop still connected.
            drop(this);
            return transport.call_method0(py, intern!(py, "close")).map(drop);
        }
        if let Some(options) = this.server.tcp_options() {
            set_tcp_options(transport.bind(py), options)?;
        }
        this.transport = Some(transport);
        let started = Instant::now();
        let presumes_classic = this.presumes_classic;
        this.engine.handle_connected(
            presumes_classic,
            Attempt {
                started,
                deadline: started + Duration::from_hours(1), // connecting has a deadline of its own
                is_retry: false,
            },
        );
        this.process_events(py)?;
        drop(this);
        Self::flush(slf)
    }

    /// Called by the loop: bytes have arrived.
    fn data_received(slf: &Bound<'_, Self>, data: &[u8]) -> PyResult<()> {
        let mut this = slf.borrow_mut();
        if !this.process.is_current() {
            return Ok(()); // the parent's: its loop must not be run by a child (docs/decisions/client.md, 0057)
        }
        this.engine.wire_mut().feed(data);
        this.process_events(slf.py())?;
        drop(this);
        Self::flush_unscheduled(slf)
    }

    /// Called by the loop: the peer sends no more. The connection is closed.
    #[staticmethod]
    fn eof_received() -> bool {
        false
    }

    /// Called by the loop: the connection is gone.
    fn connection_lost(&mut self, py: Python<'_>, error: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.transport = None;
        self.resolve_resumed(py)?;
        self.cancel_timer(py)?;
        let is_orderly = error.is_none();
        let reason =
            error.map_or_else(|| "the connection was closed".to_owned(), |error| error.to_string());
        self.engine.handle_disconnect(is_orderly, &reason);
        self.process_events(py)
    }

    /// Called by the loop: the peer takes no more for now.
    fn pause_writing(&mut self) {
        self.is_writing_paused = true;
    }

    /// Called by the loop: the peer takes more again.
    fn resume_writing(&mut self, py: Python<'_>) -> PyResult<()> {
        self.is_writing_paused = false;
        self.resolve_resumed(py)
    }

    /// A future, shared by all callers, that is done when the peer takes more again or the connection is gone.
    fn resumed(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(future) = &self.resumed_future {
            return Ok(future.clone_ref(py));
        }
        let create = intern!(py, "create_future");
        let future = self.event_loop(py)?.call_method0(create)?.unbind();
        Ok(self.resumed_future.insert(future).clone_ref(py))
    }

    /// Send what was written in this loop iteration.
    fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let transport_and_output = slf.borrow_mut().take_output(py);
        // Not borrowed here: the transport may call `pause_writing` at once.
        transport_and_output.map_or(Ok(()), |(transport, output)| {
            transport.call_method1(py, intern!(py, "write"), (output,)).map(drop)
        })
    }

    /// Ends the calls whose deadline passed, and sets the timer for the next one.
    fn check_deadlines(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let mut this = slf.borrow_mut();
        this.timer = None;
        this.engine.tick(Instant::now());
        if !this.engine.accepts_requests() {
            // Callers that wait to send on it use another.
            this.resolve_resumed(py)?;
        }
        this.process_events(py)?;
        match this.engine.next_deadline() {
            Some(next_deadline) => this.start_timer(slf, next_deadline),
            // No call waits for what is in flight on a connection that takes no more requests.
            None if !this.engine.accepts_requests() => this.abort(py),
            None => Ok(()),
        }
    }

    /// Whether it takes requests.
    #[getter]
    fn is_usable(&self) -> bool {
        self.can_take_requests()
    }

    /// Whether the peer takes no more for now.
    #[getter]
    fn must_wait_to_write(&self) -> bool {
        self.is_writing_paused && self.transport.is_some() && self.engine.accepts_requests()
    }

    /// Whether all is sent, no caller waits for a reply, and every quiet write is acknowledged.
    #[getter]
    fn is_idle(&self, py: Python<'_>) -> PyResult<bool> {
        let is_all_sent =
            self.engine.wire().output().is_empty() && !self.engine.has_unacknowledged_writes();
        Ok(is_all_sent && !self.is_awaited(py)?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traverse(&visit)
    }

    fn __clear__(&mut self) {
        self.pending_requests.clear();
        (self.transport, self.timer) = (None, None);
        (self.resumed_future, self.ready_future) = (None, None);
    }

    /// Close it at once, with its socket; what is in flight fails.
    #[pyo3(name = "abort")]
    fn close_at_once(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        slf.borrow_mut().engine.close();
        Self::flush(slf)?;
        let transport = slf.borrow().transport.as_ref().map(|transport| transport.clone_ref(py));
        transport
            .map_or(Ok(()), |transport| transport.call_method0(py, intern!(py, "abort")).map(drop))
    }

    /// Close it; what is in flight fails.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        slf.borrow_mut().engine.close();
        slf.borrow_mut().resolve_resumed(py)?;
        Self::flush(slf)?;
        let transport = slf.borrow_mut().transport.take();
        transport
            .map_or(Ok(()), |transport| transport.call_method0(py, intern!(py, "close")).map(drop))
    }
}

/// Sets the options on a transport's socket.
fn set_tcp_options(transport: &Bound<'_, PyAny>, options: TcpOptions) -> PyResult<()> {
    let py = transport.py();
    let socket = transport.call_method1(intern!(py, "get_extra_info"), ("socket",))?;
    if socket.is_none() {
        return Ok(());
    }
    let module = py.import("socket")?;
    for (level, name, value) in options.named() {
        let arguments = (module.getattr(level)?, module.getattr(name)?, value);
        socket.call_method1(intern!(py, "setsockopt"), arguments)?;
    }
    Ok(())
}

impl Connection {
    fn resolve_resumed(&mut self, py: Python<'_>) -> PyResult<()> {
        self.resumed_future
            .take()
            .map_or(Ok(()), |future| set_result(py, &future, py.None().into_bound(py)))
    }

    /// The transport, and what was written for it in this loop iteration.
    fn take_output<'py>(&mut self, py: Python<'py>) -> Option<(Py<PyAny>, Bound<'py, PyBytes>)> {
        self.is_flush_scheduled = false;
        if !self.process.is_current() {
            return None;
        }
        self.engine.request_acknowledgement();
        let transport = self.transport.as_ref()?;
        let output = self.engine.wire().output();
        if output.is_empty() {
            return None;
        }
        let (transport, output_object) = (transport.clone_ref(py), PyBytes::new(py, output));
        let output_length = output.len();
        self.last_sent_count = std::mem::take(&mut self.unsent_count);
        self.engine.wire_mut().mark_sent(output_length);
        Some((transport, output_object))
    }

    /// Sends what was written, unless that is done at the end of this loop iteration.
    pub(super) fn flush_unscheduled(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.borrow();
        let needs_flush = !this.engine.wire().output().is_empty() && !this.is_flush_scheduled;
        drop(this);
        if needs_flush { Self::flush(slf) } else { Ok(()) }
    }

    /// Sets the timer to a deadline, which replaces a later one.
    pub(super) fn start_timer(&mut self, slf: &Bound<'_, Self>, deadline: Instant) -> PyResult<()> {
        let py = slf.py();
        self.cancel_timer(py)?;
        let seconds_left = deadline.saturating_duration_since(Instant::now()).as_secs_f64();
        let check_deadlines = slf.getattr(intern!(py, "check_deadlines"))?;
        let timer = self
            .event_loop(py)?
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
}
