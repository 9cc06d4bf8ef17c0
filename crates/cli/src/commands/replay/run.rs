//! The requests of a log made again: each process of the log is a client of its own, spread over some threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use glasscache_client::Address;
use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::run::RequestStats;
use glasscache_sim::trace::log::{NONE, RequestLog};

use indicatif::ProgressBar;

use super::Speed;
use super::process::Process;
use crate::output::{Exit, Failure};

/// What the requests needed.
pub(super) struct Replayed {
    /// In file order.
    pub(super) request_stats: Vec<RequestStats>,
    /// Reads of keys that the servers do not have.
    pub(super) absent: u64,
    /// Calls that loaded and refreshed fixed sets, and their keys.
    pub(super) kept_calls: u64,
    pub(super) kept_keys: u64,
}

/// The processes of a log.
pub(super) struct Processes {
    processes: Vec<Process>,
    /// The index of each instance's process.
    index_of: HashMap<u16, usize>,
}

/// How the requests are made.
pub(super) struct Pace<'r> {
    /// Threads.
    pub(super) clients: usize,
    /// When each request is made.
    pub(super) speed: Speed,
    /// Ends the replay when set.
    pub(super) stop: &'r AtomicBool,
    /// Counts the requests.
    pub(super) bar: &'r ProgressBar,
}

/// The requests of one thread by their index, and how many reads found nothing.
type ThreadResult = Result<(Vec<(usize, RequestStats)>, u64), Failure>;

impl Processes {
    /// A process for each instance, with its fixed set loaded; refuses a fixed set that the servers do not have whole.
    pub(super) fn load(
        servers: &[Address],
        file: &StrategyFile,
        log: &RequestLog,
    ) -> Result<Self, Failure> {
        let mut all = Self {
            processes: Vec::new(),
            index_of: HashMap::new(),
        };
        for &instance in &log.requests.instance {
            if let Entry::Vacant(entry) = all.index_of.entry(instance) {
                entry.insert(all.processes.len());
                all.processes.push(loaded_process(servers, file)?);
            }
        }
        Ok(all)
    }

    /// Makes the requests; each thread makes those of its processes in file order.
    pub(super) fn replay(
        &self,
        (log, prepared): (&RequestLog, &PreparedLog<'_>),
        pace: &Pace<'_>,
    ) -> Result<Replayed, Failure> {
        let begun = Instant::now();
        let has_failed = AtomicBool::new(false);
        let thread = |number: usize| {
            let is_stopped =
                || pace.stop.load(Ordering::Relaxed) || has_failed.load(Ordering::Relaxed);
            let replayed = self.replay_thread((log, prepared), number, pace, begun, &is_stopped);
            // One failure ends the replay.
            has_failed.fetch_or(replayed.is_err(), Ordering::Relaxed);
            replayed
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let thread = &thread;
            let begin = |number| scope.spawn(move || thread(number));
            let threads: Vec<_> = (0..pace.clients).map(begin).collect();
            threads.into_iter().map(ScopedJoinHandle::join).collect()
        });
        let mut replayed = Replayed {
            request_stats: vec![RequestStats::default(); prepared.len()],
            absent: 0,
            kept_calls: 0,
            kept_keys: 0,
        };
        for ended in ended {
            let panicked = |_| Failure::new(Exit::Finding, "the replay failed in a thread");
            let (stats, absent) = ended.map_err(panicked)??;
            replayed.absent += absent;
            for (request, stats) in stats {
                replayed.request_stats[request] = stats;
            }
        }
        for process in &self.processes {
            let counters = process.near().counters();
            replayed.kept_calls += counters.kept_calls;
            replayed.kept_keys += counters.kept_keys;
        }
        Ok(replayed)
    }

    fn replay_thread(
        &self,
        (log, prepared): (&RequestLog, &PreparedLog<'_>),
        number: usize,
        pace: &Pace<'_>,
        begun: Instant,
        is_stopped: &dyn Fn() -> bool,
    ) -> ThreadResult {
        let requests = &log.requests;
        let key = |item: u32| log.items.keys[item as usize].as_str();
        let first = prepared.log_index.first();
        let first_us = first.map_or(0, |&first| requests.time_us[first as usize]);
        let (mut stats, mut absent) = (Vec::new(), 0);
        for (request, &origin) in prepared.log_index.iter().enumerate() {
            let origin = origin as usize;
            let process = self.index_of[&requests.instance[origin]];
            if process % pace.clients != number {
                continue;
            }
            if is_stopped() {
                break;
            }
            if let Speed::Recorded(factor) = pace.speed {
                let after_s = (requests.time_us[origin] - first_us) as f64 / 1e6 / factor;
                let due = begun + Duration::from_secs_f64(after_s);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let page = requests.page[origin];
            let page = (page != NONE).then(|| key(page));
            let items = requests.items_of(origin).iter().map(|&item| key(item));
            let (of_request, found_nothing) = self.processes[process].request(page, items)?;
            stats.push((request, of_request));
            absent += found_nothing;
            pace.bar.inc(1);
        }
        Ok((stats, absent))
    }
}

fn loaded_process(servers: &[Address], file: &StrategyFile) -> Result<Process, Failure> {
    let process = Process::new(servers, file)?;
    process.load()?;
    let missing = process.near().stats().missing_keys;
    let Some(first) = missing.first() else {
        return Ok(process);
    };
    let message = format!(
        "loading the fixed set failed: the server lacks {} of its {} keys, the first is {first:?}",
        missing.len(),
        file.fixed_keys.len(),
    );
    let hint = "store them, or add --fill for random values of the recorded sizes";
    Err(Failure::new(Exit::BadData, message).hint(hint))
}
