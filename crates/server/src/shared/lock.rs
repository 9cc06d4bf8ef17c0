//! The function by which the server's mutexes are locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, even if the last owner panicked: the data of these locks is consistent between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
