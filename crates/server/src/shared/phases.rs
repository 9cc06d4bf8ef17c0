//! The phases of a server: it runs, pauses for a handover to its successor, and ends, replaced or stopped.
//!
//! At a pause each serving thread stops at the boundary of a command and waits here, the listener first, so that every
//! accepted connection has a worker. Either all continue, or the successor has everything
//! (docs/decisions/operation.md, 0104).

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::shared::handover::Handover;

/// The phase of a server, which decides what its threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// They serve.
    #[default]
    Running,
    /// They wait until it is decided whether the successor takes over.
    Pausing,
    /// The successor serves; they only send what is pending.
    Replaced,
    /// They complete begun requests and end.
    Stopping,
}

/// The phase, and the threads that have paused for each handover.
pub(crate) struct Phases<H = Handover> {
    /// A copy of the phase, which the loops of the threads read without the lock.
    phase_copy: AtomicU8,
    state: Mutex<PhaseState<H>>,
    changed: Condvar,
}

struct PhaseState<H> {
    phase: Phase,
    /// The last handover that began.
    handover: Option<Arc<H>>,
    /// The number of the current pause, or of the last one.
    pause_number: u64,
    is_listener_paused: bool,
    /// Workers that wait.
    paused_workers: usize,
    /// Why a worker could not hand over its connections.
    failure: Option<String>,
    /// Whether the successor is being informed that it owns everything; a stop waits for the outcome.
    is_committing: bool,
    is_stop_requested: bool,
}

impl<H> Default for Phases<H> {
    fn default() -> Self {
        let state = PhaseState {
            phase: Phase::Running,
            handover: None,
            pause_number: 0,
            is_listener_paused: false,
            paused_workers: 0,
            failure: None,
            is_committing: false,
            is_stop_requested: false,
        };
        Phases {
            phase_copy: AtomicU8::new(Phase::Running as u8),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }
}

impl<H> Phases<H> {
    /// The phase now.
    pub(crate) fn phase(&self) -> Phase {
        let copy = self.phase_copy.load(Ordering::Acquire);
        let phases = [Phase::Running, Phase::Pausing, Phase::Replaced, Phase::Stopping];
        phases.into_iter().find(|phase| *phase as u8 == copy).unwrap_or_default()
    }

    /// Whether requests are served.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        // Acquire pairs with the Release of `set_phase`: everything before the change is visible.
        self.phase_copy.load(Ordering::Acquire) == Phase::Running as u8
    }

    /// Whether the server ends, replaced or stopped.
    pub(crate) fn is_ending(&self) -> bool {
        self.phase_copy.load(Ordering::Acquire) >= Phase::Replaced as u8
    }

    /// Whether the successor has taken over.
    pub(crate) fn is_replaced(&self) -> bool {
        self.phase_copy.load(Ordering::Acquire) == Phase::Replaced as u8
    }

