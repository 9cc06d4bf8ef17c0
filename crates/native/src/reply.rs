//! Replies to requests about one key as Python values, the same in every client.

use std::convert::Infallible;

use glasscache_client::costs::{CostPart, TimeSpent};
use glasscache_client::engine::interpret::{
    number_of_reply, value_of_reply, write_outcome_of_reply,
};
use glasscache_client::engine::operation::{Touched, touched_of_reply};
use glasscache_client::pipeline::{FoundValue, MetaReply, Pipeline, Reply};
use glasscache_client::request::Request;
use glasscache_client::value::{ComputeInfo, UnpackBudget};
use glasscache_client::write_outcome::WriteOutcome;
use glasscache_client::{Error, StoreMode};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::settings::Codec;
use crate::split::Manifest;
use crate::{computed_value, error, value as conversion};

/// Why a call has no value.
pub(crate) enum ReplyFailure {
    /// An error of the client.
    Client(Error),
    /// A value could not be read.
    Unreadable(PyErr),
}

impl ReplyFailure {
    /// The exception to be raised.
    pub(crate) fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Client(error) => error::from_client_error(py, &error),
            Self::Unreadable(error) => error,
        }
    }
}

impl From<Error> for ReplyFailure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<PyErr> for ReplyFailure {
    fn from(error: PyErr) -> Self {
        Self::Unreadable(error)
    }
}

impl From<Infallible> for ReplyFailure {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The form in which a reply comes to Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyForm {
    /// The value.
    Value,
    /// (value, CAS unique).
    WithCas,
    /// (value, CAS unique, seconds left or -1, seconds since access, fetched before, stale, bytes, compute info).
    WithMetadata,
    /// A new number.
    Number,
    /// Whether something was done.
    Bool,
    /// As [`Self::Bool`], of a touch; a manifest without bytes for the manifest of a value in pieces.
    Touched,
    /// As [`Self::Bool`], but None where there is nothing under the key.
    Cas,
    /// As [`Self::Bool`], but None for an error that counts as a miss.
    Reserved,
}

/// The Python form of [`ReplyForm::Touched`].
pub(crate) fn touched_to_python(py: Python<'_>, touched: Touched) -> PyResult<Bound<'_, PyAny>> {
    match touched {
        Touched::Manifest => Ok(Bound::new(py, Manifest::new(Vec::new()))?.into_any()),
        touched => Ok(PyBool::new(py, touched == Touched::Done).to_owned().into_any()),
    }
}

impl ReplyForm {
    /// The form of the reply to a request.
    pub(crate) fn for_request(request: &Request<'_>) -> Self {
        match request {
            Request::Get { cas: true, .. } => Self::WithCas,
            Request::Get { .. } | Request::GetAndTouch { .. } => Self::Value,
            Request::Inspect { .. } => Self::WithMetadata,
            Request::Touch { .. } => Self::Touched,
            Request::Arithmetic { .. } => Self::Number,
            Request::Store { mode: StoreMode::Cas(_), .. } => Self::Cas,
            _ => Self::Bool,
        }
    }

    /// The Python value of a reply; `None`: a miss.
    pub(crate) fn to_python<'py>(
        self,
        py: Python<'py>,
        codec: &Codec,
        (reply, pipeline, server): (Reply, &Pipeline, &str),
        spent: &mut TimeSpent,
        unpack_budget: &mut UnpackBudget,
    ) -> Result<Option<Bound<'py, PyAny>>, ReplyFailure> {
        match self {
            Self::Value | Self::WithCas | Self::WithMetadata => {
                let Some(received) = value_of_reply(reply, pipeline, server)? else {
                    return Ok(None);
                };
                let (found, meta) = (&received.found, received.meta);
                let (object, costs) = conversion::decode_value_of_call(
                    py,
                    codec,
                    found.flags,
                    received.bytes,
                    unpack_budget,
                )?;
                spent.add_time(CostPart::Decompress, costs.compress);
                if self == Self::Value {
                    return Ok(Some(object));
                }
                let metadata = meta.filter(|_| self == Self::WithMetadata).map(|meta| {
                    let compute_info = codec.inner.compute_info(found.flags, received.bytes);
                    (meta, compute_info.map(|(compute_info, ..)| compute_info))
                });
                Ok(self.value_to_python(object, found, metadata)?)
            }
            Self::Number => {
                let number = number_of_reply(reply, pipeline, server)?;
                Ok(number.map(|number| number.into_pyobject(py)).transpose()?.map(Bound::into_any))
            }
            Self::Touched => Ok(Some(touched_to_python(py, touched_of_reply(reply, server)?)?)),
            Self::Bool | Self::Cas | Self::Reserved => {
                Ok(self.outcome_to_python(py, write_outcome_of_reply(reply, server)?))
            }
        }
    }

    /// A value that was read, with its metadata.
    pub(crate) fn value_to_python<'py>(
        self,
        value: Bound<'py, PyAny>,
        found: &FoundValue,
        meta: Option<(MetaReply, Option<ComputeInfo>)>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        Ok(match (self, meta) {
            (Self::WithCas, _) => Some((value, found.cas).into_pyobject(py)?.into_any()),
            (Self::WithMetadata, None) => None,
            (Self::WithMetadata, Some((meta, compute_info))) => {
                let value_bytes = found.value_bytes;
                let (ttl_s, last_access_s) = (meta.ttl_s, meta.last_access_s);
                let metadata = (
                    value,
                    meta.cas,
                    ttl_s,
                    last_access_s,
                    meta.was_hit,
                    meta.stale,
                    value_bytes,
                    compute_info.map(computed_value::compute_info_to_seconds),
                );
                Some(metadata.into_pyobject(py)?.into_any())
            }
            _ => Some(value),
        })
    }

    /// The outcome of a write.
    pub(crate) fn outcome_to_python(
        self,
        py: Python<'_>,
        outcome: WriteOutcome,
    ) -> Option<Bound<'_, PyAny>> {
        let is_missing = self == Self::Cas && outcome == WriteOutcome::NotFound;
        (!is_missing).then(|| PyBool::new(py, outcome == WriteOutcome::Done).to_owned().into_any())
    }
}
