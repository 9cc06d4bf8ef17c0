//! The load generator of the tour, the benchmarks and the checks.
//!
//! A `LoadPlan` defines how to send (connections, threads, pipeline, pace, window), a `Workload` defines what. Each
//! thread owns its connections and an epoll instance, so the generator scales with cores and uses no lock. In a
//! closed loop a connection sends `depth` requests, waits for all replies, and continues; in an open loop requests
//! are due by a schedule that is independent of the replies.
//!
//! The *tally* of a run is what was counted and timed. A request of an open loop has an *intended time*, when the
//! schedule wanted it sent, and a *send time*, when it was written.

mod by_second;
mod connection;
mod fill_and_read_back;
mod generator_thread;
mod histogram;
mod keys;
mod mixed;
mod pace;
mod random;
mod socket;
mod tally;
#[cfg(test)]
mod tests;
mod thinned;
mod values;
mod workload;

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime};

use rustix::thread::{CpuSet, sched_setaffinity};

pub(crate) use by_second::{LatenciesBySecond, SecondHistogram};
pub(crate) use fill_and_read_back::{Fill, ReadBack, Values};
pub use keys::KEY_BYTES;
pub(crate) use keys::{Picker, format_key};
pub(crate) use mixed::MixedWorkload;
pub(crate) use pace::Arrivals;
pub use random::Rng;
pub(crate) use random::mix;
pub(crate) use tally::Tally;
pub(crate) use thinned::ThinnedSamples;
pub use values::Size;
pub(crate) use values::ValueSource;
pub(crate) use workload::{Batch, KeyResult, NextStep, Workload};

use crate::access::Access;
use crate::proc::Meter;

/// Between the moment when all threads are connected and the start of a timed run: enough to wake them all.
const WAKE_UP_TIME: Duration = Duration::from_millis(30);

/// Longest time without any reply, unless a plan has another: a server that needs longer is stopped or unreachable.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// From this share of a core on a thread counts as busy all the time.
const BUSY_CORE_SHARE: f64 = 0.93;

/// What can go wrong between the generator and its target.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket or the machine failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The target closed a connection during a run.
    #[error("the server closed a connection under load")]
    Closed,
    /// Replies are pending and none has arrived for this long.
    #[error("the server sent no reply for {:.0} s", .0.as_secs_f64())]
    Silent(Duration),
    /// A reply that does not match its request: the stream is out of sync.
    #[error("unexpected reply from the server: {0:?}")]
    Unexpected(String),
    /// The run was stopped on request.
    #[error("stopped")]
    Stopped,
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// How much of each value is compared with what was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValueCheck {
    /// Its length and 16 bytes at both ends.
    #[default]
    Ends,
    /// Every byte of a value of up to 64 KiB, the ends of a longer one.
    UpTo64KiB,
    /// Every byte.
    Full,
}

/// What triggers the next request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Pace {
    /// The replies: each connection sends after its last replies have arrived.
    #[default]
    Closed,
    /// A schedule of this many requests a second over all threads.
    Open(f64),
}

impl Pace {
    /// The requests a second of a schedule.
    pub(crate) fn offered_per_second(self) -> Option<f64> {
        match self {
            Self::Open(rate) => Some(rate),
            Self::Closed => None,
        }
    }
}

/// How long a run lasts and which part of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Window {
    /// Until the workload has nothing more to send; all of it counts.
    #[default]
    Whole,
    /// A warm-up that does not count, then this long.
    Timed {
        /// Not counted.
        warm_up: Duration,
        /// Counted.
        measured_time: Duration,
    },
}

