//! Bulk calls from Python: many keys at once, each key's failure by its name.

use std::cell::RefCell;

use glasscache_client::StoreMode;
use glasscache_client::WireKey;
use glasscache_client::bulk::Failures;
use glasscache_client::call::receive_all;
use glasscache_client::costs::TimeSpent;
use glasscache_client::engine::Items;
use glasscache_client::key::KeyEncoder;
use glasscache_client::request::Item;
use glasscache_client::{Budget, Error};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMapping, PyMemoryView, PyString};

use crate::client::{Client, Ttl, exptime};
use crate::keys::key_bytes;
use crate::misses::Misses;
use crate::recorded_read::RecordedRead;
use crate::settings::Codec;
use crate::{error, interpreter_lock, split, value as conversion};

/// Wire keys of many Python keys, one after the other in one buffer.
#[derive(Debug, Default)]
pub(crate) struct WireKeys {
    bytes: Vec<u8>,
    /// Where each of them ends, and whether it is in base64.
    ends: Vec<(usize, bool)>,
}

impl WireKeys {
    pub(crate) fn new<'k, 'py: 'k>(
        py: Python<'py>,
        encoder: KeyEncoder<'_>,
        keys: impl Iterator<Item = &'k Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let (mut all, mut scratch) = (Self::default(), Vec::new());
        for key in keys {
            let wire = encoder.wire(key_bytes(key)?, &mut scratch);
            let wire = wire.map_err(|error| error::from_client_error(py, &error))?;
            all.bytes.extend_from_slice(wire.bytes);
            all.ends.push((all.bytes.len(), wire.is_base64));
        }
        Ok(all)
    }

    fn get(&self, index: usize) -> Option<WireKey<'_>> {
        let &(end, is_base64) = self.ends.get(index)?;
        let previous = index.checked_sub(1).and_then(|index| self.ends.get(index));
        let bytes = self
            .bytes
            .get(previous.map_or(0, |previous| previous.0)..end)?;
        Some(WireKey { bytes, is_base64 })
    }

    pub(crate) fn all(&self) -> Vec<WireKey<'_>> {
        let indices = 0..self.ends.len();
        indices.filter_map(|index| self.get(index)).collect()
    }
}

/// The items of a bulk store, made of Python's keys and values.
#[derive(Debug)]
pub(crate) struct EncodedItems {
    keys: WireKeys,
    bodies: Vec<u8>,
    /// Client flags of each value, and where it begins and ends.
    spans: Vec<(u32, usize, usize)>,
}

impl EncodedItems {
    pub(crate) fn new(
        py: Python<'_>,
        encoder: KeyEncoder<'_>,
        codec: &Codec,
        pairs: &[Pair<'_>],
        spent: &mut TimeSpent,
    ) -> PyResult<Self> {
        let mut items = Self {
            keys: WireKeys::new(py, encoder, pairs.iter().map(|(key, _)| key))?,
            bodies: Vec::new(),
            spans: Vec::with_capacity(pairs.len()),
        };
        for (_, value) in pairs {
            conversion::encode_value(codec, value, |flags, bytes, costs| {
                let from = items.bodies.len();
                items.bodies.extend_from_slice(bytes);
                items.spans.push((flags, from, items.bodies.len()));
                conversion::add_costs(spent, costs);
                Ok(())
            })?;
        }
        Ok(items)
    }

    pub(crate) fn all(&self) -> Vec<Item<'_>> {
        let indices = 0..self.spans.len();
        indices.filter_map(|index| self.item(index)).collect()
    }
}

impl Items for EncodedItems {
    fn item(&self, index: usize) -> Option<Item<'_>> {
        let &(flags, from, to) = self.spans.get(index)?;
        Some(Item {
            key: self.keys.get(index)?,
            flags,
            body: self.bodies.get(from..to)?,
        })
    }
}

/// What a bulk read has found, as Python values.
#[derive(Debug)]
pub(crate) struct FoundValues {
    values: Py<PyDict>,
    with_cas: bool,
    unreadable: Vec<(usize, PyErr)>,
    /// Keys under which there is the manifest of a value in pieces.
    manifests: Vec<usize>,
    /// Flags under which values are bytes as they came. Values of one call have one form, as a rule.
    bytes_flags: Option<u32>,
    recorded: Option<RecordedRead>,
}

impl FoundValues {
    pub(crate) fn new(py: Python<'_>, with_cas: bool) -> Self {
        Self {
            values: PyDict::new(py).unbind(),
            with_cas,
            unreadable: Vec::new(),
            manifests: Vec::new(),
            bytes_flags: None,
            recorded: RecordedRead::take(),
        }
    }

