//! The scenarios with interference of `figures speed`: how the tail latency of a reader grows while other clients make
//! the index double, fill the memory, or transfer large values.
//!
//! The reader runs an open loop on its own connections and its own CPU; a second generator causes the interference.
//! Each side of each round gets a new server because an index doubles only once. The kinds of interference are those of
//! `scenario::Interference`, what each of them sends is decided here, and the scenarios that use them, with the ratios that
//! they must not exceed, stand in `bench/scenarios/speed.toml`. Scenarios without interference are measured in `speed`.
//!
//! *Interference* is load that runs at the same time as a measured reader; *calm* is the same reader without it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::scenario::{Interference, Scenario};
use super::speed::{Progress, ScenarioResult, SideMeasurement, fill, measure_load};
use crate::bench::{Error, ServerPair};
use crate::load::{
    self, Batch, Fill, KeyResult, LoadPlan, MixedWorkload, NextStep, Pace, Picker, Size, Values,
    Window, Workload, format_key,
};
use crate::paired::{Spread, measure_both};
use crate::proc::Meter;
use crate::server_process::{ServerCommand, ServerProcess};

/// `-m` while the index grows: nothing is evicted.
const LARGE_MEMORY_MIB: u64 = 1024;

/// `-m` while memory is full.
const SMALL_MEMORY_MIB: u64 = 64;

/// New keys per second of the interference.
const NEW_KEYS_PER_S: f64 = 100_000.0;

/// Requests of 1 MB per second, half of them sets.
const LARGE_REQUESTS_PER_S: f64 = 400.0;

/// Keys of a megabyte.
const LARGE_KEYS: u64 = 100;

/// Connections of the interference.
const INTERFERENCE_CONNECTIONS: usize = 16;

/// First key of the interference, separate from the reader's keys.
const FIRST_INTERFERENCE_ID: u64 = 1 << 59;

/// Runs a scenario with interference.
pub(super) fn run(
    servers: &ServerPair,
    scenario: &Scenario,
    interference: Interference,
    rounds: usize,
    progress: &mut Progress<'_>,
) -> Result<ScenarioResult, Error> {
    let (mut measured_rounds, mut p99_growths) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let (our_measurement, their_measurement) = measure_both(round, |side| {
            let server_command = server_of_side(servers, side, interference);
            measure_side(servers, &server_command, scenario, interference, round as u64)
        })?;
        progress(&format!(
            "{}: round {} of {rounds}: p99 {:.0} us (alone {:.0}) against {:.0} us (alone {:.0})",
            scenario.title,
            round + 1,
            our_measurement.with_interference.p99_us,
            our_measurement.calm.p99_us,
            their_measurement.with_interference.p99_us,
            their_measurement.calm.p99_us,
        ));
        p99_growths.push((our_measurement.p99_growth(), their_measurement.p99_growth()));
        measured_rounds
            .push((our_measurement.with_interference, their_measurement.with_interference));
    }
    let mut result = ScenarioResult::new(scenario.clone(), measured_rounds);
    result.p99_of_calm = Some((
        Spread::of(p99_growths.iter().map(|(ours, _)| *ours)),
        Spread::of(p99_growths.iter().map(|(_, theirs)| *theirs)),
    ));
    Ok(result)
}

/// Measures the reader only with interference, glasscache first in even rounds.
pub(super) fn measure_pair(
    servers: &ServerPair,
    scenario: &Scenario,
    interference: Interference,
    round: usize,
) -> Result<(SideMeasurement, SideMeasurement), Error> {
    measure_both(round, |side| {
        let server_command = server_of_side(servers, side, interference);
        Reader::start(servers, &server_command, scenario)?
            .measure_with_interference(interference, round as u64)
    })
}

/// glasscache on side 0, the other server on side 1.
fn server_of_side(servers: &ServerPair, side: usize, interference: Interference) -> ServerCommand {
    let memory_mib = choose_memory_mib(interference);
    if side == 0 { servers.ours(memory_mib) } else { servers.theirs(memory_mib) }
}

const fn choose_memory_mib(interference: Interference) -> u64 {
    match interference {
        Interference::Full => SMALL_MEMORY_MIB,
        Interference::Growth | Interference::Large => LARGE_MEMORY_MIB,
    }
}

/// What one reader measured in one round.
struct ReaderMeasurement {
    calm: SideMeasurement,
    with_interference: SideMeasurement,
}

impl ReaderMeasurement {
    /// The 99th percentile with interference over that without.
    fn p99_growth(&self) -> f64 {
        self.with_interference.p99_us / self.calm.p99_us
    }
}

/// Measures the reader calm, then with interference.
fn measure_side(
    servers: &ServerPair,
    server_command: &ServerCommand,
    scenario: &Scenario,
    interference: Interference,
    seed: u64,
) -> Result<ReaderMeasurement, Error> {
    let reader = Reader::start(servers, server_command, scenario)?;
    let calm = reader.measure(seed)?;
    let with_interference = reader.measure_with_interference(interference, seed)?;
    Ok(ReaderMeasurement { calm, with_interference })
}

