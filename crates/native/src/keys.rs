//! Keys given by Python, as bytes and as wire keys.

use glasscache_client::Error;
use glasscache_client::key::{KeyEncoder, WireKeys, is_session_key as is_session};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::error;

/// The bytes of a key given as `str` or `bytes`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a part of each call, of two tests of a type")]
pub(crate) fn key_bytes<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    if let Ok(text) = key.cast::<PyString>() {
        let bytes = text.to_str().map(str::as_bytes);
        return bytes.map_err(|_| not_utf8_error(text));
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return Ok(bytes.as_bytes());
    }
    Err(PyTypeError::new_err(format!("a key is str or bytes, not {}", key.get_type().name()?)))
}

/// Keys as they go on the wire.
pub(crate) fn wire_keys<'k, 'py: 'k>(
    encoder: KeyEncoder<'_>,
    keys: impl IntoIterator<Item = &'k Bound<'py, PyAny>>,
) -> PyResult<WireKeys> {
    let mut encoded_keys = WireKeys::default();
    for key in keys {
        let push_result = encoded_keys.push(encoder, key_bytes(key)?);
        push_result.map_err(|error| error::from_client_error(key.py(), &error))?;
    }
    Ok(encoded_keys)
}

/// The bytes of keys as they go on the wire.
pub(crate) fn wire_keys_of_bytes(
    py: Python<'_>,
    encoder: KeyEncoder<'_>,
    keys: &[&[u8]],
) -> PyResult<WireKeys> {
    let mut encoded_keys = WireKeys::default();
    let push_result = keys.iter().try_for_each(|key| encoded_keys.push(encoder, key));
    push_result.map_err(|error| error::from_client_error(py, &error))?;
    Ok(encoded_keys)
}

/// Refuse what is not a key as the parent of a read, recorded or not: a recorder must not be what makes a call fail.
#[pyfunction]
pub(crate) fn check_parent(parent: &Bound<'_, PyAny>) -> PyResult<()> {
    if parent.is_instance_of::<PyString>() || parent.is_instance_of::<PyBytes>() {
        return key_bytes(parent).map(|_| ());
    }
    Err(PyTypeError::new_err(format!(
        "a parent is a key, str or bytes, or None, not {}",
        parent.get_type().name()?
    )))
}

/// Whether a key is that of a session (`glasscache_strategy::session_keys`).
#[pyfunction]
pub(crate) fn is_session_key(key: &Bound<'_, PyAny>) -> PyResult<bool> {
    key_bytes(key).map(is_session)
}

/// How logs name the key of a session; `None` of any other key.
#[pyfunction]
pub(crate) fn hashed_session_key(key: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let text = String::from_utf8_lossy(key_bytes(key)?);
    Ok(glasscache_sim::trace::log::hashed_session_key(&text, None))
}

fn not_utf8_error(key_object: &Bound<'_, PyString>) -> PyErr {
    let reason = "it has no UTF-8 form";
    let key = key_object.repr().map_or_else(|_| String::new(), |repr| repr.to_string());
    Python::attach(|py| error::from_client_error(py, &Error::BadKey { key, reason }))
}