    /// Takes the value of the key at an index. An error is not the outcome of a key and ends the call.
    pub(crate) fn take(
        &mut self,
        codec: &Codec,
        (index, key): (usize, &Bound<'_, PyAny>),
        (flags, cas): (u32, u64),
        body: &[u8],
    ) -> PyResult<()> {
        let py = key.py();
        if let Some(recorded) = &self.recorded {
            recorded.set_size(index, body.len());
        }
        let is_bytes =
            self.bytes_flags == Some(flags) || conversion::arrives_as_bytes(codec, flags);
        let value = if is_bytes {
            self.bytes_flags = Some(flags);
            Ok(PyBytes::new(py, body).into_any())
        } else {
            conversion::decode_value(py, codec, flags, body).map(|(value, _)| value)
        };
        let values = self.values.bind(py);
        let stored_result = value.and_then(|value| {
            if split::is_manifest(&value) {
                self.manifests.push(index);
            }
            if self.with_cas {
                values.set_item(key, (value, cas))
            } else {
                values.set_item(key, value)
            }
        });
        match stored_result {
            Err(error) if error::is_package_error(py, &error) => {
                self.unreadable.push((index, error));
            }
            stored_result => stored_result?,
        }
        Ok(())
    }

    /// Whether values in pieces are among the found: their manifests are to be replaced by `_split`.
    pub(crate) fn has_manifests(&self) -> bool {
        !self.manifests.is_empty()
    }

    /// What the call returns: the values, unless some keys have no reply or one that cannot be read.
    pub(crate) fn finish<'py>(
        self,
        py: Python<'py>,
        failures: Failures,
        misses: &Misses,
        key: impl Fn(usize) -> Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let values = self.values.into_bound(py);
        let indices = failures.iter().map(|(index, _)| *index);
        let indices = indices.chain(self.unreadable.iter().map(|(index, _)| *index));
        let mut missing: Vec<_> = indices.filter_map(&key).collect();
        let first_error = failures
            .first()
            .map(|(_, error)| error::from_client_error(py, error));
        let unreadable = self.unreadable.into_iter().next();
        let Some(first_error) = first_error.or_else(|| unreadable.map(|(_, error)| error)) else {
            return Ok(values);
        };
        // The pieces of values are not read by a call that has failed.
        for manifest in self.manifests.iter().filter_map(|&index| key(index)) {
            if values.contains(&manifest)? {
                values.del_item(&manifest)?;
                missing.push(manifest);
            }
        }
        let (exception, count) = (first_error.value(py), missing.len() as u64);
        exception.setattr("unanswered", PyList::new(py, missing)?)?;
        exception.setattr("arrived", &values)?;
        misses.miss_or_raise(py, first_error, values, count)
    }
}

impl Client {
    /// Reads many keys, each value alone or with its CAS unique.
    fn read_all<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        with_cas: bool,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let start_and_deadline = this.start_and_deadline(deadline)?;
        let key_objects = collect_keys(keys)?;
        let keys: Vec<_> = key_objects.iter().map(key_bytes).collect::<PyResult<_>>()?;
        if keys.is_empty() {
            return Ok(PyDict::new(py));
        }
        let mut values = FoundValues::new(py, with_cas);
        // What a signal's handler raised, or a foreign codec: it ends the call.
        let raised_error = RefCell::new(None);
        let budget = Budget {
            started: start_and_deadline.0,
            deadline: start_and_deadline.1,
            should_continue: &|| true,
            spent: TimeSpent::default(),
            scope: None,
        };
        let read_result = this.core.read_many(
            &keys,
            with_cas,
            &budget,
            |calls| loop {
                if raised_error.borrow().is_some() {
                    return Err(Error::Interrupted);
                }
                if interpreter_lock::run_detached(py, || receive_all(calls)) {
                    return Ok(());
                }
                raised_error.replace(py.check_signals().err());
            },
            |index, found, body| {
                // Once one was raised the replies are still read: the connections stay good.
                let is_over = raised_error.borrow().is_some();
                if let Some(key) = key_objects.get(index).filter(|_| !is_over) {
                    let flags_and_cas = (found.flags, found.cas);
                    let take_result = values.take(this.codec(), (index, key), flags_and_cas, body);
                    raised_error.replace(take_result.err());
                }
            },
        );
        if let Some(raised_error) = raised_error.into_inner() {
            return Err(raised_error);
        }
        let failures = read_result.map_err(|error| error::from_client_error(py, &error))?;
        let key = |index: usize| key_objects.get(index).cloned();
        let has_manifests = values.has_manifests();
        let found = values.finish(py, failures, &this.misses, key)?;
        if !has_manifests {
            return Ok(found);
        }
        let joined =
            split::replace_manifests(slf.as_any(), found, (deadline, start_and_deadline.1));
        this.or_counted_miss(py, joined, PyDict::new(py))
    }
}

