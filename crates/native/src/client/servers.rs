//! Requests to every server: statistics, version, flush.

use glasscache_client::costs::TimeSpent;
use glasscache_client::request::Request;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{error, stats_dicts};

use super::Client;

#[pymethods]
impl Client {
    /// Return every server's own counters by its name; the exception of one that failed.
    #[pyo3(signature = (argument="", *, deadline=None))]
    fn server_stats<'py>(
        &self,
        py: Python<'py>,
        argument: &str,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let argument = argument.as_bytes();
        self.request_all_servers(py, Request::Stats { argument }, deadline)
    }

    /// Return every server's version by its name; the exception of one that failed.
    #[pyo3(signature = (*, deadline=None))]
    fn version<'py>(&self, py: Python<'py>, deadline: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        self.request_all_servers(py, Request::Version, deadline)
    }

    /// Drop every item of every server, after delay seconds; return True or an exception for each name.
    #[pyo3(signature = (delay=0, *, deadline=None))]
    fn flush<'py>(
        &self,
        py: Python<'py>,
        delay: u32,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.request_all_servers(py, Request::Flush { delay_s: delay }, deadline)
    }

    /// Drop every item of the client's namespace, at once; return True or an exception for each server's name.
    #[pyo3(signature = (*, deadline=None))]
    fn clear<'py>(&self, py: Python<'py>, deadline: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        let mut scratch = Vec::new();
        let prefix = self.core.keys().wire_namespace(&mut scratch);
        let prefix = prefix.map_err(|error| error::from_client_error(py, &error))?;
        self.request_all_servers(py, Request::FlushPrefix { prefix }, deadline)
    }
}

impl Client {
    fn request_all_servers<'py>(
        &self,
        py: Python<'py>,
        request: Request<'_>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let call_times = self.call_times(deadline)?;
        let replies = self.run_detached(py, call_times, TimeSpent::default(), |core, budget| {
            core.request_all(request, budget)
        })?;
        let dict = PyDict::new(py);
        for (server_name, reply) in replies {
            match reply {
                Ok(reply) => {
                    dict.set_item(server_name, stats_dicts::admin_reply(py, &request, reply)?)?;
                }
                Err(error) => dict.set_item(server_name, error::error_to_exception(py, &error)?)?,
            }
        }
        Ok(dict)
    }
}
