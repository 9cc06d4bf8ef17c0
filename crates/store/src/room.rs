//! Room for a write: the sweeping that goes with every one, and what is done when no segment is to be had.

use crate::Worker;
use crate::attempts::Attempts;
use crate::counters::Count;
use crate::eviction::Aim;
use crate::log::{Draft, Log, Placed, Refill};
use crate::request::Seconds;
use crate::segments::MOVER_FLOOR;

/// Bytes swept per byte written when one segment is missing from the reserve; more when more are missing.
const SWEEP_FACTOR: usize = 2;
/// Bytes that every write counts for at least, for what a sweep costs per item.
const WRITE_BYTES_MIN: usize = 64;
/// The most that is swept after one write, in bytes, while the reserve lasts.
const SWEEP_BYTES_MAX: usize = 64 << 10;
/// Sweeps tried at once by a writer that finds no segment at all.
const SWEEPS_IN_NEED: usize = 48;
impl Worker {
    /// Whether fewer segments are spare than eviction should keep ahead.
    pub(crate) fn is_behind(&self) -> bool {
        self.store.segments.spare() < self.store.reserve()
    }

    /// Whether a write into a full store evicts at once although enough is spare. Who watches evictions expects
    /// one with the write that caused it, not when the segment it went to is full; at most the reserve again is
    /// freed ahead of need.
    #[inline]
    pub(crate) fn follows_writes(&self) -> bool {
        self.store.reports.is_on() && self.store.segments.spare() < 2 * self.store.reserve()
    }

    /// Whether nearly dead segments should be emptied, so that no untouched one is opened.
    #[inline]
    pub(crate) fn wants_sparse(&self) -> bool {
        self.store.segments.wants_sparse(self.store.reserve())
    }

    /// The share of keeping segments free that goes with `bytes` written.
    #[inline]
    pub(crate) fn pace(&self, bytes: usize, now: Seconds) {
        let missing = self
            .store
            .reserve()
            .saturating_sub(self.store.segments.spare());
        if missing > 0 {
            let due = (bytes + WRITE_BYTES_MIN) * SWEEP_FACTOR * missing;
            self.sweep_for(due.min(SWEEP_BYTES_MAX), Aim::Room, now);
        } else if self.follows_writes() {
            let due = bytes + WRITE_BYTES_MIN;
            self.sweep_for(due.min(SWEEP_BYTES_MAX), Aim::Room, now);
        } else if self.wants_sparse() {
            let due = (bytes + WRITE_BYTES_MIN) * SWEEP_FACTOR;
            self.sweep_for(due.min(SWEEP_BYTES_MAX), Aim::Sparse, now);
        }
    }

    /// Writes an item, and wins a segment for it if need be.
    pub(crate) fn place(
        &self,
        log: Log,
        draft: &Draft<'_>,
        now: Seconds,
    ) -> Result<Placed, Shortage> {
        self.with_room(now, |refill| {
            self.logs.place(&self.store, log, draft, now, refill)
        })
    }

    /// Tries `append`, and wins segments until it succeeds or nothing more can be won.
    pub(crate) fn with_room<T>(
        &self,
        now: Seconds,
        append: impl Fn(Refill) -> Option<T>,
    ) -> Result<T, Shortage> {
        let refill = |floor| Refill {
            floor,
            base: now,
            order: None,
        };
        if let Some(done) = append(refill(MOVER_FLOOR)) {
            return Ok(done);
        }
        for _ in 0..SWEEPS_IN_NEED {
            let won = self.sweep_for(self.store.arena().segment_bytes(), Aim::Room, now);
            self.store.segments.settle_now();
            if let Some(done) = append(refill(MOVER_FLOOR)) {
                return Ok(done);
            }
            if !won {
                break;
            }
        }
        append(refill(0)).ok_or(if self.store.segments.spare() > 0 {
            Shortage::Passing
        } else {
            Shortage::Lasting
        })
    }

    /// Whether a write that found no segment should start again at once: it may where nothing is borrowed, for then the
    /// worker passes by itself, so that writers that wait for each other do not wait for ever. All that the write knew
    /// is void afterwards.
    pub(crate) fn may_retry(&self, shortage: Shortage, attempts: &mut Attempts) -> bool {
        if shortage == Shortage::Lasting {
            return false;
        }
        self.count(Count::EpochWaits, 1);
        let may = self.is_clean.get() && attempts.may_pass();
        if may && let Some(place) = self.place {
            self.store.segments.epochs().pass(place);
            self.store.segments.settle_now();
        }
        may
    }
}

/// Why no segment was to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The next segments are free when readers have passed.
    Passing,
    /// All are in use, and nothing may be evicted.
    Lasting,
}
