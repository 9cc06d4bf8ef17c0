//! The scope of one request: what it fetched is held until its end, so that it fetches no key twice.

use std::sync::{Mutex, MutexGuard, PoisonError};

use glasscache_strategy::scope::Scope;

use super::entry::{Entry, NearKey};

/// The scope of one request; its calls may come from several threads or tasks.
#[derive(Debug)]
pub struct RequestScope(Mutex<ScopeState>);

#[derive(Debug)]
pub(super) struct ScopeState {
    pub(super) scope: Scope<NearKey, Entry>,
    /// The item that the request is about, until what belongs to it was fetched.
    pub(super) page: Option<NearKey>,
}

impl ScopeState {
    /// The scope of a read that belongs to no request.
    pub(super) fn of_single_read() -> Self {
        Self {
            scope: Scope::default(),
            page: None,
        }
    }
}

impl RequestScope {
    pub(super) fn new(page: Option<NearKey>) -> Self {
        Self(Mutex::new(ScopeState {
            scope: Scope::default(),
            page,
        }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ScopeState> {
        // One map changes at a time: after a panic of the caller it is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
