//! Reads of the blocking client under a strategy: from the process, or fetched without the interpreter lock.

use std::sync::Arc;
use std::time::Instant;

use glasscache_client::WireKey;
use glasscache_client::bulk::Failures;
use glasscache_client::costs::TimeSpent;
use glasscache_client::near::{NearRead, NearValue, RequestScope};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bulk::{FoundValues, collect_keys};
use crate::client::Client;
use crate::keys::wire_keys;
use crate::near::{NearBinding, decode_near_value};
use crate::recorded_read::RecordedRead;
use crate::{error, split};

/// When a call began, and when it must end.
type StartAndDeadline = (Instant, Instant);

impl Client {
    /// Reads one key; `None`: a miss, or an error that is counted as one.
    pub(crate) fn get_near<'py>(
        slf: &Bound<'py, Self>,
        binding: &NearBinding,
        key: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (this, py) = (slf.get(), slf.py());
        let recorded = RecordedRead::take_for_this_thread();
        let start_and_deadline = this.start_and_deadline(deadline)?;
        let (_, call_deadline) = start_and_deadline;
        let mut scratch = Vec::new();
        let wire = this.wire_key(key, &mut scratch)?;
        let read = this.read_near(py, binding, wire, start_and_deadline);
        let Some(value) = this.or_counted_miss(py, read, None)? else {
            return Ok(None);
        };
        if let Some(recorded) = recorded {
            recorded.set_size(0, value.bytes.len());
        }
        let object = decode_near_value(py, this.codec(), &value).map(Some);
        let Some(object) = this.or_counted_miss(py, object, None)? else {
            return Ok(None);
        };
        let whole_value =
            split::replace_manifest(slf.as_any(), key, object, (deadline, call_deadline));
        this.or_counted_miss(py, whole_value, None)
    }

    fn read_near(
        &self,
        py: Python<'_>,
        binding: &NearBinding,
        key: WireKey<'_>,
        start_and_deadline: StartAndDeadline,
    ) -> PyResult<Option<NearValue>> {
        let (now, _) = start_and_deadline;
        let scope = binding.scope(py)?;
        if scope.is_none()
            && let Some(value) = binding.near.get_without_call(key, now)
        {
            self.core.count_near_hit(value.bytes.len());
            return Ok(Some(value));
        }
        let (values, failures) = self.fetch_near(py, binding, &[key], scope, start_and_deadline)?;
        match failures.first() {
            Some((_, error)) => Err(error::from_client_error(py, error)),
            None => Ok(values.into_iter().next().flatten()),
        }
    }

    /// Reads many keys, as `get_many`.
    pub(crate) fn get_many_near<'py>(
        slf: &Bound<'py, Self>,
        binding: &NearBinding,
        keys: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let start_and_deadline = this.start_and_deadline(deadline)?;
        let (_, call_deadline) = start_and_deadline;
        let key_objects = collect_keys(keys)?;
        let wire = wire_keys(this.keys(), &key_objects)?;
        let (found, scope) = (FoundValues::new(py, false), binding.scope(py)?);
        let read = this.fetch_near(py, binding, &wire.all(), scope, start_and_deadline)?;
        let key = |index: usize| key_objects.get(index).cloned();
        let (found, has_manifests) = found.finish_near(py, this, read, key)?;
        if !has_manifests {
            return Ok(found);
        }
        let whole_values = split::replace_manifests(slf.as_any(), found, (deadline, call_deadline));
        this.or_counted_miss(py, whole_values, PyDict::new(py))
    }

    /// Reads keys: the interpreter lock is released only if there is something to wait for.
    fn fetch_near(
        &self,
        py: Python<'_>,
        binding: &NearBinding,
        keys: &[WireKey<'_>],
        scope: Option<Arc<RequestScope>>,
        start_and_deadline: StartAndDeadline,
    ) -> PyResult<(Vec<Option<NearValue>>, Failures)> {
        let (now, _) = start_and_deadline;
        let mut read = NearRead::new(binding.near.clone(), keys, scope);
        if let Some(step) = read.step(now) {
            self.run_detached(
                py,
                start_and_deadline,
                TimeSpent::default(),
                |core, budget| core.finish_near(&mut read, step, budget),
            )?;
            binding.log_warnings(py)?;
        }
        self.core.count_near_hits(&read);
        Ok(read.finish())
    }
}
