//! When keys of the fixed set are loaded or refreshed, and which of them the servers do not have.
//!
//! A refresh fetches the keys whose values have expired, or are about to, in one call, and at most once in half of
//! `near_ttl`. Between two refreshes a value that has expired, because its TTL is shorter, is read like any other key.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use glasscache_strategy::fixed_set::{REFRESH_AHEAD_DIVISOR, shortest_refresh_interval};

use super::entry::NearKey;

/// The time from a load that failed to the next one.
const LOAD_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The time to the next load of keys without a value that may be kept.
const ABSENT_RETRY_DELAY: Duration = Duration::from_mins(1);

/// The shortest time between two loads.
const LOAD_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The loads of the fixed set: one at a time, by the read that finds it due.
#[derive(Debug)]
pub(super) struct FixedSetLoad {
    schedule: LoadSchedule,
    near_ttl: Option<Duration>,
    /// When the last load began.
    began_at: Option<Instant>,
    /// Whether some servers did not reply to the last load.
    has_failed: bool,
    /// Keys that the servers did not have.
    missing_keys: Vec<NearKey>,
    /// These, and those whose values may not be kept, as with a TTL of a second: loaded again when `absent_retry_at`
    /// is reached.
    absent_keys: HashSet<NearKey>,
    absent_retry_at: Option<Instant>,
    has_warned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadSchedule {
    /// The next read loads it.
    Due,
    /// The first read from then on loads what has expired.
    DueAt(Instant),
    /// A read is loading it; `is_outdated`: the set was cleared meanwhile, and what comes is not kept.
    UnderWay { is_outdated: bool },
    /// Nothing makes it due.
    Done,
}

/// What a load brought.
#[derive(Debug, Default)]
pub(super) struct LoadOutcome<'k> {
    /// Its keys.
    pub(super) keys: &'k [NearKey],
    /// Those that the servers do not have.
    pub(super) missing_keys: Vec<NearKey>,
    /// Those of which the process has no value now, although the servers replied.
    pub(super) absent_keys: Vec<NearKey>,
    /// Some servers did not reply.
    pub(super) has_failed: bool,
}

impl FixedSetLoad {
    /// The load of a fixed set of `key_count` keys.
    pub(super) fn new(key_count: usize, near_ttl: Option<Duration>) -> Self {
        Self {
            schedule: if key_count == 0 { LoadSchedule::Done } else { LoadSchedule::Due },
            near_ttl,
            began_at: None,
            has_failed: false,
            missing_keys: Vec::new(),
            absent_keys: HashSet::new(),
            absent_retry_at: None,
            has_warned: false,
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        match self.schedule {
            LoadSchedule::Due => true,
            LoadSchedule::DueAt(due_at) => now >= due_at,
            LoadSchedule::UnderWay { .. } | LoadSchedule::Done => false,
        }
    }

    /// Whether what the servers have of the fixed set is loaded.
    pub(super) fn is_loaded(&self) -> bool {
        match self.schedule {
            LoadSchedule::Done => true,
            LoadSchedule::DueAt(_) => !self.has_failed,
            LoadSchedule::Due | LoadSchedule::UnderWay { .. } => false,
        }
    }

    /// Whether the caller is to load the keys that need it now ([`Self::needs_load`]); then others do not.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_due = self.is_due(now);
        if is_due {
            let is_outdated = false;
            self.schedule = LoadSchedule::UnderWay { is_outdated };
            self.began_at = Some(now);
            if self.absent_retry_at.is_some_and(|retry_at| now >= retry_at) {
                self.absent_keys.clear();
                self.absent_retry_at = None;
            }
        }
        is_due
    }

    /// Whether a load that begins now fetches a key; `expires_at` is that of its value, if it has one that ends.
    pub(super) fn needs_load(
        &self,
        key: &NearKey,
        has_value: bool,
        expires_at: Option<Instant>,
        now: Instant,
    ) -> bool {
        if has_value {
            expires_at.is_some_and(|expires_at| expires_at <= now + self.refresh_ahead())
        } else {
            !self.absent_keys.contains(key)
        }
    }

    fn refresh_ahead(&self) -> Duration {
        self.near_ttl.map_or(Duration::ZERO, |near_ttl| near_ttl / REFRESH_AHEAD_DIVISOR)
    }

