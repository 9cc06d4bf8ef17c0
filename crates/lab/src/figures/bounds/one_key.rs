//! Appends, increments and touches of one key: bounds on the cost of many writes to one item.

use glasscache_protocol::text::request::{self as text, StoreMode, TextStoreParameters};

use super::{Finding, MEMORY_MIB, bytes_to_mib, compute_budget_mib};
use crate::bench::{Error, ServerPair};
use crate::load::{self, Batch, KeyResult, LoadPlan, NextStep, Tally, Workload};
use crate::server_process::ServerProcess;

/// The key that all requests are about.
const KEY: &[u8] = b"one";

/// Bound of the 99th percentile of a workload over that of sets.
const P99_RATIO_MAX: f64 = 2.0;

/// Appends, increments and touches of one key, compared with sets.
pub(super) fn check_one_key(servers: &ServerPair) -> Result<Vec<Finding>, Error> {
    let server = servers.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    let mut findings = Vec::new();
    let build_set_request =
        |value_bytes: usize| build_store_request_of_length(StoreMode::Set, value_bytes);
    let short_sets = send_repeatedly(servers, &server, &build_set_request(32), 300_000)?;
    let long_sets = send_repeatedly(servers, &server, &build_set_request(50_000), 10_000)?;
    let describe_p99_ratio = |tally: &Tally, baseline: &Tally, baseline_name: &str| {
        format!(
            "p99 over that of {baseline_name} ({:.0} / {:.0} us); {} refused",
            tally.latency_us(99.0),
            baseline.latency_us(99.0),
            tally.refused
        )
    };
    for (workload_name, first_request, repeated_request, request_count, long_baseline) in [
        (
            "10,000 appends of 10 B to one key",
            build_set_request(1),
            build_store_request_of_length(StoreMode::Append, 10),
            10_000,
            Some(&long_sets),
        ),
        (
            "1 M increments of one key",
            build_set_number_request(),
            build_request(|output| text::arithmetic(output, KEY, 1, false, false)),
            1_000_000,
            None,
        ),
        (
            "1 M touches of one key",
            build_set_request(32),
            build_request(|output| text::touch(output, KEY, 100, false)),
            1_000_000,
            None,
        ),
    ] {
        send_repeatedly(servers, &server, &first_request, 1)?;
        let tally = send_repeatedly(servers, &server, &repeated_request, request_count)?;
        let p99_ratio_to_short = tally.latency_us(99.0) / short_sets.latency_us(99.0);
        findings.push(Finding::new(
            workload_name,
            P99_RATIO_MAX,
            p99_ratio_to_short,
            describe_p99_ratio(&tally, &short_sets, "32 B sets"),
        ));
        if let Some(long_sets) = long_baseline {
            let p99_ratio_to_long = tally.latency_us(99.0) / long_sets.latency_us(99.0);
            findings.push(Finding::new(
                workload_name,
                P99_RATIO_MAX,
                p99_ratio_to_long,
                describe_p99_ratio(&tally, long_sets, "sets of half its length"),
            ));
        }
        let refused = tally.refused as f64;
        findings.push(Finding::new(workload_name, 0.0, refused, "refused"));
        let resident_mib = bytes_to_mib(server.read_resident_bytes());
        findings.push(Finding::new(
            workload_name,
            compute_budget_mib(MEMORY_MIB),
            resident_mib,
            "MiB resident at -m 64",
        ));
    }
    Ok(findings)
}

fn build_request(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut request = Vec::new();
    write(&mut request);
    request
}

/// A storage request with a value of `value_bytes` bytes.
fn build_store_request_of_length(mode: StoreMode, value_bytes: usize) -> Vec<u8> {
    build_store_request(mode, &vec![b'x'; value_bytes])
}

/// Stores a number, which can be incremented.
fn build_set_number_request() -> Vec<u8> {
    build_store_request(StoreMode::Set, b"1")
}

fn build_store_request(mode: StoreMode, value: &[u8]) -> Vec<u8> {
    let store_parameters =
        TextStoreParameters { flags: 0, exptime: 0, value_bytes: value.len(), noreply: false };
    let mut request = build_request(|output| text::store(output, mode, KEY, &store_parameters));
    request.extend_from_slice(value);
    request.extend_from_slice(b"\r\n");
    request
}

/// Sends one request over and over on 8 connections.
fn send_repeatedly(
    servers: &ServerPair,
    server: &ServerProcess,
    request: &[u8],
    request_count: u64,
) -> Result<Tally, Error> {
    let plan = LoadPlan {
        connections: 8,
        cpus: servers.pinned_cpus(&servers.layout.reader_layout().generator),
        stop: servers.stop.clone(),
        ..LoadPlan::new(server.address)
    };
    let workload = RepeatedRequest { request: request.to_vec(), requests_left: request_count };
    let (report, _) =
        load::run(&plan, vec![workload], &server.meter()).map_err(Error::load(server.name))?;
    Ok(report.tally)
}

struct RepeatedRequest {
    request: Vec<u8>,
    requests_left: u64,
}

impl Workload for RepeatedRequest {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> NextStep {
        if self.requests_left == 0 {
            return NextStep::Finished;
        }
        self.requests_left -= 1;
        batch.write_request(0, &self.request);
        NextStep::Sent
    }

    fn write_key(&self, _id: u64, _text: &mut Vec<u8>) {}

    fn value(&self, _id: u64) -> &[u8] {
        &[]
    }

    fn on_result(&mut self, _connection: usize, _id: u64, _result: KeyResult) {}
}
