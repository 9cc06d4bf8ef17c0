//! Reads of the asyncio client under a strategy: from the process, by the calls that a read names, or by those of another
//! read of its request.

use std::time::Instant;

use glasscache_client::bulk::{BulkReadWithTtls, Partitioned};
use glasscache_client::costs::TimeSpent;
use glasscache_client::near::{FetchedItems, NearRead};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::bulk_state::BulkState;
use super::client::AsyncClient;
use super::delayed_call::TimeLimit;
use super::pending_near_read::{NearFetch, NextStep, PendingNearRead};
use crate::bulk::{FoundValues, collect_keys};
use crate::keys::wire_keys;
use crate::near::{NearBinding, decode_near_value};
use crate::recorded_read::RecordedRead;

impl AsyncClient {
    fn near_binding(&self) -> PyResult<&NearBinding> {
        let binding = self.near_binding.as_ref();
        binding
            .ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("a client without a strategy"))
    }
}

#[pymethods]
impl AsyncClient {
    /// Return the value of a key outside a request in a tuple, if the process has it.
    #[pyo3(name = "_near_hit")]
    fn near_hit<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>,)>> {
        let (py, binding) = (key.py(), self.near_binding()?);
        if binding.scope(py)?.is_some() {
            return Ok(None);
        }
        let mut scratch = Vec::new();
        let wire_key = self.wire_key(key, &mut scratch)?;
        let Some(value) = binding.near_cache.get_without_call(wire_key, Instant::now()) else {
            return Ok(None);
        };
        self.core.count_near_hit(value.bytes.len());
        if let Some(recorded_read) = RecordedRead::take_for_this_thread() {
            recorded_read.set_size(0, value.bytes.len());
        }
        Ok(Some((decode_near_value(py, self.codec(), &value, None)?,)))
    }

    /// Begin a read of keys; `_next_step` gives its calls and waits, `_near_values` its values.
    #[pyo3(name = "_begin_near")]
    fn begin_near(
        &self,
        keys: &Bound<'_, PyAny>,
        deadline: Option<TimeLimit>,
    ) -> PyResult<PendingNearRead> {
        let (py, binding) = (keys.py(), self.near_binding()?);
        let timing = TimeLimit::call_timing(deadline, self.timeout, TimeSpent::default())?;
        let key_objects = collect_keys(keys)?;
        let encoded_keys = wire_keys(self.core.keys(), &key_objects)?;
        let scope = binding.scope(py)?;
        Ok(PendingNearRead {
            read: Some(NearRead::new(binding.near_cache.clone(), &encoded_keys.all(), scope)),
            keys: key_objects.into_iter().map(Bound::unbind).collect(),
            found: Some(FoundValues::new(py, false)),
            timing,
        })
    }

    /// Return what a read does next: a call, which has been sent where there is a connection, or a future that is
    /// resolved when another read of its request has ended a call that this one needs; None: all is here.
    #[pyo3(name = "_next_step")]
    fn next_step<'py>(
        slf: &Bound<'py, Self>,
        pending_read: &Bound<'py, PendingNearRead>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, this) = (slf.py(), slf.get());
        let fetch = match PendingNearRead::next_step(pending_read, &this.core)? {
            NextStep::Fetch(fetch) => fetch,
            NextStep::Wait(future) => return Ok(Some(future)),
            NextStep::Finished => {
                this.near_binding()?.log_warnings(py)?;
                return Ok(None);
            }
        };
        let mut timing = pending_read.borrow().timing;
        timing.started = fetch.started_at();
        timing.deadline = fetch.deadline(timing.deadline);
        let wire_keys = fetch.keys();
        let bulk_read = BulkReadWithTtls::new(&this.core, &wire_keys);
        let fetched = FetchedItems::with_capacity(wire_keys.len());
        let slots: Vec<_> = bulk_read.slots().collect();
        let bulk_state = BulkState::Near(Box::new(NearFetch {
            pending_read: pending_read.clone().unbind(),
            fetch,
            bulk_read,
            fetched,
        }));
        let call = this.start_bulk(py, Vec::new(), bulk_state, slots.into_iter(), timing)?;
        Ok(Some(call.into_any()))
    }

    /// Return the values of a read by key, and whether manifests of values in pieces are among them.
    #[pyo3(name = "_near_values")]
    fn near_values<'py>(
        &self,
        pending_read: &Bound<'py, PendingNearRead>,
    ) -> PyResult<(Bound<'py, PyDict>, bool)> {
        let py = pending_read.py();
        let mut pending_read = pending_read.borrow_mut();
        let (Some(read), Some(found)) = (pending_read.read.take(), pending_read.found.take())
        else {
            return Ok((PyDict::new(py), false));
        };
        self.core.count_near_hits(&read);
        let key_at = |index: usize| pending_read.keys.get(index).map(|key| key.bind(py).clone());
        let scope = read.scope().cloned();
        found.finish_near(py, self, read.finish(), (key_at, scope.as_deref()))
    }
}
