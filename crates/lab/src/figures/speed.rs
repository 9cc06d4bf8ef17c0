//! The cost of a request: both servers under the same load, alternately.
//!
//! Both servers stay up through all scenarios and hold the same keys; glasscache is measured first in one round,
//! memcached in the next. Keys are filled when a scenario first needs them. A hit that misses, a wrong value or a refused
//! set fails the run, because a server that loses values would look fast.
//!
//! A round is *paired*: both sides are measured within a second of each other. It is *disturbed* if other processes
//! used more than 0.2 core.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Serialize;

use super::scenario::{Scenario, Versus};
use crate::access::{Access, Protocol};
use crate::bench::{Error, ServerPair};
use crate::load::{self, Fill, LoadPlan, MixedWorkload, Pace, Picker, Report, Values, Window};
use crate::paired::{Spread, measure_both};
use crate::server_process::ServerProcess;

/// `-m` of both servers: all key spaces of the scenarios together fit it twice.
const MEMORY_MIB: u64 = 1024;

/// Maximum of [`count_fill_passes`]: small values take longer for the same bytes.
const FILL_PASSES_MAX: u64 = 12;

/// Pipeline of the fill.
const FILL_DEPTH: usize = 64;

/// Above this many cores taken by others a round is called disturbed.
pub(super) const OTHER_CORES_MAX: f64 = 0.2;

/// One side of one round.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SideMeasurement {
    /// Completed requests per second.
    pub(super) requests_per_s: f64,
    /// Server CPU per request, microseconds.
    pub(super) cpu_us: f64,
    /// User part of it.
    pub(super) user_us: f64,
    /// Kernel part of it.
    pub(super) kernel_us: f64,
    /// 50th percentile of latency, from the intended time in an open loop.
    pub(super) p50_us: f64,
    /// 99th.
    pub(super) p99_us: f64,
    /// 99.9th.
    pub(super) p999_us: f64,
    /// 99th from the send time.
    pub(super) p99_from_send_us: f64,
    /// Generator CPU per request, microseconds.
    pub(super) generator_us: f64,
    /// Cores taken by other processes.
    pub(super) other_cores: f64,
    /// The generator was the limit.
    pub(super) is_generator_bound: bool,
    /// Gets that missed.
    pub(super) misses: u64,
}

impl SideMeasurement {
    pub(super) fn of(report: &Report) -> Self {
        let us_per_request = 1e6 / report.tally.requests.max(1) as f64;
        Self {
            requests_per_s: report.rate(),
            cpu_us: report.cpu_us(),
            user_us: report.server_cpu.user_s * us_per_request,
            kernel_us: report.server_cpu.kernel_s * us_per_request,
            p50_us: report.tally.latency_us(50.0),
            p99_us: report.tally.latency_us(99.0),
            p999_us: report.tally.latency_us(99.9),
            p99_from_send_us: report.tally.latency_from_send_us(99.0),
            generator_us: report.generator_cores * report.seconds * us_per_request,
            other_cores: report.other_cores,
            is_generator_bound: report.is_generator_bound,
            misses: report.tally.misses,
        }
    }

    /// Whether other processes used enough CPU to distort latencies.
    pub(super) fn is_disturbed(&self) -> bool {
        self.other_cores > OTHER_CORES_MAX
    }
}

/// All rounds of a scenario: glasscache (or meta) first, memcached (or classic text) second.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ScenarioResult {
    /// The scenario.
    pub(super) scenario: Scenario,
    /// Both sides of each round.
    pub(super) rounds: Vec<(SideMeasurement, SideMeasurement)>,
    /// Ratio of CPU per request.
    #[serde(rename = "cpu")]
    pub(super) cpu_ratio: Spread,
    /// Ratio of the 99th percentiles.
    #[serde(rename = "p99")]
    pub(super) p99_ratio: Spread,
    /// Ratio of the 99.9th percentiles.
    #[serde(rename = "p999")]
    pub(super) p999_ratio: Spread,
    /// Rounds in which others took over 0.2 core.
    #[serde(rename = "disturbed")]
    pub(super) disturbed_rounds: usize,
    /// For scenarios with interference: the reader's 99th percentile over that without interference, for glasscache
    /// and memcached.
    pub(super) p99_of_calm: Option<(Spread, Spread)>,
}