    /// Ends a load; `first_expiry` is that of the values which the process has now.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        outcome: LoadOutcome<'_>,
        first_expiry: Option<Instant>,
    ) {
        match self.schedule {
            LoadSchedule::UnderWay { is_outdated: false } => {}
            LoadSchedule::UnderWay { is_outdated: true } => {
                self.schedule = LoadSchedule::Due;
                return;
            }
            // The strategy was disabled meanwhile.
            _ => return,
        }
        self.has_failed = outcome.has_failed;
        if !outcome.has_failed {
            let loaded_keys: HashSet<&NearKey> = outcome.keys.iter().collect();
            self.missing_keys.retain(|key| !loaded_keys.contains(key));
            self.missing_keys.extend(outcome.missing_keys);
        }
        self.absent_keys.extend(outcome.absent_keys);
        if !self.absent_keys.is_empty() {
            self.absent_retry_at.get_or_insert(now + ABSENT_RETRY_DELAY);
        }
        let failure_retry_at = outcome.has_failed.then(|| now + LOAD_RETRY_DELAY);
        let refresh_at = first_expiry.map(|expiry| self.refresh_at(now, expiry));
        let due_times = [refresh_at, self.absent_retry_at, failure_retry_at];
        let next_load_at = due_times.into_iter().flatten().min();
        self.schedule = next_load_at.map_or(LoadSchedule::Done, |next_load_at| {
            LoadSchedule::DueAt(next_load_at.max(now + LOAD_INTERVAL_MIN))
        });
    }

    /// When a value that expires then is refreshed: a little before, and not soon after the load before.
    fn refresh_at(&self, now: Instant, expiry: Instant) -> Instant {
        let interval = shortest_refresh_interval(self.near_ttl);
        let wanted_at = expiry.checked_sub(self.refresh_ahead()).unwrap_or(expiry);
        wanted_at.max(self.began_at.unwrap_or(now) + interval)
    }

    /// Ends a load for which no key needed to be fetched: it does not count as one.
    pub(super) fn skip(
        &mut self,
        now: Instant,
        previous_load: Option<Instant>,
        first_expiry: Option<Instant>,
    ) {
        self.began_at = previous_load;
        self.finish(
            now,
            LoadOutcome { has_failed: self.has_failed, ..LoadOutcome::default() },
            first_expiry,
        );
    }

    /// When the last load began.
    pub(super) fn began_at(&self) -> Option<Instant> {
        self.began_at
    }

    /// The fixed set is gone: the next read loads it, or the first one after the load that is under way.
    pub(super) fn mark_due(&mut self) {
        self.absent_keys.clear();
        self.absent_retry_at = None;
        self.schedule = match self.schedule {
            LoadSchedule::UnderWay { .. } => LoadSchedule::UnderWay { is_outdated: true },
            _ => LoadSchedule::Due,
        };
    }

    /// The keys that the servers did not have at the last load.
    pub(super) fn missing_keys(&self) -> &[NearKey] {
        &self.missing_keys
    }

    /// What the user should know of keys that are missing, once.
    pub(super) fn take_warning(
        &mut self,
        key_count: usize,
        name_of: impl Fn(&NearKey) -> String,
    ) -> Option<String> {
        let first_missing_key = self.missing_keys.first().filter(|_| !self.has_warned)?;
        self.has_warned = true;
        Some(format!(
            "loading the fixed set failed in part: the servers do not have {} of its {key_count} keys, the first is {:?}; \
             see near_stats(). Those that are stored with a TTL come back when they are stored; for others save the strategy again",
            self.missing_keys.len(),
            name_of(first_missing_key),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_was_cleared_during_its_load_is_loaded_again() {
        let now = Instant::now();
        let mut load = FixedSetLoad::new(1, None);
        assert!(load.begin(now));
        load.mark_due();
        assert!(!load.begin(now), "one load at a time");
        load.finish(now, LoadOutcome::default(), None);
        assert!(!load.is_loaded() && load.begin(now));
        load.finish(now, LoadOutcome::default(), None);
        assert!(load.is_loaded() && !load.begin(now));
    }

    #[test]
    fn the_end_of_a_load_that_was_dropped_meanwhile_changes_nothing() {
        let mut load = FixedSetLoad::new(0, None);
        load.finish(
            Instant::now(),
            LoadOutcome { has_failed: true, ..LoadOutcome::default() },
            None,
        );
        assert!(load.is_loaded() && !load.is_due(Instant::now() + LOAD_RETRY_DELAY * 2));
    }
}
