//! The requests of a log made again: each process of the log is a client of its own, spread over some threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use glasscache_client::Address;
use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::latency_table::TimedCall;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::RequestStats;
use glasscache_sim::trace::log::{NONE, RequestLog};

use indicatif::ProgressBar;

use super::Speed;
use super::process::Process;
use crate::output::{Exit, Failure};

/// What the requests needed.
pub(super) struct ReplayOutcome {
    /// In file order.
    pub(super) request_stats: Vec<RequestStats>,
    /// Reads of keys that the servers do not have.
    pub(super) absent_reads: u64,
    /// Calls that loaded and refreshed fixed sets, and their keys.
    pub(super) fixed_set_calls: u64,
    pub(super) fixed_set_keys: u64,
}

/// The processes of a log.
pub(super) struct Processes {
    processes: Vec<Process>,
    /// The index of each instance's process.
    index_by_instance: HashMap<u16, usize>,
}

/// How the requests are made.
pub(super) struct ReplayOptions<'r> {
    /// Threads.
    pub(super) thread_count: usize,
    /// When each request is made.
    pub(super) speed: Speed,
    /// Ends the replay when set.
    pub(super) stop: &'r AtomicBool,
    /// Counts the requests.
    pub(super) bar: &'r ProgressBar,
}

/// A request of the log, and the process that makes it.
pub(super) struct RecordedRequest<'r> {
    process: &'r Process,
    log: &'r RequestLog,
    log_row: usize,
    /// Its recorded time, after the first request.
    recorded_after: Duration,
}

/// The requests of one thread by their index, and how many reads found nothing.
type ThreadResult = Result<(Vec<(usize, RequestStats)>, u64), Failure>;

impl Processes {
    /// A process for each instance, with its fixed set loaded; refuses a fixed set that the servers do not have whole.
    pub(super) fn load(
        servers: &[Address],
        strategy_file: &StrategyFile,
        log: &RequestLog,
    ) -> Result<Self, Failure> {
        let mut loaded = Self {
            processes: Vec::new(),
            index_by_instance: HashMap::new(),
        };
        for &instance in &log.requests.instance {
            if let Entry::Vacant(entry) = loaded.index_by_instance.entry(instance) {
                entry.insert(loaded.processes.len());
                loaded.processes.push(load_process(servers, strategy_file)?);
            }
        }
        Ok(loaded)
    }

    /// Makes the requests; each thread makes those of its processes in file order.
    pub(super) fn replay(
        &self,
        (log, prepared): (&RequestLog, &PreparedLog<'_>),
        replay_options: &ReplayOptions<'_>,
    ) -> Result<ReplayOutcome, Failure> {
        let started = Instant::now();
        let has_failed = AtomicBool::new(false);
        let run_thread = |thread_index: usize| {
            let is_stopped = || {
                replay_options.stop.load(Ordering::Relaxed) || has_failed.load(Ordering::Relaxed)
            };
            let replay_outcome = self.replay_thread(
                (log, prepared),
                thread_index,
                replay_options,
                started,
                &is_stopped,
            );
            // One failure ends the replay.
            has_failed.fetch_or(replay_outcome.is_err(), Ordering::Relaxed);
            replay_outcome
        };
        let thread_results: Vec<_> = std::thread::scope(|scope| {
            let run_thread = &run_thread;
            let spawn_thread = |thread_index| scope.spawn(move || run_thread(thread_index));
            let threads: Vec<_> = (0..replay_options.thread_count).map(spawn_thread).collect();
            threads.into_iter().map(ScopedJoinHandle::join).collect()
        });
        let mut replay_outcome = ReplayOutcome {
            request_stats: vec![RequestStats::default(); prepared.len()],
            absent_reads: 0,
            fixed_set_calls: 0,
            fixed_set_keys: 0,
        };
        for thread_results in thread_results {
            let panic_failure = |_| Failure::new(Exit::Finding, "the replay failed in a thread");
            let (stats, absent_reads) = thread_results.map_err(panic_failure)??;
            replay_outcome.absent_reads += absent_reads;
            for (request_index, stats) in stats {
                replay_outcome.request_stats[request_index] = stats;
            }
        }
        for process in &self.processes {
            let counters = process.near().counters();
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
        let (mut stats, mut absent_reads) = (Vec::new(), 0);
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
            let (stats_of_request, absent_in_request) = request.make_calls(None)?;
            stats.push((request_index, stats_of_request));
            absent_reads += absent_in_request;
            replay_options.bar.inc(1);
        }
        Ok((stats, absent_reads))
    }

    /// The requests of the processes that one of some threads has (its index, their number), with their index, in file
    /// order.
    pub(super) fn requests_of_thread<'r>(
        &'r self,
        (log, prepared): (&'r RequestLog, &'r PreparedLog<'_>),
        requests: Range<usize>,
        (thread_index, thread_count): (usize, usize),
    ) -> impl Iterator<Item = (usize, RecordedRequest<'r>)> {
        let recorded = &log.requests;
        let first = prepared.log_index.first();
        let first_us = first.map_or(0, |&first| recorded.time_us[first as usize]);
        requests.filter_map(move |request_index| {
            let log_row = prepared.log_index[request_index] as usize;
            let process_index = self.index_by_instance[&recorded.instance[log_row]];
            let request = RecordedRequest {
                process: &self.processes[process_index],
                log,
                log_row,
                recorded_after: Duration::from_micros(
                    recorded.time_us[log_row].saturating_sub(first_us),
                ),
            };
            (process_index % thread_count == thread_index).then_some((request_index, request))
        })
    }
}

impl RecordedRequest<'_> {
    /// Makes it once more: what it needed, and how many of its reads found nothing. Its calls are added to a list if
    /// there is one.
    pub(super) fn make_calls(
        &self,
        timed_calls: Option<&mut Vec<TimedCall>>,
    ) -> Result<(RequestStats, u64), Failure> {
        let key = |item: u32| self.log.items.keys[item as usize].as_str();
        let page = self.log.requests.page[self.log_row];
        let page = (page != NONE).then(|| key(page));
        let items = self.log.requests.items_of(self.log_row).iter();
        self.process
            .make_request(page, items.map(|&item| key(item)), timed_calls)
    }
}

fn load_process(servers: &[Address], strategy_file: &StrategyFile) -> Result<Process, Failure> {
    let process = Process::new(servers, strategy_file)?;
    process.load()?;
    let missing = process.near().stats().missing_keys;
    let Some(first) = missing.first() else {
        return Ok(process);
    };
    let message = format!(
        "loading the fixed set failed: the server lacks {} of its {} keys, the first is {first:?}",
        missing.len(),
        strategy_file.fixed_keys.len(),
    );
    let hint = "store them, or add --fill for random values of the recorded sizes";
    Err(Failure::new(Exit::BadData, message).with_hint(hint))
}
