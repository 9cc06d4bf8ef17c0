//! A read of the asyncio client under a strategy, between the calls that it makes.

use std::task::Waker;
use std::time::Instant;

use glasscache_client::Client as Core;
use glasscache_client::bulk::BulkReadWithTtls;
use glasscache_client::engine::Failures;
use glasscache_client::near::{Fetch, FetchedItems, NearRead, NearStep};
use pyo3::prelude::*;

use super::delayed_call::seconds_left;
use super::future_waker::FutureWaker;
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

#[pymethods]
impl PendingNearRead {
    /// Note that the caller waits no more: what it was fetching, other reads of its request fetch.
    fn abandon(slf: &Bound<'_, Self>) {
        let read = slf.borrow_mut().read.take();
        drop(read); // which resolves futures, so nothing is borrowed
    }

    /// The seconds that are left.
    #[getter]
    fn seconds_left(&self) -> f64 {
        seconds_left(self.timing.deadline)
    }
}

/// What is next for a read.
pub(super) enum NextStep<'py> {
    Fetch(Fetch),
    /// Another read is fetching what it needs: this future is resolved when that has ended.
    Wait(Bound<'py, PyAny>),
    Finished,
}

impl PendingNearRead {
    /// What is next; a read that waits and whose time is over is finished.
    pub(super) fn next_step<'py>(slf: &Bound<'py, Self>, core: &Core) -> PyResult<NextStep<'py>> {
        loop {
            let now = Instant::now();
            let mut this = slf.borrow_mut();
            match this.read.as_mut().and_then(|read| read.step(now)) {
                None => return Ok(NextStep::Finished),
                Some(NearStep::Fetch(fetch)) => return Ok(NextStep::Fetch(fetch)),
                Some(NearStep::Wait) => {}
            }
            let is_over = now >= this.timing.deadline;
            if let Some(read) = this.read.as_mut().filter(|_| is_over) {
                core.time_out_near(read);
                continue;
            }
            drop(this);
            let (waker, future) = FutureWaker::new(slf.py())?;
            let waker = Waker::from(waker);
            let mut this = slf.borrow_mut();
            let wait_poll = this.read.as_mut().map(|read| read.poll_wait(&waker));
            if wait_poll.is_some_and(|wait_poll| wait_poll.is_pending()) {
                return Ok(NextStep::Wait(future));
            }
        }
    }
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