/// The plan of a load run: which server is sent requests, and how.
#[derive(Debug, Clone)]
pub(crate) struct LoadPlan {
    /// The server, its protocol and what connections to it begin with.
    pub target: Access,
    /// Connections over all threads; at least one a thread.
    pub connections: usize,
    /// Requests that a connection sends before it waits for their replies.
    pub depth: usize,
    /// Closed or open loop.
    pub pace: Pace,
    /// Which part of the run counts.
    pub window: Window,
    /// How much of each value is compared.
    pub check: ValueCheck,
    /// CPUs of the generator's threads, round-robin; no pinning if empty.
    pub cpus: Vec<usize>,
    /// Decides the schedule of an open loop.
    pub seed: u64,
    /// Measures in one read of eight how long data waited for the generator; see `Tally::generator_share`.
    pub measures_delay: bool,
    /// Keeps a histogram of each second; see `Tally::by_second`.
    pub keeps_second_histograms: bool,
    /// A run that is stopped, or fails once it has begun, returns what it counted; see [`Report::error`].
    pub returns_partial_report: bool,
    /// The run fails when the requests of a thread have had no reply for this long.
    pub silence_max: Duration,
    /// Stops the run when set.
    pub stop: Arc<AtomicBool>,
}

impl LoadPlan {
    /// One connection, one request at a time, until the work is done.
    pub(crate) fn new(target: impl Into<Access>) -> Self {
        Self {
            target: target.into(),
            connections: 1,
            depth: 1,
            pace: Pace::Closed,
            window: Window::Whole,
            check: ValueCheck::Ends,
            cpus: Vec::new(),
            seed: 1,
            measures_delay: false,
            keeps_second_histograms: false,
            returns_partial_report: false,
            silence_max: SILENCE_MAX,
            stop: Arc::default(),
        }
    }
}

/// What a run measured.
#[derive(Debug)]
pub(crate) struct Report {
    /// Counts and latencies of the part that counts.
    pub tally: Tally,
    /// When the run began, its warm-up included.
    pub started_at: SystemTime,
    /// Length of the part that counts.
    pub seconds: f64,
    /// CPU seconds of the server in that part; 0 without a meter.
    pub server_cpu: crate::proc::CpuUsage,
    /// CPU seconds of the generator's threads over the whole run, by its length: 1.0 is one busy core.
    pub(crate) generator_cores: f64,
    /// Cores used by other processes.
    pub other_cores: f64,
    /// The generator's threads were saturated while the server was not: the figures are a lower bound.
    pub is_generator_bound: bool,
    /// What ended the run early, where its plan returns a partial report.
    pub error: Option<Error>,
}

impl Report {
    /// Completed requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.tally.requests as f64 / self.seconds.max(1e-9)
    }

    /// The report, or what ended its run early.
    pub(crate) fn complete(self) -> Result<Self, Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// Server CPU per request in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.server_cpu.cpu_s() * 1e6 / self.tally.requests.max(1) as f64
    }
}

/// When the threads of a run start, and which part counts.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    start: Instant,
    window_start: Option<Instant>,
    window_end: Option<Instant>,
}

impl Schedule {
    /// Starts soon, so that waking the threads takes nothing of a measured window.
    fn new(window: Window) -> Self {
        let now = Instant::now();
        match window {
            Window::Whole => Self { start: now, window_start: None, window_end: None },
            Window::Timed { warm_up, measured_time } => {
                let start = now + WAKE_UP_TIME;
                Self {
                    start,
                    window_start: Some(start + warm_up),
                    window_end: Some(start + warm_up + measured_time),
                }
            }
        }
    }
}

