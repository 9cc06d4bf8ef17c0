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
const TICK: Duration = Duration::from_secs(1);

/// What the watchdog observed of one worker.
#[derive(Debug, Default, Clone, Copy)]
struct Observed {
    count: Option<u64>,
    ticks: u32,
}

impl Observed {
    /// Records the pulse at this tick and returns for how many ticks it has not changed while working.
    fn tick(&mut self, now: Option<u64>) -> u32 {
        self.ticks = if now.is_some() && now == self.count {
            self.ticks + 1
        } else {
            0
        };
        self.count = now;
        self.ticks
    }
}

/// Checks the workers once a second until `ended` is closed.
pub(crate) fn run(shared: &Arc<Shared>, ended: &Receiver<()>) {
    let limit = shared.config.watchdog_ticks;
    let mut seen = vec![Observed::default(); shared.workers.len()];
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        for (index, (seen, (counters, _))) in seen.iter_mut().zip(&shared.workers).enumerate() {
            if seen.tick(counters.pulse.working()) >= limit {
                failure::end_process(
                    shared.config.failure_exit_code,
                    &format!(
                        "worker {index} has work and has made no progress for {limit} seconds"
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
        let (pulse, mut seen) = (Pulse::default(), Observed::default());
        assert_eq!(seen.tick(pulse.working()), 0, "not started");
        pulse.wake();
        assert_eq!(seen.tick(pulse.working()), 0, "the first look at this work");
        assert_eq!(seen.tick(pulse.working()), 1);
        assert_eq!(seen.tick(pulse.working()), 2);
        pulse.beat();
        assert_eq!(seen.tick(pulse.working()), 0, "progress without sleep");
        assert_eq!(seen.tick(pulse.working()), 1);
        pulse.sleep();
        pulse.wake();
        assert_eq!(seen.tick(pulse.working()), 0, "slept between two checks");
        pulse.sleep();
        for _ in 0..10 {
            assert_eq!(seen.tick(pulse.working()), 0, "asleep");
        }
    }
}
