//! The load generator: the only one, shared by the tour, the benchmarks and the checks.
//!
//! A [`Plan`] says how (connections, threads, pipeline, pace, window), a [`Work`] says what. Each thread owns
//! its connections and an epoll, so generating scales with cores and no lock is touched. In a closed loop a
//! connection sends `depth` requests, waits for all answers, and goes on; in an open loop requests are due by
//! a schedule that knows nothing of the answers.

mod connection;
mod engine;
mod keys;
mod mixed;
mod pace;
mod random;
mod sweep;
mod tally;
mod values;
mod work;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

pub use keys::{KEY_BYTES, Picker, Zipf, key_text};
pub use mixed::Mixed;
pub use pace::Arrivals;
pub use random::{Dice, mix};
pub use sweep::{Fill, ReadBack, Values};
pub use tally::Tally;
pub use values::{Pool, Size};
pub use work::{Batch, Dialect, Outcome, Step, Work};

use crate::proc::Meter;

/// What can go wrong between the generator and its target.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket or the machine failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The target hung up in the middle of a run.
    #[error("the server closed a connection under load")]
    Closed,
    /// A reply that fits no request: the stream is out of step.
    #[error("unexpected reply from the server: {0:?}")]
    Unexpected(String),
    /// Somebody asked the run to stop.
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
pub enum Check {
    /// Its length and 16 bytes at both ends.
    #[default]
    Edges,
    /// Every byte.
    Full,
}

/// Who decides when the next request leaves.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Pace {
    /// The answers: each connection sends when its last answers are in.
    #[default]
    Closed,
    /// A schedule of this many requests a second over all threads.
    Open(f64),
}

/// How long a run lasts and which part of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Window {
    /// Until the workload has nothing more to send; all of it counts.
    #[default]
    Whole,
    /// A warm-up that does not count, then this long.
    Timed {
        /// Not counted.
        warm_up: Duration,
        /// Counted.
        measure: Duration,
    },
}

/// How a run goes about it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the server listens.
    pub target: SocketAddr,
    /// Connections over all threads; at least one a thread.
    pub connections: usize,
    /// Requests a connection sends before it waits for their answers.
    pub depth: usize,
    /// Text or meta.
    pub dialect: Dialect,
    /// Closed or open loop.
    pub pace: Pace,
    /// Which part of the run counts.
    pub window: Window,
    /// How much of each value is compared.
    pub check: Check,
    /// CPUs of the generator's threads, in turn; none pinned if empty.
    pub cpus: Vec<usize>,
    /// Decides the schedule of an open loop.
    pub seed: u64,
    /// Set by whoever wants the run to stop.
    pub stop: Arc<AtomicBool>,
}

impl Plan {
    /// One connection, one request at a time, until the work is done.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            connections: 1,
            depth: 1,
            dialect: Dialect::Text,
            pace: Pace::Closed,
            window: Window::Whole,
            check: Check::Edges,
            cpus: Vec::new(),
            seed: 1,
            stop: Arc::default(),
        }
    }
}

/// What a run measured.
#[derive(Debug, Clone)]
pub struct Report {
    /// Counts and latencies of the part that counts.
    pub tally: Tally,
    /// Length of that part.
    pub seconds: f64,
    /// CPU seconds of the server in it; 0 without a meter.
    pub server: crate::proc::Usage,
    /// CPU seconds of the generator's threads over the whole run, by its length: 1.0 is one busy core.
    pub generator_cores: f64,
    /// Cores taken by neither side.
    pub other_cores: f64,
    /// The generator's threads had no time left while the server had: its figures are a lower bound.
    pub is_generator_bound: bool,
}

impl Report {
    /// Requests answered a second.
    pub fn rate(&self) -> f64 {
        self.tally.requests as f64 / self.seconds.max(1e-9)
    }

    /// Server CPU per request in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.server.cpu_s() * 1e6 / self.tally.requests.max(1) as f64
    }
}

/// Runs one thread for each of `works` and returns what was measured, and the workloads as they ended.
pub fn run<W: Work>(plan: &Plan, works: Vec<W>, meter: &Meter) -> Result<(Report, Vec<W>), Error> {
    let threads = works.len().max(1);
    // Time for all threads to connect, so that the slowest does not start into a running window.
    let start =
        Instant::now() + Duration::from_millis(if plan.window == Window::Whole { 0 } else { 30 });
    let (from, until) = match plan.window {
        Window::Whole => (None, None),
        Window::Timed { warm_up, measure } => {
            (Some(start + warm_up), Some(start + warm_up + measure))
        }
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = works
            .into_iter()
            .enumerate()
            .map(|(index, work)| {
                let share = engine::Share {
                    index,
                    threads,
                    start,
                    from,
                    until,
                };
                scope.spawn(move || engine::run(plan, &share, work))
            })
            .collect();
        let sleep_until = |at: Option<Instant>| {
            if let Some(at) = at {
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
            }
        };
        sleep_until(from);
        let (begun, before) = (Instant::now(), meter.read());
        sleep_until(until);
        let after = until.map(|_| (begun.elapsed(), meter.read()));
        let mut ends = Vec::with_capacity(threads);
        for handle in handles {
            ends.push(handle.join().map_err(|_| Error::Closed)??);
        }
        let (length, after) = after.unwrap_or_else(|| (begun.elapsed(), meter.read()));
        if plan.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(sum_up(
            plan,
            ends,
            length.as_secs_f64(),
            meter,
            &after.since(&before),
        ))
    })
}

fn sum_up<W>(
    plan: &Plan,
    ends: Vec<engine::End<W>>,
    seconds: f64,
    meter: &Meter,
    used: &crate::proc::Spent,
) -> (Report, Vec<W>) {
    let mut tally = Tally::new(plan.pace != Pace::Closed);
    let mut works = Vec::with_capacity(ends.len());
    let (mut cores, threads) = (0.0, ends.len());
    for end in ends {
        tally.add(&end.tally);
        cores += end.busy_cores;
        works.push(end.work);
    }
    let server_cores = used.server.cpu_s() / seconds.max(1e-9);
    let is_generator_bound = plan.pace == Pace::Closed
        && cores > 0.93 * threads as f64
        && meter.workers() > 0
        && server_cores < 0.93 * meter.workers() as f64;
    let report = Report {
        tally,
        seconds,
        server: used.server,
        generator_cores: cores,
        other_cores: used.other_cores(seconds),
        is_generator_bound,
    };
    (report, works)
}

/// Pins the calling thread, or thread `tid`, to `cpus`; an empty list leaves it free.
pub(crate) fn pin(tid: Option<rustix::process::Pid>, cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    Ok(sched_setaffinity(tid, &set)?)
}
