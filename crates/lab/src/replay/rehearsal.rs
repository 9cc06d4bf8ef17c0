//! A rehearsal before a replay: requests made by the strategy itself, with a clock around each call.
//!
//! What a call costs depends on its keys and bytes, on what the client does for each key (looking up the children of a
//! page, keeping values, dropping others) and on what ran before it. Calls made up for a table have none of that.

use std::ops::Range;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::latency_table::{LatencyTable, SINGLE_GETS_MIN, TimedCall};
use glasscache_sim::strategy::noise::ROUNDS;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::trace::log::RequestLog;

use super::instance::AppInstance;
use super::run::AppInstances;
use super::single_gets::SingleGets;
use super::{ReplayError, Servers};

/// A round of a rehearsal ends after this time.
const ROUND_TIME: Duration = Duration::from_secs(1);

/// What is rehearsed.
pub(super) struct Rehearsal<'r> {
    pub(super) servers: Servers<'r>,
    pub(super) strategy_file: &'r StrategyFile,
    pub(super) log: &'r RequestLog,
    pub(super) prepared: &'r PreparedLog<'r>,
    pub(super) thread_count: usize,
}

impl Rehearsal<'_> {
    /// Measures the table of the calls that the rehearsal makes; of a round with few single gets, `uncached_instances`
    /// read `single_gets` instead.
    pub(super) fn measure_latency_table(
        &self,
        single_gets: &SingleGets<'_>,
        uncached_instances: &[AppInstance],
    ) -> Result<LatencyTable, ReplayError> {
        let mut rounds = self.measure_rounds()?;
        for round_calls in &mut rounds {
            if round_calls.iter().filter(|call| call.keys == 1).count() < SINGLE_GETS_MIN {
                round_calls.retain(|call| call.keys > 1);
                single_gets.read(uncached_instances, round_calls)?;
            }
        }
        LatencyTable::of_rounds(rounds)
            .map_err(|error| ReplayError::LatencyTable(error.to_string()))
    }

    /// The calls of each round: a tenth of the requests of the first half, or as many as the time of a round allows.
    fn measure_rounds(&self) -> Result<Vec<Vec<TimedCall>>, ReplayError> {
        let instances = AppInstances::load(self.servers, self.strategy_file, self.log)?;
        let round_start =
            |round_index: usize| self.prepared.second_half_start() * round_index / ROUNDS;
        (0..ROUNDS)
            .map(|round_index| {
                self.measure_round(
                    &instances,
                    round_start(round_index)..round_start(round_index + 1),
                )
            })
            .collect()
    }

    fn measure_round(
        &self,
        instances: &AppInstances,
        request_range: Range<usize>,
    ) -> Result<Vec<TimedCall>, ReplayError> {
        let started = Instant::now();
        let time_requests = |thread_index: usize| {
            let mut timed_calls = Vec::new();
            let thread_requests = instances.requests_of_thread(
                (self.log, self.prepared),
                request_range.clone(),
                (thread_index, self.thread_count),
            );
            for (_, request) in thread_requests {
                if started.elapsed() > ROUND_TIME {
                    break;
                }
                request.make_calls(Some(&mut timed_calls))?;
            }
            Ok::<_, ReplayError>(timed_calls)
        };
        let thread_results: Vec<Result<_, _>> = std::thread::scope(|scope| {
            let time_requests = &time_requests;
            let spawn_thread = |thread_index| scope.spawn(move || time_requests(thread_index));
            let threads: Vec<_> = (0..self.thread_count).map(spawn_thread).collect();
            threads.into_iter().map(ScopedJoinHandle::join).collect()
        });
        let mut timed_calls = Vec::new();
        for thread_result in thread_results {
            timed_calls.extend(thread_result.map_err(|_| ReplayError::MeasuringThread)??);
        }
        Ok(timed_calls)
    }
}