#[pymethods]
impl Client {
    /// Return the values under keys, as a dict without those that missed.
    ///
    /// All servers are queried at once. If one fails, the error has `unanswered`, the keys without a
    /// reply, and `arrived`, the values that came; with on_error="miss" the values are returned.
    ///
    /// >>> client.set_many({"a": 1, "b": "two"})
    /// {}
    /// >>> sorted(client.get_many(["a", "b", "c"]).items())
    /// [('a', 1), ('b', 'two')]
    #[pyo3(signature = (keys, *, deadline=None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        if let Some(near) = &slf.get().near {
            return Self::get_many_near(slf, near, keys, deadline);
        }
        Self::read_all(slf, keys, false, deadline)
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
        Self::read_all(slf, keys, true, deadline)
    }

    /// Store a mapping's values for ttl seconds; return the exception of each key that failed.
    ///
    /// One round trip a server, whatever the number of keys. An empty dict is success. With noreply the
    /// call does not wait, as `set`.
    ///
    /// >>> client.set_many({"a": 1, "b": 2}, ttl=60)
    /// {}
    #[pyo3(signature = (values, ttl=None, *, noreply=false, deadline=None, **keywords), text_signature = "($self, values, ttl=None, *, noreply=False, deadline=None)")]
    fn set_many<'py>(
        &self,
        py: Python<'py>,
        values: &Bound<'py, PyAny>,
        ttl: Option<Ttl>,
        noreply: bool,
        deadline: Option<f64>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        error::refuse_keywords("set_many", keywords)?;
        let start_and_deadline = self.start_and_deadline(deadline)?;
        let exptime = exptime(ttl)?;
        let pairs = key_value_pairs(values)?;
        if noreply {
            for (key, value) in &pairs {
                self.write(py, StoreMode::Set, key, value, ttl, true, deadline)?;
            }
            return Ok(PyDict::new(py));
        }
        let mut spent = TimeSpent::default();
        let encoded_items = EncodedItems::new(py, self.keys(), self.codec(), &pairs, &mut spent)?;
        let items = encoded_items.all();
        let failures = self.run_detached(py, start_and_deadline, spent, |core, budget| {
            core.store_many(StoreMode::Set, &items, exptime, budget)
        });
        failures_by_key(py, failures?, |index| {
            pairs.get(index).map(|(key, _)| key.clone())
        })
    }

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
        let start_and_deadline = self.start_and_deadline(deadline)?;
        let key_objects = collect_keys(keys)?;
        if noreply {
            for key in &key_objects {
                self.remove(key, true, deadline)?;
            }
            return Ok(PyDict::new(py));
        }
        let wire = WireKeys::new(py, self.keys(), key_objects.iter())?;
        let all = wire.all();
        let failures = self.run_detached(
            py,
            start_and_deadline,
            TimeSpent::default(),
            |core, budget| core.delete_many(&all, budget),
        );
        failures_by_key(py, failures?, |index| key_objects.get(index).cloned())
    }
}

/// A key and its value.
type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The keys that an iterable has; those of a list without an iterator. One text or bytes is not a list of its letters.
pub(crate) fn collect_keys<'py>(items: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match items.cast_exact::<PyList>() {
        Ok(list) => Ok(list.iter().collect()),
        Err(_) if is_one_key(items) => Err(error::one_key_error(items)),
        Err(_) => items.try_iter()?.collect(),
    }
}

fn is_one_key(keys: &Bound<'_, PyAny>) -> bool {
    keys.is_instance_of::<PyString>()
        || keys.is_instance_of::<PyBytes>()
        || keys.is_instance_of::<PyByteArray>()
        || keys.is_instance_of::<PyMemoryView>()
}

/// Keys and values of a mapping; those of a dict without a list of them.
pub(crate) fn key_value_pairs<'py>(values: &Bound<'py, PyAny>) -> PyResult<Vec<Pair<'py>>> {
    if let Ok(dict) = values.cast_exact::<PyDict>() {
        return Ok(dict.iter().collect());
    }
    let mapping = values.cast::<PyMapping>().map_err(|_| {
        let type_name = values.get_type().name();
        let type_name = type_name.map_or_else(|_| String::new(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "set_many takes a mapping of keys to values, not {type_name}"
        ))
    })?;
    mapping.items()?.iter().map(|pair| pair.extract()).collect()
}

/// The failures of a bulk write by key.
pub(crate) fn failures_by_key<'py>(
    py: Python<'py>,
    failures: Failures,
    key: impl Fn(usize) -> Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (index, error) in failures {
        if let Some(key) = key(index) {
            dict.set_item(key, error::outcome_of(py, &error)?)?;
        }
    }
    Ok(dict)
}
