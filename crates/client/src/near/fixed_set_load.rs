//! When the fixed set is loaded, and which of its keys the servers do not have.

use std::time::{Duration, Instant};

use super::entry::NearKey;

/// The time from a load that failed to the next one.
const LOAD_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The time to the next load if only missing keys require one.
const MISSING_RETRY_DELAY: Duration = Duration::from_mins(1);

/// The shortest time between two loads.
const LOAD_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The loads of the fixed set: one at a time, by the read that finds it due.
#[derive(Debug)]
pub(super) struct FixedSetLoad {
    schedule: LoadSchedule,
    /// Whether some servers did not reply to the last load.
    has_failed: bool,
    missing_keys: Vec<NearKey>,
    has_warned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadSchedule {
    /// The next read loads it.
    Due,
    /// The first read from then on loads it.
    DueAt(Instant),
    /// A read is loading it; `is_outdated`: the set was cleared meanwhile, and what comes is not kept.
    UnderWay { is_outdated: bool },
    /// Nothing makes it due.
    Done,
}

impl FixedSetLoad {
    /// The load of a fixed set of `key_count` keys.
    pub(super) fn new(key_count: usize) -> Self {
        Self {
            schedule: if key_count == 0 { LoadSchedule::Done } else { LoadSchedule::Due },
            has_failed: false,
            missing_keys: Vec::new(),
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

    /// Whether the caller is to load the fixed set now; then others do not.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_due = self.is_due(now);
        if is_due {
            let is_outdated = false;
            self.schedule = LoadSchedule::UnderWay { is_outdated };
        }
        is_due
    }

    /// Ends a load. `missing_keys` are those that the servers do not have; `has_failed`: some servers did not reply.
    /// What was loaded is refreshed at half of its age, which `near_ttl` and the first of its expiries bound.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        (missing_keys, has_failed): (Vec<NearKey>, bool),
        near_ttl: Option<Duration>,
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
        let age_refresh_at = near_ttl.map(|near_ttl| now + near_ttl / 2);
        let ttl_refresh_at =
            first_expiry.map(|expiry| now + expiry.saturating_duration_since(now) / 2);
        let missing_retry_at = (!missing_keys.is_empty()).then(|| now + MISSING_RETRY_DELAY);
        let failure_retry_at = has_failed.then(|| now + LOAD_RETRY_DELAY);
        let due_times = [age_refresh_at, ttl_refresh_at, missing_retry_at, failure_retry_at];
        let next_load_at = due_times.into_iter().flatten().min();
        self.schedule = next_load_at.map_or(LoadSchedule::Done, |next_load_at| {
            LoadSchedule::DueAt(next_load_at.max(now + LOAD_INTERVAL_MIN))
        });
        self.has_failed = has_failed;
        if !has_failed {
            self.missing_keys = missing_keys;
        }
    }

    /// The fixed set is gone: the next read loads it, or the first one after the load that is under way.
    pub(super) fn mark_due(&mut self) {
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
             see near_stats(), and store them or save the strategy again",
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
        let mut load = FixedSetLoad::new(1);
        assert!(load.begin(now));
        load.mark_due();
        assert!(!load.begin(now), "one load at a time");
        load.finish(now, (Vec::new(), false), None, None);
        assert!(!load.is_loaded() && load.begin(now));
        load.finish(now, (Vec::new(), false), None, None);
        assert!(load.is_loaded() && !load.begin(now));
    }

    #[test]
    fn the_end_of_a_load_that_was_dropped_meanwhile_changes_nothing() {
        let mut load = FixedSetLoad::new(0);
        load.finish(Instant::now(), (Vec::new(), true), None, None);
        assert!(load.is_loaded() && !load.is_due(Instant::now() + LOAD_RETRY_DELAY * 2));
    }
}
