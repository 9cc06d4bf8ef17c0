//! Connections and health of servers, for the Python half: it connects, replaces and closes them through these methods.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use glasscache_client::Error;
use glasscache_client::engine::connection::Connection as Engine;
use glasscache_client::engine::health;
use glasscache_client::engine::retry::{FailedRequest, FailureCause, RetryDecision};
use glasscache_client::error::{Context, Phase};
use glasscache_client::fork::{Process, random_opaque};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyWeakrefReference};

use super::client::{AsyncClient, LoopConnection};
use super::connection::Connection;
use super::delayed_call::DelayedCall;
use super::running_loop;
use crate::error;
use crate::settings;

#[pymethods]
impl AsyncClient {
    /// Return a protocol for a new connection to a server, whose `ready_future` this is.
    #[pyo3(name = "_new_connection")]
    fn new_connection(
        &self,
        py: Python<'_>,
        slot: usize,
        ready_future: Py<PyAny>,
        presumes_classic: bool,
    ) -> PyResult<Py<Connection>> {
        let server = self.server(py, slot)?;
        let value_bytes_max = self.core.options().value_bytes_max;
        let connection = Connection {
            engine: Engine::new(server.state.clone(), value_bytes_max, random_opaque()),
            server,
            client: self.state.clone_ref(py),
            event_loop: PyWeakrefReference::new(&running_loop(py)?)?.unbind(),
            transport: None,
            pending_requests: VecDeque::new(),
            process: Process::current(),
            presumes_classic,
            is_flush_scheduled: false,
            unsent_count: 0,
            last_sent_count: 0,
            is_writing_paused: false,
            resumed_future: None,
            timer: None,
            ready_future: Some(ready_future),
        };
        Py::new(py, connection)
    }

    /// Take a connection into use for a server on the running loop, in place of the one before.
    #[pyo3(name = "_use_connection")]
    fn use_connection(
        &self,
        py: Python<'_>,
        slot: usize,
        connection: Py<Connection>,
    ) -> PyResult<()> {
        let current_loop = running_loop(py)?;
        let new_connection = LoopConnection::new(&current_loop, connection)?;
        let mut connections = self.lock_connections();
        let Some(loop_connections) = connections.get_mut(slot) else {
            return Ok(());
        };
        let replaced: Vec<_> = loop_connections
            .extract_if(.., |loop_connection| loop_connection.is_on(&current_loop))
            .collect();
        loop_connections.push(new_connection);
        drop(connections);
        drop(replaced);
        Ok(())
    }

    /// Drop the connections of loops that are closed or gone, and close their sockets.
    #[pyo3(name = "_drop_closed_loops")]
    fn drop_closed_loops(&self, py: Python<'_>) -> PyResult<()> {
        let mut open_loops = Vec::new();
        // Querying a loop runs Python, which must not happen under the lock.
        for event_loop in self.event_loops(py) {
            if !event_loop.call_method0(intern!(py, "is_closed"))?.is_truthy()? {
                open_loops.push(event_loop);
            }
        }
        let on_closed_loops = self.take_connections(|loop_connection| {
            !open_loops.iter().any(|open_loop| loop_connection.is_on(open_loop))
        });
        for loop_connection in on_closed_loops {
            Connection::drop_with_loop(loop_connection.connection.bind(py));
        }
        Ok(())
    }

    /// Forget the connections of the running loop, which have been closed.
    #[pyo3(name = "_drop_running_loop")]
    fn drop_running_loop(&self, py: Python<'_>) -> PyResult<()> {
        let current_loop = running_loop(py)?;
        drop(self.take_connections(|loop_connection| loop_connection.is_on(&current_loop)));
        Ok(())
    }

