//! The serialisers and the calls of Python, in a child process that measures with its own clock.
//!
//! `serialisers.py` does both. Without a Python the values are measured as they are, through our Rust client.

use serde::Deserialize;
use serde_json::{Value, json};

use super::costs::SerialiserCosts;
use super::sample::{Sample, ValueKind};
use crate::python::{PythonWorker, find_any_python, find_python_with, format_early_end};

/// The program that the child process runs.
const PROGRAM: &str = include_str!("serialisers.py");

/// The serialisers that are measured, those of our client first.
pub(super) const SERIALISERS: [&str; 8] =
    ["Codec", "Codec msgpack", "packed", "pickle", "json", "orjson", "msgspec", "msgpack"];

/// A child process of Python that holds the values.
pub(super) struct PythonValues {
    worker: PythonWorker,
    /// Whether this Python has our package, so that it can make calls.
    pub(super) has_client: bool,
}

/// Why a serialiser was left out, or a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PythonFailure {
    /// The reason.
    pub(super) reason: String,
    /// Whether the serialiser's package is not installed.
    pub(super) is_not_installed: bool,
}

impl From<String> for PythonFailure {
    fn from(reason: String) -> Self {
        Self { reason, is_not_installed: false }
    }
}

#[derive(Deserialize)]
struct SerialiserTimes {
    write_ns: Vec<u64>,
    read_ns: Vec<u64>,
    lengths: Vec<usize>,
}

impl PythonValues {
    /// Starts the child and hands it the values; the error is a reason to print.
    pub(super) fn start(samples: &[&Sample]) -> Result<Self, String> {
        let python_with_client = find_python_with("glasscache");
        let has_client = python_with_client.is_ok();
        let interpreter = python_with_client.or_else(|reason| find_any_python().ok_or(reason))?;
        let worker = PythonWorker::start(&interpreter, PROGRAM, &[])?;
        let mut values = Self { worker, has_client };
        values.load(samples).map_err(|failure| format!("python3: {}", failure.reason))?;
        Ok(values)
    }

    fn load(&mut self, samples: &[&Sample]) -> Result<(), PythonFailure> {
        let kinds: Vec<ValueKind> = samples.iter().map(|sample| sample.kind).collect();
        let lengths: Vec<usize> = samples.iter().map(|sample| sample.bytes.len()).collect();
        let request = json!({ "do": "load", "kinds": kinds, "lengths": lengths });
        let bodies = samples.iter().map(|sample| sample.bytes.as_slice());
        check_reply(self.worker.request(&request, bodies)?).map(|_| ())
    }

    /// The times of a serialiser, and the values as it writes them.
    pub(super) fn serialise(&mut self, serialiser: &str) -> Result<SerialiserCosts, PythonFailure> {
        let reply = self.request(&json!({ "do": "serialise", "form": serialiser }))?;
        let times: SerialiserTimes =
            serde_json::from_value(reply).map_err(|error| format_early_end(&error))?;
        let read_body = |&length: &usize| self.worker.read_body(length);
        let bodies = times.lengths.iter().map(read_body).collect::<Result<_, _>>()?;
        Ok(SerialiserCosts {
            name: serialiser.to_owned(),
            write_ns: times.write_ns,
            read_ns: times.read_ns,
            bodies,
        })
    }

    /// Sends a request without bodies, and returns the reply.
    pub(super) fn request(&mut self, request: &Value) -> Result<Value, PythonFailure> {
        check_reply(self.worker.request(request, [])?)
    }
}

/// The reply, or the failure that it reports.
fn check_reply(reply: Value) -> Result<Value, PythonFailure> {
    match reply.get("error").and_then(Value::as_str) {
        Some(reason) => Err(PythonFailure {
            reason: reason.to_owned(),
            is_not_installed: reply.get("is_absent") == Some(&Value::Bool(true)),
        }),
        None => Ok(reply),
    }
}
