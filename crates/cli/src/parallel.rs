//! Many independent computations over all cores, with progress on a terminal and an early end by Ctrl-C.
//!
//! The simulators are pure and know neither threads nor terminals; this module adds both.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupts::new_stop_flag_with_exit;
use crate::output::Failure;

/// Interval at which progress is updated.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The results of the computations.
pub(crate) struct JobResults<T> {
    /// The results in the order of the jobs; `None` for what Ctrl-C left undone.
    pub results: Vec<Option<T>>,
    /// Whether Ctrl-C ended the work early.
    pub is_stopped: bool,
}

/// Runs `job` for 0 to below `job_count` on `threads` threads (0: one a core).
///
/// After the first Ctrl-C, running jobs finish and no others start; the second ends the process.
pub(crate) fn run_in_parallel<T: Send>(
    job_count: usize,
    threads: usize,
    label: &'static str,
    job: impl Fn(usize) -> T + Sync,
) -> Result<JobResults<T>, Failure> {
    let stop = new_stop_flag_with_exit()?;
    let bar = new_progress_bar(job_count as u64, label);
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..job_count).map(|_| None).collect());
    let next_index = AtomicUsize::new(0);
    let run_jobs = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next_index.fetch_add(1, Ordering::Relaxed);
            if index >= job_count {
                return;
            }
            let result = job(index);
            if let Ok(mut results) = results.lock() {
                results[index] = Some(result);
            }
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..resolve_thread_count(threads).min(job_count) {
            scope.spawn(run_jobs);
        }
        run_jobs();
    });
    bar.finish_and_clear();
    let results = results.into_inner().unwrap_or_default();
    let is_stopped = results.iter().any(Option::is_none);
    Ok(JobResults { results, is_stopped })
}

/// The requested number of threads, or one per core.
fn resolve_thread_count(requested: usize) -> usize {
    if requested > 0 {
        requested
    } else {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

fn new_progress_bar(job_count: u64, label: &'static str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(job_count), target).with_message(label);
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(PROGRESS_INTERVAL);
    bar
}