impl ScenarioResult {
    pub(super) fn new(scenario: Scenario, rounds: Vec<(SideMeasurement, SideMeasurement)>) -> Self {
        Self {
            cpu_ratio: Spread::of_ratios(&rounds, |side| side.cpu_us),
            p99_ratio: Spread::of_ratios(&rounds, |side| side.p99_us),
            p999_ratio: Spread::of_ratios(&rounds, |side| side.p999_us),
            disturbed_rounds: rounds
                .iter()
                .filter(|(ours, theirs)| ours.is_disturbed() || theirs.is_disturbed())
                .count(),
            p99_of_calm: None,
            scenario,
            rounds,
        }
    }

    /// Each required ratio of the scenario: its name, the bound, and the measured ratio.
    pub(super) fn compare_with_required_ratios(&self) -> Vec<(&'static str, f64, f64)> {
        let required = &self.scenario.required_ratios;
        let measured_p99_of_calm = self.p99_of_calm.map_or(f64::NAN, |(ours, _)| ours.median);
        [
            ("cpu", required.cpu, self.cpu_ratio.median),
            ("p99", required.p99, self.p99_ratio.median),
            ("p99.9", required.p999, self.p999_ratio.median),
            ("p99/calm", required.p99_of_calm, measured_p99_of_calm),
        ]
        .into_iter()
        .filter_map(|(name, bound, measured_ratio)| {
            bound.map(|bound| (name, bound, measured_ratio))
        })
        .collect()
    }
}

/// Receives progress messages of a running benchmark.
pub(super) type Progress<'a> = dyn FnMut(&str) + 'a;

/// Both servers, filled as far as the previous scenarios needed.
pub(super) struct SpeedBenchmark {
    servers: ServerPair,
    ours: ServerProcess,
    theirs: ServerProcess,
    /// The port of a server, the first key and the number of keys, and whether its memory was written through.
    filled_key_spaces: BTreeSet<(u16, u64, u64, bool)>,
}

impl SpeedBenchmark {
    /// Starts both servers.
    pub(super) fn start(servers: ServerPair) -> Result<Self, Error> {
        let ours = servers.ours(MEMORY_MIB).start().map_err(Error::Start)?;
        let theirs = servers.theirs(MEMORY_MIB).start().map_err(Error::Start)?;
        Ok(Self { servers, ours, theirs, filled_key_spaces: BTreeSet::new() })
    }

