//! The keys, items, values and failures of a bulk call: Python's objects in both clients.

use glasscache_client::bulk::Failures;
use glasscache_client::costs::TimeSpent;
use glasscache_client::engine::Items;
use glasscache_client::key::{KeyEncoder, WireKeys};
use glasscache_client::near::{NearValue, RequestScope};
use glasscache_client::request::Item;
use glasscache_client::value::UnpackBudget;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMapping, PyMemoryView, PyString};

use crate::client_state::ClientState;
use crate::keys::wire_keys;
use crate::misses::Misses;
use crate::near::count_decode_time;
use crate::recorded_read::RecordedSizes;
use crate::settings::Codec;
use crate::{error, split, value as conversion};

/// The items of a bulk store, made of Python's keys and values.
#[derive(Debug)]
pub(crate) struct EncodedItems {
    keys: WireKeys,
    bodies: Vec<u8>,
    /// Client flags of each value, and where its bytes begin and end in `bodies`.
    flags_and_spans: Vec<(u32, usize, usize)>,
}

impl EncodedItems {
    pub(crate) fn new(
        encoder: KeyEncoder<'_>,
        codec: &Codec,
        pairs: &[Pair<'_>],
        spent: &mut TimeSpent,
    ) -> PyResult<Self> {
        let mut items = Self {
            keys: wire_keys(encoder, pairs.iter().map(|(key, _)| key))?,
            bodies: Vec::new(),
            flags_and_spans: Vec::with_capacity(pairs.len()),
        };
        for (_, value) in pairs {
            conversion::encode_value(codec, value, |flags, body, costs| {
                let body_start = items.bodies.len();
                items.bodies.extend_from_slice(body);
                let body_end = items.bodies.len();
                items.flags_and_spans.push((flags, body_start, body_end));
                conversion::add_costs(spent, costs);
                Ok(())
            })?;
        }
        Ok(items)
    }

    pub(crate) fn all(&self) -> Vec<Item<'_>> {
        let indices = 0..self.flags_and_spans.len();
        indices.filter_map(|index| self.item(index)).collect()
    }
}

impl Items for EncodedItems {
    fn item(&self, index: usize) -> Option<Item<'_>> {
        let &(flags, body_start, body_end) = self.flags_and_spans.get(index)?;
        Some(Item {
            key: self.keys.get(index)?,
            flags,
            body: self.bodies.get(body_start..body_end)?,
        })
    }
}

/// What a bulk read has found, as Python values.
#[derive(Debug)]
pub(crate) struct FoundValues {
    values: Py<PyDict>,
    with_cas: bool,
    /// The keys whose value cannot be read, by index, each with its error.
    unreadable: Vec<(usize, PyErr)>,
    /// The keys under which there is the manifest of a value in pieces, by index.
    manifest_indices: Vec<usize>,
    /// Flags under which values are raw bytes. Values of one call usually have the same flags.
    bytes_flags: Option<u32>,
    /// What its values may take unpacked.
    unpack_budget: UnpackBudget,
    recorded_sizes: Option<RecordedSizes>,
}

impl FoundValues {
    pub(crate) fn new(py: Python<'_>, with_cas: bool) -> Self {
        Self {
            values: PyDict::new(py).unbind(),
            with_cas,
            unreadable: Vec::new(),
            manifest_indices: Vec::new(),
            bytes_flags: None,
            unpack_budget: UnpackBudget::default(),
            recorded_sizes: RecordedSizes::take_for_this_thread(),
        }
    }