/// The measured reader, with a server of its own that holds its keys.
struct Reader<'a> {
    servers: &'a ServerPair,
    server: ServerProcess,
    scenario: &'a Scenario,
    values: Values,
}

impl<'a> Reader<'a> {
    fn start(
        servers: &'a ServerPair,
        server_command: &ServerCommand,
        scenario: &'a Scenario,
    ) -> Result<Self, Error> {
        let server = server_command.start().map_err(Error::Start)?;
        let values = Values::new(scenario.size(), 1);
        let reader = Self { servers, server, scenario, values };
        fill(&reader.reader_servers(), &reader.server, scenario, &reader.values)?;
        Ok(reader)
    }

    fn reader_servers(&self) -> ServerPair {
        ServerPair { layout: self.servers.layout.reader_layout(), ..self.servers.clone() }
    }

    fn measure(&self, seed: u64) -> Result<SideMeasurement, Error> {
        let protocol_and_seed = (self.scenario.protocol, seed);
        measure_load(
            &self.reader_servers(),
            &self.server,
            self.scenario,
            &self.values,
            protocol_and_seed,
        )
    }

    fn measure_with_interference(
        &self,
        interference: Interference,
        seed: u64,
    ) -> Result<SideMeasurement, Error> {
        let interference_load =
            InterferenceLoad::new(self.servers, &self.server, interference, &self.values)?;
        let run_for = Duration::from_secs_f64(self.scenario.seconds * 1.15 + 0.1);
        let (measured, load_result) = std::thread::scope(|scope| {
            let interference_thread = scope.spawn(|| interference_load.run(run_for, seed));
            let measured = self.measure(seed + 100);
            interference_load.plan.stop.store(true, Ordering::Relaxed);
            (measured, interference_thread.join().unwrap_or(Err(load::Error::Closed)))
        });
        match load_result {
            Ok(()) | Err(load::Error::Stopped) => measured,
            Err(error) => Err(Error::load(self.server.name)(error)),
        }
    }
}

/// The second generator.
struct InterferenceLoad {
    plan: LoadPlan,
    interference: Interference,
    values: Values,
}

impl InterferenceLoad {
    fn new(
        servers: &ServerPair,
        server: &ServerProcess,
        interference: Interference,
        reader_values: &Values,
    ) -> Result<Self, Error> {
        let values = match interference {
            Interference::Large => Values::new(Size::Fixed(1_000_000), 2),
            Interference::Growth | Interference::Full => reader_values.clone(),
        };
        let plan = LoadPlan {
            connections: INTERFERENCE_CONNECTIONS,
            depth: 16,
            cpus: servers.pinned_cpus(&servers.layout.interference_cpus()),
            stop: Arc::default(),
            ..LoadPlan::new(server.address)
        };
        // Data needed in advance: the large values to be read, or a full memory.
        let prefilled_keys = match interference {
            Interference::Growth => 0,
            Interference::Full => 2 * (SMALL_MEMORY_MIB << 20) / 100,
            Interference::Large => LARGE_KEYS,
        };
        let workloads = Fill::over(
            &(FIRST_INTERFERENCE_ID..FIRST_INTERFERENCE_ID + prefilled_keys),
            &values,
            1,
        );
        load::run(&plan, workloads, &Meter::None).map_err(Error::load(server.name))?;
        Ok(Self { plan, interference, values })
    }

    fn run(&self, run_for: Duration, seed: u64) -> Result<(), load::Error> {
        let window = Window::Timed { warm_up: Duration::ZERO, measured_time: run_for };
        let plan = LoadPlan { window, depth: 1, seed, ..self.plan.clone() };
        if self.interference == Interference::Large {
            let plan = LoadPlan { pace: Pace::Open(LARGE_REQUESTS_PER_S), ..plan };
            let picker = Picker::new(LARGE_KEYS, None);
            let workload = MixedWorkload::new(
                (FIRST_INTERFERENCE_ID, picker),
                self.values.clone(),
                (0.5, 1),
                seed,
            );
            load::run(&plan, vec![workload], &Meter::None)?;
        } else {
            let plan = LoadPlan { pace: Pace::Open(NEW_KEYS_PER_S), ..plan };
            let workload =
                NewKeys { last_id: FIRST_INTERFERENCE_ID + (1 << 32), values: self.values.clone() };
            load::run(&plan, vec![workload], &Meter::None)?;
        }
        Ok(())
    }
}

/// Sets of new keys.
struct NewKeys {
    last_id: u64,
    values: Values,
}

impl Workload for NewKeys {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> NextStep {
        self.last_id += 1;
        batch.set(self, self.last_id, 0);
        NextStep::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&format_key(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.values.of(id)
    }

    fn on_result(&mut self, _connection: usize, _id: u64, _result: KeyResult) {}
}
