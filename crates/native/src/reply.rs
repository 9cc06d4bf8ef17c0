//! What the reply to a request about one key becomes: the same Python value in every client.

use std::convert::Infallible;

use glasscache_client::costs::{Part, Spent};
use glasscache_client::engine::interpret::{number, outcome, value};
use glasscache_client::outcome::Outcome;
use glasscache_client::pipeline::{FoundValue, MetaReply, Pipeline, Reply};
use glasscache_client::request::Request;
use glasscache_client::value::Making;
use glasscache_client::{Error, StoreMode};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::settings::Codec;
use crate::{error, made, value as conversion};

/// Why a call has no value.
pub(crate) enum ReplyFailure {
    /// An error of the client.
    Client(Error),
    /// A value could not be read.
    Unreadable(PyErr),
}

impl ReplyFailure {
    /// The exception to be raised.
    pub(crate) fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Client(error) => error::of_client(py, &error),
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
pub(crate) enum Form {
    /// The value.
    Value,
    /// (value, CAS unique).
    WithCas,
    /// (value, CAS unique, seconds left or -1, seconds since access, fetched before, stale, bytes, making).
    Inspected,
    /// A new number.
    Number,
    /// Whether something was done.
    Truth,
    /// As [`Self::Truth`], but None where there is nothing under the key.
    Cas,
    /// As [`Self::Truth`], but None for an error that counts as a miss.
    Reserved,
}

impl Form {
    /// The form of the reply to a request.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Get { cas: true, .. } => Self::WithCas,
            Request::Get { .. } | Request::GetAndTouch { .. } => Self::Value,
            Request::Inspect { .. } => Self::Inspected,
            Request::Arithmetic { .. } => Self::Number,
            Request::Store {
                mode: StoreMode::Cas(_),
                ..
            } => Self::Cas,
            _ => Self::Truth,
        }
    }

    /// The Python value of a reply; `None`: a miss.
    pub(crate) fn to_python<'py>(
        self,
        py: Python<'py>,
        codec: &Codec,
        (reply, pipeline, server): (Reply, &Pipeline, &str),
        spent: &mut Spent,
    ) -> Result<Option<Bound<'py, PyAny>>, ReplyFailure> {
        match self {
            Self::Value | Self::WithCas | Self::Inspected => {
                let Some(received) = value(reply, pipeline, server)? else {
                    return Ok(None);
                };
                let (found, meta) = (&received.found, received.meta);
                let (object, costs) =
                    conversion::from_bytes(py, codec, found.flags, received.bytes)?;
                spent.add_time(Part::Decompress, costs.compress);
                let making = codec.rust.making(found.flags, received.bytes);
                let making = making.map(|(making, ..)| making);
                Ok(self.of_value(object, found, meta.map(|meta| (meta, making)))?)
            }
            Self::Number => {
                let number = number(reply, pipeline, server)?;
                Ok(number
                    .map(|number| number.into_pyobject(py))
                    .transpose()?
                    .map(Bound::into_any))
            }
            Self::Truth | Self::Cas | Self::Reserved => {
                Ok(self.of_outcome(py, outcome(reply, server)?))
            }
        }
    }

    /// A value that was read, with its metadata.
    pub(crate) fn of_value<'py>(
        self,
        value: Bound<'py, PyAny>,
        found: &FoundValue,
        meta: Option<(MetaReply, Option<Making>)>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        Ok(match (self, meta) {
            (Self::WithCas, _) => Some((value, found.cas).into_pyobject(py)?.into_any()),
            (Self::Inspected, None) => None,
            (Self::Inspected, Some((meta, making))) => {
                let bytes = found.value_bytes;
                let (ttl_s, last_access_s) = (meta.ttl_s, meta.last_access_s);
                let metadata = (
                    value,
                    meta.cas,
                    ttl_s,
                    last_access_s,
                    meta.was_hit,
                    meta.stale,
                    bytes,
                    making.map(made::seconds),
                );
                Some(metadata.into_pyobject(py)?.into_any())
            }
            _ => Some(value),
        })
    }

    /// The outcome of a write.
    pub(crate) fn of_outcome(self, py: Python<'_>, outcome: Outcome) -> Option<Bound<'_, PyAny>> {
        let is_missing = self == Self::Cas && outcome == Outcome::NotFound;
        (!is_missing).then(|| {
            PyBool::new(py, outcome == Outcome::Done)
                .to_owned()
                .into_any()
        })
    }
}