    /// Decodes the value of the key at an index and adds it to the result. An error is not the outcome of a key and
    /// ends the call.
    pub(crate) fn add_value(
        &mut self,
        codec: &Codec,
        (index, key): (usize, &Bound<'_, PyAny>),
        (flags, cas): (u32, u64),
        body: &[u8],
    ) -> PyResult<()> {
        let py = key.py();
        if let Some(recorded_sizes) = &mut self.recorded_sizes {
            recorded_sizes.add(index, body.len());
        }
        let is_bytes =
            self.bytes_flags == Some(flags) || conversion::arrives_as_bytes(codec, flags);
        let value = if is_bytes {
            self.bytes_flags = Some(flags);
            Ok(PyBytes::new(py, body).into_any())
        } else {
            conversion::decode_value_of_call(py, codec, flags, body, &mut self.unpack_budget)
                .map(|(value, _)| value)
        };
        let values = self.values.bind(py);
        let insert_result = value.and_then(|value| {
            if split::is_manifest(&value) {
                self.manifest_indices.push(index);
            }
            if self.with_cas {
                values.set_item(key, (value, cas))
            } else {
                values.set_item(key, value)
            }
        });
        match insert_result {
            Err(error) if error::is_package_error(py, &error) => {
                self.unreadable.push((index, error));
            }
            insert_result => insert_result?,
        }
        Ok(())
    }

    /// Whether values in pieces were found: `_split` has to replace their manifests.
    pub(crate) fn has_manifests(&self) -> bool {
        !self.manifest_indices.is_empty()
    }

    /// As [`Self::finish`], of a read under a strategy; with whether values in pieces are among the found.
    pub(crate) fn finish_near<'py>(
        mut self,
        py: Python<'py>,
        client: &ClientState,
        (near_values, failures): (Vec<Option<NearValue>>, Failures),
        (key_at, scope): (impl Fn(usize) -> Option<Bound<'py, PyAny>>, Option<&RequestScope>),
    ) -> PyResult<(Bound<'py, PyDict>, bool)> {
        count_decode_time(scope, || {
            near_values.iter().enumerate().try_for_each(|(index, value)| {
                let (Some(value), Some(key)) = (value, key_at(index)) else { return Ok(()) };
                let flags_and_cas = (value.flags, 0);
                self.add_value(client.codec(), (index, &key), flags_and_cas, &value.bytes)
            })
        })?;
        let has_manifests = self.has_manifests();
        let found = self.finish(py, failures, &client.misses, key_at)?;
        Ok((found, has_manifests))
    }

    /// What the call returns: the values, unless some keys have no reply or one that cannot be read.
    pub(crate) fn finish<'py>(
        self,
        py: Python<'py>,
        failures: Failures,
        misses: &Misses,
        key_at: impl Fn(usize) -> Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let values = self.values.into_bound(py);
        let indices = failures.iter().map(|(index, _)| *index);
        let indices = indices.chain(self.unreadable.iter().map(|(index, _)| *index));
        let mut unanswered_keys: Vec<_> = indices.filter_map(&key_at).collect();
        let first_error = failures.first().map(|(_, error)| error::from_client_error(py, error));
        let first_unreadable = self.unreadable.into_iter().next();
        let Some(first_error) = first_error.or_else(|| first_unreadable.map(|(_, error)| error))
        else {
            return Ok(values);
        };
        // The pieces of values are not read by a call that has failed.
        let manifest_keys = self.manifest_indices.iter().copied().filter_map(&key_at);
        for manifest_key in manifest_keys {
            if values.contains(&manifest_key)? {
                values.del_item(&manifest_key)?;
                unanswered_keys.push(manifest_key);
            }
        }
        let (exception, unanswered_count) = (first_error.value(py), unanswered_keys.len() as u64);
        exception.setattr("unanswered", PyList::new(py, unanswered_keys)?)?;
        exception.setattr("arrived", &values)?;
        misses.miss_or_raise(py, first_error, values, unanswered_count)
    }
}

/// A key and its value.
type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The keys of an iterable. A single `str` or `bytes` is refused: it is one key and not a list of its letters.
pub(crate) fn collect_keys<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match keys.cast_exact::<PyList>() {
        Ok(list) => Ok(list.iter().collect()),
        Err(_) if is_one_key(keys) => Err(error::one_key_error(keys)),
        Err(_) => keys.try_iter()?.collect(),
    }
}

fn is_one_key(argument: &Bound<'_, PyAny>) -> bool {
    argument.is_instance_of::<PyString>()
        || argument.is_instance_of::<PyBytes>()
        || argument.is_instance_of::<PyByteArray>()
        || argument.is_instance_of::<PyMemoryView>()
}

/// The keys and values of a mapping.
pub(crate) fn key_value_pairs<'py>(values: &Bound<'py, PyAny>) -> PyResult<Vec<Pair<'py>>> {
    if let Ok(dict) = values.cast_exact::<PyDict>() {
        return Ok(dict.iter().collect());
    }
    let mapping = values.cast::<PyMapping>().map_err(|_| {
        let type_name = values.get_type().name();
        let type_name = type_name.map_or_else(|_| String::new(), |name| name.to_string());
        PyTypeError::new_err(format!("set_many takes a mapping of keys to values, not {type_name}"))
    })?;
    mapping.items()?.iter().map(|pair| pair.extract()).collect()
}

/// The failures of a bulk write by key. Where errors are misses, callers do not look at them: their keys are removed later,
/// so that no older value comes back.
pub(crate) fn failures_by_key<'py>(
    py: Python<'py>,
    client: &ClientState,
    failures: Failures,
    key_at: impl Fn(usize) -> Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (index, error) in failures {
        let Some(key) = key_at(index) else {
            continue;
        };
        let exception = error::error_to_exception(py, &error)?;
        if client.misses.is_miss(py, &PyErr::from_value(exception.clone()))? {
            client.core.mark_uncertain(client.wire_key(&key, &mut Vec::new())?);
        }
        dict.set_item(key, exception)?;
    }
    Ok(dict)
}
