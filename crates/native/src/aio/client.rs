//! The asyncio client's native half: servers, and a connection to each on the running loop.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glasscache_client::WireKey;
use glasscache_client::address::Endpoint;
use glasscache_client::costs::TimeSpent;
use glasscache_client::fork::Process;
use glasscache_client::pool::Server;
use glasscache_client::request::Request;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit};

use super::connection::Connection;
use super::delayed_call::TimeLimit;
use super::pending_call::{CallKind, FutureResult};
use super::running_loop;
use crate::client_state::ClientState;
use crate::{error, settings};

/// A connection, and the only loop that may use it: another loop's thread would find it borrowed.
pub(super) struct LoopConnection {
    /// Weak, so that no loop lives on for its connection.
    event_loop: Py<PyWeakrefReference>,
    pub(super) connection: Py<Connection>,
    /// The process that made it.
    process: Process,
}

impl LoopConnection {
    pub(super) fn new(event_loop: &Bound<'_, PyAny>, connection: Py<Connection>) -> PyResult<Self> {
        let event_loop = PyWeakrefReference::new(event_loop)?.unbind();
        Ok(Self { event_loop, connection, process: Process::current() })
    }

    /// Its loop; `None`: it is gone.
    pub(super) fn event_loop<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.event_loop.bind(py).upgrade()
    }

    pub(super) fn is_on(&self, event_loop: &Bound<'_, PyAny>) -> bool {
        self.event_loop(event_loop.py()).is_some_and(|own_loop| own_loop.is(event_loop))
    }
}

/// The native half of `glasscache.AsyncClient`.
#[pyclass(frozen, subclass, module = "glasscache._native")]
pub(crate) struct AsyncClient {
    pub(super) state: Py<ClientState>,
    /// For each slot, a connection for each event loop that uses the client.
    connections: Mutex<Vec<Vec<LoopConnection>>>,
}

impl Deref for AsyncClient {
    type Target = ClientState;

    fn deref(&self) -> &ClientState {
        self.state.get()
    }
}

impl AsyncClient {
    /// For each slot, its connections. Python must not run while this is held.
    pub(super) fn lock_connections(&self) -> MutexGuard<'_, Vec<Vec<LoopConnection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a server, if there is one that takes requests on the running loop.
    pub(super) fn usable_connection<'py>(
        &self,
        py: Python<'py>,
        slot: usize,
    ) -> PyResult<Option<Bound<'py, Connection>>> {
        let connection = self.connection_on_loop(py, slot)?;
        Ok(connection.filter(|connection| connection.borrow().can_take_requests()))
    }

    /// The connection to a server on the running loop, whatever its state.
    pub(super) fn connection_on_loop<'py>(
        &self,
        py: Python<'py>,
        slot: usize,
    ) -> PyResult<Option<Bound<'py, Connection>>> {
        let current_loop = running_loop(py)?;
        let mut connections = self.lock_connections();
        let Some(loop_connections) = connections.get_mut(slot) else {
            return Ok(None);
        };
        let inherited_connections = loop_connections
            .extract_if(.., |loop_connection| !loop_connection.process.is_current());
        let inherited_connections: Vec<LoopConnection> = inherited_connections.collect();
        let loop_connection =
            loop_connections.iter().find(|loop_connection| loop_connection.is_on(&current_loop));
        let own_connection =
            loop_connection.map(|loop_connection| loop_connection.connection.bind(py).clone());
        drop(connections);
        for loop_connection in inherited_connections {
            Connection::abandon_after_fork(loop_connection.connection.bind(py))?;
        }
        Ok(own_connection)
    }

    /// How many connections each slot has, on all loops.
    fn connection_counts(&self) -> Vec<usize> {
        let connections = self.lock_connections();
        connections.iter().map(Vec::len).collect()
    }

    /// Sends a request to the server of its key; `None`: connect first, then try again.
    pub(super) fn submit<'py>(
        &self,
        py: Python<'py>,
        wire_key: WireKey<'_>,
        request: &Request<'_>,
        call_kind: CallKind,
        time_limit: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        let slot = self.core.slot_of(wire_key.bytes);
        self.submit_to(py, slot, Some(request), call_kind, (time_limit, TimeSpent::default()))
    }

    /// As [`Self::submit`], to a server; without a request it is the first step of `call_kind`.
    pub(super) fn submit_to<'py>(
        &self,
        py: Python<'py>,
        slot: usize,
        request: Option<&Request<'_>>,
        call_kind: CallKind,
        (time_limit, spent): (Option<TimeLimit>, TimeSpent),
    ) -> FutureResult<'py> {
        let Some(connection) = self.usable_connection(py, slot)? else {
            return Ok(None);
        };
        let timing = TimeLimit::call_timing(time_limit, self.timeout, spent)?;
        Connection::submit(&connection, request, call_kind, timing).map(Some)
    }

    pub(super) fn server(&self, py: Python<'_>, slot: usize) -> PyResult<Arc<Server>> {
        self.core.server(slot).map_err(|error| error::from_client_error(py, &error))
    }
}

#[pymethods]
impl AsyncClient {
    #[new]
    fn new(state: Py<ClientState>) -> Self {
        let slots_count = state.get().core.slots_count();
        Self { state, connections: Mutex::new((0..slots_count).map(|_| Vec::new()).collect()) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.state)?;
        // Held by another thread only while that does not run Python, and so not during a collection.
        let connections = self.connections.try_lock();
        for loop_connection in connections.iter().flat_map(|slots| slots.iter().flatten()) {
            visit.call(&loop_connection.connection)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let connections = std::mem::take(&mut *self.lock_connections());
        drop(connections); // outside the lock
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        settings::repr(&slf.get_type(), &slf.get().core)
    }

    /// Return the slot of a key's server.
    #[pyo3(name = "_slot_of")]
    fn slot_of(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut scratch = Vec::new();
        let key = self.wire_key(key, &mut scratch)?;
        Ok(self.core.slot_of(key.bytes))
    }

    /// Return (host, port) or (path, None) of the server in a slot.
    #[pyo3(name = "_address_of")]
    fn address_of(&self, py: Python<'_>, slot: usize) -> PyResult<(String, Option<u16>)> {
        Ok(match &self.server(py, slot)?.endpoint {
            Endpoint::Tcp(host, port) => (host.clone(), Some(*port)),
            Endpoint::Unix(path) => (path.display().to_string(), None),
        })
    }

    /// Return the name of each present server by its slot; one that left keeps its slot unused.
    #[getter(_names)]
    pub(super) fn names(&self) -> BTreeMap<usize, String> {
        let name = |(slot, server): (usize, Arc<Server>)| (slot, server.name.clone());
        self.core.servers().into_iter().map(name).collect()
    }

    /// Return how many slots there are: one for each server that there has been.
    #[getter(_slots_count)]
    fn slots_count(&self) -> usize {
        self.core.slots_count()
    }

    /// Note that the client is closed: later calls raise.
    #[pyo3(name = "_mark_closed")]
    fn mark_closed(&self, py: Python<'_>) {
        py.detach(|| self.core.close());
    }

    /// Return how many connections each server has, by its name.
    #[getter(_connection_counts)]
    fn counts_by_name(&self) -> BTreeMap<String, usize> {
        let counts = self.connection_counts();
        let names = self.names().into_iter();
        let count = |(slot, name)| (name, counts.get(slot).copied().unwrap_or(0));
        names.map(count).collect()
    }
}
