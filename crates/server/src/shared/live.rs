//! What the server reports of its load: the curve, hot keys and prefixes as they were at the last second.

use std::sync::{Arc, Mutex};

use glasscache_store::LiveReport;

use crate::shared::lock::lock;

/// The last report; replaced as a whole, so that a reader holds the lock for an instant.
#[derive(Default)]
pub(crate) struct Live(Mutex<Arc<LiveReport>>);

impl Live {
    /// The last report.
    pub(crate) fn report(&self) -> Arc<LiveReport> {
        Arc::clone(&lock(&self.0))
    }

    /// Replaces the report.
    pub(crate) fn publish(&self, report: LiveReport) {
        let report = Arc::new(report);
        *lock(&self.0) = report;
    }
}
