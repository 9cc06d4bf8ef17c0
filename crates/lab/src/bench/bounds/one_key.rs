//! Appends, increments and touches of one key: bounds on the cost of many writes to one item.

use super::super::{Error, Sides};
use super::{Finding, MEMORY_MIB, budget_mib, mib};
use crate::load::{self, Batch, KeyResult, Plan, Step, Tally, Workload};
use crate::target::Server;

/// Appends, increments and touches of one key, compared with sets.
pub(super) fn one_key(sides: &Sides) -> Result<Vec<Finding>, Error> {
    let server = sides.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    let mut findings = Vec::new();
    let set = |bytes: usize| set_request("set", "one", bytes);
    let short_sets = repeat(sides, &server, &set(32), 300_000)?;
    let long_sets = repeat(sides, &server, &set(50_000), 10_000)?;
    let note = |tally: &Tally, base: &Tally, of: &str| {
        format!(
            "p99 over that of {of} ({:.0} / {:.0} us); {} refused",
            tally.latency_us(99.0),
            base.latency_us(99.0),
            tally.refused
        )
    };
    for (what, first, then, count) in [
        (
            "10,000 appends of 10 B to one key",
            set(1),
            set_request("append", "one", 10),
            10_000,
        ),
        (
            "1 M increments of one key",
            b"set one 0 0 1\r\n1".to_vec(),
            b"incr one 1".to_vec(),
            1_000_000,
        ),
        (
            "1 M touches of one key",
            set(32),
            b"touch one 100".to_vec(),
            1_000_000,
        ),
    ] {
        repeat(sides, &server, &first, 1)?;
        let tally = repeat(sides, &server, &then, count)?;
        let ratio = tally.latency_us(99.0) / short_sets.latency_us(99.0);
        findings.push(Finding::new(
            what,
            2.0,
            ratio,
            note(&tally, &short_sets, "32 B sets"),
        ));
        if count == 10_000 {
            let ratio = tally.latency_us(99.0) / long_sets.latency_us(99.0);
            findings.push(Finding::new(
                what,
                2.0,
                ratio,
                note(&tally, &long_sets, "sets of half its length"),
            ));
        }
        let refused = tally.refused as f64;
        findings.push(Finding::new(what, 0.0, refused, "refused"));
        let resident = mib(server.resident_bytes());
        findings.push(Finding::new(
            what,
            budget_mib(MEMORY_MIB),
            resident,
            "MiB resident at -m 64",
        ));
    }
    Ok(findings)
}

/// `<verb> <key> 0 0 <bytes>` with its value, without the last line end.
fn set_request(verb: &str, key: &str, bytes: usize) -> Vec<u8> {
    let mut request = format!("{verb} {key} 0 0 {bytes}\r\n").into_bytes();
    request.resize(request.len() + bytes, b'x');
    request
}

/// Sends one line over and over on 8 connections.
fn repeat(sides: &Sides, server: &Server, request: &[u8], count: u64) -> Result<Tally, Error> {
    let plan = Plan {
        connections: 8,
        cpus: sides.pinned_cpus(&sides.layout.reader().generator),
        stop: sides.stop.clone(),
        ..Plan::new(server.address)
    };
    let workload = Repeat {
        request: request.to_vec(),
        left: count,
    };
    let (report, _) =
        load::run(&plan, vec![workload], &server.meter()).map_err(Error::load(server.name))?;
    Ok(report.tally)
}

struct Repeat {
    request: Vec<u8>,
    left: u64,
}

impl Workload for Repeat {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> Step {
        if self.left == 0 {
            return Step::Finished;
        }
        self.left -= 1;
        batch.raw_line(0, &self.request);
        Step::Sent
    }

    fn write_key(&self, _id: u64, _text: &mut Vec<u8>) {}

    fn value(&self, _id: u64) -> &[u8] {
        &[]
    }

    fn done(&mut self, _connection: usize, _id: u64, _result: KeyResult) {}
}
