//! The atomics and the spin hint of every hand-made protocol in this crate, swapped as one by `cfg(loom)`.
//!
//! The protocols (bucket word, epoch) import from here and nowhere else, so loom explores the shipped
//! code and not a model beside it (docs/concurrency.md).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// How often a waiter spins before it gives its time slice away: a holder works for well under a
/// microsecond, so whoever waits longer waits for a thread that was put to sleep by the kernel.
#[cfg(not(loom))]
const SPINS_BEFORE_YIELD: u32 = 128;

/// Waits a moment for a holder of a bucket; `round` counts the calls of one wait.
#[cfg(not(loom))]
pub(crate) fn relax(round: &mut u32) {
    *round += 1;
    if *round < SPINS_BEFORE_YIELD {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Under loom a waiter must hand over to the other threads at once.
#[cfg(loom)]
pub(crate) fn relax(_round: &mut u32) {
    loom::thread::yield_now();
}
