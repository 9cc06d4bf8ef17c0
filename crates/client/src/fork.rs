//! Forks: a number that grows in each child, so that nobody uses a socket that is its parent's.
//!
//! By default each call asks the system for the process id. Whoever is told of forks, as Python
//! is, notes them here instead and saves each call a system call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static IS_TOLD: AtomicBool = AtomicBool::new(false);
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Promises that [`note`] is called in each child from now on.
pub fn promise() {
    IS_TOLD.store(true, Ordering::Relaxed);
}

/// Notes that this process is a child that has just been made.
pub fn note() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A number that is another one in a child. Relaxed: a fork leaves one thread, which noted it.
pub(crate) fn generation() -> u64 {
    if IS_TOLD.load(Ordering::Relaxed) {
        FORKS.load(Ordering::Relaxed)
    } else {
        u64::from(std::process::id()) << 32
    }
}
