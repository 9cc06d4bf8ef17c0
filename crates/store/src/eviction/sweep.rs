//! The sweep: walking one segment to its end, copying the items to keep and releasing the others.
//!
//! It proceeds in slices, a few records at a time, so that the write that causes it never waits for a whole segment. A
//! record is alive if a slot names it; a kept one is copied to the worker's own open segment and published in place of
//! the original, as by any write. Hashes are computed and buckets prefetched eight records ahead.

use std::cell::{Cell, RefCell};

use super::choose::{SweepGoal, SweepReason, VictimChooser};
use super::relocation::{CopyOutcome, Relocation};
use crate::counters::CounterId;
use crate::index::Hit;
use crate::item::{Record, piece_record_bytes};
use crate::lookup::LocatedItem;
use crate::memory::{Addr, SegmentId};
use crate::open_segments::SegmentKind;
use crate::policy::{Decision, EvictionCandidate};
use crate::publish::WriteContext;
use crate::request::KeyHash;
use crate::segments::{Queue, SegmentView};
use crate::store::Store;

/// Records whose buckets are prefetched before the first is looked up.
const RECORDS_AHEAD: usize = 8;
/// At most seven eighths of the bytes swept for room are kept, so that eight sweeps free at least one segment.
const KEPT_EIGHTHS_MAX: usize = 7;
/// The bytes that one victim could have kept and did not are available to the next ones, up to this many segments:
/// otherwise the last pieces in a segment of a few large ones would be evicted however often they are used.
const KEEP_BUDGET_SEGMENTS_MAX: usize = 4;
/// A live piece of at least this many eighths of a segment is not copied: the segment moves in the queue instead.
const REQUEUE_EIGHTHS: usize = 6;
/// A record that others change while it is copied is retried this often; then the segment is left to a later sweep.
const COPY_TRIES_MAX: usize = 16;

/// A segment being swept.
pub(super) struct Sweep {
    id: SegmentId,
    reason: SweepReason,
    queue: Queue,
    queue_position: u64,
    used_bytes: usize,
    cursor: usize,
}

impl Sweep {
    pub(super) fn new(view: &SegmentView, reason: SweepReason) -> Self {
        Sweep {
            id: view.id,
            reason,
            queue: view.queue,
            queue_position: view.queue_position,
            used_bytes: view.used_bytes,
            cursor: 0,
        }
    }

    /// Reads the next records and prefetches their buckets.
    fn prefetch_records(
        &mut self,
        store: &Store,
    ) -> ([Option<PrefetchedRecord>; RECORDS_AHEAD], usize) {
        let mut prefetched = [None; RECORDS_AHEAD];
        let mut record_count = 0;
        let start = store.arena().segment_start(self.id);
        while let Some(prefetched_slot) = prefetched.get_mut(record_count)
            && self.cursor < self.used_bytes
        {
            let addr = start.plus(self.cursor);
            let (record_bytes, hash, is_piece) = match store.record_at(addr) {
                Some(Record::Piece { data_bytes, hash }) => {
                    (piece_record_bytes(data_bytes), Some(KeyHash(hash)), true)
                }
                Some(Record::Item) => {
                    let item = store.locate(addr);
                    (store.record_bytes(&item), Some(store.hash(store.key_of(&item))), false)
                }
                None => {
                    strict_assert!(false, "a segment has bytes that are not a record");
                    (self.used_bytes - self.cursor, None, false)
                }
            };
            self.cursor += record_bytes;
            if let Some(hash) = hash {
                store.index.prefetch(hash);
                *prefetched_slot = Some(PrefetchedRecord { addr, hash, is_piece });
                record_count += 1;
            }
        }
        (prefetched, record_count)
    }

    fn segment_kind_for_survivors(&self) -> SegmentKind {
        match self.queue {
            Queue::Small => SegmentKind::SmallSurvivors,
            Queue::Main => SegmentKind::MainSurvivors,
        }
    }
}

/// A record that was prefetched and waits for its decision.
#[derive(Clone, Copy)]
struct PrefetchedRecord {
    addr: Addr,
    hash: KeyHash,
    is_piece: bool,
}

