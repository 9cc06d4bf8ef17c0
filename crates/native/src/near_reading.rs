//! Reads of the blocking client under a strategy: from the process, or fetched without the interpreter lock.

use std::sync::Arc;

use glasscache_client::WireKey;
use glasscache_client::bulk::Failures;
use glasscache_client::costs::TimeSpent;
use glasscache_client::near::{NearRead, NearValue, RequestScope};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bulk::FoundValues;
use crate::client::{CallTimes, Client};
use crate::keys::wire_keys_of_bytes;
use crate::near::{NearBinding, decode_near_value};
use crate::{error, split};

impl Client {
    /// Reads one key; `None`: a miss, or an error that is counted as one. A value that is found is
    /// announced by its bytes.
    pub(crate) fn get_near<'py>(
        slf: &Bound<'py, Self>,
        binding: &NearBinding,
        key: &Bound<'py, PyAny>,
        (deadline, call_times): (Option<f64>, CallTimes),
        on_found: impl FnOnce(usize),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (this, py) = (slf.get(), slf.py());
        let call_deadline = call_times.deadline;
        let mut scratch = Vec::new();
        let wire_key = this.wire_key(key, &mut scratch)?;
        let scope = binding.scope(py)?;
        let read_result = this.read_near(py, binding, wire_key, (scope.clone(), call_times));
        let Some(value) = this.or_counted_miss(py, read_result, None)? else {
            return Ok(None);
        };
        on_found(value.bytes.len());
        let object = decode_near_value(py, this.codec(), &value, scope.as_deref()).map(Some);
        let Some(object) = this.or_counted_miss(py, object, None)? else {
            return Ok(None);
        };
        let whole_value =
            split::replace_manifest(slf.as_any(), key, object, (deadline, call_deadline), None);
        this.or_counted_miss(py, whole_value, None)
    }

    fn read_near(
        &self,
        py: Python<'_>,
        binding: &NearBinding,
        wire_key: WireKey<'_>,
        (scope, call_times): (Option<Arc<RequestScope>>, CallTimes),
    ) -> PyResult<Option<NearValue>> {
        let now = call_times.start;
        if scope.is_none()
            && let Some(value) = binding.near_cache.get_without_call(wire_key, now)
        {
            self.core.count_near_hit(value.bytes.len());
            return Ok(Some(value));
        }
        let (values, failures) = self.fetch_near(py, binding, &[wire_key], scope, call_times)?;
        match failures.first() {
            Some((_, error)) => Err(error::from_client_error(py, error)),
            None => Ok(values.into_iter().next().flatten()),
        }
    }

    /// Reads many keys, as `get_many`.
    pub(crate) fn get_many_near<'py>(
        slf: &Bound<'py, Self>,
        binding: &NearBinding,
        (key_objects, key_slices): (&[Bound<'py, PyAny>], &[&[u8]]),
        (deadline, call_times): (Option<f64>, CallTimes),
    ) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let call_deadline = call_times.deadline;
        let encoded_keys = wire_keys_of_bytes(py, this.key_encoder(), key_slices)?;
        let (found_values, scope) = (FoundValues::new(py, false), binding.scope(py)?);
        let values_and_failures =
            this.fetch_near(py, binding, &encoded_keys.all(), scope.clone(), call_times)?;
        let key_at = |index: usize| key_objects.get(index).cloned();
        let (found, has_manifests) =
            found_values.finish_near(py, this, values_and_failures, (key_at, scope.as_deref()))?;
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
        wire_keys: &[WireKey<'_>],
        scope: Option<Arc<RequestScope>>,
        call_times: CallTimes,
    ) -> PyResult<(Vec<Option<NearValue>>, Failures)> {
        let now = call_times.start;
        let mut read = NearRead::new(binding.near_cache.clone(), wire_keys, scope);
        if let Some(step) = read.step(now) {
            self.run_detached(py, call_times, TimeSpent::default(), |core, budget| {
                core.finish_near(&mut read, step, budget)
            })?;
            binding.log_warnings(py)?;
        }
        self.core.count_near_hits(&read);
        Ok(read.finish())
    }
}
