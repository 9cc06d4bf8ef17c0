//! The gate behind which the threads of a server wait until it may serve.
//!
//! A server that replaces another starts its threads before it owns the memory, so that nothing can fail afterwards.

use std::sync::{Condvar, Mutex, PoisonError};

/// Closed at first; then it opens, or the start is abandoned.
#[derive(Debug, Default)]
pub(crate) struct StartGate {
    may_serve: Mutex<Option<bool>>,
    changed: Condvar,
}

impl StartGate {
    /// Waits until the gate opens; false if the start was abandoned.
    pub(crate) fn wait(&self) -> bool {
        let mut may_serve = self
            .may_serve
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(may_serve) = *may_serve {
                return may_serve;
            }
            let waited = self.changed.wait(may_serve);
            may_serve = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the threads serve.
    pub(crate) fn open(&self) {
        self.set(true);
    }

    /// Ends the threads, unless they serve.
    pub(crate) fn abandon(&self) {
        self.set(false);
    }

    fn set(&self, is_open: bool) {
        let mut may_serve = self
            .may_serve
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        may_serve.get_or_insert(is_open);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_gate_stays_open_and_an_abandoned_one_closed() {
        for may_serve in [true, false] {
            let gate = StartGate::default();
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| gate.wait());
                gate.set(may_serve);
                assert_eq!(thread.join().unwrap(), may_serve);
            });
            gate.set(!may_serve);
            assert_eq!(gate.wait(), may_serve);
        }
    }
}
