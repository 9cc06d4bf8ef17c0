//! Whether the server is healthy and ready, for probes.
//!
//! Ticks are counted, not the clock: while the process is stopped no worker looks stuck.

use crate::shared::Shared;
use crate::shared::phases::Phase;

/// Time between two looks at the workers.
pub(crate) const TICK_MS: u64 = 250;
/// Ticks without progress from which a worker that has work is stuck: a second.
const STALLED_TICKS_MAX: u32 = 4;

/// What was observed of the workers.
#[derive(Debug, Default)]
pub(crate) struct WorkerHealth {
    /// The count of each worker that had work, and for how many ticks it has not changed.
    observed: Vec<(Option<u64>, u32)>,
}

impl WorkerHealth {
    /// Looks at each worker.
    pub(crate) fn tick(&mut self, shared: &Shared) {
        let workers = &shared.counters_and_wakers;
        self.record(
            workers.iter().map(|(counters, _)| counters.progress_counter.count_if_working()),
        );
    }

    fn record(&mut self, counts: impl ExactSizeIterator<Item = Option<u64>>) {
        self.observed.resize(counts.len(), (None, 0));
        for (observed, count) in self.observed.iter_mut().zip(counts) {
            let is_stalled = count.is_some() && count == observed.0;
            *observed = (count, if is_stalled { observed.1 + 1 } else { 0 });
        }
    }

    /// Why the server is not healthy.
    pub(crate) fn problem(&self) -> Option<String> {
        let stuck = self.observed.iter().position(|(_, ticks)| *ticks >= STALLED_TICKS_MAX)?;
        Some(format!("worker {stuck} has work and has made no progress for a second"))
    }

    /// Why the server is not ready.
    pub(crate) fn not_ready(&self, phase: Phase) -> Option<String> {
        let reason = match phase {
            Phase::Running => return self.problem(),
            Phase::Pausing => "another process is taking over",
            Phase::Replaced => "another process has taken over",
            Phase::Stopping => "the server is stopping",
        };
        Some(reason.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_works_without_progress_for_a_second_is_a_problem() {
        let mut health = WorkerHealth::default();
        for _ in 0..STALLED_TICKS_MAX {
            health.record([Some(1), None].into_iter());
            assert_eq!(health.problem(), None);
        }
        health.record([Some(1), None].into_iter());
        assert!(health.problem().unwrap().starts_with("worker 0 has work"));
        assert_eq!(health.not_ready(Phase::Running), health.problem());
        health.record([Some(3), None].into_iter());
        assert_eq!(health.problem(), None);
        assert_eq!(health.not_ready(Phase::Running), None);
        assert_eq!(health.not_ready(Phase::Stopping).unwrap(), "the server is stopping");
    }
}
