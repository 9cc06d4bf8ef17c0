//! The asyncio client's native half: servers, and a connection to each on the running loop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use glasscache_client::WireKey;
use glasscache_client::address::Endpoint;
use glasscache_client::costs::TimeSpent;
use glasscache_client::fork::Process;
use glasscache_client::pool::Server;
use glasscache_client::request::Request;
use glasscache_client::{Client as Core, Options};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::Connection;
use super::delayed_call::TimeLimit;
use super::pending_call::{FutureResult, PendingKind};
use super::running_loop;
use crate::keys::key_bytes;
use crate::misses::Misses;
use crate::near::{NearBinding, Strategy};
use crate::settings::{self, Codec};
use crate::{deadline as deadlines, error};

/// A connection, and the only loop that may use it: another loop's thread would find it borrowed.
pub(super) struct LoopConnection {
    pub(super) event_loop: Py<PyAny>,
    pub(super) connection: Py<Connection>,
    /// The process that made it.
    pub(super) process: Process,
}

/// The native half of `glasscache.AsyncClient`.
#[pyclass(frozen, subclass, module = "glasscache._native")]
pub(crate) struct AsyncClient {
    pub(super) core: Arc<Core>,
    pub(super) codec: Py<Codec>,
    pub(super) timeout: Duration,
    pub(super) misses: Arc<Misses>,
    pub(super) near: Option<NearBinding>,
    /// For each slot, a connection for each event loop that uses the client.
    pub(super) connections: Mutex<Vec<Vec<LoopConnection>>>,
}

impl AsyncClient {
    /// The connection to a server, if there is one that takes requests on the running loop.
    pub(super) fn connection<'py>(
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
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(entries) = connections.get_mut(slot) else {
            return Ok(None);
        };
        let inherited = entries.extract_if(.., |entry| !entry.process.is_current());
        let inherited: Vec<LoopConnection> = inherited.collect();
        let entry = entries
            .iter()
            .find(|entry| entry.event_loop.is(&current_loop));
        let own_connection = entry.map(|entry| entry.connection.bind(py).clone());
        drop(connections);
        for entry in inherited {
            Connection::leave_to_parent(entry.connection.bind(py))?;
        }
        Ok(own_connection)
    }

    pub(super) fn wire_key<'a>(
        &self,
        key: &'a Bound<'_, PyAny>,
        scratch: &'a mut Vec<u8>,
    ) -> PyResult<WireKey<'a>> {
        let wire = self.core.keys().wire(key_bytes(key)?, scratch);
        wire.map_err(|error| error::from_client_error(key.py(), &error))
    }

    /// How many connections each slot has, on all loops.
    fn connection_counts(&self) -> Vec<usize> {
        let connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections.iter().map(Vec::len).collect()
    }

    /// Sends a request to the server of its key; `None`: connect first, then try again.
    pub(super) fn submit<'py>(
        &self,
        py: Python<'py>,
        key: WireKey<'_>,
        request: &Request<'_>,
        kind: PendingKind,
        limit: Option<TimeLimit>,
    ) -> FutureResult<'py> {
        let slot = self.core.slot_of(key.bytes);
        self.submit_to(py, slot, Some(request), kind, (limit, TimeSpent::default()))
    }

    /// As [`Self::submit`], to a server; without a request it is the first step of `kind`.
    pub(super) fn submit_to<'py>(
        &self,
        py: Python<'py>,
        slot: usize,
        request: Option<&Request<'_>>,
        kind: PendingKind,
        (limit, spent): (Option<TimeLimit>, TimeSpent),
    ) -> FutureResult<'py> {
        let Some(connection) = self.connection(py, slot)? else {
            return Ok(None);
        };
        let timing = TimeLimit::call_timing(limit, self.timeout, spent)?;
        Connection::submit(&connection, request, kind, timing).map(Some)
    }

    pub(super) fn server(&self, py: Python<'_>, slot: usize) -> PyResult<Arc<Server>> {
        self.core
            .server(slot)
            .map_err(|error| error::from_client_error(py, &error))
    }
}

#[pymethods]
impl AsyncClient {
    #[new]
    #[pyo3(signature = (servers, codec, *, timeout, placement, namespace, counts_as_miss,
                        value_bytes_max, base64_keys, binary, login, tls, costs, strategy))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a keyword of the Python constructor"
    )]
    fn new(
        py: Python<'_>,
        servers: Vec<String>,
        codec: Py<Codec>,
        timeout: f64,
        placement: &str,
        namespace: Vec<u8>,
        counts_as_miss: Option<Py<PyAny>>,
        value_bytes_max: u64,
        base64_keys: bool,
        binary: bool,
        login: Option<(Vec<u8>, Py<PyAny>)>,
        tls: Option<settings::TlsArguments>,
        costs: bool,
        strategy: Option<Py<Strategy>>,
    ) -> PyResult<Self> {
        let timeout = deadlines::seconds(timeout)?;
        let options = Options {
            timeout,
            value_bytes_max,
            namespace,
            keys: settings::key_encoding(base64_keys),
            protocol: settings::protocol(binary),
            login: login.map(|login| settings::login(py, login)),
            // Of threads that watch servers: the connections of calls are asyncio's.
            tls: tls.map(|tls| settings::tls(py, tls)).transpose()?,
            costs,
            strategy: strategy.as_ref().map(|it| it.get().options.clone()),
            ..Options::default()
        };
        let core = Arc::new(settings::build_client(py, &servers, placement, options)?);
        let near = NearBinding::new(py, &core, strategy.as_ref());
        let connections = (0..core.slots_count()).map(|_| Vec::new()).collect();
        Ok(Self {
            core,
            codec,
            timeout,
            misses: Arc::new(Misses::new(counts_as_miss)),
            near,
            connections: Mutex::new(connections),
        })
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

    /// Return `miss` instead of a call's error where errors are misses, or raise the error.
    #[pyo3(name = "_miss_or_raise")]
    fn miss_or_raise(&self, error: &Bound<'_, PyAny>, miss: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let raised = PyErr::from_value(error.clone());
        self.misses.miss_or_raise(error.py(), raised, miss, 1)
    }

    /// Count a value that was made and not stored, for its key was deleted, written or flushed meanwhile.
    #[pyo3(name = "_count_unstored")]
    fn count_fill_not_stored(&self) {
        self.misses.count_fill_not_stored();
    }

    /// The longest value that is sent or received, in pieces too.
    #[getter(_value_bytes_max)]
    fn value_bytes_max(&self) -> u64 {
        self.core.options().value_bytes_max
    }

    /// Count a read of a value in pieces that was a miss, for a piece of it was lost or altered.
    #[pyo3(name = "_count_incomplete")]
    fn count_incomplete(&self) {
        self.misses.count_incomplete();
    }

    /// Return this client's counters. No network.
    #[pyo3(name = "_counters")]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.misses.table(py)?;
        crate::tables::set_costs(&counters, self.core.costs())?;
        let servers = crate::tables::servers(py, &self.core)?;
        let counts = self.connection_counts();
        for (slot, name) in self.names() {
            if let Some(row) = servers.get_item(name)? {
                row.set_item("connections", counts.get(slot).copied().unwrap_or(0))?;
            }
        }
        counters.set_item("servers", servers)?;
        Ok(counters)
    }

    /// The codec that values pass through.
    #[getter(codec)]
    fn own_codec(&self, py: Python<'_>) -> Py<Codec> {
        self.codec.clone_ref(py)
    }
}