/// The result of handling a record.
#[derive(PartialEq, Eq)]
pub(super) enum RecordOutcome {
    /// The record was kept or released.
    Continue,
    /// A record to keep cannot be moved now, usually for lack of a segment: the segment is left as it is.
    NoRoom,
    /// One live piece fills the segment: the segment moved in the queue instead.
    Requeued,
}

/// A worker's sweeps: the current one, and the bytes that sweeps may still keep.
#[derive(Default)]
pub(crate) struct Sweeper {
    chooser: VictimChooser,
    current: RefCell<Option<Sweep>>,
    /// Bytes written for the records of the last slice that were kept.
    written_bytes: Cell<usize>,
    /// Bytes that its sweeps for room may still keep.
    keep_budget: Cell<usize>,
}

impl Sweeper {
    /// Sweeps about `bytes` bytes towards `goal`, while there is need; false if there was nothing to sweep.
    pub(crate) fn sweep(&self, context: WriteContext<'_>, bytes: usize, goal: SweepGoal) -> bool {
        // Taken out while it runs: the functions it calls must not sweep again.
        let Ok(mut current_sweep) = self.current.try_borrow_mut() else {
            return false;
        };
        let store = context.accounting.store();
        let mut bytes_left = bytes;
        let mut has_progressed = false;
        while bytes_left > 0 {
            let is_needed = || match goal {
                SweepGoal::FreeSegments => store.reserve_is_low() || store.evicts_with_writes(),
                SweepGoal::Dead | SweepGoal::Outdated => true,
                SweepGoal::Sparse => store.should_sweep_sparse(),
            };
            let start_next_sweep = || {
                let choice = is_needed().then(|| self.chooser.choose(store, context.now, goal));
                choice.flatten().map(|(view, reason)| Sweep::new(&view, reason))
            };
            let Some(mut sweep) = current_sweep.take().or_else(start_next_sweep) else {
                break;
            };
            if sweep.cursor == 0 && sweep.reason == SweepReason::Evict {
                self.grant_keep_budget(sweep.used_bytes, store);
                context.accounting.resize_ghost();
            }
            has_progressed = true;
            match self.sweep_slice(context, &mut sweep, &mut bytes_left) {
                RecordOutcome::Continue if sweep.cursor < sweep.used_bytes => {
                    *current_sweep = Some(sweep);
                }
                RecordOutcome::Continue => store.segments.end_sweep(sweep.id),
                RecordOutcome::NoRoom => {
                    store.segments.end_sweep(sweep.id);
                    return false;
                }
                RecordOutcome::Requeued => {}
            }
        }
        has_progressed
    }

    /// Whether a segment is partly swept.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// Returns an unfinished segment so that others can sweep it.
    pub(crate) fn release_unfinished(&mut self, store: &Store) {
        if let Some(sweep) = self.current.get_mut().take() {
            store.segments.end_sweep(sweep.id);
        }
    }

    /// Handles records until `bytes_left` is used up or the segment ends. A record costs its own bytes or those written
    /// for it, whichever is more: for a kept piece its head is rewritten, with an address for each piece of the
    /// value.
    pub(super) fn sweep_slice(
        &self,
        context: WriteContext<'_>,
        sweep: &mut Sweep,
        bytes_left: &mut usize,
    ) -> RecordOutcome {
        let store = context.accounting.store();
        while *bytes_left > 0 && sweep.cursor < sweep.used_bytes {
            let start = sweep.cursor;
            let (prefetched, record_count) = sweep.prefetch_records(store);
            self.written_bytes.set(0);
            for (index, record) in prefetched.iter().take(record_count).flatten().enumerate() {
                let (sweeper, hash) = (self, record.hash);
                let outcome = RecordHandler { sweeper, context, sweep, hash }.handle_record(record);
                if outcome != RecordOutcome::Continue {
                    return outcome;
                }
                // The records after it are prefetched again when they are next.
                if self.written_bytes.get() >= *bytes_left
                    && let Some(Some(next)) = prefetched.get(index + 1)
                {
                    sweep.cursor = store.arena().offset_of(next.addr);
                    break;
                }
            }
            *bytes_left =
                bytes_left.saturating_sub((sweep.cursor - start).max(self.written_bytes.get()));
        }
        RecordOutcome::Continue
    }

