//! One way to lock: the data of the server's mutexes is consistent between statements, so a panic elsewhere
//! corrupts nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, even if the last owner panicked: the data of these locks is consistent between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
