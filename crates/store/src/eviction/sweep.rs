//! The sweep: walking one segment to its end, copying the items to keep and releasing the others.
//!
//! It proceeds in slices, a few records at a time, so that the write that pays for it never waits for a whole
//! segment. A record is alive if a slot names it; a kept one is copied to the worker's own open segment and
//! published in place of the original, as by any write. Hashes are computed and buckets prefetched eight records
//! ahead.

use std::cell::{Cell, RefCell};

use super::choose::{Chooser, Goal, Reason};
use super::relocation::{Copied, Relocation};
use crate::append::Log;
use crate::counters::Count;
use crate::index::Hit;
use crate::item::{Record, piece_bytes};
use crate::lookup::Located;
use crate::memory::{Addr, SegmentId};
use crate::policy::{Candidate, Decision};
use crate::publish::WriteContext;
use crate::request::KeyHash;
use crate::segments::{Queue, View};
use crate::store::Store;

/// Records whose buckets are prefetched before the first is looked up.
const AHEAD: usize = 8;
/// At most seven eighths of the bytes swept for room are kept, so that eight sweeps free at least one segment.
const KEPT_EIGHTHS_MAX: usize = 7;
/// The bytes that one victim could have kept and did not are available to the next ones, up to this many segments:
/// otherwise the last pieces in a segment of a few large ones would be evicted however often they are used.
const KEPT_SEGMENTS_MAX: usize = 4;
/// A live piece of at least this many eighths of a segment is not copied: the segment moves in the queue instead.
const REQUEUE_EIGHTHS: usize = 6;
/// A record that others change while it is copied is retried this often; then the segment is left to a later sweep.
const TRIES_MAX: usize = 16;

/// A segment being swept.
pub(super) struct Sweep {
    id: SegmentId,
    reason: Reason,
    queue: Queue,
    order: u64,
    used: usize,
    cursor: usize,
}

impl Sweep {
    pub(super) fn new(view: &View, reason: Reason) -> Self {
        Sweep {
            id: view.id,
            reason,
            queue: view.queue,
            order: view.order,
            used: view.used,
            cursor: 0,
        }
    }

    /// Reads the next records and prefetches their buckets.
    fn fetch(&mut self, store: &Store) -> ([Option<Prefetched>; AHEAD], usize) {
        let mut waiting = [None; AHEAD];
        let mut count = 0;
        let start = store.arena().start(self.id);
        while let Some(entry) = waiting.get_mut(count)
            && self.cursor < self.used
        {
            let at = start.plus(self.cursor);
            let (bytes, hash, is_piece) = match store.record_at(at) {
                Some(Record::Piece { data_bytes, hash }) => {
                    (piece_bytes(data_bytes), Some(KeyHash(hash)), true)
                }
                Some(Record::Item) => {
                    let item = store.locate(at);
                    (
                        store.record_bytes(&item),
                        Some(store.hash(store.key_of(&item))),
                        false,
                    )
                }
                None => {
                    strict_assert!(false, "a segment has bytes that are no record");
                    (self.used - self.cursor, None, false)
                }
            };
            self.cursor += bytes;
            if let Some(hash) = hash {
                store.index.prefetch(hash);
                *entry = Some(Prefetched { at, hash, is_piece });
                count += 1;
            }
        }
        (waiting, count)
    }

    fn aged_log(&self) -> Log {
        match self.queue {
            Queue::Small => Log::AgedSmall,
            Queue::Main => Log::AgedMain,
        }
    }
}

/// A record that was prefetched and waits for its decision.
#[derive(Clone, Copy)]
struct Prefetched {
    at: Addr,
    hash: KeyHash,
    is_piece: bool,
}

/// The result of handling a record.
#[derive(PartialEq, Eq)]
pub(super) enum Handled {
    /// Continue.
    Continue,
    /// A record to keep cannot be moved now, usually for lack of a segment: leave the segment as it is.
    NoRoom,
    /// One live piece fills the segment: the segment moved in the queue instead.
    Requeued,
}

/// A worker's sweeps: the current one, and the bytes that sweeps may still keep.
#[derive(Default)]
pub(crate) struct Sweeper {
    chooser: Chooser,
    current: RefCell<Option<Sweep>>,
    /// Bytes written for the records of the last slice that were kept.
    written: Cell<usize>,
    /// Bytes that its sweeps for room may still keep.
    keep_budget: Cell<usize>,
}