    /// Adds the bytes that a new victim of `victim_used_bytes` bytes allows to keep.
    fn grant_keep_budget(&self, victim_used_bytes: usize, store: &Store) {
        let budget_max = store.arena().segment_bytes() * KEEP_BUDGET_SEGMENTS_MAX;
        let raised_budget = self.keep_budget.get() + victim_used_bytes * KEPT_EIGHTHS_MAX / 8;
        self.keep_budget.set(raised_budget.min(budget_max));
    }
}

/// Handles one record of a segment that is swept: keeps or releases it.
struct RecordHandler<'a> {
    sweeper: &'a Sweeper,
    context: WriteContext<'a>,
    sweep: &'a Sweep,
    hash: KeyHash,
}

impl RecordHandler<'_> {
    fn store(&self) -> &Store {
        self.context.accounting.store()
    }

    fn handle_record(&self, record: &PrefetchedRecord) -> RecordOutcome {
        if record.is_piece { self.sweep_piece(record.addr) } else { self.sweep_item(record.addr) }
    }

    /// Handles an item until no slot names it: one that was flushed while it was copied is still named.
    fn sweep_item(&self, addr: Addr) -> RecordOutcome {
        for _ in 0..COPY_TRIES_MAX {
            let Some(hit) = self.store().index.find(self.hash, |slot_addr| slot_addr == addr)
            else {
                return RecordOutcome::Continue;
            };
            let outcome = self.handle_item(addr, &hit);
            if outcome != RecordOutcome::Continue {
                return outcome;
            }
        }
        RecordOutcome::NoRoom
    }

    fn handle_item(&self, addr: Addr, hit: &Hit<'_>) -> RecordOutcome {
        let item = self.store().locate(addr);
        if !self.store().is_alive(&item, self.context.now) {
            self.remove(&item, None);
            return RecordOutcome::Continue;
        }
        let bytes = self.store().record_bytes(&item);
        let frequency = hit.entry.frequency();
        let (segment_kind, next_frequency) = match self.decide_item(&item, frequency, bytes) {
            Decision::Evict { remember } => {
                self.remove(&item, Some(remember));
                return RecordOutcome::Continue;
            }
            Decision::Promote { frequency } => (SegmentKind::Main, frequency),
            Decision::Stay { frequency } => (self.sweep.segment_kind_for_survivors(), frequency),
        };
        let copy_outcome = self.new_relocation(&item, segment_kind, next_frequency).copy_item();
        self.finish_item(&item, copy_outcome, bytes)
    }

    /// Handles a piece for its item: the first piece decides, the others follow it.
    fn sweep_piece(&self, addr: Addr) -> RecordOutcome {
        // INVARIANT: a piece is finished only when no head names it. A head that was replaced meanwhile (by a
        // touch, for example) has a successor with the same pieces, so it is looked up again.
        for _ in 0..COPY_TRIES_MAX {
            let Some((hit, head)) = self.find_head(addr) else {
                return RecordOutcome::Continue;
            };
            let outcome = self.handle_piece(addr, &hit, &head);
            if outcome != RecordOutcome::Continue {
                return outcome;
            }
        }
        RecordOutcome::NoRoom
    }

    fn handle_piece(&self, addr: Addr, hit: &Hit<'_>, head: &LocatedItem) -> RecordOutcome {
        let (store, sweep) = (self.store(), self.sweep);
        if !store.is_alive(head, self.context.now) {
            self.remove(head, None);
            return RecordOutcome::Continue;
        }
        let bytes = piece_record_bytes(store.piece_data_bytes(addr));
        let first_piece = store.pieces_of(head).next().unwrap_or(addr);
        let is_value_decided = first_piece != addr
            && store.segments.queue_and_position(first_piece).1 > sweep.queue_position;
        let frequency = hit.entry.frequency();
        let decision = if is_value_decided && self.may_keep(bytes) {
            match sweep.reason {
                SweepReason::Evict => Decision::Promote { frequency },
                _ => Decision::Stay { frequency },
            }
        } else {
            self.decide_item(head, frequency, bytes)
        };
        let (segment_kind, decided_frequency) = match decision {
            Decision::Evict { remember } => {
                self.remove(head, Some(remember));
                return RecordOutcome::Continue;
            }
            Decision::Promote { frequency } => (SegmentKind::Main, frequency),
            Decision::Stay { frequency } => (sweep.segment_kind_for_survivors(), frequency),
        };
        let next_frequency = if first_piece == addr { decided_frequency } else { frequency };
        if bytes * 8 >= store.arena().segment_bytes() * REQUEUE_EIGHTHS
            && sweep.reason == SweepReason::Evict
        {
            hit.set_frequency(next_frequency);
            let queue = if segment_kind == SegmentKind::Main { Queue::Main } else { sweep.queue };
            store.segments.requeue(sweep.id, queue);
            self.spend_keep_budget(bytes);
            return RecordOutcome::Requeued;
        }
        let copy_outcome = self.new_relocation(head, segment_kind, next_frequency).copy_piece(addr);
        self.finish_item(head, copy_outcome, bytes)
    }

    fn new_relocation<'a>(
        &'a self,
        item: &'a LocatedItem,
        segment_kind: SegmentKind,
        frequency: u8,
    ) -> Relocation<'a> {
        Relocation {
            context: self.context,
            written_bytes: &self.sweeper.written_bytes,
            queue_position: self.sweep.queue_position,
            hash: self.hash,
            item,
            segment_kind,
            frequency,
        }
    }

    /// The chained item that a piece belongs to, if it is still part of one.
    fn find_head(&self, piece: Addr) -> Option<(Hit<'_>, LocatedItem)> {
        let store = self.store();
        let owns = |addr| {
            let item = store.locate(addr);
            item.header.is_chained && store.pieces_of(&item).any(|item_piece| item_piece == piece)
        };
        let hit = store.index.find(self.hash, owns)?;
        Some((hit, store.locate(hit.entry.item_addr())))
    }

    fn decide_item(&self, item: &LocatedItem, frequency: u8, bytes: usize) -> Decision {
        if self.sweep.reason != SweepReason::Evict {
            return Decision::Stay { frequency };
        }
        let candidate = EvictionCandidate {
            queue: self.sweep.queue,
            frequency,
            bytes: Store::user_bytes(item),
            mean_bytes: self.context.accounting.new_item_bytes_mean(),
        };
        match self.store().policy.decide(&candidate) {
            evict @ Decision::Evict { .. } => evict,
            kept if self.may_keep(bytes) => kept,
            _ => Decision::Evict { remember: true },
        }
    }

    fn may_keep(&self, bytes: usize) -> bool {
        self.sweep.reason != SweepReason::Evict || bytes <= self.sweeper.keep_budget.get()
    }

    fn spend_keep_budget(&self, bytes: usize) {
        if self.sweep.reason == SweepReason::Evict {
            let keep_budget = &self.sweeper.keep_budget;
            keep_budget.set(keep_budget.get().saturating_sub(bytes));
        }
    }

    fn finish_item(
        &self,
        item: &LocatedItem,
        copy_outcome: CopyOutcome,
        bytes: usize,
    ) -> RecordOutcome {
        match copy_outcome {
            CopyOutcome::Done => {
                self.spend_keep_budget(bytes);
                let accounting = self.context.accounting;
                accounting.count(CounterId::MovedItems, 1);
                accounting.count(CounterId::MovedBytes, bytes as i64);
            }
            CopyOutcome::Changed => {}
            CopyOutcome::NoRoom
                if self.store().config().evict && self.sweep.reason != SweepReason::Renew =>
            {
                self.remove(item, Some(false));
            }
            CopyOutcome::NoRoom => return RecordOutcome::NoRoom,
        }
        RecordOutcome::Continue
    }

    /// Removes an item for good: evicted (`Some`, whether to remember it) or found dead.
    fn remove(&self, item: &LocatedItem, remember_if_evicted: Option<bool>) {
        let accounting = self.context.accounting;
        if !accounting.remove_from_index(self.hash, item.addr) {
            return;
        }
        match remember_if_evicted {
            Some(remember) => {
                accounting.count_evicted(item, self.context.now);
                if remember {
                    self.store().ghost.remember(self.hash);
                }
            }
            None => accounting.count_expired(item),
        }
        accounting.release_item_except(item, &[]);
    }
}
