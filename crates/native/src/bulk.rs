//! Bulk calls and pipelines from Python: many keys at once, each key's failure by its name.

use std::cell::RefCell;

use glasscache_client::StoreWord;
use glasscache_client::WireKey;
use glasscache_client::bulk::Failures;
use glasscache_client::call::receive_all;
use glasscache_client::costs::Spent;
use glasscache_client::request::Item;
use glasscache_client::{Budget, Error};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMapping, PyMemoryView, PyString};

use crate::client::{Client, Ttl, exptime, key_bytes};
use crate::{error, turns, value as conversion};

/// Wire keys of many Python keys: each is its own bytes or lies in one shared buffer.
struct WireKeys<'a> {
    keys: Vec<&'a [u8]>,
    is_base64: Vec<bool>,
    made: Vec<Vec<u8>>,
}

impl<'a> WireKeys<'a> {
    fn new(py: Python<'_>, client: &Client, keys: Vec<&'a [u8]>) -> PyResult<Self> {
        let maker = client.keys();
        let mut made = Vec::new();
        let mut is_base64 = Vec::with_capacity(keys.len());
        for key in &keys {
            let mut scratch = Vec::new();
            let wire = maker
                .wire(key, &mut scratch)
                .map_err(|e| error::of_client(py, &e))?;
            is_base64.push(wire.is_base64);
            made.push(scratch);
        }
        Ok(Self {
            keys,
            is_base64,
            made,
        })
    }

    fn get(&self, index: usize) -> Option<WireKey<'_>> {
        let made = self.made.get(index)?;
        let bytes = if made.is_empty() {
            *self.keys.get(index)?
        } else {
            made.as_slice()
        };
        Some(WireKey {
            bytes,
            is_base64: *self.is_base64.get(index)?,
        })
    }

    fn all(&self) -> Vec<WireKey<'_>> {
        (0..self.keys.len())
            .filter_map(|index| self.get(index))
            .collect()
    }
}

impl Client {
    /// Reads many keys, each value alone or with its CAS unique.
    fn read_all<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        with_cas: bool,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let times = self.times(deadline)?;
        let objects = all_of(keys)?;
        let mut plain = Vec::with_capacity(objects.len());
        let mut plain_objects = Vec::with_capacity(objects.len());
        let values = PyDict::new(py);
        let mut scratch = Vec::new();
        for object in &objects {
            let bytes = key_bytes(object)?;
            let wire = self
                .keys()
                .wire(bytes, &mut scratch)
                .map_err(|e| error::of_client(py, &e))?;
            if wire.is_base64 {
                if let Some((value, cas)) = self.read_one(py, wire, with_cas, times)? {
                    if with_cas {
                        values.set_item(object, (value, cas))?;
                    } else {
                        values.set_item(object, value)?;
                    }
                }
            } else {
                plain.push(bytes);
                plain_objects.push(object);
            }
        }
        if plain.is_empty() {
            return Ok(values);
        }
        // What a signal's handler raised, or a foreign codec: it ends the call.
        let raised = RefCell::new(None);
        let budget = Budget {
            started: times.0,
            deadline: times.1,
            go_on: &|| true,
            spent: Spent::default(),
        };
        let mut unreadable = Vec::new();
        let mut bytes_flags = None;
        let done = self.core.read_many(
            &plain,
            with_cas,
            &budget,
            |calls| loop {
                if raised.borrow().is_some() {
                    return Err(Error::Interrupted);
                }
                if turns::detached(py, || receive_all(calls)) {
                    return Ok(());
                }
                raised.replace(py.check_signals().err());
            },
            |index, found, body| {
                if raised.borrow().is_some() {
                    return Ok(()); // the replies are here: the connections stay good
                }
                if let Some(object) = plain_objects.get(index) {
                    // Values of one call have one form, as a rule, and most are bytes.
                    let value = if bytes_flags == Some(found.flags) {
                        Ok(PyBytes::new(py, body).into_any())
                    } else if conversion::arrives_as_bytes(self.codec(), found.flags) {
                        bytes_flags = Some(found.flags);
                        Ok(PyBytes::new(py, body).into_any())
                    } else {
                        conversion::from_bytes(py, self.codec(), found.flags, body)
                            .map(|(value, _)| value)
                    };
                    let kept = value.and_then(|value| {
                        if with_cas {
                            values.set_item(object, (value, found.cas))
                        } else {
                            values.set_item(object, value)
                        }
                    });
                    match kept {
                        Ok(()) => {}
                        Err(error) if error::is_own(py, &error) => unreadable.push((index, error)),
                        Err(error) => *raised.borrow_mut() = Some(error),
                    }
                }
                Ok(())
            },
        );
        if let Some(raised) = raised.into_inner() {
            return Err(raised);
        }
        let failures = done.map_err(|error| error::of_client(py, &error))?;
        let first = failures
            .first()
            .map(|(_, error)| error::of_client(py, error));
        let missing = failures.iter().map(|(index, _)| *index);
        let missing = missing.chain(unreadable.iter().map(|(index, _)| *index));
        let missing: Vec<_> = missing
            .filter_map(|index| plain_objects.get(index))
            .collect();
        let first = first.or_else(|| unreadable.into_iter().next().map(|(_, error)| error));
        let Some(first) = first else {
            return Ok(values);
        };
        let count = missing.len() as u64;
        let exception = first.value(py);
        exception.setattr("unanswered", PyList::new(py, missing)?)?;
        exception.setattr("arrived", &values)?;
        self.missed_many(py, first, values, count)
    }
}

