//! The requests of a log made again: each instance of the log is a client of its own, spread over some threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::latency_table::TimedCall;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::RequestStats;
use glasscache_sim::trace::log::{NONE, RequestLog};

use super::disturbance::MachineLoad;
use super::instance::AppInstance;
use super::{ReplayError, Servers, Speed};

/// What the requests needed.
#[derive(Debug)]
pub(super) struct ReplayOutcome {
    /// In file order.
    pub request_stats: Vec<RequestStats>,
    /// Reads of keys that the servers do not have.
    pub absent_reads: u64,
    /// Calls that loaded and refreshed fixed sets.
    pub fixed_set_calls: u64,
    /// Keys of these calls.
    pub fixed_set_keys: u64,
    /// What others did on this machine meanwhile.
    pub machine_load: MachineLoad,
}

/// The instances of a log.
pub(super) struct AppInstances {
    instances: Vec<AppInstance>,
    /// The index of each instance in `instances`, by its number in the log.
    index_by_number: HashMap<u16, usize>,
}

/// How the requests are made.
pub(super) struct ReplayOptions<'r> {
    /// Threads.
    pub(super) thread_count: usize,
    /// When each request is made.
    pub(super) speed: Speed,
    /// Ends the replay when set.
    pub(super) stop: &'r AtomicBool,
    /// Called after each request.
    pub(super) progress: &'r (dyn Fn() + Sync),
}

/// A request of the log, and the instance that makes it.
pub(super) struct RecordedRequest<'r> {
    instance: &'r AppInstance,
    log: &'r RequestLog,
    log_row: usize,
    /// Its recorded time, after the first request.
    recorded_after: Duration,
}

/// The requests of one thread by their index, and how many reads found nothing.
type ThreadResult = Result<(Vec<(usize, RequestStats)>, u64), ReplayError>;

impl AppInstances {
    /// A client for each instance, with its fixed set loaded; refuses a fixed set that the servers do not have whole.
    pub(super) fn load(
        servers: Servers<'_>,
        strategy_file: &StrategyFile,
        log: &RequestLog,
    ) -> Result<Self, ReplayError> {
        let mut loaded = Self { instances: Vec::new(), index_by_number: HashMap::new() };
        for &instance_number in &log.requests.instances {
            if let Entry::Vacant(entry) = loaded.index_by_number.entry(instance_number) {
                entry.insert(loaded.instances.len());
                loaded.instances.push(load_instance(servers, strategy_file)?);
            }
        }
        Ok(loaded)
    }

