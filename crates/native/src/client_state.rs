//! The state that both Python clients share: the Rust client, its codec, its misses and its strategy.
//!
//! The methods here need no network. Each client has one of these and adds how it waits.

use std::time::Duration;

use glasscache_client::Client as Core;
use glasscache_client::WireKey;
use glasscache_client::key::KeyEncoder;
use glasscache_client::reservation::{TOKEN_BYTES, reservation_flags_and_body};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::client_settings::ClientSettings;
use crate::keys::key_bytes;
use crate::misses::Misses;
use crate::near::{self, NearBinding, RequestScope};
use crate::settings::Codec;
use crate::{error, stats_dicts, value as conversion};

/// The state of a Python client, apart from its way to wait.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct ClientState {
    pub(crate) core: Core,
    pub(crate) codec: Py<Codec>,
    pub(crate) timeout: Duration,
    pub(crate) misses: Misses,
    pub(crate) near_binding: Option<NearBinding>,
}

impl ClientState {
    pub(crate) fn codec(&self) -> &Codec {
        self.codec.get()
    }

    pub(crate) fn key_encoder(&self) -> KeyEncoder<'_> {
        self.core.keys()
    }

    pub(crate) fn wire_key<'a>(
        &self,
        key: &'a Bound<'_, PyAny>,
        scratch: &'a mut Vec<u8>,
    ) -> PyResult<WireKey<'a>> {
        let wire_key = self.key_encoder().wire_key(key_bytes(key)?, scratch);
        wire_key.map_err(|error| error::from_client_error(key.py(), &error))
    }
}

#[pymethods]
impl ClientState {
    #[new]
    fn new(py: Python<'_>, servers: Vec<String>, settings: ClientSettings) -> PyResult<Self> {
        let core = settings.build_client(py, &servers)?;
        Ok(Self {
            near_binding: NearBinding::new(py, &core, settings.strategy.as_ref()),
            timeout: core.options().timeout,
            core,
            codec: settings.codec,
            misses: Misses::new(settings.counts_as_miss),
        })
    }

    /// The codec that values pass through.
    #[getter(codec)]
    fn own_codec(&self, py: Python<'_>) -> Py<Codec> {
        self.codec.clone_ref(py)
    }

    /// The longest value that is sent or received, in pieces too.
    #[getter]
    fn value_bytes_max(&self) -> u64 {
        self.core.options().value_bytes_max
    }

    /// Return the counters of misses and costs.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.misses.to_dict(py)?;
        stats_dicts::set_costs(&counters, self.core.costs())?;
        counters.set_item("servers", stats_dicts::servers(py, &self.core)?)?;
        Ok(counters)
    }

    /// Return `miss` instead of a call's error where errors are misses, or raise the error.
    fn miss_or_raise(&self, error: &Bound<'_, PyAny>, miss: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let exception = PyErr::from_value(error.clone());
        self.misses.miss_or_raise(error.py(), exception, miss, 1)
    }

    /// Note that a change of a key was not made, and that its caller does not know: the next call removes the key.
    fn mark_uncertain(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut scratch = Vec::new();
        self.core.mark_uncertain(self.wire_key(key, &mut scratch)?);
        Ok(())
    }

    /// Count a value that was made and not stored, for its key was deleted, written or flushed meanwhile.
    fn count_unstored(&self) {
        self.misses.count_fill_not_stored();
    }

    /// Count a read of a value in pieces that was a miss, for a piece of it was lost or altered.
    fn count_incomplete(&self) {
        self.misses.count_incomplete();
    }

    /// Return the bytes that a value would take on the wire, and its flags.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        conversion::encode_value(self.codec(), value, |flags, bytes, _| {
            Ok((flags, PyBytes::new(py, bytes)))
        })
    }

    /// Return the name of the server that a key belongs to.
    fn server_of(&self, key: &Bound<'_, PyAny>) -> PyResult<String> {
        let mut scratch = Vec::new();
        let server = self.core.server_of(self.wire_key(key, &mut scratch)?.bytes);
        let server = server.map_err(|error| error::from_client_error(key.py(), &error))?;
        Ok(server.name.clone())
    }

    /// Return flags and body of a reservation, or None in a dialect that has none.
    #[pyo3(signature = (token=[0; TOKEN_BYTES]))]
    fn reservation_form<'py>(
        &self,
        py: Python<'py>,
        token: [u8; TOKEN_BYTES],
    ) -> Option<(u32, Bound<'py, PyBytes>)> {
        let (flags, body) = reservation_flags_and_body(&self.codec().inner, &token)?;
        Some((flags, PyBytes::new(py, &body)))
    }

    /// Return the roll-out of the strategy as JSON, or None without a strategy.
    fn rollout_json(&self) -> Option<String> {
        near::rollout_json(self.near_binding.as_ref())
    }

    /// Return a scope for a request about the item under `page`; None if the client has no strategy.
    fn begin_request(
        &self,
        py: Python<'_>,
        page: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<RequestScope>> {
        near::begin_request(py, self.near_binding.as_ref(), page)
    }

    /// Forget what the process keeps under a key that was changed on other servers.
    fn forget_near(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        near::forget(self.near_binding.as_ref(), key)
    }

    /// Whether a read of a key by the strategy is held afterwards, so that `near_life` can report on it.
    fn holds_reads_of(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        near::holds_reads_of(self.near_binding.as_ref(), key)
    }

    /// Return (seconds left at least or -1, compute info) of the value that the process holds; None: it holds none.
    fn near_life(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<near::NearLife>> {
        near::life(self.near_binding.as_ref(), self.codec(), key)
    }

    /// Return the counters of the strategy, or None without one.
    fn near_stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        near::stats(py, self.near_binding.as_ref())
    }
}
