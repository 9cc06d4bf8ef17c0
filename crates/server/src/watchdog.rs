//! The watchdog: ends the process when a worker that has work makes no progress.
//!
//! It counts its own ticks, not the clock: while the process is stopped (SIGSTOP, a debugger, a suspended machine)
//! the watchdog does not run either, so such a pause never looks like a stuck worker.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::failure;
use crate::shared::Shared;

/// Time between two checks of the workers.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the watchdog observed of one worker.
#[derive(Debug, Default, Clone, Copy)]
struct ObservedPulse {
    count: Option<u64>,
    ticks: u32,
}

impl ObservedPulse {
    /// Records the pulse at this tick and returns for how many ticks it has not changed while working.
    fn ticks_without_progress(&mut self, count_now: Option<u64>) -> u32 {
        self.ticks = if count_now.is_some() && count_now == self.count {
            self.ticks + 1
        } else {
            0
        };
        self.count = count_now;
        self.ticks
    }
}

/// Checks the workers once a second until `stop_receiver` is closed.
pub(crate) fn run(shared: &Arc<Shared>, stop_receiver: &Receiver<()>) {
    let ticks_max = shared.config.watchdog_ticks;
    let mut observed = vec![ObservedPulse::default(); shared.workers.len()];
    while stop_receiver.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        for (index, (observed_pulse, (counters, _))) in
            observed.iter_mut().zip(&shared.workers).enumerate()
        {
            if observed_pulse.ticks_without_progress(counters.pulse.count_if_working()) >= ticks_max
            {
                failure::end_process(
                    shared.config.failure_exit_code,
                    &format!(
                        "worker {index} has work and has made no progress for {ticks_max} seconds"
                    ),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::pulse::Pulse;

    #[test]
    fn only_a_worker_that_works_without_progress_is_counted() {
        let (pulse, mut observed) = (Pulse::default(), ObservedPulse::default());
        assert_eq!(
            observed.ticks_without_progress(pulse.count_if_working()),
            0,
            "not started"
        );
        pulse.wake();
        assert_eq!(
            observed.ticks_without_progress(pulse.count_if_working()),
            0,
            "the first look at this work"
        );
        assert_eq!(observed.ticks_without_progress(pulse.count_if_working()), 1);
        assert_eq!(observed.ticks_without_progress(pulse.count_if_working()), 2);
        pulse.beat();
        assert_eq!(
            observed.ticks_without_progress(pulse.count_if_working()),
            0,
            "progress without sleep"
        );
        assert_eq!(observed.ticks_without_progress(pulse.count_if_working()), 1);
        pulse.sleep();
        pulse.wake();
        assert_eq!(
            observed.ticks_without_progress(pulse.count_if_working()),
            0,
            "slept between two checks"
        );
        pulse.sleep();
        for _ in 0..10 {
            assert_eq!(
                observed.ticks_without_progress(pulse.count_if_working()),
                0,
                "asleep"
            );
        }
    }
}
