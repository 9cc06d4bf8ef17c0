//! Requests to every server, by the names that Python has for them, the same in both clients.

use glasscache_client::costs::TimeSpent;
use glasscache_client::engine::uncertain::OwnedKey;
use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use crate::client::Client;
use crate::client_state::ClientState;
use crate::error;
use crate::stats_dicts::stats_to_dict;

/// A request to every server.
pub(crate) enum AdminRequest {
    Version,
    Stats(String),
    Flush(u32),
    /// Removes the items of the client's namespace.
    Clear(OwnedKey),
}

impl AdminRequest {
    /// A request by the method that makes it; `argument` is that of statistics, the delay in seconds that of a flush.
    pub(crate) fn new(
        py: Python<'_>,
        client: &ClientState,
        (method, argument, delay_s): (&str, String, u32),
    ) -> PyResult<Self> {
        let admin_request = match method {
            "version" => Self::Version,
            "server_stats" => Self::Stats(argument),
            "clear" => {
                let mut scratch = Vec::new();
                let namespace = client.core.keys().wire_namespace(&mut scratch);
                Self::Clear(namespace.map_err(|error| error::from_client_error(py, &error))?.into())
            }
            "flush" => Self::Flush(delay_s),
            _ => return Err(PyValueError::new_err(format!("no request to all servers: {method}"))),
        };
        let check_result = admin_request.request().check();
        check_result.map_err(|error| error::from_client_error(py, &error))?;
        Ok(admin_request)
    }

    pub(crate) fn request(&self) -> Request<'_> {
        match self {
            Self::Version => Request::Version,
            Self::Stats(argument) => Request::Stats { argument: argument.as_bytes() },
            &Self::Flush(delay_s) => Request::Flush { delay_s },
            Self::Clear(namespace) => Request::FlushPrefix { prefix: namespace.wire_key() },
        }
    }

    /// The reply of a server: the version, the statistics, or True.
    pub(crate) fn to_python<'py>(
        &self,
        py: Python<'py>,
        reply: Reply,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(match (self, reply) {
            (Self::Flush(_) | Self::Clear(_), _) => PyBool::new(py, true).to_owned().into_any(),
            (_, Reply::Version(version)) => PyString::new(py, &version).into_any(),
            (_, Reply::Rows(rows)) => stats_to_dict(py, &rows)?.into_any(),
            _ => py.None().into_bound(py),
        })
    }
}

#[pymethods]
impl Client {
    /// Send a request to every server; return what each replied by its name, the exception of one that failed.
    #[pyo3(name = "_call_all_servers")]
    fn call_all_servers<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        argument: String,
        delay: u32,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let admin_request = AdminRequest::new(py, self, (method, argument, delay))?;
        let call_times = self.call_times(deadline)?;
        let replies = self.run_detached(py, call_times, TimeSpent::default(), |core, budget| {
            core.request_all(admin_request.request(), budget)
        })?;
        let dict = PyDict::new(py);
        for (server_name, reply) in replies {
            match reply {
                Ok(reply) => dict.set_item(server_name, admin_request.to_python(py, reply)?)?,
                Err(error) => dict.set_item(server_name, error::error_to_exception(py, &error)?)?,
            }
        }
        Ok(dict)
    }
}
