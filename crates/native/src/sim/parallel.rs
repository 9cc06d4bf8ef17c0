//! Independent computations on several threads without the interpreter lock; a signal's handler may end them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How often the calling thread checks for a signal while others work, however often a result arrives.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `job` for each index below `job_count` on this many threads (0: one a core) and returns the results in order.
///
/// A job calls `should_continue` now and then, and may return `None` once it is false. What a signal's
/// handler raises ends the work and is returned.
pub(super) fn run_in_parallel<T: Send>(
    py: Python<'_>,
    job_count: usize,
    threads: usize,
    job: impl Fn(usize, &dyn Fn() -> bool) -> Option<T> + Sync,
) -> PyResult<Vec<T>> {
    let (stop, next_index) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut results: Vec<Option<T>> = (0..job_count).map(|_| None).collect();
    py.detach(|| {
        std::thread::scope(|scope| {
            let (result_sender, result_receiver) = channel();
            for _ in 0..resolve_thread_count(threads).min(job_count) {
                let (result_sender, stop, next_index, job) =
                    (result_sender.clone(), &stop, &next_index, &job);
                scope.spawn(move || {
                    let should_continue = || !stop.load(Ordering::Relaxed);
                    while should_continue() {
                        let job_index = next_index.fetch_add(1, Ordering::Relaxed);
                        if job_index >= job_count
                            || result_sender
                                .send((job_index, job(job_index, &should_continue)))
                                .is_err()
                        {
                            return;
                        }
                    }
                });
            }
            drop(result_sender);
            let mut next_check = Instant::now() + SIGNAL_CHECK_INTERVAL;
            loop {
                let time_left = next_check.saturating_duration_since(Instant::now());
                match result_receiver.recv_timeout(time_left) {
                    Ok((job_index, result)) => results[job_index] = result,
                    Err(RecvTimeoutError::Disconnected) => return PyResult::Ok(()),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if Instant::now() >= next_check {
                    Python::attach(|py| {
                        let raised = py.check_signals();
                        stop.fetch_or(raised.is_err(), Ordering::Relaxed);
                        raised
                    })?;
                    next_check = Instant::now() + SIGNAL_CHECK_INTERVAL;
                }
            }
        })
    })?;
    Ok(results.into_iter().flatten().collect())
}

fn resolve_thread_count(threads: usize) -> usize {
    if threads > 0 { threads } else { std::thread::available_parallelism().map_or(1, usize::from) }
}