    /// The replies of both servers to `version`.
    pub(super) fn versions(&self) -> [(&'static str, String); 2] {
        [("glasscache", self.ours.version.clone()), ("memcached", self.theirs.version.clone())]
    }

    /// Runs these rounds of a scenario that needs no servers of its own; a round's number is its seed.
    pub(super) fn run(
        &mut self,
        scenario: &Scenario,
        round_indices: Range<usize>,
        progress: &mut Progress<'_>,
    ) -> Result<ScenarioResult, Error> {
        let values = Values::new(scenario.size(), 1);
        progress(&format!("{}: filling {} keys", scenario.title, scenario.keys));
        self.fill(scenario, &values)?;
        let mut measured_rounds = Vec::with_capacity(round_indices.len());
        let rounds_end = round_indices.end;
        for round in round_indices {
            let (ours, theirs) =
                measure_both(round, |side| self.measure_side(scenario, &values, side == 0, round))?;
            progress(&format!(
                "{}: round {} of {rounds_end}: CPU {:.2} against {:.2} us, ratio {:.2}{}",
                scenario.title,
                round + 1,
                ours.cpu_us,
                theirs.cpu_us,
                ours.cpu_us / theirs.cpu_us,
                if ours.is_disturbed() || theirs.is_disturbed() { ", disturbed" } else { "" },
            ));
            measured_rounds.push((ours, theirs));
        }
        Ok(ScenarioResult::new(scenario.clone(), measured_rounds))
    }

    fn fill(&mut self, scenario: &Scenario, values: &Values) -> Result<(), Error> {
        let servers_to_fill: &[&ServerProcess] = match scenario.versus {
            Versus::Peer => &[&self.ours, &self.theirs],
            Versus::ClassicText => &[&self.ours],
        };
        for server in servers_to_fill {
            if self.filled_key_spaces.insert((
                server.address.port(),
                scenario.first_id(),
                scenario.keys,
                scenario.write_share > 0.0,
            )) {
                for _ in 0..count_fill_passes(scenario) {
                    fill(&self.servers, server, scenario, values)?;
                }
            }
        }
        Ok(())
    }

    /// Measures one side once: glasscache, or the protocol under test, if `is_glasscache`.
    fn measure_side(
        &self,
        scenario: &Scenario,
        values: &Values,
        is_glasscache: bool,
        round: usize,
    ) -> Result<SideMeasurement, Error> {
        let (server, protocol) = match (is_glasscache, scenario.versus) {
            (true, _) => (&self.ours, scenario.protocol),
            (false, Versus::Peer) => (&self.theirs, scenario.protocol),
            (false, Versus::ClassicText) => (&self.ours, Protocol::Text),
        };
        let measured =
            measure_load(&self.servers, server, scenario, values, (protocol, round as u64))?;
        if measured.misses > 0 {
            return Err(Error::WrongReplies {
                server: server.name.to_owned(),
                count: measured.misses,
                description: "misses of keys that fit".to_owned(),
            });
        }
        Ok(measured)
    }
}

/// How often the keys are stored before a scenario is measured: with writes until as many bytes were written as the
/// server has memory.
///
/// The first use of a page costs the kernel more than a set does, most of all on a virtual machine. A store that appends
/// uses new pages until its memory is full, and only then is in its steady state.
fn count_fill_passes(scenario: &Scenario) -> u64 {
    if scenario.write_share == 0.0 {
        return 1;
    }
    let bytes_per_pass = scenario.keys * u64::from(scenario.value_bytes);
    (MEMORY_MIB << 20).div_ceil(bytes_per_pass.max(1)).clamp(1, FILL_PASSES_MAX)
}

/// Stores all keys of a scenario, pipelined.
pub(super) fn fill(
    servers: &ServerPair,
    server: &ServerProcess,
    scenario: &Scenario,
    values: &Values,
) -> Result<(), Error> {
    let threads = servers.layout.generator.len();
    let plan = LoadPlan {
        connections: 4 * threads,
        depth: FILL_DEPTH,
        cpus: servers.pinned_cpus(&servers.layout.generator),
        stop: servers.stop.clone(),
        ..LoadPlan::new(server.address)
    };
    let ids = scenario.first_id()..scenario.first_id() + scenario.keys;
    let workloads = Fill::over(&ids, values, threads);
    let (report, workloads) =
        load::run(&plan, workloads, &server.meter()).map_err(Error::load(server.name))?;
    let refused: u64 = workloads.iter().map(|workload| workload.refused).sum();
    if refused > 0 {
        let description =
            format!("refused sets: {}", report.tally.first_refusal.unwrap_or_default());
        return Err(Error::WrongReplies {
            server: server.name.to_owned(),
            count: refused,
            description,
        });
    }
    Ok(())
}

/// Drives a scenario against one server and measures it; misses are reported, wrong values are errors.
pub(super) fn measure_load(
    servers: &ServerPair,
    server: &ServerProcess,
    scenario: &Scenario,
    values: &Values,
    (protocol, seed): (Protocol, u64),
) -> Result<SideMeasurement, Error> {
    let threads = servers.layout.generator.len().min(scenario.connections);
    let measured_time = std::time::Duration::from_secs_f64(scenario.seconds);
    let plan = LoadPlan {
        connections: scenario.connections,
        depth: scenario.depth,
        pace: scenario.rate.map_or(Pace::Closed, Pace::Open),
        window: Window::Timed { warm_up: measured_time.mul_f64(0.15), measured_time },
        cpus: servers.pinned_cpus(&servers.layout.generator),
        seed: seed + 1,
        stop: servers.stop.clone(),
        ..LoadPlan::new(Access { protocol, ..Access::from(server.address) })
    };
    let workloads = (0..threads)
        .map(|thread| {
            MixedWorkload::new(
                (scenario.first_id(), Picker::new(scenario.keys, scenario.zipf)),
                values.clone(),
                (scenario.write_share, scenario.keys_per_get),
                load::mix(seed << 8 | thread as u64),
            )
        })
        .collect();
    let (report, _) =
        load::run(&plan, workloads, &server.meter()).map_err(Error::load(server.name))?;
    let failed_replies = report.tally.wrong + report.tally.refused;
    if failed_replies > 0 {
        let description = report.tally.first_refusal.unwrap_or_else(|| "wrong values".to_owned());
        return Err(Error::WrongReplies {
            server: server.name.to_owned(),
            count: failed_replies,
            description,
        });
    }
    Ok(SideMeasurement::of(&report))
}
