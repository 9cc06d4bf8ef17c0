//! The calls of a pipeline as Python passes them in, and the requests that they become.

use glasscache_client::StoreMode;
use glasscache_client::costs::TimeSpent;
use glasscache_client::request::{Item, Request};
use glasscache_client::{Arithmetic, WireKey};
use pyo3::prelude::*;

use crate::client::{Client, appended_bytes, parse_amount, store_mode_of};
use crate::ttl::{Ttl, exptime};
use crate::value as conversion;

/// A call of a pipeline as Python passes it in: method, key, value, ttl, and an amount or a CAS unique.
pub(super) type PipelineCall<'py> =
    (String, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Bound<'py, PyAny>);

/// A call with its key and body encoded.
pub(super) struct PreparedCall {
    kind: CallKind,
    key_bytes: Vec<u8>,
    is_base64: bool,
    flags: u32,
    pub(super) body: Vec<u8>,
    exptime: i64,
    /// That of an `incr` or `decr`.
    delta: u64,
    pub(super) slot: usize,
    pub(super) spent: TimeSpent,
}

#[derive(Clone, Copy)]
enum CallKind {
    Get { cas: bool },
    GetAndTouch,
    Store(StoreMode),
    Delete,
    Touch,
    Arithmetic { is_decrement: bool },
}

impl CallKind {
    fn of_method(method: &str, unique: u64) -> PyResult<Self> {
        Ok(match method {
            "get" => Self::Get { cas: false },
            "gets" => Self::Get { cas: true },
            "gat" => Self::GetAndTouch,
            "delete" => Self::Delete,
            "touch" => Self::Touch,
            "incr" => Self::Arithmetic { is_decrement: false },
            "decr" => Self::Arithmetic { is_decrement: true },
            _ => Self::Store(store_mode_of(method, Some(unique))?),
        })
    }
}

impl PreparedCall {
    /// Whether it returns a value.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.kind, CallKind::Get { .. } | CallKind::GetAndTouch)
    }

    pub(super) fn new(client: &Client, pipeline_call: &PipelineCall<'_>) -> PyResult<Self> {
        let (method, key, value, ttl, delta_or_unique) = pipeline_call;
        let delta_or_unique = parse_amount(delta_or_unique)?;
        let kind = CallKind::of_method(method, delta_or_unique)?;
        let mut scratch = Vec::new();
        let wire_key = client.wire_key(key, &mut scratch)?;
        let mut spent = TimeSpent::default();
        let (flags, body) = match kind {
            CallKind::Store(StoreMode::Append | StoreMode::Prepend) => {
                (0, appended_bytes(value)?.to_vec())
            }
            CallKind::Store(_) => {
                conversion::encode_value(client.codec(), value, |flags, body, costs| {
                    conversion::add_costs(&mut spent, costs);
                    Ok((flags, body.to_vec()))
                })?
            }
            _ => (0, Vec::new()),
        };
        let slot = client.core.slot_of(wire_key.bytes);
        Ok(Self {
            kind,
            key_bytes: wire_key.bytes.to_vec(),
            is_base64: wire_key.is_base64,
            flags,
            body,
            exptime: exptime(
                ttl.as_ref().map(pyo3::types::PyAnyMethods::extract::<Ttl>).transpose()?,
            )?,
            delta: delta_or_unique,
            slot,
            spent,
        })
    }

    pub(super) fn request(&self) -> Request<'_> {
        let key = WireKey { bytes: &self.key_bytes, is_base64: self.is_base64 };
        let exptime = self.exptime;
        match self.kind {
            CallKind::Get { cas } => Request::Get { key, cas },
            CallKind::GetAndTouch => Request::GetAndTouch { key, exptime },
            CallKind::Store(mode) => {
                let item = Item { key, flags: self.flags, body: &self.body };
                Request::Store { mode, item, exptime, noreply: false }
            }
            CallKind::Delete => Request::Delete { key, noreply: false },
            CallKind::Touch => Request::Touch { key, exptime, noreply: false },
            CallKind::Arithmetic { is_decrement } => {
                let arithmetic = Arithmetic { delta: self.delta, is_decrement, initial: None };
                Request::Arithmetic { key, arithmetic, noreply: false }
            }
        }
    }
}