    /// Stops the server, unless it is replaced.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        if state.is_committing {
            state.is_stop_requested = true;
        } else if state.phase != Phase::Replaced {
            self.set_phase(&mut state, Phase::Stopping);
        }
    }

    /// Begins a pause for a handover; false if the server ends.
    pub(crate) fn begin_pause(&self, handover: Arc<H>) -> bool {
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return false;
        }
        state.handover = Some(handover);
        state.pause_number += 1;
        state.is_listener_paused = false;
        state.paused_workers = 0;
        state.failure = None;
        self.set_phase(&mut state, Phase::Pausing);
        true
    }

    /// Waits until `worker_count` workers wait, or for the maximum time.
    ///
    /// # Errors
    /// They did not pause in time, one of them failed, or the server was stopped.
    pub(crate) fn wait_for_workers(
        &self,
        worker_count: usize,
        timeout: Duration,
    ) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
            if state.phase != Phase::Pausing {
                return Err("the server is stopping".to_owned());
            }
            if state.paused_workers >= worker_count {
                return Ok(());
            }
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return Err("a worker did not pause in time".to_owned());
            }
            state = self.wait_for_change(state, time_left);
        }
    }

    /// Records that the listener accepts nothing more, and waits for the end of the pause.
    pub(crate) fn pause_listener(&self) {
        let mut state = self.lock();
        if state.phase != Phase::Pausing {
            return;
        }
        state.is_listener_paused = true;
        self.changed.notify_all();
        self.wait_for_end(state);
    }

    /// Waits until the listener has paused; returns the number of the pause and its handover, `None` if it has ended.
    pub(crate) fn wait_for_listener(&self) -> Option<(u64, Arc<H>)> {
        let mut state = self.lock();
        let pause_number = state.pause_number;
        while state.phase == Phase::Pausing
            && state.pause_number == pause_number
            && !state.is_listener_paused
        {
            state = self.wait_for_change(state, Duration::from_secs(1));
        }
        let is_pausing = state.phase == Phase::Pausing && state.pause_number == pause_number;
        let handover = state.handover.as_ref().filter(|_| is_pausing)?;
        Some((pause_number, Arc::clone(handover)))
    }

    /// The handover by which the server was replaced.
    pub(crate) fn last_handover(&self) -> Option<Arc<H>> {
        self.lock().handover.clone()
    }

    /// Records that a worker has handed over its connections, or that it could not, and waits for the end of this
    /// pause.
    pub(crate) fn pause_worker(&self, pause_number: u64, outcome: Result<(), String>) {
        let mut state = self.lock();
        if state.phase != Phase::Pausing || state.pause_number != pause_number {
            return;
        }
        match outcome {
            Ok(()) => state.paused_workers += 1,
            Err(reason) => state.failure = Some(reason),
        }
        self.changed.notify_all();
        self.wait_for_end(state);
    }

    fn wait_for_end(&self, mut state: MutexGuard<'_, PhaseState<H>>) {
        let pause_number = state.pause_number;
        while state.phase == Phase::Pausing && state.pause_number == pause_number {
            state = self.wait_for_change(state, Duration::from_secs(1));
        }
    }

    /// Makes all threads continue, because the successor was not able to take over.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Pausing {
            state.handover = None;
            self.set_phase(&mut state, Phase::Running);
        }
    }

    /// Calls `inform_successor`, which informs the successor that it owns everything, unless the server was stopped
    /// before. Returns whether the successor was informed.
    pub(crate) fn commit(&self, inform_successor: impl FnOnce() -> bool) -> bool {
        let mut state = self.lock();
        if state.phase != Phase::Pausing {
            return false;
        }
        state.is_committing = true;
        drop(state);
        let is_informed = inform_successor();
        let mut state = self.lock();
        state.is_committing = false;
        let phase = match (is_informed, std::mem::take(&mut state.is_stop_requested)) {
            (true, _) => Phase::Replaced,
            (false, true) => Phase::Stopping,
            (false, false) => Phase::Running,
        };
        if phase != Phase::Replaced {
            state.handover = None;
        }
        self.set_phase(&mut state, phase);
        is_informed
    }

    fn set_phase(&self, state: &mut PhaseState<H>, phase: Phase) {
        state.phase = phase;
        self.phase_copy.store(phase as u8, Ordering::Release);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, PhaseState<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_change<'s>(
        &self,
        state: MutexGuard<'s, PhaseState<H>>,
        timeout: Duration,
    ) -> MutexGuard<'s, PhaseState<H>> {
        let wait_result = self.changed.wait_timeout(state, timeout);
        wait_result.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(1);

    #[test]
    fn a_pause_ends_for_all_by_a_commit_or_a_resumption() {
        for is_informed in [true, false] {
            let phases = Phases::<()>::default();
            std::thread::scope(|scope| {
                assert!(phases.begin_pause(Arc::default()));
                scope.spawn(|| phases.pause_listener());
                for _ in 0..2 {
                    scope.spawn(|| {
                        let (pause_number, _) = phases.wait_for_listener().unwrap();
                        phases.pause_worker(pause_number, Ok(()));
                    });
                }
                phases.wait_for_workers(2, TIMEOUT).unwrap();
                assert_eq!(phases.commit(|| is_informed), is_informed);
            });
            assert_eq!(phases.is_replaced(), is_informed);
            assert_eq!(phases.is_running(), !is_informed);
            assert_eq!(phases.begin_pause(Arc::default()), !is_informed);
        }
    }

    #[test]
    fn a_worker_that_fails_ends_the_wait_of_the_others() {
        let phases = Phases::<()>::default();
        std::thread::scope(|scope| {
            assert!(phases.begin_pause(Arc::default()));
            scope.spawn(|| phases.pause_worker(1, Err("no".to_owned())));
            let outcome = phases.wait_for_workers(2, TIMEOUT);
            assert_eq!(outcome, Err("no".to_owned()));
            phases.resume();
        });
        assert!(phases.is_running());
    }

    #[test]
    fn a_worker_that_is_late_for_a_pause_does_not_count_for_the_next() {
        let phases = Phases::<()>::default();
        assert!(phases.begin_pause(Arc::default()));
        phases.resume();
        assert!(phases.begin_pause(Arc::default()));
        phases.pause_worker(1, Ok(()));
        assert!(phases.wait_for_workers(1, Duration::ZERO).is_err());
    }

    #[test]
    fn a_stop_wins_before_the_commit_and_is_not_lost_during_it() {
        let phases = Phases::<()>::default();
        assert!(phases.begin_pause(Arc::default()));
        phases.stop();
        assert!(!phases.commit(|| panic!("stopped before")));
        assert!(phases.is_ending() && !phases.is_replaced());
        for is_informed in [true, false] {
            let phases = Phases::<()>::default();
            assert!(phases.begin_pause(Arc::default()));
            phases.commit(|| {
                phases.stop();
                is_informed
            });
            assert!(phases.is_ending());
            assert_eq!(phases.is_replaced(), is_informed);
        }
    }
}