impl Sweeper {
    /// Sweeps about `bytes` bytes towards `goal`, while there is need; false if there was nothing to sweep.
    pub(crate) fn run(&self, context: WriteContext<'_>, bytes: usize, goal: Goal) -> bool {
        // Taken out while it runs: the functions it calls must not sweep again.
        let Ok(mut held) = self.current.try_borrow_mut() else {
            return false;
        };
        let store = context.accounts.store();
        let mut left = bytes;
        let mut is_progress = false;
        while left > 0 {
            let is_needed = || match goal {
                Goal::FreeSegments => store.reserve_is_low() || store.evicts_with_writes(),
                Goal::Dead => true,
                Goal::Sparse => store.should_sweep_sparse(),
            };
            let next = || {
                let choice = is_needed().then(|| self.chooser.choose(store, context.now, goal));
                choice
                    .flatten()
                    .map(|(view, reason)| Sweep::new(&view, reason))
            };
            let Some(mut sweep) = held.take().or_else(next) else {
                break;
            };
            if sweep.cursor == 0 && sweep.reason == Reason::Evict {
                self.allow(sweep.used, store);
                context.accounts.fit_ghost();
            }
            is_progress = true;
            match self.slice(context, &mut sweep, &mut left) {
                Handled::Continue if sweep.cursor < sweep.used => *held = Some(sweep),
                Handled::Continue => store.segments.finish_sweep(sweep.id),
                Handled::NoRoom => {
                    store.segments.stop_sweep(sweep.id);
                    return false;
                }
                Handled::Requeued => {}
            }
        }
        is_progress
    }

    /// Whether a segment is partly swept.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// Returns an unfinished segment so that others can sweep it.
    pub(crate) fn put_back(&mut self, store: &Store) {
        if let Some(sweep) = self.current.get_mut().take() {
            store.segments.stop_sweep(sweep.id);
        }
    }

    /// Handles records until `left` is used up or the segment ends. A record costs its own bytes or those written
    /// for it, whichever is more: for a kept piece its head is rewritten, with an address for each piece of the
    /// value.
    pub(super) fn slice(
        &self,
        context: WriteContext<'_>,
        sweep: &mut Sweep,
        left: &mut usize,
    ) -> Handled {
        let store = context.accounts.store();
        while *left > 0 && sweep.cursor < sweep.used {
            let start = sweep.cursor;
            let (waiting, count) = sweep.fetch(store);
            self.written.set(0);
            for (index, record) in waiting.iter().take(count).flatten().enumerate() {
                let (sweeper, hash) = (self, record.hash);
                let handled = Handling {
                    sweeper,
                    context,
                    sweep,
                    hash,
                }
                .record(record);
                if handled != Handled::Continue {
                    return handled;
                }
                // The records after it are prefetched again when they are next.
                if self.written.get() >= *left
                    && let Some(Some(next)) = waiting.get(index + 1)
                {
                    sweep.cursor = store.arena().offset_of(next.at);
                    break;
                }
            }
            *left = left.saturating_sub((sweep.cursor - start).max(self.written.get()));
        }
        Handled::Continue
    }

    /// The bytes that a new victim of `used` bytes allows to keep.
    fn allow(&self, used: usize, store: &Store) {
        let most = store.arena().segment_bytes() * KEPT_SEGMENTS_MAX;
        let more = self.keep_budget.get() + used * KEPT_EIGHTHS_MAX / 8;
        self.keep_budget.set(more.min(most));
    }
}

/// Handles one record of a segment that is swept: keeps or releases it.
struct Handling<'a> {
    sweeper: &'a Sweeper,
    context: WriteContext<'a>,
    sweep: &'a Sweep,
    hash: KeyHash,
}

