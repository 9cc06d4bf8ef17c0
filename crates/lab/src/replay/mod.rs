//! The recorded requests of a log made again by our client under a strategy, and what each needed.
//!
//! The prices of a forecast come from a latency table that is measured on the same server just before and after, by a
//! rehearsal of the log's first half.

mod absent;
mod disturbance;
mod fill;
mod instance;
mod rehearsal;
mod report;
mod results;
mod run;
mod servers;
mod single_gets;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use glasscache_client::Error;
use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::latency_table::LatencyTable;
use glasscache_sim::strategy::noise::compute_error_intervals;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::replay_file::{run_file, with_tree_of};
use glasscache_sim::trace::log::RequestLog;
use serde_json::Value;

use crate::report::Report;
use crate::text::format_count_of;
use absent::AbsentKeys;
use disturbance::MachineWatch;
use fill::fill;
use instance::AppInstance;
use rehearsal::Rehearsal;
use report::build_report;
use results::{Conclusion, ReplaySetup, Results, build_forecast_document};
use run::{AppInstances, ReplayOptions, ReplayOutcome};
pub use servers::Servers;
use single_gets::SingleGets;

/// When each request is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// At its recorded time, sped up by this factor.
    Recorded(f64),
    /// After the one before.
    Max,
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A call failed.
    #[error(transparent)]
    Client(#[from] Error),
    /// The log is too short to be split into a half for choosing and a half for evaluating.
    #[error(
        "{log_name}: {} to replay, at least 2 are needed: one half to choose on, one to evaluate on",
        if *count == 0 { "no request" } else { "only 1 request" }
    )]
    TooFewRequests {
        /// The name of the log.
        log_name: String,
        /// Its requests.
        count: usize,
    },
    /// Threads would make no request, and the latency table would be measured with their calls.
    #[error(
        "--clients {thread_count} has no effect: the log has {}, and one thread makes the requests of each",
        format_count_of(*instance_count as u64, "process", "processes")
    )]
    IdleThreads {
        /// How many threads.
        thread_count: usize,
        /// Processes of the log.
        instance_count: usize,
    },
    /// It was stopped on request.
    #[error("stopped after {made} of {all} requests")]
    Stopped {
        /// Requests that were made.
        made: usize,
        /// Requests of the log.
        all: usize,
    },
    /// The strategy file has none.
    #[error("the client runs no strategy")]
    NoStrategy,
    /// The servers do not have the whole fixed set.
    #[error(
        "loading the fixed set failed: the server lacks {missing_count} of its {key_count} keys, the first is {first_key:?}"
    )]
    FixedSet {
        /// How many keys it lacks.
        missing_count: usize,
        /// How many there are.
        key_count: usize,
        /// The first that it lacks.
        first_key: String,
    },
    /// No latency can be measured.
    #[error("measuring the latency failed: no request of the log reads an item")]
    NoReads,
    /// The measured latencies make no table.
    #[error("{0}")]
    LatencyTable(String),
    /// A thread of a rehearsal ended early.
    #[error("measuring the latency failed")]
    MeasuringThread,
    /// A thread of the replay ended early.
    #[error("the replay failed in a thread")]
    ReplayThread,
}

/// Where and how the requests are made.
#[derive(Debug)]
pub struct Settings<'r> {
    /// The servers.
    pub servers: Servers<'r>,
    /// Their addresses as they were given.
    pub target: &'r str,
    /// The name of the log for the reader.
    pub log_name: String,
    /// The parts of the log that could not be read, each with the reason.
    pub left_out_parts: Vec<String>,
    /// Threads that make requests.
    pub thread_count: usize,
    /// When each request is made.
    pub speed: Speed,
    /// First stores random values of the recorded sizes under the keys of the log.
    pub fills: bool,
    /// How close to the forecast the times must be, as a share.
    pub tolerance: f64,
}

/// Measures, forecasts, replays and compares; also returns whether the forecast held.
///
/// `begin` is called with the forecast just before the replay: it returns where that was saved, and the flag that stops
/// the replay. `progress` is called with the requests made and all of them.
///
/// # Errors
/// The servers cannot be reached, or lack items that the strategy needs; the log and the settings do not go together; or
/// `begin` failed.
pub fn run<E: From<ReplayError>>(
    settings: &Settings<'_>,
    mut recorded_log: RequestLog,
    mut strategy_file: StrategyFile,
    begin: impl FnOnce(&Value) -> Result<(PathBuf, Arc<AtomicBool>), E>,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<(Report, bool), E> {
    let (log, absent_keys) = prepare_log(settings, &mut recorded_log, &mut strategy_file)?;
    let prepared = prepare_requests(&log, &strategy_file);
    let plan = ReplayPlan {
        servers: settings.servers,
        strategy_file: &strategy_file,
        log: &log,
        prepared: &prepared,
        thread_count: settings.thread_count,
        speed: settings.speed,
    };
    let replay = Replay::prepare(plan)?;
    let latency_before = replay.measure_latency_table()?;
    let forecast = run_file(&prepared, latency_before.cost_model(), &strategy_file);
    let mut setup = ReplaySetup {
        log_name: settings.log_name.clone(),
        left_out_parts: settings.left_out_parts.clone(),
        target: settings.target.to_owned(),
        strategy: strategy_file.strategy.to_string(),
        instances: prepared.instances(),
        clients: settings.thread_count,
        forecast_path: PathBuf::new(),
        absent_keys,
    };
    let forecast_document = build_forecast_document(&setup, &prepared, &forecast, &latency_before);
    let (forecast_path, stop) = begin(&forecast_document)?;
    setup.forecast_path = forecast_path;
    let replay_outcome = replay.run_until_stopped(&stop, progress)?;
    let latency_after = replay.measure_latency_table()?;
    let half_start = prepared.second_half_start();
    let forecast_second_half = |cost_model: &CostModel| {
        run_file(&prepared, cost_model, &strategy_file).split_off(half_start)
    };
    let added_errors = compute_error_intervals(
        &latency_before.round_forecasts(forecast_second_half),
        &latency_after.round_forecasts(forecast_second_half),
        &replay_outcome.request_stats[half_start..],
    );
    let results = Results::new(
        setup,
        &prepared,
        (&forecast, replay_outcome),
        (latency_before, latency_after),
        (added_errors, settings.tolerance),
    );
    Ok((build_report(&results), results.conclusion() == Conclusion::Held))
}

fn prepare_requests<'l>(log: &'l RequestLog, strategy_file: &StrategyFile) -> PreparedLog<'l> {
    PreparedLog::with_never(log, strategy_file.never.clone(), |_| true).without_ttls()
}

