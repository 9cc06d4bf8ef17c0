//! Bulk calls: many keys at once, with the failure of each key.

use std::cell::RefCell;

use glasscache_client::StoreMode;
use glasscache_client::call::receive_first_replies;
use glasscache_client::costs::TimeSpent;
use glasscache_client::{Budget, Error};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::foreign_keywords::{ForeignKeyword, SurplusArgument, method_refusing_foreign_keywords};
use super::{CallTimes, Client};
use crate::bulk::{EncodedItems, FoundValues, collect_keys, failures_by_key, key_value_pairs};
use crate::keys::{check_parent, key_bytes, wire_keys};
use crate::recording::has_open_blocks;
use crate::ttl::{Ttl, exptime};
use crate::{error, signals, split};

/// The bytes of keys.
fn slices_of<'k>(key_objects: &'k [Bound<'_, PyAny>]) -> PyResult<Vec<&'k [u8]>> {
    key_objects.iter().map(key_bytes).collect()
}

impl Client {
    /// Reads many keys, each value alone or with its CAS unique.
    fn read_keys<'py>(
        slf: &Bound<'py, Self>,
        (key_objects, key_slices): (&[Bound<'py, PyAny>], &[&[u8]]),
        with_cas: bool,
        (deadline, call_times): (Option<f64>, CallTimes),
    ) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        if key_slices.is_empty() {
            return Ok(PyDict::new(py));
        }
        let mut found_values = FoundValues::new(py, with_cas);
        // What a signal's handler raised, or a foreign codec: it ends the call.
        let raised_error = RefCell::new(None);
        let budget = Budget::between(call_times.start, call_times.deadline);
        let read_result = this.core.read_many(
            key_slices,
            with_cas,
            &budget,
            |calls| loop {
                if raised_error.borrow().is_some() {
                    return Err(Error::Interrupted);
                }
                if this.detach(py, || receive_first_replies(calls)) {
                    return Ok(());
                }
                raised_error.replace(signals::run_handlers(py).err());
            },
            |index, found, body| {
                // Once one was raised the replies are still read: the connections stay good.
                let is_over = raised_error.borrow().is_some();
                if let Some(key) = key_objects.get(index).filter(|_| !is_over) {
                    let flags_and_cas = (found.flags, found.cas);
                    let add_result =
                        found_values.add_value(this.codec(), (index, key), flags_and_cas, body);
                    raised_error.replace(add_result.err());
                }
            },
        );
        if let Some(raised_error) = raised_error.into_inner() {
            return Err(raised_error);
        }
        let failures = read_result.map_err(|error| error::from_client_error(py, &error))?;
        let key_at = |index: usize| key_objects.get(index).cloned();
        let has_manifests = found_values.has_manifests();
        let values = found_values.finish(py, failures, &this.misses, key_at)?;
        if !has_manifests {
            return Ok(values);
        }
        let whole_values =
            split::replace_manifests(slf.as_any(), values, (deadline, call_times.deadline));
        this.or_counted_miss(py, whole_values, PyDict::new(py))
    }
}

#[pymethods]
impl Client {
    /// Return the values under keys, as a dict without those that missed.
    ///
    /// All servers are queried at once. If one fails, the error has `unanswered`, the keys without a
    /// reply, and `arrived`, the values that came; with on_error="miss" the values are returned. `parent` is
    /// that of all keys, as of `get`.
    ///
    /// >>> client.set_many({"a": 1, "b": "two"})
    /// {}
    /// >>> sorted(client.get_many(["a", "b", "c"]).items())
    /// [('a', 1), ('b', 'two')]
    #[pyo3(signature = (keys, *, deadline=None, parent=None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<f64>,
        parent: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        parent.map_or(Ok(()), check_parent)?;
        let recording = slf.get().get_recording.get().filter(|_| has_open_blocks());
        let timing = (deadline, slf.get().call_times(deadline)?);
        let key_objects = collect_keys(keys)?;
        let key_slices = slices_of(&key_objects)?;
        let keys = (&key_objects[..], &key_slices[..]);
        let recorded_request = match recording {
            Some(recording) => recording.begin_get_many(slf.py(), keys, parent)?,
            None => None,
        };
        let values = match &slf.get().near_binding {
            Some(near_binding) => Self::get_many_near(slf, near_binding, keys, timing),
            None => Self::read_keys(slf, keys, false, timing),
        };
        if let Some(recorded_request) = recorded_request {
            recorded_request.get().end_call();
        }
        values
    }

    /// Return (value, CAS unique) under keys, as a dict without those that missed; see `get_many`.
    ///
    /// >>> client.set("counted", "v")
    /// True
    /// >>> client.gets_many(["counted", "never"])["counted"] == client.gets("counted")
    /// True
    #[pyo3(signature = (keys, *, deadline=None))]
    fn gets_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let timing = (deadline, slf.get().call_times(deadline)?);
        let key_objects = collect_keys(keys)?;
        Self::read_keys(slf, (&key_objects, &slices_of(&key_objects)?), true, timing)
    }
}

method_refusing_foreign_keywords! {
    positional(values, ttl=None) keyword_only(noreply=false, deadline=None);
    /// Store a mapping's values for ttl seconds; return the exception of each key that failed.
    ///
    /// One round trip a server, whatever the number of keys. An empty dict is success. With noreply the
    /// call does not wait, as `set`.
    ///
    /// >>> client.set_many({"a": 1, "b": 2}, ttl=60)
    /// {}
    #[pyo3(text_signature = "($self, values, ttl=None, *, noreply=False, deadline=None)")]
    fn set_many<'py>(
        &self,
        py: Python<'py>,
        values: &Bound<'py, PyAny>,
        ttl: Option<Ttl>,
    ) keywords(
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let call_times = self.call_times(deadline)?;
        let exptime = exptime(ttl)?;
        let pairs = key_value_pairs(values)?;
        if noreply {
            for (key, value) in &pairs {
                self.write(py, StoreMode::Set, key, value, ttl, true, deadline)?;
            }
            return Ok(PyDict::new(py));
        }
        let mut spent = TimeSpent::default();
        let encoded_items =
            EncodedItems::new(self.key_encoder(), self.codec(), &pairs, &mut spent)?;
        let items = encoded_items.all();
        let failures = self.run_detached(py, call_times, spent, |core, budget| {
            core.store_many(StoreMode::Set, &items, exptime, budget)
        });
        failures_by_key(py, self, failures?, |index| pairs.get(index).map(|(key, _)| key.clone()))
    }
}

#[pymethods]
impl Client {
    /// Remove keys; return the exception of each key that failed. A missing key is not a failure.
    ///
    /// With noreply the call does not wait, as `set`.
    ///
    /// >>> client.delete_many(["a", "b", "never"])
    /// {}
    #[pyo3(signature = (keys, *, noreply=false, deadline=None))]
    fn delete_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        noreply: bool,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let call_times = self.call_times(deadline)?;
        let key_objects = collect_keys(keys)?;
        if noreply {
            for key in &key_objects {
                self.remove(key, true, deadline)?;
            }
            return Ok(PyDict::new(py));
        }
        let encoded_keys = wire_keys(self.key_encoder(), &key_objects)?;
        let wire_key_list = encoded_keys.all();
        let failures = self.run_detached(py, call_times, TimeSpent::default(), |core, budget| {
            core.delete_many(&wire_key_list, budget)
        });
        failures_by_key(py, self, failures?, |index| key_objects.get(index).cloned())
    }
}
