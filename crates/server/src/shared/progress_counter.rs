//! Whether a worker makes progress: its event loop counts, and the watchdog reads the count.

use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of a worker's event loop, and whether it works or sleeps. Its worker writes, the watchdog reads.
///
/// The count is odd while the worker works and even while it sleeps.
#[derive(Debug, Default)]
pub(crate) struct ProgressCounter(AtomicU64);

impl ProgressCounter {
    /// Records that the worker wakes up and has work.
    pub(crate) fn begin_work(&self) {
        self.set(self.count() | 1);
    }

    /// Records that the worker continues without having slept.
    pub(crate) fn count_iteration(&self) {
        self.set(self.count().wrapping_add(2) | 1);
    }

    /// Records that the worker is about to sleep.
    pub(crate) fn begin_sleep(&self) {
        self.set(self.count().wrapping_add(2) & !1);
    }

    /// The current count of a worker that works; `None` while it sleeps.
    pub(crate) fn count_if_working(&self) -> Option<u64> {
        Some(self.count()).filter(|count| count & 1 == 1)
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, count: u64) {
        // Relaxed: only the count is read, and a tick sooner or later does not matter.
        self.0.store(count, Ordering::Relaxed);
    }
}
