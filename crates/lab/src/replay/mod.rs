//! The recorded requests of a log made again by our client under a strategy, and what each needed.
//!
//! The prices of a forecast come from a latency table that is measured on the same server just before and after, by a
//! rehearsal of the log's first half.

mod absent;
mod disturbance;
mod fill;
mod instance;
mod rehearsal;
mod run;
mod single_gets;

use std::sync::atomic::AtomicBool;

use glasscache_client::{Address, Error, Options};
use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::latency_table::LatencyTable;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::trace::log::RequestLog;

use crate::target::{CALL_TIMEOUT, KeyError, VALUE_BYTES_MAX};
pub use absent::{ABSENT_SHARE_MAX, AbsentKeys};
pub use disturbance::MachineLoad;
use disturbance::MachineWatch;
pub use fill::fill;
use instance::AppInstance;
use rehearsal::Rehearsal;
pub use run::ReplayOutcome;
use run::{AppInstances, ReplayOptions};
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
    /// A key of the log cannot go on the wire.
    #[error(transparent)]
    Key(#[from] KeyError),
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

/// What is replayed, and where.
#[derive(Debug, Clone, Copy)]
pub struct ReplayPlan<'r> {
    /// The servers, which share the keys.
    pub servers: &'r [Address],
    /// The strategy of each instance.
    pub strategy_file: &'r StrategyFile,
    /// The log.
    pub log: &'r RequestLog,
    /// Its requests.
    pub prepared: &'r PreparedLog<'r>,
    /// Threads that make requests.
    pub thread_count: usize,
    /// When each request is made.
    pub speed: Speed,
}

/// A replay whose instances are connected and have their fixed sets.
pub struct Replay<'r> {
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
    pub fn prepare(plan: ReplayPlan<'r>) -> Result<Self, ReplayError> {
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
    pub fn measure_latency_table(&self) -> Result<LatencyTable, ReplayError> {
        let rehearsal = Rehearsal {
            servers: self.plan.servers,
            strategy_file: self.plan.strategy_file,
            log: self.plan.log,
            prepared: self.plan.prepared,
            thread_count: self.uncached_instances.len(),
        };
        rehearsal.measure_latency_table(&self.single_gets, &self.uncached_instances)
    }

    /// Makes all requests until `stop` is set; `progress` is called after each.
    ///
    /// # Errors
    /// A call failed.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: &(dyn Fn() + Sync),
    ) -> Result<ReplayOutcome, ReplayError> {
        let replay_options = ReplayOptions {
            thread_count: self.plan.thread_count,
            speed: self.plan.speed,
            stop,
            progress,
        };
        let machine = MachineWatch::begin(self.plan.servers);
        let outcome =
            self.instances.replay((self.plan.log, self.plan.prepared), &replay_options)?;
        Ok(ReplayOutcome { machine_load: machine.end(), ..outcome })
    }
}

/// Options of a client that waits for a slow server, and takes values of any size.
fn new_client_options() -> Options {
    Options {
        timeout: CALL_TIMEOUT,
        value_bytes_max: VALUE_BYTES_MAX,
        costs: false,
        ..Options::default()
    }
}

/// Key and bytes of each item that a request reads.
fn list_used_items<'l>(prepared: &PreparedLog<'l>) -> Vec<(&'l str, u32)> {
    let uses = prepared.uses(0..prepared.len());
    let items = prepared.items.keys.iter().zip(&prepared.items.sizes).zip(uses);
    let items_in_use = items.filter(|(_, uses)| *uses > 0);
    items_in_use.map(|((key, &size), _)| (key.as_str(), size)).collect()
}
