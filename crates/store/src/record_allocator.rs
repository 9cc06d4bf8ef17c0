//! Memory for the records of a write: the sweeping that accompanies every write, and sweeps and retries when no segment
//! is available.
//!
//! Nothing here waits: if the next segments become free once readers have passed, the write ends with
//! [`Shortage::Temporary`] and is retried later.

use crate::counters::CounterId;
use crate::epoch_participant::Participant;
use crate::eviction::{SweepGoal, Sweeper};
use crate::memory::Addr;
use crate::open_segments::{AppendedRecord, NewRecord, SegmentKind, SegmentRequest};
use crate::publish::WriteContext;
use crate::request::KeyHash;
use crate::retry_limits::Attempts;
use crate::segments::SEGMENTS_FOR_EVICTION;
use crate::store::Store;

/// Bytes swept per byte written when one segment is missing from the reserve; more when more are missing.
const SWEEP_FACTOR: usize = 2;
/// Minimum number of bytes that a write counts for, because a sweep has a cost per item.
const WRITE_BYTES_MIN: usize = 64;
/// Maximum number of bytes swept after one write while the reserve lasts.
const SWEEP_BYTES_MAX: usize = 64 << 10;
/// Sweeps tried at once by a writer that finds no segment.
const SWEEPS_MAX: usize = 48;

/// Why no segment is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The next segments are free when readers have passed.
    Temporary,
    /// All are in use, and nothing may be evicted.
    Permanent,
}

/// A worker's memory for writes, at one second.
#[derive(Clone, Copy)]
pub(crate) struct RecordAllocator<'w> {
    pub(crate) context: WriteContext<'w>,
    pub(crate) sweeper: &'w Sweeper,
    pub(crate) participant: &'w Participant,
}

impl RecordAllocator<'_> {
    #[inline]
    pub(crate) fn store(&self) -> &Store {
        self.context.accounting.store()
    }

    /// Sweeps in proportion to the bytes written: the part of this write in keeping segments free.
    #[inline]
    pub(crate) fn sweep_proportionally(&self, written_bytes: usize) {
        let store = self.store();
        let missing_segments =
            store.reserve_segments().saturating_sub(store.segments.usage.spare());
        let due_bytes = written_bytes + WRITE_BYTES_MIN;
        let (due_bytes, goal) = if missing_segments > 0 {
            (due_bytes * SWEEP_FACTOR * missing_segments, SweepGoal::FreeSegments)
        } else if store.evicts_with_writes() {
            (due_bytes, SweepGoal::FreeSegments)
        } else if store.should_sweep_sparse() {
            (due_bytes * SWEEP_FACTOR, SweepGoal::Sparse)
        } else {
            return;
        };
        self.sweeper.sweep(self.context, due_bytes.min(SWEEP_BYTES_MAX), goal);
    }

    /// Sweeps about `bytes` bytes of segments from before flushes that should be forgotten, while there is room for what
    /// is kept; true if there were some.
    pub(crate) fn sweep_outdated(&self, bytes: usize) -> bool {
        let store = self.store();
        let Some(awaited_generation) = store.segments.flushes.awaited_generation() else {
            return false;
        };
        if !self.participant.begin_operation(self.context.now) || store.reserve_is_low() {
            return false;
        }
        if self.participant.pass_if_nothing_borrowed() {
            store.segments.reclaim_limbo_now();
        }
        // Also those for copies: what is moved must come into a younger segment.
        self.context.appender.seal_outdated(awaited_generation);
        self.sweeper.sweep(self.context, bytes, SweepGoal::Outdated)
    }

    /// Writes an item, and frees a segment for it if needed.
    #[inline]
    pub(crate) fn append(
        &self,
        segment_kind: SegmentKind,
        new_record: &NewRecord<'_>,
    ) -> Result<AppendedRecord, Shortage> {
        self.append_or_free(|request| {
            self.context.appender.append(segment_kind, new_record, request)
        })
    }

    /// Writes the head of a piece of at most `wanted_bytes` bytes, and frees a segment for it if needed; see
    /// [`crate::open_segments::Appender::append_piece`].
    pub(crate) fn append_piece(
        &self,
        segment_kind: SegmentKind,
        hash: KeyHash,
        wanted_bytes: usize,
    ) -> Result<(Addr, usize), Shortage> {
        self.append_or_free(|request| {
            self.context.appender.append_piece(segment_kind, hash, wanted_bytes, request)
        })
    }

    /// Tries `append`, and frees segments until it succeeds or no more can be freed.
    fn append_or_free<T>(
        &self,
        append: impl Fn(SegmentRequest) -> Option<T>,
    ) -> Result<T, Shortage> {
        let now = self.context.now;
        let new_request =
            |spare_min| SegmentRequest { spare_min, base_time: now, queue_position: None, now };
        if let Some(appended) = append(new_request(SEGMENTS_FOR_EVICTION)) {
            return Ok(appended);
        }
        let store = self.store();
        for _ in 0..SWEEPS_MAX {
            let segment_bytes = store.arena().segment_bytes();
            let has_swept =
                self.sweeper.sweep(self.context, segment_bytes, SweepGoal::FreeSegments);
            store.segments.reclaim_limbo_now();
            if let Some(appended) = append(new_request(SEGMENTS_FOR_EVICTION)) {
                return Ok(appended);
            }
            if !has_swept {
                break;
            }
        }
        append(new_request(0)).ok_or(if store.segments.usage.spare() > 0 {
            Shortage::Temporary
        } else {
            Shortage::Permanent
        })
    }

    /// Whether a write that found no segment should restart at once: it may if nothing is borrowed, because then
    /// the worker passes by itself, so that writers do not wait for each other forever. Everything that the write
    /// read before is invalid afterwards.
    pub(crate) fn prepare_retry(&self, shortage: Shortage, attempts: &mut Attempts) -> bool {
        if shortage == Shortage::Permanent {
            return false;
        }
        self.context.accounting.count(CounterId::EpochWaits, 1);
        let may_restart = attempts.count_pass() && self.participant.pass_if_nothing_borrowed();
        if may_restart {
            self.store().segments.reclaim_limbo_now();
        }
        may_restart
    }
}
