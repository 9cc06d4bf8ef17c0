//! The calls of a profile through a Python client, in a child process that measures with its own clock.
//!
//! `via.py` does the calls. Our own client measures the time on the wire. What another client needs itself is therefore
//! its total, less what the same get takes between the kernels of client and server.

use glasscache_client::Protocol;
use serde::Deserialize;
use serde_json::{Value, json};

use super::rust_client::RustClient;
use super::{CallBlock, Cell, GetTimes};
use crate::python::{PythonWorker, named_python};
use crate::target::{CallError, Target};

/// The program that the child process runs.
const PROGRAM: &str = include_str!("via.py");

/// A Python client against one server.
pub(super) struct PythonClient {
    worker: PythonWorker,
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

impl PythonClient {
    /// Starts the child with the client of this name (such as `pylibmc`) for `target`.
    pub(super) fn start(client_name: &str, target: &Target, seed: u64) -> Result<Self, CallError> {
        let protocol = match target.client_protocol() {
            Protocol::Detected => "auto",
            Protocol::Binary => "binary",
        };
        let arguments = [client_name, &target.address(), &format!("{seed:x}"), protocol];
        let worker = PythonWorker::start(&named_python(), PROGRAM, &arguments);
        Ok(Self { worker: worker.map_err(CallError::Unreachable)? })
    }

    fn request(&mut self, task: &str, cell: Cell, calls: usize) -> Result<Reply, CallError> {
        let request = json!({ "do": task, "cell": cell, "calls": calls });
        let reply = self.worker.request(&request, []).map_err(CallError::BadData)?;
        let reply: Reply =
            serde_json::from_value(reply).map_err(|error| CallError::BadData(error.to_string()))?;
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

    pub(super) fn reconnect(&mut self, cell: Cell) -> Result<(), CallError> {
        self.request("reconnect", cell, 0)?;
        self.read(cell, 1).map(|_| ())
    }

    pub(super) fn fill(&mut self, cell: Cell) -> Result<bool, CallError> {
        Ok(self.request("fill", cell, 0)?.result == Value::Bool(true))
    }

    pub(super) fn read(&mut self, cell: Cell, calls: usize) -> Result<CallBlock, CallError> {
        let reply = self.request("read", cell, calls)?;
        Self::parse_block(reply)
    }

    pub(super) fn clear(&mut self, cell: Cell) -> Result<(), CallError> {
        self.request("clear", cell, 0).map(|_| ())
    }

    /// As [`RustClient::measure_parts`], which measures what is between the kernels.
    pub(super) fn measure_parts(
        &mut self,
        rust_client: &mut RustClient<'_>,
        (bytes, calls): (usize, usize),
    ) -> Result<GetTimes, CallError> {
        let reply = self.request("read", Cell::Bytes(bytes), calls)?;
        let us_per_call =
            |name: &str| reply.parts.get(name).copied().unwrap_or(0.0) * 1e6 / calls.max(1) as f64;
        let (deserialise_us, decompress_us) =
            (us_per_call("deserialise"), us_per_call("decompress"));
        let block = Self::parse_block(reply)?;
        let total_us = block.latencies_ns.iter().sum::<u64>() as f64 / 1e3 / calls.max(1) as f64;
        rust_client.fill(Cell::Bytes(bytes))?;
        let rust_client_times = rust_client.measure_parts(bytes, calls)?;
        rust_client.clear(Cell::Bytes(bytes))?;
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
