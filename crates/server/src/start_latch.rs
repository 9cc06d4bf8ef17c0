//! The latch at which the threads of a server wait until it may serve.
//!
//! A server that replaces another starts its threads before it owns the memory, so that nothing can fail afterwards.

use std::sync::{Condvar, Mutex, PoisonError};

/// The threads wait until it is released, or the start is abandoned; the first of the two counts.
#[derive(Debug, Default)]
pub(crate) struct StartLatch {
    /// Whether the threads may serve; `None` until that is decided.
    decision: Mutex<Option<bool>>,
    changed: Condvar,
}

impl StartLatch {
    /// Waits until the latch is released; false if the start was abandoned.
    pub(crate) fn wait(&self) -> bool {
        let mut decision = self.decision.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(may_serve) = *decision {
                return may_serve;
            }
            let wait_result = self.changed.wait(decision);
            decision = wait_result.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the threads serve.
    pub(crate) fn release(&self) {
        self.decide(true);
    }

    /// Makes the waiting threads end; does nothing if they serve already.
    pub(crate) fn abandon(&self) {
        self.decide(false);
    }

    fn decide(&self, may_serve: bool) {
        let mut decision = self.decision.lock().unwrap_or_else(PoisonError::into_inner);
        decision.get_or_insert(may_serve);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_latch_stays_released_and_an_abandoned_one_abandoned() {
        for may_serve in [true, false] {
            let latch = StartLatch::default();
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| latch.wait());
                latch.decide(may_serve);
                assert_eq!(thread.join().unwrap(), may_serve);
            });
            latch.decide(!may_serve);
            assert_eq!(latch.wait(), may_serve);
        }
    }
}