/// The log with the tree of the strategy file; keys that the servers lack are left out of both if they are few.
fn prepare_log(
    settings: &Settings<'_>,
    recorded_log: &mut RequestLog,
    strategy_file: &mut StrategyFile,
) -> Result<(RequestLog, AbsentKeys), ReplayError> {
    let mut log = with_tree_of(recorded_log, strategy_file);
    let prepared = prepare_requests(&log, strategy_file);
    if prepared.len() < 2 {
        let log_name = settings.log_name.clone();
        return Err(ReplayError::TooFewRequests { log_name, count: prepared.len() });
    }
    let (thread_count, instance_count) = (settings.thread_count, prepared.instances());
    if thread_count > instance_count {
        return Err(ReplayError::IdleThreads { thread_count, instance_count });
    }
    if settings.fills {
        fill(settings.servers, &log.items)?;
        return Ok((log, AbsentKeys::default()));
    }
    let absent_keys = AbsentKeys::find(settings.servers, &log, strategy_file)?;
    if absent_keys.can_be_left_out() {
        absent_keys.leave_out(recorded_log, strategy_file);
        log = with_tree_of(recorded_log, strategy_file);
    }
    absent_keys.set_unknown_sizes(&mut log.items);
    Ok((log, absent_keys))
}

/// What is replayed, and where.
#[derive(Debug, Clone, Copy)]
struct ReplayPlan<'r> {
    servers: Servers<'r>,
    /// The strategy of each instance.
    strategy_file: &'r StrategyFile,
    log: &'r RequestLog,
    /// Its requests.
    prepared: &'r PreparedLog<'r>,
    thread_count: usize,
    speed: Speed,
}

/// A replay whose instances are connected and have their fixed sets.
struct Replay<'r> {
    plan: ReplayPlan<'r>,
    instances: AppInstances,
    single_gets: SingleGets<'r>,
    /// Instances that keep nothing, for the latency table: as many as make calls at the same time.
    uncached_instances: Vec<AppInstance>,
}

impl<'r> Replay<'r> {
    /// Loads a fixed set for each process of the log.
    ///
    /// # Errors
    /// The servers cannot be reached, or do not have the whole fixed set; or no request of the log reads an item.
    fn prepare(plan: ReplayPlan<'r>) -> Result<Self, ReplayError> {
        let concurrent_calls = match plan.speed {
            Speed::Max => plan.thread_count,
            Speed::Recorded(_) => 1,
        };
        let new_uncached = |_| AppInstance::new(plan.servers, &StrategyFile::default());
        Ok(Self {
            instances: AppInstances::load(plan.servers, plan.strategy_file, plan.log)?,
            single_gets: SingleGets::new(&list_used_items(plan.prepared))?,
            uncached_instances: (0..concurrent_calls)
                .map(new_uncached)
                .collect::<Result<_, _>>()?,
            plan,
        })
    }

    /// Rehearses the first half of the log and measures what its calls take.
    ///
    /// # Errors
    /// A call failed, or the calls make no table.
    fn measure_latency_table(&self) -> Result<LatencyTable, ReplayError> {
        let rehearsal = Rehearsal {
            servers: self.plan.servers,
            strategy_file: self.plan.strategy_file,
            log: self.plan.log,
            prepared: self.plan.prepared,
            thread_count: self.uncached_instances.len(),
        };
        rehearsal.measure_latency_table(&self.single_gets, &self.uncached_instances)
    }

    /// Makes all requests.
    ///
    /// # Errors
    /// A call failed, or `stop` was set.
    fn run_until_stopped(
        &self,
        stop: &AtomicBool,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<ReplayOutcome, ReplayError> {
        let (made, all) = (AtomicUsize::new(0), self.plan.prepared.len());
        let count_request = || progress(made.fetch_add(1, Ordering::Relaxed) + 1, all);
        let replay_options = ReplayOptions {
            thread_count: self.plan.thread_count,
            speed: self.plan.speed,
            stop,
            progress: &count_request,
        };
        let machine = MachineWatch::begin(self.plan.servers.addresses);
        let outcome = self.instances.replay((self.plan.log, self.plan.prepared), &replay_options);
        if stop.load(Ordering::Relaxed) {
            return Err(ReplayError::Stopped { made: made.load(Ordering::Relaxed), all });
        }
        Ok(ReplayOutcome { machine_load: machine.end(), ..outcome? })
    }
}

/// Key and bytes of each item that a request reads.
fn list_used_items<'l>(prepared: &PreparedLog<'l>) -> Vec<(&'l str, u32)> {
    let uses = prepared.uses(0..prepared.len());
    let items = prepared.items.keys.iter().zip(&prepared.items.sizes).zip(uses);
    let items_in_use = items.filter(|(_, uses)| *uses > 0);
    items_in_use.map(|((key, &size), _)| (key.as_str(), size)).collect()
}
