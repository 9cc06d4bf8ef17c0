//! A read of the asyncio client under a strategy, between the calls that it makes.

use std::time::Instant;

use glasscache_client::bulk::BulkReadWithTtls;
use glasscache_client::engine::Failures;
use glasscache_client::near::{Fetch, FetchedItems, NearRead};
use pyo3::prelude::*;

use super::pending_call::CallTiming;
use crate::bulk::FoundValues;

/// A read under way, between the calls that it makes.
#[pyclass(module = "glasscache._native")]
pub(crate) struct PendingNearRead {
    /// `None`: its values were taken.
    pub(super) read: Option<NearRead>,
    pub(super) keys: Vec<Py<PyAny>>,
    pub(super) found: Option<FoundValues>,
    pub(super) timing: CallTiming,
}

/// One call of a read, and what it has brought so far.
pub(super) struct NearFetch {
    pub(super) pending_read: Py<PendingNearRead>,
    pub(super) fetch: Fetch,
    pub(super) bulk_read: BulkReadWithTtls,
    pub(super) fetched: FetchedItems,
}

impl NearFetch {
    /// Passes what came to the read, which may name a further call.
    pub(super) fn finish_call(self, py: Python<'_>, failures: Failures) {
        if let Some(read) = &mut self.pending_read.borrow_mut(py).read {
            read.finish_fetch(&self.fetch, self.fetched, failures, Instant::now());
        }
    }
}
