//! What a trace with TTLs, writes or deletes has beside its keys: the time, the TTL and the effect of each row.

use super::Effect;

/// A row without a TTL of its own.
pub(crate) const UNKNOWN_TTL: u64 = u64::MAX - 1;
/// A row whose object lives until it is evicted.
pub(crate) const NEVER_EXPIRES: u64 = u64::MAX;
/// A row that replaces no other object.
pub(crate) const NO_OBJECT: u32 = u32::MAX;

/// One entry for each row of a trace.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Microseconds, never falling.
    pub(crate) times: Vec<u64>,
    /// Microseconds to live, or one of the two marks.
    pub(crate) ttls: Vec<u64>,
    pub(crate) effects: Vec<Effect>,
    /// The object of another size that had the same key until then; empty where objects have no size.
    pub(crate) replaced_ids: Vec<u32>,
}

impl Timeline {
    /// Appends a row; `ttl_s` is `None` where the row has none, and 0 for an object without end.
    pub(crate) fn push(&mut self, time_us: u64, ttl_s: Option<u32>, effect: Effect) {
        let last = self.times.last().copied().unwrap_or(0);
        self.times.push(time_us.max(last));
        self.ttls.push(match ttl_s {
            None => UNKNOWN_TTL,
            Some(0) => NEVER_EXPIRES,
            Some(seconds) => u64::from(seconds) * 1_000_000,
        });
        self.effects.push(effect);
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Number of rows that have a TTL.
    pub fn rows_with_ttl(&self) -> u64 {
        let has_ttl = |ttl: &&u64| **ttl < UNKNOWN_TTL;
        self.ttls.iter().filter(has_ttl).count() as u64
    }

    /// Forgets all TTLs, for a trace without a clock.
    pub(crate) fn forget_ttls(&mut self) {
        self.ttls.fill(NEVER_EXPIRES);
    }

    /// Whether each row is a request of an object without end, so that the timeline says nothing.
    pub(crate) fn has_only_requests(&self) -> bool {
        self.effects.iter().all(|&effect| effect == Effect::Request) && self.rows_with_ttl() == 0
    }
}
