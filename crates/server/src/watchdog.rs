//! The watchdog: ends the process when a worker that has work makes no progress.
//!
//! It counts its own ticks, not the clock: while the process is stopped (SIGSTOP, a debugger, a suspended machine)
//! the watchdog does not run either, so such a pause never looks like a stuck worker.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::failure;
use crate::shared::Shared;

/// Time between two checks of the workers.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the watchdog observed of one worker.
#[derive(Debug, Default, Clone, Copy)]
struct ObservedProgress {
    count: Option<u64>,
    stalled_ticks: u32,
}

impl ObservedProgress {
    /// Records the count at this tick and returns for how many ticks it has not changed while working.
    fn record_tick(&mut self, count_now: Option<u64>) -> u32 {
        self.stalled_ticks =
            if count_now.is_some() && count_now == self.count { self.stalled_ticks + 1 } else { 0 };
        self.count = count_now;
        self.stalled_ticks
    }
}

/// Checks the workers once a second until `stop_receiver` is closed.
pub(crate) fn run(shared: &Shared, stop_receiver: &Receiver<()>) {
    let ticks_max = shared.config.watchdog_ticks;
    let mut observed = vec![ObservedProgress::default(); shared.counters_and_wakers.len()];
    while stop_receiver.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        for (index, (observed_progress, (counters, _))) in
            observed.iter_mut().zip(&shared.counters_and_wakers).enumerate()
        {
            if observed_progress.record_tick(counters.progress_counter.count_if_working())
                >= ticks_max
            {
                let reason = format!(
                    "worker {index} has work and has made no progress for {ticks_max} seconds"
                );
                failure::end_process(shared, &reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::progress_counter::ProgressCounter;

    #[test]
    fn only_a_worker_that_works_without_progress_is_counted() {
        let (progress_counter, mut observed) =
            (ProgressCounter::default(), ObservedProgress::default());
        assert_eq!(observed.record_tick(progress_counter.count_if_working()), 0, "not started");
        progress_counter.begin_work();
        assert_eq!(
            observed.record_tick(progress_counter.count_if_working()),
            0,
            "the first look at this work"
        );
        assert_eq!(observed.record_tick(progress_counter.count_if_working()), 1);
        assert_eq!(observed.record_tick(progress_counter.count_if_working()), 2);
        progress_counter.count_iteration();
        assert_eq!(
            observed.record_tick(progress_counter.count_if_working()),
            0,
            "progress without sleep"
        );
        assert_eq!(observed.record_tick(progress_counter.count_if_working()), 1);
        progress_counter.begin_sleep();
        progress_counter.begin_work();
        assert_eq!(
            observed.record_tick(progress_counter.count_if_working()),
            0,
            "slept between two checks"
        );
        progress_counter.begin_sleep();
        for _ in 0..10 {
            assert_eq!(observed.record_tick(progress_counter.count_if_working()), 0, "asleep");
        }
    }
}
