//! Requests to every server: statistics, version, flush; and the client's own counters.

use glasscache_client::costs::Spent;
use glasscache_client::request::Request;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{error, tables};

use super::Client;

#[pymethods]
impl Client {
    /// Return this client's counters: what its calls cost, and how each server is. No network.
    #[pyo3(name = "_counters")]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = self.misses.table(py)?;
        tables::set_costs(&all, self.core.costs())?;
        all.set_item("servers", tables::servers(py, &self.core)?)?;
        Ok(all)
    }

    /// Return every server's own counters by its name; the exception of one that failed.
    #[pyo3(signature = (argument="", *, deadline=None))]
    fn server_stats<'py>(
        &self,
        py: Python<'py>,
        argument: &str,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let argument = argument.as_bytes();
        self.of_all(py, Request::Stats { argument }, deadline)
    }

    /// Return every server's version by its name; the exception of one that failed.
    #[pyo3(signature = (*, deadline=None))]
    fn version<'py>(&self, py: Python<'py>, deadline: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        self.of_all(py, Request::Version, deadline)
    }

    /// Drop every item of every server, after delay seconds; return True or an exception for each name.
    #[pyo3(signature = (delay=0, *, deadline=None))]
    fn flush<'py>(
        &self,
        py: Python<'py>,
        delay: u32,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.of_all(py, Request::Flush { delay_s: delay }, deadline)
    }

    /// Drop every item of the client's namespace, at once; return True or an exception for each server's name.
    #[pyo3(signature = (*, deadline=None))]
    fn clear<'py>(&self, py: Python<'py>, deadline: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        let mut scratch = Vec::new();
        let prefix = self.core.keys().wire_namespace(&mut scratch);
        let prefix = prefix.map_err(|error| error::of_client(py, &error))?;
        self.of_all(py, Request::FlushPrefix { prefix }, deadline)
    }
}

impl Client {
    fn of_all<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let times = self.times(deadline)?;
        let replies = self.detached(py, times, Spent::default(), |core, budget| {
            core.request_all(request, budget)
        })?;
        let dict = PyDict::new(py);
        for (server, reply) in replies {
            match reply {
                Ok(reply) => dict.set_item(server, tables::admin_reply(py, &request, reply)?)?,
                Err(error) => dict.set_item(server, error::outcome_of(py, &error)?)?,
            }
        }
        Ok(dict)
    }
}
