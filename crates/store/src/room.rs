//! Memory for a write: the sweeping that accompanies every write, and what to do when no segment is available.
//!
//! Nothing here waits: if the next segments become free once readers have passed, the write ends with
//! [`Shortage::Passing`] and is retried later.

use crate::append::{Appended, Draft, Log, Refill};
use crate::attempts::Attempts;
use crate::counters::Count;
use crate::eviction::{Aim, Sweeper};
use crate::memory::Addr;
use crate::participant::Participant;
use crate::publish::Site;
use crate::request::KeyHash;
use crate::segments::MOVER_FLOOR;
use crate::store::Store;

/// Bytes swept per byte written when one segment is missing from the reserve; more when more are missing.
const SWEEP_FACTOR: usize = 2;
/// Minimum number of bytes that a write counts for, because a sweep has a cost per item.
const WRITE_BYTES_MIN: usize = 64;
/// Maximum number of bytes swept after one write while the reserve lasts.
const SWEEP_BYTES_MAX: usize = 64 << 10;
/// Sweeps tried at once by a writer that finds no segment.
const SWEEPS_IN_NEED: usize = 48;

/// Why no segment is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The next segments are free when readers have passed.
    Passing,
    /// All are in use, and nothing may be evicted.
    Lasting,
}

/// A worker's memory for writes, at one second.
#[derive(Clone, Copy)]
pub(crate) struct Room<'w> {
    pub(crate) site: Site<'w>,
    pub(crate) sweeper: &'w Sweeper,
    pub(crate) participant: &'w Participant,
}

impl Room<'_> {
    #[inline]
    pub(crate) fn store(&self) -> &Store {
        self.site.accounts.store()
    }

    /// The share of keeping segments free that belongs to `bytes` written.
    #[inline]
    pub(crate) fn pace(&self, bytes: usize) {
        let store = self.store();
        let missing = store.reserve().saturating_sub(store.segments.spare());
        let due = bytes + WRITE_BYTES_MIN;
        let (due, aim) = if missing > 0 {
            (due * SWEEP_FACTOR * missing, Aim::Room)
        } else if store.evicts_with_writes() {
            (due, Aim::Room)
        } else if store.wants_sparse() {
            (due * SWEEP_FACTOR, Aim::Sparse)
        } else {
            return;
        };
        self.sweeper.run(self.site, due.min(SWEEP_BYTES_MAX), aim);
    }

    /// Writes an item, and frees a segment for it if needed.
    #[inline]
    pub(crate) fn append(&self, log: Log, draft: &Draft<'_>) -> Result<Appended, Shortage> {
        self.with_room(|refill| self.site.appender.append(log, draft, refill))
    }

    /// Writes the head of a piece of at most `wanted` bytes, and frees a segment for it if needed; see
    /// [`crate::append::Appender::append_piece`].
    pub(crate) fn append_piece(
        &self,
        log: Log,
        hash: KeyHash,
        wanted: usize,
    ) -> Result<(Addr, usize), Shortage> {
        self.with_room(|refill| self.site.appender.append_piece(log, hash, wanted, refill))
    }

    /// Tries `append`, and frees segments until it succeeds or no more can be freed.
    fn with_room<T>(&self, append: impl Fn(Refill) -> Option<T>) -> Result<T, Shortage> {
        let now = self.site.now;
        let refill = |floor| Refill {
            floor,
            base: now,
            order: None,
            now,
        };
        if let Some(done) = append(refill(MOVER_FLOOR)) {
            return Ok(done);
        }
        let store = self.store();
        for _ in 0..SWEEPS_IN_NEED {
            let bytes = store.arena().segment_bytes();
            let won = self.sweeper.run(self.site, bytes, Aim::Room);
            store.segments.settle_now();
            if let Some(done) = append(refill(MOVER_FLOOR)) {
                return Ok(done);
            }
            if !won {
                break;
            }
        }
        append(refill(0)).ok_or(if store.segments.spare() > 0 {
            Shortage::Passing
        } else {
            Shortage::Lasting
        })
    }

    /// Whether a write that found no segment should restart at once: it may if nothing is borrowed, because then
    /// the worker passes by itself, so that writers do not wait for each other forever. Everything that the write
    /// read before is invalid afterwards.
    pub(crate) fn may_retry(&self, shortage: Shortage, attempts: &mut Attempts) -> bool {
        if shortage == Shortage::Lasting {
            return false;
        }
        self.site.accounts.count(Count::EpochWaits, 1);
        let may = attempts.may_pass() && self.participant.pass_if_clean();
        if may {
            self.store().segments.settle_now();
        }
        may
    }
}