#[pymethods]
impl Client {
    /// Return the values under keys, as a dict without those that missed.
    ///
    /// All servers are asked at once. If one fails, the error has `unanswered`, the keys that got no
    /// answer, and `arrived`, the values that did; with on_error="miss" the values are returned.
    ///
    /// >>> client.set_many({"a": 1, "b": "two"})
    /// {}
    /// >>> sorted(client.get_many(["a", "b", "c"]).items())
    /// [('a', 1), ('b', 'two')]
    #[pyo3(signature = (keys, *, deadline=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.read_all(py, keys, false, deadline)
    }

    /// Return (value, CAS unique) under keys, as a dict without those that missed; see `get_many`.
    ///
    /// >>> client.set("counted", "v")
    /// True
    /// >>> client.gets_many(["counted", "never"])["counted"] == client.gets("counted")
    /// True
    #[pyo3(signature = (keys, *, deadline=None))]
    fn gets_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.read_all(py, keys, true, deadline)
    }

    /// Store a mapping's values for ttl seconds; return the exception of each key that failed.
    ///
    /// One round trip a server, whatever the number of keys. An empty dict is success. With noreply the
    /// call does not wait, as `set`.
    ///
    /// >>> client.set_many({"a": 1, "b": 2}, ttl=60)
    /// {}
    #[pyo3(signature = (values, ttl=None, *, noreply=false, deadline=None, **words), text_signature = "($self, values, ttl=None, *, noreply=False, deadline=None)")]
    fn set_many<'py>(
        &self,
        py: Python<'py>,
        values: &Bound<'py, PyAny>,
        ttl: Option<Ttl>,
        noreply: bool,
        deadline: Option<f64>,
        words: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        error::refuse_words("set_many", words)?;
        let times = self.times(deadline)?;
        let exptime = exptime(ttl)?;
        let pairs = pairs_of(values)?;
        if noreply {
            for (key, value) in &pairs {
                self.write(py, StoreWord::Set, key, value, ttl, true, deadline)?;
            }
            return Ok(PyDict::new(py));
        }
        let keys: Vec<&[u8]> = pairs
            .iter()
            .map(|(key, _)| key_bytes(key))
            .collect::<PyResult<_>>()?;
        let wire = WireKeys::new(py, self, keys)?;
        let mut bodies: Vec<u8> = Vec::new();
        let mut spans = Vec::with_capacity(pairs.len());
        let mut spent = Spent::default();
        for (_, value) in &pairs {
            conversion::with_bytes(self.codec(), value, |flags, bytes, costs| {
                let from = bodies.len();
                bodies.extend_from_slice(bytes);
                spans.push((flags, from, bodies.len()));
                conversion::add_costs(&mut spent, costs);
                Ok(())
            })?;
        }
        let items: Vec<Item<'_>> = spans
            .iter()
            .enumerate()
            .filter_map(|(index, &(flags, from, to))| {
                Some(Item {
                    key: wire.get(index)?,
                    flags,
                    body: bodies.get(from..to)?,
                })
            })
            .collect();
        let failures = self.detached(py, times, spent, |core, budget| {
            core.store_many(StoreWord::Set, &items, exptime, budget)
        });
        told(py, failures?, |index| {
            pairs.get(index).map(|(key, _)| key.clone())
        })
    }

    /// Remove keys; return the exception of each key that failed. A key that was not there is none.
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
        let times = self.times(deadline)?;
        let objects = all_of(keys)?;
        if noreply {
            for key in &objects {
                self.remove(py, key, true, deadline)?;
            }
            return Ok(PyDict::new(py));
        }
        let bytes: Vec<&[u8]> = objects.iter().map(key_bytes).collect::<PyResult<_>>()?;
        let wire = WireKeys::new(py, self, bytes)?;
        let all = wire.all();
        let failures = self.detached(py, times, Spent::default(), |core, budget| {
            core.delete_many(&all, budget)
        });
        told(py, failures?, |index| objects.get(index).cloned())
    }
}

/// The keys that an iterable has; those of a list without an iterator. One text or bytes is not a list of its letters.
fn all_of<'py>(items: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match items.cast_exact::<PyList>() {
        Ok(list) => Ok(list.iter().collect()),
        Err(_) if is_one_key(items) => Err(error::one_key(items)),
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
fn pairs_of<'py>(
    values: &Bound<'py, PyAny>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    if let Ok(dict) = values.cast_exact::<PyDict>() {
        return Ok(dict.iter().collect());
    }
    let mapping = values.cast::<PyMapping>().map_err(|_| {
        let kind = values.get_type().name();
        let kind = kind.map_or_else(|_| String::new(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "set_many takes a mapping of keys to values, not {kind}"
        ))
    })?;
    mapping.items()?.iter().map(|pair| pair.extract()).collect()
}

/// The failures of a bulk write by key.
fn told<'py>(
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
