//! The serialisers and the calls of Python, in a child process that measures with its own clock.
//!
//! `serialisers.py` does both. Without a Python the values are measured as they are, through our Rust client.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use glasscache_lab::codec::{Sample, SerialiserCosts, ValueKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::python::{find_any_python, find_python_with};

/// The program that the child process runs.
const PROGRAM: &str = include_str!("serialisers.py");

/// The serialisers that are measured, those of our client first.
pub(super) const SERIALISERS: [&str; 8] =
    ["Codec", "Codec msgpack", "packed", "pickle", "json", "orjson", "msgspec", "msgpack"];

/// A child process of Python that holds the values.
pub(super) struct PythonWorker {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
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

#[derive(Deserialize)]
struct SerialiserTimes {
    write_ns: Vec<u64>,
    read_ns: Vec<u64>,
    lengths: Vec<usize>,
}

impl PythonWorker {
    /// Starts the child and hands it the values; the error is a reason to print.
    pub(super) fn start(samples: &[&Sample]) -> Result<PythonWorker, String> {
        let python_with_client = find_python_with("glasscache");
        let has_client = python_with_client.is_ok();
        let interpreter = python_with_client.or_else(|reason| find_any_python().ok_or(reason))?;
        let mut child = Command::new(&interpreter)
            .args(["-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} could not be started: {error}", interpreter.display()))?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("python3 has no pipes".to_owned());
        };
        let mut worker =
            PythonWorker { child, requests, replies: BufReader::new(replies), has_client };
        worker.load(samples).map_err(|failure| format!("python3: {}", failure.reason))?;
        Ok(worker)
    }

    fn load(&mut self, samples: &[&Sample]) -> Result<(), PythonFailure> {
        let kinds: Vec<ValueKind> = samples.iter().map(|sample| sample.kind).collect();
        let lengths: Vec<usize> = samples.iter().map(|sample| sample.bytes.len()).collect();
        let request = json!({ "do": "load", "kinds": kinds, "lengths": lengths });
        let bodies = samples.iter().map(|sample| sample.bytes.as_slice());
        self.send_request(&request, bodies).map(|_| ())
    }

    /// The times of a serialiser, and the values as it writes them.
    pub(super) fn serialise(&mut self, serialiser: &str) -> Result<SerialiserCosts, PythonFailure> {
        let reply =
            self.send_request(&json!({ "do": "serialise", "form": serialiser }), [].into_iter())?;
        let times: SerialiserTimes =
            serde_json::from_value(reply).map_err(|error| ended_early_failure(&error))?;
        let mut bodies = Vec::with_capacity(times.lengths.len());
        for length in times.lengths {
            let mut body = vec![0; length];
            self.replies.read_exact(&mut body).map_err(|error| ended_early_failure(&error))?;
            bodies.push(body);
        }
        Ok(SerialiserCosts {
            name: serialiser.to_owned(),
            write_ns: times.write_ns,
            read_ns: times.read_ns,
            bodies,
        })
    }

    /// Sends a request that measures calls, and returns the reply.
    pub(super) fn measure_calls(&mut self, request: &Value) -> Result<Value, PythonFailure> {
        self.send_request(request, [].into_iter())
    }

    fn send_request<'b>(
        &mut self,
        request: &Value,
        bodies: impl Iterator<Item = &'b [u8]>,
    ) -> Result<Value, PythonFailure> {
        let mut write_result = writeln!(self.requests, "{request}");
        for body in bodies {
            write_result = write_result.and_then(|()| self.requests.write_all(body));
        }
        write_result
            .and_then(|()| self.requests.flush())
            .map_err(|error| ended_early_failure(&error))?;
        let mut line = String::new();
        self.replies.read_line(&mut line).map_err(|error| ended_early_failure(&error))?;
        let reply: Value =
            serde_json::from_str(&line).map_err(|error| ended_early_failure(&error))?;
        match reply.get("error").and_then(Value::as_str) {
            Some(reason) => Err(PythonFailure {
                reason: reason.to_owned(),
                is_not_installed: reply.get("is_absent") == Some(&Value::Bool(true)),
            }),
            None => Ok(reply),
        }
    }
}

fn ended_early_failure(error: &dyn std::fmt::Display) -> PythonFailure {
    PythonFailure { reason: format!("python3 ended early: {error}"), is_not_installed: false }
}

impl Drop for PythonWorker {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}