/// Runs one thread for each of `workloads` and returns what was measured, and the workloads as they ended.
pub(crate) fn run<W: Workload>(
    plan: &LoadPlan,
    workloads: Vec<W>,
    meter: &Meter,
) -> Result<(Report, Vec<W>), Error> {
    let thread_count = workloads.len().max(1);
    // Set when every thread has connected, however long TLS and logins take, so that none starts within the window.
    let schedule: OnceLock<Schedule> = OnceLock::new();
    let any_thread_failed = AtomicBool::new(false);
    let (connecting, all_connected) = mpsc::channel::<Infallible>();
    std::thread::scope(|scope| {
        let handles: Vec<_> = workloads
            .into_iter()
            .enumerate()
            .map(|(thread_index, workload)| {
                let thread = generator_thread::ThreadContext {
                    thread_index,
                    thread_count,
                    connecting: connecting.clone(),
                    schedule: &schedule,
                    any_thread_failed: &any_thread_failed,
                };
                scope.spawn(move || generator_thread::run(plan, thread, workload))
            })
            .collect();
        drop(connecting);
        // Fails when each thread has dropped its end: after connecting, or with an error.
        let _ = all_connected.recv();
        let run_started = SystemTime::now();
        let Schedule { window_start, window_end, .. } =
            *schedule.get_or_init(|| Schedule::new(plan.window));
        let sleep_until = |due_at: Option<Instant>| {
            // In short sleeps: Ctrl-C or a failure ends the threads at once, and the time after that must not count.
            while let Some(time_left) =
                due_at.and_then(|due_at| due_at.checked_duration_since(Instant::now()))
                && !time_left.is_zero()
                && !plan.stop.load(Ordering::Relaxed)
                && !any_thread_failed.load(Ordering::Relaxed)
            {
                std::thread::sleep(time_left.min(Duration::from_millis(20)));
            }
        };
        sleep_until(window_start);
        let (started, cpu_before) = (Instant::now(), meter.read());
        sleep_until(window_end);
        let time_and_cpu_at_window_end = window_end.map(|_| (started.elapsed(), meter.read()));
        let mut results = Vec::with_capacity(thread_count);
        for handle in handles {
            results.push(handle.join().map_err(|_| Error::Closed)??);
        }
        let error = results.iter_mut().find_map(|result| result.error.take());
        let error = match error {
            Some(error) if !plan.returns_partial_report => return Err(error),
            error => error,
        };
        let (measured_time, cpu_after) =
            time_and_cpu_at_window_end.unwrap_or_else(|| (started.elapsed(), meter.read()));
        if plan.stop.load(Ordering::Relaxed) && !plan.returns_partial_report {
            return Err(Error::Stopped);
        }
        let (report, workloads) = merge_results(
            plan,
            results,
            (run_started, measured_time.as_secs_f64()),
            meter,
            &cpu_after.since(&cpu_before),
        );
        Ok((Report { error, ..report }, workloads))
    })
}

fn merge_results<W>(
    plan: &LoadPlan,
    results: Vec<generator_thread::ThreadResult<W>>,
    (started_at, seconds): (SystemTime, f64),
    meter: &Meter,
    cpu_used: &crate::proc::CpuDelta,
) -> (Report, Vec<W>) {
    let mut tally = Tally {
        by_second: plan.keeps_second_histograms.then(LatenciesBySecond::default),
        ..Tally::new(plan.pace != Pace::Closed)
    };
    let mut workloads = Vec::with_capacity(results.len());
    let (mut busy_cores, thread_count) = (0.0, results.len());
    for result in results {
        tally.add(&result.tally);
        busy_cores += result.busy_cores;
        workloads.push(result.workload);
    }
    let server_cores = cpu_used.server.cpu_s() / seconds.max(1e-9);
    let is_generator_bound = plan.pace == Pace::Closed
        && busy_cores > BUSY_CORE_SHARE * thread_count as f64
        && meter.workers() > 0
        && server_cores < BUSY_CORE_SHARE * meter.workers() as f64;
    let report = Report {
        tally,
        started_at,
        seconds,
        server_cpu: cpu_used.server,
        generator_cores: busy_cores,
        other_cores: cpu_used.other_cores(seconds),
        is_generator_bound,
        error: None,
    };
    (report, workloads)
}

/// Pins the calling thread, or thread `tid`, to `cpus`; an empty list leaves it free.
pub(crate) fn pin(tid: Option<rustix::process::Pid>, cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut cpu_set = CpuSet::new();
    for &cpu in cpus {
        cpu_set.set(cpu);
    }
    Ok(sched_setaffinity(tid, &cpu_set)?)
}