    /// Take the connections of other loops, to be closed there.
    #[pyo3(name = "_take_other_connections")]
    fn take_other_connections<'py>(
        &self,
        py: Python<'py>,
    ) -> Vec<(Bound<'py, PyAny>, Py<Connection>)> {
        let on_other_loops = self.take_connections(|_| true).into_iter();
        on_other_loops
            .filter_map(|loop_connection| {
                Some((loop_connection.event_loop(py)?, loop_connection.connection))
            })
            .collect()
    }

    /// Return the connection of a server on the running loop, whatever its state.
    #[pyo3(name = "_connection_of")]
    fn connection_of<'py>(
        &self,
        py: Python<'py>,
        slot: usize,
    ) -> PyResult<Option<Bound<'py, Connection>>> {
        self.connection_on_loop(py, slot)
    }

    /// Change the servers for all calls to come; return this loop's connections to those that left, by slot.
    #[pyo3(name = "_change_servers")]
    fn change_servers(
        &self,
        py: Python<'_>,
        servers: Vec<String>,
    ) -> PyResult<BTreeMap<usize, Option<Py<Connection>>>> {
        settings::parse_addresses(&servers)
            .and_then(|addresses| self.core.set_servers(&addresses))
            .map_err(|error| error::from_client_error(py, &error))?;
        let present_servers = self.names();
        let current_loop = running_loop(py)?;
        let mut connections = self.lock_connections();
        connections.resize_with(self.core.slots_count(), Vec::new);
        let take_connection = |loop_connections: &mut Vec<LoopConnection>| {
            let index = loop_connections
                .iter()
                .position(|loop_connection| loop_connection.is_on(&current_loop))?;
            Some(loop_connections.swap_remove(index).connection)
        };
        let departed_slots = connections
            .iter_mut()
            .enumerate()
            .filter(|(slot, _)| !present_servers.contains_key(slot));
        Ok(departed_slots
            .map(|(slot, loop_connections)| (slot, take_connection(loop_connections)))
            .collect())
    }

    /// Whether a server is down, so that calls fail at once.
    #[pyo3(name = "_is_down")]
    fn is_down(&self, py: Python<'_>, slot: usize) -> PyResult<bool> {
        Ok(self.server(py, slot)?.health.is_down())
    }

    /// Return the exception for a server that cannot be reached.
    #[pyo3(name = "_unreachable_exception")]
    fn unreachable_exception(
        &self,
        py: Python<'_>,
        slot: usize,
        reason: &str,
    ) -> PyResult<Py<PyAny>> {
        let error = Error::Unavailable(self.connect_context(slot), reason.to_owned());
        let error = error::from_client_error(py, &error);
        error.value(py).setattr(intern!(py, "_reason"), reason)?;
        Ok(error.into_value(py).into_any())
    }

    /// Return the slot of the server that a delayed call connects to next, if it may try once more.
    #[pyo3(name = "_begin_attempt")]
    fn begin_attempt(
        &self,
        delayed: &Bound<'_, DelayedCall>,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let slot = self.core.slot_of(self.wire_key(key, &mut Vec::new())?.bytes);
        if delayed.borrow_mut().begin_next_attempt() {
            return Ok(slot);
        }
        let error = self.connect_timeout_error(slot);
        Err(error::from_client_error(key.py(), &error))
    }

    /// Return the exception for a connection that was not made in time.
    #[pyo3(name = "_connect_timeout_exception")]
    fn connect_timeout_exception(&self, py: Python<'_>, slot: usize) -> Py<PyAny> {
        let error = error::from_client_error(py, &self.connect_timeout_error(slot));
        error.into_value(py).into_any()
    }

    /// Note that connecting to a server failed, within this many seconds unless it was refused.
    #[pyo3(name = "_mark_unreachable")]
    fn mark_unreachable(
        &self,
        py: Python<'_>,
        slot: usize,
        timeout_s: Option<f64>,
    ) -> PyResult<()> {
        let timeout = timeout_s.map(Duration::try_from_secs_f64).transpose();
        let cause = match timeout.unwrap_or_default() {
            Some(timeout) => FailureCause::Deadline(timeout),
            None => FailureCause::Closed { is_orderly: false },
        };
        if let RetryDecision::Fail(effect) = FailedRequest::CONNECTING.decide(cause) {
            self.server(py, slot)?.health.apply_effect(effect);
        }
        Ok(())
    }

    /// Return how a server that is down is probed: seconds to pause and to wait, the request, and what a good
    /// reply begins with.
    #[pyo3(name = "_probe_of")]
    fn probe_of<'py>(
        &self,
        py: Python<'py>,
        slot: usize,
    ) -> PyResult<(f64, f64, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let pause_s = health::probe_pause(u64::from(random_opaque())).as_secs_f64();
        let timeout_s = health::PROBE_TIMEOUT.as_secs_f64();
        // Without a password nothing is sent, and the probe ends at its limit.
        let (request, expected_prefix) =
            self.server(py, slot)?.probe_request_and_reply().unwrap_or_default();
        let to_bytes = |content: &[u8]| PyBytes::new(py, content);
        Ok((pause_s, timeout_s, to_bytes(&request), to_bytes(expected_prefix)))
    }

    /// Note that a server replies again.
    #[pyo3(name = "_mark_up")]
    fn mark_up(&self, py: Python<'_>, slot: usize) -> PyResult<()> {
        self.server(py, slot)?.health.mark_up();
        Ok(())
    }
}

