//! TTLs as Python gives them, and as they are sent.

use std::time::{SystemTime, UNIX_EPOCH};

use glasscache_client::request::RELATIVE_EXPTIME_MAX_S;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyInt};

use crate::error;

/// The last second that servers know: they keep 32 bits with a sign.
const EXPTIME_MAX_S: i64 = i32::MAX as i64;

/// A TTL as Python gives it: seconds, or a `datetime.timedelta`.
#[derive(Clone, Copy)]
pub(crate) struct Ttl(f64);

impl<'py> FromPyObject<'_, 'py> for Ttl {
    type Error = PyErr;

    fn extract(argument: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        // The usual case, without a float object in between.
        if argument.is_exact_instance_of::<PyInt>()
            && let Ok(seconds) = argument.extract::<i32>()
        {
            return Ok(Self(seconds.into()));
        }
        if let Ok(seconds) = argument.extract::<f64>() {
            return Ok(Self(seconds));
        }
        if let Ok(delta) = argument.cast::<PyDelta>() {
            return delta.call_method0("total_seconds")?.extract().map(Self);
        }
        let type_name = argument.get_type().name()?.to_string();
        Err(PyTypeError::new_err(format!(
            "ttl is a number of seconds or a timedelta, not {type_name}"
        )))
    }
}

/// A TTL in whole seconds; `None` for 0, a negative one, and one so long that it is sent as a Unix time.
pub(crate) fn whole_ttl_s(Ttl(ttl): Ttl) -> Option<u32> {
    let is_relative = ttl > 0.0 && ttl <= RELATIVE_EXPTIME_MAX_S as f64;
    is_relative.then_some(ttl.ceil() as u32)
}

/// A TTL as an exptime on the wire: 0 never expires, a negative one expires at once.
pub(crate) fn exptime(ttl: Option<Ttl>) -> PyResult<i64> {
    let Some(Ttl(ttl)) = ttl else { return Ok(0) };
    if !ttl.is_finite() || ttl > 1e11 {
        let message = format!("a ttl of {ttl} s: 0 is for ever");
        return Err(Python::attach(|py| error::bad_setting(py, message)));
    }
    // Rounded away from 0, which would never expire: 0.5 s becomes 1 s, and any negative TTL expires at once.
    let whole_s = if ttl < 0.0 { ttl.floor() } else { ttl.ceil() } as i64;
    if whole_s <= RELATIVE_EXPTIME_MAX_S {
        return Ok(whole_s.max(-1));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(whole_s.saturating_add(now.as_secs() as i64).min(EXPTIME_MAX_S))
}