impl Handling<'_> {
    fn store(&self) -> &Store {
        self.context.accounts.store()
    }

    fn record(&self, record: &Prefetched) -> Handled {
        if record.is_piece {
            self.piece(record.at)
        } else {
            self.item(record.at)
        }
    }

    /// An item is finished only when no slot names it: one that was flushed while it was copied is still named.
    fn item(&self, at: Addr) -> Handled {
        for _ in 0..TRIES_MAX {
            let Some(hit) = self.store().index.find(self.hash, |there| there == at) else {
                return Handled::Continue;
            };
            let handled = self.handle_item(at, &hit);
            if handled != Handled::Continue {
                return handled;
            }
        }
        Handled::NoRoom
    }

    fn handle_item(&self, at: Addr, hit: &Hit<'_>) -> Handled {
        let item = self.store().locate(at);
        if !self.store().is_alive(&item, self.context.now) {
            self.remove(&item, None);
            return Handled::Continue;
        }
        let bytes = self.store().record_bytes(&item);
        let frequency = hit.entry.frequency();
        let (log, frequency) = match self.decision(&item, frequency, bytes) {
            Decision::Evict { remember } => {
                self.remove(&item, Some(remember));
                return Handled::Continue;
            }
            Decision::Promote { frequency } => (Log::Main, frequency),
            Decision::Stay { frequency } => (self.sweep.aged_log(), frequency),
        };
        let copied = self.relocate(&item, log, frequency).item();
        self.finish_item(&item, copied, bytes)
    }

    /// A piece is handled for its item: the first piece decides, the others follow it.
    fn piece(&self, at: Addr) -> Handled {
        // INVARIANT: a piece is finished only when no head names it. A head that was replaced meanwhile (by a
        // touch, for example) has a successor with the same pieces, so it is looked up again.
        for _ in 0..TRIES_MAX {
            let Some((hit, head)) = self.head_of(at) else {
                return Handled::Continue;
            };
            let handled = self.handle_piece(at, &hit, &head);
            if handled != Handled::Continue {
                return handled;
            }
        }
        Handled::NoRoom
    }

    fn handle_piece(&self, at: Addr, hit: &Hit<'_>, head: &Located) -> Handled {
        let (store, sweep) = (self.store(), self.sweep);
        if !store.is_alive(head, self.context.now) {
            self.remove(head, None);
            return Handled::Continue;
        }
        let bytes = piece_bytes(store.piece_data_bytes(at));
        let first = store.pieces_of(head).next().unwrap_or(at);
        let is_decided = first != at && store.segments.queue_and_order(first).1 > sweep.order;
        let frequency = hit.entry.frequency();
        let decision = if is_decided && self.may_keep(bytes) {
            match sweep.reason {
                Reason::Evict => Decision::Promote { frequency },
                _ => Decision::Stay { frequency },
            }
        } else {
            self.decision(head, frequency, bytes)
        };
        let (log, next_frequency) = match decision {
            Decision::Evict { remember } => {
                self.remove(head, Some(remember));
                return Handled::Continue;
            }
            Decision::Promote { frequency } => (Log::Main, frequency),
            Decision::Stay { frequency } => (sweep.aged_log(), frequency),
        };
        let next_frequency = if first == at {
            next_frequency
        } else {
            frequency
        };
        if bytes * 8 >= store.arena().segment_bytes() * REQUEUE_EIGHTHS
            && sweep.reason == Reason::Evict
        {
            hit.set_frequency(next_frequency);
            let queue = if log == Log::Main {
                Queue::Main
            } else {
                sweep.queue
            };
            store.segments.requeue(sweep.id, queue);
            self.spend(bytes);
            return Handled::Requeued;
        }
        let copied = self.relocate(head, log, next_frequency).piece(at);
        self.finish_item(head, copied, bytes)
    }

    fn relocate<'a>(&'a self, item: &'a Located, log: Log, frequency: u8) -> Relocation<'a> {
        Relocation {
            context: self.context,
            written: &self.sweeper.written,
            order: self.sweep.order,
            hash: self.hash,
            item,
            log,
            frequency,
        }
    }

    /// The chained item that a piece belongs to, if it is still part of one.
    fn head_of(&self, piece: Addr) -> Option<(Hit<'_>, Located)> {
        let store = self.store();
        let owns = |at| {
            let item = store.locate(at);
            item.header.is_chained && store.pieces_of(&item).any(|there| there == piece)
        };
        let hit = store.index.find(self.hash, owns)?;
        Some((hit, store.locate(hit.entry.item())))
    }

    fn decision(&self, item: &Located, frequency: u8, bytes: usize) -> Decision {
        if self.sweep.reason != Reason::Evict {
            return Decision::Stay { frequency };
        }
        let candidate = Candidate {
            queue: self.sweep.queue,
            frequency,
            bytes: Store::user_bytes(item),
            mean_bytes: self.context.accounts.newcomer_bytes(),
        };
        match self.store().policy.decide(&candidate) {
            evict @ Decision::Evict { .. } => evict,
            keep if self.may_keep(bytes) => keep,
            _ => Decision::Evict { remember: true },
        }
    }

    fn may_keep(&self, bytes: usize) -> bool {
        self.sweep.reason != Reason::Evict || bytes <= self.sweeper.keep_budget.get()
    }

    fn spend(&self, bytes: usize) {
        if self.sweep.reason == Reason::Evict {
            let keep_budget = &self.sweeper.keep_budget;
            keep_budget.set(keep_budget.get().saturating_sub(bytes));
        }
    }

    fn finish_item(&self, item: &Located, copied: Copied, bytes: usize) -> Handled {
        match copied {
            Copied::Done => {
                self.spend(bytes);
                let accounts = self.context.accounts;
                accounts.count(Count::MovedItems, 1);
                accounts.count(Count::MovedBytes, bytes as i64);
            }
            Copied::Changed => {}
            Copied::NoRoom if self.store().config().evict => self.remove(item, Some(false)),
            Copied::NoRoom => return Handled::NoRoom,
        }
        Handled::Continue
    }

    /// Removes an item for good: evicted (`Some`, whether to remember it) or found dead.
    fn remove(&self, item: &Located, evicted: Option<bool>) {
        let accounts = self.context.accounts;
        if !accounts.remove_from_index(self.hash, item.at) {
            return;
        }
        match evicted {
            Some(remember) => {
                accounts.evicted(item, self.context.now);
                if remember {
                    self.store().ghost.remember(self.hash);
                }
            }
            None => accounts.expired(item),
        }
        accounts.release_item(item, &[]);
    }
}
