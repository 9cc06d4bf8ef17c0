//! Values that are stored in pieces: the manifest under their key, which reads replace by the value.
//!
//! What a manifest holds, and how the pieces are stored and read, is in `glasscache._split`.

use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

/// What is stored under the key of a value in pieces.
#[pyclass(frozen, module = "glasscache._native")]
pub(crate) struct Manifest(Vec<u8>);

impl Manifest {
    pub(crate) fn body_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[pymethods]
impl Manifest {
    #[new]
    pub(crate) fn new(body: Vec<u8>) -> Self {
        Self(body)
    }

    /// The bytes that are stored.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0)
    }
}

/// Whether a value is a manifest.
pub(crate) fn is_manifest(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<Manifest>()
}

/// Whether what a read returns is a manifest, or begins with one: then it has metadata.
fn has_manifest(found: &Bound<'_, PyAny>) -> bool {
    is_manifest(found)
        || found.cast_exact::<PyTuple>().is_ok_and(|value_and_metadata| {
            value_and_metadata.get_item(0).is_ok_and(|value| is_manifest(&value))
        })
}

/// The seconds that a call with a deadline of its own has left.
fn seconds_left(call_timeout_s: Option<f64>, deadline: Instant) -> Option<f64> {
    call_timeout_s.map(|_| {
        let time_left = deadline.saturating_duration_since(Instant::now());
        time_left.as_secs_f64().max(1e-6)
    })
}

/// What a read of one key returns, with the value in place of its manifest, whose pieces get this TTL, if there is one;
/// `None`: a piece is lost.
#[inline]
pub(crate) fn replace_manifest<'py>(
    client: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    found: Bound<'py, PyAny>,
    timing: (Option<f64>, Instant),
    new_ttl: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !has_manifest(&found) {
        return Ok(Some(found));
    }
    read_pieces(client, key, found, timing, new_ttl)
}

fn read_pieces<'py>(
    client: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    found: Bound<'py, PyAny>,
    (call_timeout_s, deadline): (Option<f64>, Instant),
    new_ttl: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let split_module = client.py().import("glasscache._split")?;
    let time_left = seconds_left(call_timeout_s, deadline);
    let whole_value =
        split_module.call_method1("read", (client, key, found, time_left, new_ttl))?;
    (!whole_value.is_none()).then(|| whole_value.get_item(0)).transpose()
}

/// What a read of many keys returns, with values in place of manifests and without those that lost a piece.
pub(crate) fn replace_manifests<'py>(
    client: &Bound<'py, PyAny>,
    found: Bound<'py, PyDict>,
    (call_timeout_s, deadline): (Option<f64>, Instant),
) -> PyResult<Bound<'py, PyDict>> {
    let split_module = client.py().import("glasscache._split")?;
    let whole_values = split_module
        .call_method1("read_many", (client, found, seconds_left(call_timeout_s, deadline)))?;
    Ok(whole_values.cast_into()?)
}

/// Gives the pieces of the value under a key this TTL; whether they were there.
pub(crate) fn touch(
    client: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    ttl: &Bound<'_, PyAny>,
    call_timeout_s: Option<f64>,
) -> PyResult<bool> {
    let split_module = client.py().import("glasscache._split")?;
    split_module.call_method1("touch", (client, key, ttl, call_timeout_s))?.extract()
}

/// Stores a value, in pieces if it is long; whether it was stored.
pub(crate) fn set<'py>(
    client: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
    ttl: Option<Bound<'py, PyAny>>,
    call_timeout_s: Option<f64>,
) -> PyResult<bool> {
    let split_module = client.py().import("glasscache._split")?;
    split_module.call_method1("write", (client, key, value, ttl, call_timeout_s))?.extract()
}
