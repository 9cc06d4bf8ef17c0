//! Whether cached values may be served and fetched ones cached: by age, by delayed flushes, and by reports of other clients'
//! changes.

use std::time::{Duration, Instant};

use super::coverage::COHERENT_BOUND;
use super::entry::{NearEntry, UnusableExpiry, compute_expiry};
use super::watch::ReportLevel;
use super::watches::Watches;

/// What bounds the use of values in time.
#[derive(Debug)]
pub(super) struct Freshness {
    near_ttl: Option<Duration>,
    /// No fetched value is cached before this time: a delayed flush is pending.
    caching_paused_until: Option<Instant>,
    /// Set if other clients' changes are followed.
    watches: Option<Watches>,
}

/// A moment at which values are looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    now: Instant,
    /// Reports of other clients' changes are complete, or not awaited.
    may_serve: bool,
}

/// How long what a fetch brings may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchTerms {
    /// When the fetch began.
    pub(super) started_at: Moment,
    may_cache: bool,
    near_ttl: Option<Duration>,
}

impl Moment {
    /// The time of the look-up.
    pub(super) fn now(self) -> Instant {
        self.now
    }

    /// Whether a value may be served at that time.
    pub(super) fn is_fresh(self, entry: &NearEntry) -> bool {
        self.may_serve && entry.is_fresh(self.now)
    }
}

impl FetchTerms {
    /// When a value with so many seconds left may not be served any more. `Err`: it must not be kept for its TTL.
    pub(super) fn expiry(&self, ttl_s: Option<i64>) -> Result<Option<Instant>, UnusableExpiry> {
        compute_expiry(self.started_at.now, ttl_s, self.near_ttl)
    }

    /// Whether what the fetch brings may be cached at all.
    pub(super) fn may_cache(&self) -> bool {
        self.may_cache
    }
}

impl Freshness {
    /// Values are served for up to `near_ttl`, and with `is_coherent` only while other clients' changes are reported.
    pub(super) fn new(near_ttl: Option<Duration>, is_coherent: bool) -> Self {
        let watches = is_coherent.then(Watches::default);
        Self { near_ttl, caching_paused_until: None, watches }
    }

    /// The current time.
    pub(super) fn at(&self, now: Instant) -> Moment {
        Moment { now, may_serve: self.may_serve(now) }
    }

    /// What holds for a fetch that starts now.
    pub(super) fn terms_of_fetch(&self, started_at: Instant) -> FetchTerms {
        FetchTerms {
            started_at: self.at(started_at),
            may_cache: self.may_cache(started_at),
            near_ttl: self.near_ttl,
        }
    }

    /// Whether what is kept may be served: reports of other clients' changes are complete, or not awaited.
    pub(super) fn may_serve(&self, now: Instant) -> bool {
        self.watches.as_ref().is_none_or(|watches| watches.are_complete(now))
    }

    /// Whether what a call that starts now fetches may be cached.
    pub(super) fn may_cache(&self, now: Instant) -> bool {
        let mut pause_ends = self.caching_paused_until.iter();
        self.may_serve(now) && pause_ends.all(|&pause_end| now >= pause_end)
    }

    /// For how long a value may be served after it was replaced.
    pub(super) fn age_bound(&self) -> Option<Duration> {
        let watches = self.watches.as_ref();
        let is_coherent = watches.is_some_and(|watches| watches.coverage.is_confirmed());
        if is_coherent { Some(COHERENT_BOUND) } else { self.near_ttl }
    }

    /// Caches no fetched value until that time.
    pub(super) fn pause_caching(&mut self, until: Instant) {
        self.caching_paused_until = self.caching_paused_until.max(Some(until));
    }

    /// Expects reports of the servers in these slots.
    pub(super) fn expect_watches(&mut self, slots: &[usize]) {
        if let Some(watches) = &mut self.watches {
            watches.coverage.set_expected_slots(slots);
        }
    }

    /// Notes what the server in a slot, with its address, reports; returns what the user should know of that.
    pub(super) fn begin_watch(
        &mut self,
        slot_and_address: (usize, &str),
        report_level: ReportLevel,
    ) -> Option<String> {
        let watches = self.watches.as_mut()?;
        watches.begin(slot_and_address, report_level, self.near_ttl)
    }

    /// Notes that all changes of the server in `slot` that were made before `sent_at` were reported.
    pub(super) fn confirm_watch(&mut self, slot: usize, sent_at: Instant) {
        if let Some(watches) = &mut self.watches {
            watches.coverage.record_confirmation(slot, sent_at);
        }
    }

    /// Notes that the server in `slot` reports nothing until its watch begins again.
    pub(super) fn lose_watch(&mut self, slot: usize) {
        if let Some(watches) = &mut self.watches {
            watches.coverage.record_loss(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nothing_is_cached_until_the_last_of_several_delayed_flushes_and_all_may_be_served() {
        let now = Instant::now();
        let mut freshness = Freshness::new(None, false);
        assert!(freshness.may_cache(now));
        freshness.pause_caching(now + SECOND * 2);
        freshness.pause_caching(now + SECOND);
        assert!(!freshness.terms_of_fetch(now + SECOND).may_cache());
        assert!(freshness.may_serve(now) && freshness.may_cache(now + SECOND * 2));
    }

    #[test]
    fn a_lost_watch_forbids_to_serve_and_to_cache_until_it_confirms() {
        let now = Instant::now();
        let mut freshness = Freshness::new(Some(SECOND), true);
        freshness.expect_watches(&[0]);
        assert_eq!(freshness.begin_watch((0, "s"), ReportLevel::Changes), None);
        assert_eq!(freshness.age_bound(), Some(SECOND), "nothing is confirmed yet");
        freshness.confirm_watch(0, now);
        assert!(freshness.may_serve(now) && freshness.may_cache(now));
        assert_eq!(freshness.age_bound(), Some(COHERENT_BOUND));
        freshness.lose_watch(0);
        assert!(!freshness.may_serve(now) && !freshness.may_cache(now));
    }
}
