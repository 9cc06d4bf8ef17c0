//! The atomics, locks and the spin hint of this crate, which `cfg(loom)` and `cfg(tsan)` replace.
//!
//! The protocols (bucket word, epoch) import from here and nowhere else, so loom explores the shipped code and not
//! a model of it (docs/concurrency.md).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use plain::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// The guard of a lock that `try_lock` found free, also after a panic of its last holder; `None` while it is held.
///
/// The data of these locks is consistent between statements, and a lock that counted as held forever would stop all
/// growth of the index.
#[cfg(not(tsan))]
pub(crate) fn guard_if_free<G>(lock_result: Result<G, std::sync::TryLockError<G>>) -> Option<G> {
    match lock_result {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// As above, for the locks under `cfg(tsan)`, which know no poison.
#[cfg(tsan)]
pub(crate) fn guard_if_free<G>(lock_result: Result<G, ()>) -> Option<G> {
    lock_result.ok()
}

/// The locks that are not part of a protocol that loom explores.
///
/// The standard library is not compiled with `ThreadSanitizer`, which therefore cannot see the ordering of its
/// contended locks. Under `cfg(tsan)` they are `parking_lot`'s, compiled with it, with the same two methods.
pub(crate) mod plain {
    #[cfg(not(tsan))]
    pub(crate) use std::sync::{Mutex, MutexGuard};

    #[cfg(tsan)]
    pub(crate) use parking_lot::MutexGuard;

    /// `parking_lot`'s lock with the signature of the standard library's.
    #[cfg(tsan)]
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    #[cfg(tsan)]
    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        /// Never fails: this lock knows no poison.
        pub(crate) fn lock(
            &self,
        ) -> Result<MutexGuard<'_, T>, std::sync::PoisonError<MutexGuard<'_, T>>> {
            Ok(self.0.lock())
        }

        pub(crate) fn try_lock(&self) -> Result<MutexGuard<'_, T>, ()> {
            self.0.try_lock().ok_or(())
        }
    }
}

/// Orders a store and the load behind it where both are `SeqCst`, which loom takes for `AcqRel` unless a fence stands
/// between them. Elsewhere the accesses themselves do.
#[inline]
pub(crate) fn loom_seq_cst_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// How often a waiting thread spins before it yields: a holder works for well under a microsecond, so a longer wait
/// is for a thread that the kernel has suspended.
#[cfg(not(loom))]
const SPINS_BEFORE_YIELD: u32 = 128;

/// Waits briefly for the holder of a bucket; `round` counts the calls of one wait.
#[cfg(not(loom))]
#[expect(
    clippy::disallowed_methods,
    reason = "the holder of a lock is waited for where the lock is taken"
)]
pub(crate) fn spin_or_yield(round: &mut u32) {
    *round += 1;
    if *round < SPINS_BEFORE_YIELD {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Under loom a waiting thread must yield to the others at once.
#[cfg(loom)]
pub(crate) fn spin_or_yield(_round: &mut u32) {
    loom::thread::yield_now();
}