    /// Makes the requests; each thread makes those of its instances in file order.
    pub(super) fn replay(
        &self,
        (log, prepared): (&RequestLog, &PreparedLog<'_>),
        replay_options: &ReplayOptions<'_>,
    ) -> Result<ReplayOutcome, ReplayError> {
        let started = Instant::now();
        let has_failed = AtomicBool::new(false);
        let run_thread = |thread_index: usize| {
            let is_stopped = || {
                replay_options.stop.load(Ordering::Relaxed) || has_failed.load(Ordering::Relaxed)
            };
            let thread_result = self.replay_thread(
                (log, prepared),
                thread_index,
                replay_options,
                started,
                &is_stopped,
            );
            // One failure ends the replay.
            has_failed.fetch_or(thread_result.is_err(), Ordering::Relaxed);
            thread_result
        };
        let thread_results: Vec<_> = std::thread::scope(|scope| {
            let run_thread = &run_thread;
            let spawn_thread = |thread_index| scope.spawn(move || run_thread(thread_index));
            let handles: Vec<_> = (0..replay_options.thread_count).map(spawn_thread).collect();
            handles.into_iter().map(ScopedJoinHandle::join).collect()
        });
        let mut replay_outcome = ReplayOutcome {
            request_stats: vec![RequestStats::default(); prepared.len()],
            absent_reads: 0,
            fixed_set_calls: 0,
            fixed_set_keys: 0,
            machine_load: MachineLoad::default(),
        };
        for thread_result in thread_results {
            let (thread_stats, absent_reads) =
                thread_result.map_err(|_| ReplayError::ReplayThread)??;
            replay_outcome.absent_reads += absent_reads;
            for (request_index, request_stats) in thread_stats {
                replay_outcome.request_stats[request_index] = request_stats;
            }
        }
        for instance in &self.instances {
            let counters = instance.near().counters();
            replay_outcome.fixed_set_calls += counters.fixed_set_calls;
            replay_outcome.fixed_set_keys += counters.fixed_set_keys;
        }
        Ok(replay_outcome)
    }

    fn replay_thread(
        &self,
        (log, prepared): (&RequestLog, &PreparedLog<'_>),
        thread_index: usize,
        replay_options: &ReplayOptions<'_>,
        started: Instant,
        is_stopped: &dyn Fn() -> bool,
    ) -> ThreadResult {
        let (mut thread_stats, mut absent_reads) = (Vec::new(), 0);
        let requests = self.requests_of_thread(
            (log, prepared),
            0..prepared.len(),
            (thread_index, replay_options.thread_count),
        );
        for (request_index, request) in requests {
            if is_stopped() {
                break;
            }
            if let Speed::Recorded(factor) = replay_options.speed {
                let due_after = request.recorded_after.as_secs_f64() / factor;
                let due_after = Duration::try_from_secs_f64(due_after).unwrap_or(Duration::MAX);
                std::thread::sleep(due_after.saturating_sub(started.elapsed()));
            }
            let (request_stats, absent_in_request) = request.make_calls(None)?;
            thread_stats.push((request_index, request_stats));
            absent_reads += absent_in_request;
            (replay_options.progress)();
        }
        Ok((thread_stats, absent_reads))
    }

    /// The requests of the instances that belong to one of `thread_count` threads, each with its index, in file order.
    pub(super) fn requests_of_thread<'r>(
        &'r self,
        (log, prepared): (&'r RequestLog, &'r PreparedLog<'_>),
        request_range: Range<usize>,
        (thread_index, thread_count): (usize, usize),
    ) -> impl Iterator<Item = (usize, RecordedRequest<'r>)> {
        let recorded = &log.requests;
        let first_log_row = prepared.log_indexes.first();
        let first_us = first_log_row.map_or(0, |&log_row| recorded.times_us[log_row as usize]);
        request_range.filter_map(move |request_index| {
            let log_row = prepared.log_indexes[request_index] as usize;
            let instance_index = self.index_by_number[&recorded.instances[log_row]];
            let request = RecordedRequest {
                instance: &self.instances[instance_index],
                log,
                log_row,
                recorded_after: Duration::from_micros(
                    recorded.times_us[log_row].saturating_sub(first_us),
                ),
            };
            (instance_index % thread_count == thread_index).then_some((request_index, request))
        })
    }
}

impl RecordedRequest<'_> {
    /// Makes the request once more; returns what it needed, and how many of its reads found nothing. Its calls are
    /// added to a list if there is one.
    pub(super) fn make_calls(
        &self,
        timed_calls: Option<&mut Vec<TimedCall>>,
    ) -> Result<(RequestStats, u64), ReplayError> {
        let key_of = |item: u32| self.log.items.keys[item as usize].as_str();
        let page_item = self.log.requests.pages[self.log_row];
        let page_key = (page_item != NONE).then(|| key_of(page_item));
        let calls = self.log.requests.calls_of(self.log_row).filter(|items| !items.is_empty());
        let keys_of = |items: &[u32]| items.iter().map(|&item| key_of(item)).collect();
        self.instance.make_request(page_key, calls.map(keys_of), timed_calls)
    }
}

fn load_instance(
    servers: Servers<'_>,
    strategy_file: &StrategyFile,
) -> Result<AppInstance, ReplayError> {
    let instance = AppInstance::new(servers, strategy_file)?;
    instance.load()?;
    let missing_keys = instance.near().stats().missing_keys;
    match missing_keys.first() {
        None => Ok(instance),
        Some(first_key) => Err(ReplayError::FixedSet {
            missing_count: missing_keys.len(),
            key_count: strategy_file.fixed_keys.len(),
            first_key: first_key.clone(),
        }),
    }
}
