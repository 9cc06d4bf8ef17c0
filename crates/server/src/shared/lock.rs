//! One way to lock: what the server's mutexes guard is whole between statements, so a panic elsewhere spoils nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever became of the last owner: what these locks guard is whole between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
