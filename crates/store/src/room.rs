//! Room for a write: the sweeping that goes with every one, and what is done when no segment is to be had.
//!
//! Nothing here waits: where the next segments are free once readers have passed, the write ends with
//! [`Shortage::Passing`] and is made again later.

use crate::append::{Draft, Log, Placed, Refill};
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
/// Bytes that every write counts for at least, for what a sweep costs per item.
const WRITE_BYTES_MIN: usize = 64;
/// The most that is swept after one write, in bytes, while the reserve lasts.
const SWEEP_BYTES_MAX: usize = 64 << 10;
/// Sweeps tried at once by a writer that finds no segment at all.
const SWEEPS_IN_NEED: usize = 48;

/// Why no segment was to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The next segments are free when readers have passed.
    Passing,
    /// All are in use, and nothing may be evicted.
    Lasting,
}

/// A worker's room for writes, at one second.
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

    /// The share of keeping segments free that goes with `bytes` written.
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

    /// Writes an item, and wins a segment for it if need be.
    #[inline]
    pub(crate) fn place(&self, log: Log, draft: &Draft<'_>) -> Result<Placed, Shortage> {
        self.with_room(|refill| self.site.appender.place(log, draft, refill))
    }

    /// Writes the head of a piece of at most `wanted` bytes, and wins a segment for it if need be; see
    /// [`crate::append::Appender::place_piece`].
    pub(crate) fn place_piece(
        &self,
        log: Log,
        hash: KeyHash,
        wanted: usize,
    ) -> Result<(Addr, usize), Shortage> {
        self.with_room(|refill| self.site.appender.place_piece(log, hash, wanted, refill))
    }

    /// Tries `append`, and wins segments until it succeeds or nothing more can be won.
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

    /// Whether a write that found no segment should start again at once: it may where nothing is borrowed, for then the
    /// worker passes by itself, so that writers that wait for each other do not wait for ever. All that the write knew
    /// is void afterwards.
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
