//! The watches of a client whose near cache follows the changes of others: what they cover, and what they do not report.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::coverage::Coverage;
use super::watch::ReportLevel;

/// The watches of all servers.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// Until when other clients' changes are known.
    pub(super) coverage: Coverage,
    /// The servers whose limited reports were warned of.
    warned_slots: HashSet<usize>,
}

impl Watches {
    /// Whether what is kept may be served now: the reports of all servers are complete.
    pub(super) fn are_complete(&self, now: Instant) -> bool {
        self.coverage.is_complete(now)
    }

    /// Notes what the server in `slot` reports; returns what the user should know of that, once a server.
    pub(super) fn begin(
        &mut self,
        (slot, server_address): (usize, &str),
        report_level: ReportLevel,
        near_ttl: Option<Duration>,
    ) -> Option<String> {
        self.coverage.record_begin(slot, report_level);
        if report_level == ReportLevel::Changes || !self.warned_slots.insert(slot) {
            return None;
        }
        let bound = match near_ttl {
            Some(near_ttl) => format!("up to near_ttl, {} s", near_ttl.as_secs_f64()),
            None => "until its TTL, because near_ttl is not set".to_owned(),
        };
        Some(match report_level {
            ReportLevel::StoresAndDeletes => format!(
                "coherent: {server_address} reports stores and deletes only, as memcached does; after incr, touch or flush_all of \
                 another client a value is served {bound}"
            ),
            _ => format!(
                "coherent: watching {server_address} failed: it refused `watch mutations deletions`; a value that another client \
                 changed is served {bound}; use glasscache or memcached 1.6.20 and fewer than 20 watchers"
            ),
        })
    }
}