impl AsyncClient {
    /// The loops with connections, in no order and perhaps repeated.
    fn event_loops<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let connections = self.lock_connections();
        let loop_connections = connections.iter().flatten();
        loop_connections.filter_map(|loop_connection| loop_connection.event_loop(py)).collect()
    }

    /// Takes the connections out of use for which `is_taken` says so.
    fn take_connections(&self, is_taken: impl Fn(&LoopConnection) -> bool) -> Vec<LoopConnection> {
        let mut connections = self.lock_connections();
        connections
            .iter_mut()
            .flat_map(|loop_connections| {
                loop_connections.extract_if(.., |loop_connection| is_taken(loop_connection))
            })
            .collect()
    }

    /// The error context of a call that had no connection.
    fn connect_context(&self, slot: usize) -> Context {
        let server = self.core.server(slot);
        Context {
            server: server.map(|server| server.name.clone()).unwrap_or_default(),
            phase: Phase::Connect,
            retry_is_safe: true,
        }
    }

    pub(super) fn connect_timeout_error(&self, slot: usize) -> Error {
        Error::Deadline(self.connect_context(slot))
    }

    /// The error of [`Self::unreachable_exception`] or [`Self::connect_timeout_exception`], by its exception.
    pub(super) fn connect_error(&self, slot: usize, exception: &Bound<'_, PyAny>) -> Error {
        let reason = exception.getattr(intern!(exception.py(), "_reason"));
        let context = self.connect_context(slot);
        match reason.and_then(|reason| reason.extract()) {
            Ok(reason) => Error::Unavailable(context, reason),
            Err(_) => Error::Deadline(context),
        }
    }
}

impl Connection {
    /// Drops it with its loop, on which no call waits any more: nothing of the loop is referred to.
    fn drop_with_loop(slf: &Bound<'_, Self>) {
        let Ok(mut this) = slf.try_borrow_mut() else {
            return;
        };
        this.engine.handle_disconnect(false, "its event loop was closed");
        let (pending_requests, transport) =
            (std::mem::take(&mut this.pending_requests), this.transport.take());
        drop(this);
        drop(pending_requests);
        if let Some(transport) = transport {
            // A closed loop refuses the callback that `abort` schedules; a transport that is dropped closes its socket.
            let _ = transport.call_method0(slf.py(), intern!(slf.py(), "abort"));
        }
    }

    /// In a child after a fork: ends its calls, and replaces the child's copy of the socket by a dead one.
    ///
    /// To close the transport would take the socket out of the epoll instance that the child may share with its
    /// parent; a dead socket under the same number is an end of file to the child's loop and nothing to the parent.
    pub(super) fn abandon_after_fork(slf: &Bound<'_, Self>) -> PyResult<()> {
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
        let descriptor: i32 = socket.call_method0(py, intern!(py, "fileno"))?.extract(py)?;
        if descriptor >= 0 {
            let is_inherited_by_programs = false;
            let dup_arguments = (dead_socket.as_raw_fd(), descriptor, is_inherited_by_programs);
            py.import("os")?.call_method1("dup2", dup_arguments)?;
        }
        Ok(())
    }
}
