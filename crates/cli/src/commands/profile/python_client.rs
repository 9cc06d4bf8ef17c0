//! The calls of a profile through a Python client, in a child process that measures with its own clock.
//!
//! `via.py` does the calls. Our own client measures the time on the wire. What another client needs itself is therefore
//! its total, less what the same get takes between the kernels of client and server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use glasscache_lab::access::Protocol;
use glasscache_lab::profile::{CallBlock, CallError, Caller, Cell, GetTimes};
use serde::Deserialize;
use serde_json::{Value, json};

use super::rust_client::RustClient;
use crate::live_target::LiveTarget;

/// The program that the child process runs.
const PROGRAM: &str = include_str!("via.py");

/// Environment variable with the Python to use.
const PYTHON_VARIABLE: &str = "GLASSCACHE_PYTHON";

/// A Python client against one server.
pub(super) struct PythonClient<'t> {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
    rust_client: RustClient<'t>,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    result: Value,
    #[serde(default)]
    parts: std::collections::BTreeMap<String, f64>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
struct ReadTimes {
    latencies_ns: Vec<u64>,
    #[serde(rename = "wrong")]
    wrong_values: u64,
}

impl<'t> PythonClient<'t> {
    /// Starts the child with the client of this name (such as `pylibmc`) for `target`.
    pub(super) fn start(
        client_name: &str,
        target: &LiveTarget,
        seed: u64,
        rust_client: RustClient<'t>,
    ) -> Result<PythonClient<'t>, CallError> {
        let interpreter = std::env::var_os(PYTHON_VARIABLE).filter(|name| !name.is_empty());
        let protocol = match target.access.protocol {
            Protocol::Text | Protocol::Meta => "auto",
            Protocol::Binary => "binary",
        };
        let mut child = Command::new(interpreter.unwrap_or_else(|| "python3".into()))
            .args(["-c", PROGRAM, client_name, &target.address()])
            .args([&format!("{seed:x}"), protocol])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                CallError::Unreachable(format!("python3 could not be started: {error}"))
            })?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(CallError::Unreachable("python3 has no pipes".to_owned()));
        };
        Ok(PythonClient { child, requests, replies: BufReader::new(replies), rust_client })
    }

    fn request(&mut self, task: &str, cell: Cell, calls: usize) -> Result<Reply, CallError> {
        let request_line = json!({ "do": task, "cell": cell, "calls": calls });
        let mut reply_line = String::new();
        // A child that has ended may have written its reason before.
        let _ = writeln!(self.requests, "{request_line}");
        self.replies
            .read_line(&mut reply_line)
            .map_err(|error| CallError::BadData(format!("python3: {error}")))?;
        let reply: Reply = serde_json::from_str(&reply_line)
            .map_err(|_| CallError::BadData("the Python client ended early".to_owned()))?;
        match reply.error {
            Some(error) => Err(CallError::Unreachable(error)),
            None => Ok(reply),
        }
    }

    fn parse_block(reply: Reply) -> Result<CallBlock, CallError> {
        let times: ReadTimes = serde_json::from_value(reply.result)
            .map_err(|error| CallError::BadData(format!("the Python client: {error}")))?;
        Ok(CallBlock { latencies_ns: times.latencies_ns, wrong_values: times.wrong_values })
    }
}

impl Caller for PythonClient<'_> {
    fn reconnect(&mut self, cell: Cell) -> Result<(), CallError> {
        self.request("reconnect", cell, 0)?;
        self.read(cell, 1).map(|_| ())
    }

    fn fill(&mut self, cell: Cell) -> Result<bool, CallError> {
        Ok(self.request("fill", cell, 0)?.result == Value::Bool(true))
    }

    fn read(&mut self, cell: Cell, calls: usize) -> Result<CallBlock, CallError> {
        let reply = self.request("read", cell, calls)?;
        PythonClient::parse_block(reply)
    }

    fn clear(&mut self, cell: Cell) -> Result<(), CallError> {
        self.request("clear", cell, 0).map(|_| ())
    }

    fn measure_parts(&mut self, bytes: usize, calls: usize) -> Result<GetTimes, CallError> {
        let reply = self.request("read", Cell::Bytes(bytes), calls)?;
        let us_per_call =
            |name: &str| reply.parts.get(name).copied().unwrap_or(0.0) * 1e6 / calls.max(1) as f64;
        let (deserialise_us, decompress_us) =
            (us_per_call("deserialise"), us_per_call("decompress"));
        let block = PythonClient::parse_block(reply)?;
        let total_us = block.latencies_ns.iter().sum::<u64>() as f64 / 1e3 / calls.max(1) as f64;
        self.rust_client.fill(Cell::Bytes(bytes))?;
        let rust_client_times = self.rust_client.measure_parts(bytes, calls)?;
        self.rust_client.clear(Cell::Bytes(bytes))?;
        Ok(GetTimes {
            total_us,
            deserialise_us,
            decompress_us,
            client_us: (total_us
                - deserialise_us
                - decompress_us
                - rust_client_times.network_us
                - rust_client_times.server_us.unwrap_or(0.0))
            .max(0.0),
            ..rust_client_times
        })
    }
}

impl Drop for PythonClient<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}
