//! What the Python half needs to make, replace and give up connections, and how servers are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use glasscache_client::Error;
use glasscache_client::error::{Context, Phase};
use glasscache_client::pipeline::Pipeline;
use pyo3::prelude::*;

use super::client::AsyncClient;
use super::connection::Connection;
use super::running_loop;
use crate::error;
use crate::settings::{self};

#[pymethods]
impl AsyncClient {
    /// Return a protocol for a new connection to a server, whose `ready` future this is.
    fn new_connection(
        &self,
        py: Python<'_>,
        place: usize,
        ready: Py<PyAny>,
        presumes_classic: bool,
    ) -> PyResult<Py<Connection>> {
        let connection = Connection {
            server: self.server(py, place)?,
            codec: self.codec.clone_ref(py),
            counters: self.counters.clone(),
            event_loop: running_loop(py)?.unbind(),
            transport: None,
            pipeline: Pipeline::new(self.core.options().value_bytes_max),
            ops: VecDeque::new(),
            out: Vec::new(),
            opaque: 1,
            unanswered: 0,
            replies: 0,
            presumes_classic,
            will_flush: false,
            is_paused: false,
            resumed: None,
            is_late: false,
            timer: None,
            ready: Some(ready),
        };
        Py::new(py, connection)
    }

    /// Take a connection into use for a server; return the one that it replaces.
    fn use_connection(
        &self,
        place: usize,
        connection: Option<Py<Connection>>,
    ) -> Option<Py<Connection>> {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections
            .get_mut(place)
            .and_then(|slot| std::mem::replace(slot, connection))
    }

    /// Return the connection of a server, whatever its state.
    fn connection_of(&self, py: Python<'_>, place: usize) -> Option<Py<Connection>> {
        let connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections
            .get(place)?
            .as_ref()
            .map(|connection| connection.clone_ref(py))
    }

    /// Change the servers for all calls to come; return the connections to those that left, by place.
    fn change_servers(
        &self,
        py: Python<'_>,
        servers: Vec<String>,
    ) -> PyResult<BTreeMap<usize, Option<Py<Connection>>>> {
        settings::addresses(&servers)
            .and_then(|addresses| self.core.set_servers(&addresses))
            .map_err(|error| error::of_client(py, &error))?;
        let present = self.names();
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections.resize_with(self.core.places_count(), || None);
        let left = connections
            .iter_mut()
            .enumerate()
            .filter(|(place, _)| !present.contains_key(place));
        Ok(left
            .map(|(place, connection)| (place, connection.take()))
            .collect())
    }

    /// Whether a server is down, so that calls fail at once.
    fn is_down(&self, py: Python<'_>, place: usize) -> PyResult<bool> {
        Ok(self.server(py, place)?.health.is_down())
    }

    /// Return the exception for a server that cannot be reached.
    fn unreachable(&self, py: Python<'_>, place: usize, why: &str) -> Py<PyAny> {
        self.unavailable(py, place, why).into_value(py).into_any()
    }

    /// Return the exception for a connection that was not made in time.
    fn too_late(&self, py: Python<'_>, place: usize) -> PyResult<Py<PyAny>> {
        let server = self.server(py, place)?.name.clone();
        let context = Context {
            server,
            phase: Phase::Connect,
            retry_is_safe: true,
        };
        Ok(error::of_client(py, &Error::Deadline(context))
            .into_value(py)
            .into_any())
    }

    /// Note that a server cannot be connected to.
    fn note_down(&self, py: Python<'_>, place: usize) -> PyResult<()> {
        self.server(py, place)?.health.down();
        Ok(())
    }

    /// Note that a server answers again.
    fn note_up(&self, py: Python<'_>, place: usize) -> PyResult<()> {
        self.server(py, place)?.health.up();
        Ok(())
    }
}

impl AsyncClient {
    pub(super) fn unavailable(&self, py: Python<'_>, place: usize, why: &str) -> PyErr {
        let server = self
            .server(py, place)
            .map(|server| server.name.clone())
            .unwrap_or_default();
        let context = Context {
            server,
            phase: Phase::Connect,
            retry_is_safe: true,
        };
        error::of_client(py, &Error::Unavailable(context, why.to_owned()))
    }
}
