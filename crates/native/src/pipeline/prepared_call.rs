//! The calls of a pipeline as Python passes them in, and the requests that they become.

use glasscache_client::StoreMode;
use glasscache_client::costs::TimeSpent;
use glasscache_client::request::{Item, Request};
use glasscache_client::{Arithmetic, WireKey};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::client::{Client, Ttl, appended_bytes, exptime, parse_amount};
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
    /// The delta of an `incr` or `decr`, or the CAS unique of a `cas`.
    delta_or_cas: u64,
    pub(super) slot: usize,
    pub(super) spent: TimeSpent,
}

#[derive(Clone, Copy)]
enum CallKind {
    Get { cas: bool },
    GetAndTouch,
    Store(StoreMode),
    Cas,
    Delete,
    Touch,
    Arithmetic { is_decrement: bool },
}

impl CallKind {
    fn of_method(method: &str) -> Option<Self> {
        Some(match method {
            "get" => Self::Get { cas: false },
            "gets" => Self::Get { cas: true },
            "gat" => Self::GetAndTouch,
            "set" => Self::Store(StoreMode::Set),
            "add" => Self::Store(StoreMode::Add),
            "replace" => Self::Store(StoreMode::Replace),
            "append" => Self::Store(StoreMode::Append),
            "prepend" => Self::Store(StoreMode::Prepend),
            "cas" => Self::Cas,
            "delete" => Self::Delete,
            "touch" => Self::Touch,
            "incr" => Self::Arithmetic { is_decrement: false },
            "decr" => Self::Arithmetic { is_decrement: true },
            _ => return None,
        })
    }
}

impl PreparedCall {
    /// Whether it returns a value.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.kind, CallKind::Get { .. } | CallKind::GetAndTouch)
    }

    pub(super) fn new(client: &Client, pipeline_call: &PipelineCall<'_>) -> PyResult<Self> {
        let (method, key, value, ttl, delta_or_cas) = pipeline_call;
        let kind = CallKind::of_method(method)
            .ok_or_else(|| PyValueError::new_err(format!("a pipeline has no method {method:?}")))?;
        let mut scratch = Vec::new();
        let wire_key = client.wire_key(key, &mut scratch)?;
        let mut spent = TimeSpent::default();
        let (flags, body) = match kind {
            CallKind::Store(StoreMode::Append | StoreMode::Prepend) => {
                (0, appended_bytes(value)?.to_vec())
            }
            CallKind::Store(_) | CallKind::Cas => {
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
            delta_or_cas: parse_amount(delta_or_cas)?,
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
            CallKind::Store(mode) => self.store_request(mode, key),
            CallKind::Cas => self.store_request(StoreMode::Cas(self.delta_or_cas), key),
            CallKind::Delete => Request::Delete { key, noreply: false },
            CallKind::Touch => Request::Touch { key, exptime, noreply: false },
            CallKind::Arithmetic { is_decrement } => {
                let arithmetic =
                    Arithmetic { delta: self.delta_or_cas, is_decrement, initial: None };
                Request::Arithmetic { key, arithmetic, noreply: false }
            }
        }
    }

    fn store_request<'a>(&'a self, mode: StoreMode, key: WireKey<'a>) -> Request<'a> {
        let item = Item { key, flags: self.flags, body: &self.body };
        Request::Store { mode, item, exptime: self.exptime, noreply: false }
    }
}
