//! The sweep: walking one segment to its end, keeping what shall live and letting go of the rest.
//!
//! It proceeds in slices, a few records at a time, so that the write that pays for it waits for no whole segment.
//! A record is alive if a slot names it; what is kept is copied to the worker's own open segment and published
//! in the old one's place, as any write is. Hashes are computed and buckets fetched eight records ahead.

use super::{Aim, Reason, Standing, Verdict};
use crate::counters::Count;
use crate::index::Hit;
use crate::item::{Record, piece_bytes};
use crate::log::Log;
use crate::lookup::Located;
use crate::memory::{Addr, SegmentId};
use crate::request::{KeyHash, Seconds};
use crate::segments::{Queue, View};
use crate::{Store, Worker};

/// Records whose buckets are fetched before the first is looked up.
const AHEAD: usize = 8;
/// At most seven eighths of what is swept for room are kept, so that eight sweeps free one segment at worst.
const KEPT_EIGHTHS_MAX: usize = 7;
/// What one victim could have kept and did not, the next ones may, up to this many segments: else the last pieces in
/// a segment of a few large ones would go however often they are used.
const KEPT_SEGMENTS_MAX: usize = 4;
/// A living piece of at least this many eighths of a segment is not copied: the segment takes a new place.
const REQUEUE_EIGHTHS: usize = 6;
/// A record that others change while it is copied is treated so often; then the segment is left to a later sweep.
const LOOKS_MAX: usize = 16;

/// A segment being swept.
pub(crate) struct Sweep {
    id: SegmentId,
    reason: Reason,
    queue: Queue,
    pub(super) order: u64,
    used: usize,
    cursor: usize,
}

/// What became of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Copied {
    /// It stands in the old one's place.
    Done,
    /// The item was replaced or removed by others meanwhile.
    Overtaken,
    /// No segment for it.
    NoRoom,
}

impl Sweep {
    pub(crate) fn new(view: &View, reason: Reason) -> Self {
        Sweep {
            id: view.id,
            reason,
            queue: view.queue,
            order: view.order,
            used: view.used,
            cursor: 0,
        }
    }

    fn aged_log(&self) -> Log {
        match self.queue {
            Queue::Small => Log::AgedSmall,
            Queue::Main => Log::AgedMain,
        }
    }
}

/// A record that was fetched and waits for its verdict.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) at: Addr,
    pub(super) hash: KeyHash,
    is_piece: bool,
}

/// What handling a record came to.
#[derive(PartialEq, Eq)]
pub(super) enum Handled {
    /// Go on.
    On,
    /// What must be kept cannot be moved now, for want of room as a rule: leave the segment as it is.
    NoRoom,
    /// One piece fills the segment and lives: the segment moved in the queue instead.
    Requeued,
}

impl Worker {
    /// Sweeps about `bytes` bytes towards `aim`, while there is need; false if there was nothing to sweep.
    pub(crate) fn sweep_for(&self, bytes: usize, aim: Aim, now: Seconds) -> bool {
        // Taken out while it runs: what it calls may not sweep again.
        let Ok(mut held) = self.sweep.try_borrow_mut() else {
            return false;
        };
        let mut left = bytes;
        let mut is_progress = false;
        while left > 0 {
            let is_needed = || match aim {
                Aim::Room => self.is_behind() || self.follows_writes(),
                Aim::Dead => true,
                Aim::Sparse => self.wants_sparse(),
            };
            let next = || is_needed().then(|| self.choose(now, aim)).flatten();
            let Some(mut sweep) = held.take().or_else(next) else {
                break;
            };
            if sweep.cursor == 0 && sweep.reason == Reason::Evict {
                self.allow(sweep.used);
                self.fit_ghost();
            }
            is_progress = true;
            match self.slice(&mut sweep, &mut left, now) {
                Handled::On if sweep.cursor < sweep.used => *held = Some(sweep),
                Handled::On => self.store.segments.finish_sweep(sweep.id),
                Handled::NoRoom => {
                    self.store.segments.stop_sweep(sweep.id);
                    return false;
                }
                Handled::Requeued => {}
            }
        }
        is_progress
    }

    /// What a new victim of `used` bytes allows to keep.
    fn allow(&self, used: usize) {
        let most = self.store.arena().segment_bytes() * KEPT_SEGMENTS_MAX;
        let more = self.keepable.get() + used * KEPT_EIGHTHS_MAX / 8;
        self.keepable.set(more.min(most));
    }

    fn may_keep(&self, sweep: &Sweep, bytes: usize) -> bool {
        sweep.reason != Reason::Evict || bytes <= self.keepable.get()
    }

    fn spend(&self, sweep: &Sweep, bytes: usize) {
        if sweep.reason == Reason::Evict {
            self.keepable.set(self.keepable.get().saturating_sub(bytes));
        }
    }

    /// Gives an unfinished sweep back to the others.
    pub(crate) fn put_sweep_back(&mut self) {
        if let Some(sweep) = self.sweep.get_mut().take() {
            self.store.segments.stop_sweep(sweep.id);
        }
    }

    /// Handles records until `left` is used up or the segment ends. A record costs the bytes that it takes or those
    /// that are written for it, whatever is more: for a piece that is kept its head is written anew, with an address
    /// for each piece of the value.
    pub(super) fn slice(&self, sweep: &mut Sweep, left: &mut usize, now: Seconds) -> Handled {
        while *left > 0 && sweep.cursor < sweep.used {
            let start = sweep.cursor;
            let (waiting, count) = self.fetch(sweep);
            self.carried.set(0);
            for (place, record) in waiting.iter().take(count).flatten().enumerate() {
                let handled = if record.is_piece {
                    self.handle_piece(sweep, record, now)
                } else {
                    self.handle_item(sweep, record, now)
                };
                if handled != Handled::On {
                    return handled;
                }
                // Those behind it are fetched again when it is their turn.
                if self.carried.get() >= *left
                    && let Some(Some(next)) = waiting.get(place + 1)
                {
                    sweep.cursor = self.store.arena().offset_of(next.at);
                    break;
                }
            }
            *left = left.saturating_sub((sweep.cursor - start).max(self.carried.get()));
        }
        Handled::On
    }

    /// Counts bytes that were written for what a sweep keeps.
    pub(super) fn note_carried(&self, bytes: usize) {
        self.carried.set(self.carried.get() + bytes);
    }

    /// Reads the next records and asks for their buckets.
    fn fetch(&self, sweep: &mut Sweep) -> ([Option<Waiting>; AHEAD], usize) {
        let mut waiting = [None; AHEAD];
        let mut count = 0;
        let store = &*self.store;
        let start = store.arena().start(sweep.id);
        while let Some(place) = waiting.get_mut(count)
            && sweep.cursor < sweep.used
        {
            let at = start.plus(sweep.cursor);
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
                    (sweep.used - sweep.cursor, None, false)
                }
            };
            sweep.cursor += bytes;
            if let Some(hash) = hash {
                store.index.prefetch(hash);
                *place = Some(Waiting { at, hash, is_piece });
                count += 1;
            }
        }
        (waiting, count)
    }

    /// An item is done with only when no slot names it: one that a flush met while it was copied still stands.
    fn handle_item(&self, sweep: &mut Sweep, record: &Waiting, now: Seconds) -> Handled {
        for _ in 0..LOOKS_MAX {
            let Some(hit) = self.store.index.find(record.hash, |at| at == record.at) else {
                return Handled::On;
            };
            let handled = self.treat_item(sweep, record, &hit, now);
            if handled != Handled::On {
                return handled;
            }
        }
        Handled::NoRoom
    }

    fn treat_item(
        &self,
        sweep: &mut Sweep,
        record: &Waiting,
        hit: &Hit<'_>,
        now: Seconds,
    ) -> Handled {
        let item = self.store.locate(record.at);
        if !self.store.is_alive(&item, now) {
            self.remove(record.hash, &item, now, None);
            return Handled::On;
        }
        let bytes = self.store.record_bytes(&item);
        let frequency = hit.entry.frequency();
        let moved = match self.verdict(sweep, &item, frequency, bytes) {
            Verdict::Evict { remember } => {
                self.remove(record.hash, &item, now, Some(remember));
                return Handled::On;
            }
            Verdict::Promote { frequency } => {
                self.move_item(sweep, record.hash, &item, Log::Main, frequency, now)
            }
            Verdict::Stay { frequency } => {
                self.move_item(sweep, record.hash, &item, sweep.aged_log(), frequency, now)
            }
        };
        self.moved_or_gone(sweep, record.hash, &item, moved, bytes, now)
    }

    /// A piece is treated for its item: the first piece decides, the others follow it.
    fn handle_piece(&self, sweep: &mut Sweep, record: &Waiting, now: Seconds) -> Handled {
        // INVARIANT: a piece is done with only when no head names it. A head that was replaced meanwhile (touched,
        // say) has a successor with the same pieces, so it is looked for again.
        for _ in 0..LOOKS_MAX {
            let Some((hit, head)) = self.head_of(record) else {
                return Handled::On;
            };
            let handled = self.treat_piece(sweep, record, &hit, &head, now);
            if handled != Handled::On {
                return handled;
            }
        }
        Handled::NoRoom
    }

    fn treat_piece(
        &self,
        sweep: &mut Sweep,
        record: &Waiting,
        hit: &Hit<'_>,
        head: &Located,
        now: Seconds,
    ) -> Handled {
        let store = &*self.store;
        if !store.is_alive(head, now) {
            self.remove(record.hash, head, now, None);
            return Handled::On;
        }
        let bytes = piece_bytes(store.piece_data_bytes(record.at));
        let first = store.pieces_of(head).next().unwrap_or(record.at);
        let is_judged = first != record.at && store.segments.standing(first).1 > sweep.order;
        let frequency = hit.entry.frequency();
        let verdict = if is_judged && self.may_keep(sweep, bytes) {
            match sweep.reason {
                Reason::Evict => Verdict::Promote { frequency },
                _ => Verdict::Stay { frequency },
            }
        } else {
            self.verdict(sweep, head, frequency, bytes)
        };
        let (log, next_frequency) = match verdict {
            Verdict::Evict { remember } => {
                self.remove(record.hash, head, now, Some(remember));
                return Handled::On;
            }
            Verdict::Promote { frequency } => (Log::Main, frequency),
            Verdict::Stay { frequency } => (sweep.aged_log(), frequency),
        };
        let next_frequency = if first == record.at {
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
            self.spend(sweep, bytes);
            return Handled::Requeued;
        }
        let moved = self.move_piece(sweep, record, head, log, next_frequency, now);
        self.moved_or_gone(sweep, record.hash, head, moved, bytes, now)
    }

    /// The chained item that a piece belongs to, if it is still part of one.
    fn head_of(&self, record: &Waiting) -> Option<(Hit<'_>, Located)> {
        let store = &*self.store;
        let owns = |at| {
            let item = store.locate(at);
            item.header.is_chained && store.pieces_of(&item).any(|piece| piece == record.at)
        };
        let hit = store.index.find(record.hash, owns)?;
        Some((hit, store.locate(hit.entry.item())))
    }

    fn verdict(&self, sweep: &Sweep, item: &Located, frequency: u8, bytes: usize) -> Verdict {
        if sweep.reason != Reason::Evict {
            return Verdict::Stay { frequency };
        }
        let standing = Standing {
            queue: sweep.queue,
            frequency,
            bytes: Store::user_bytes(item),
            mean_bytes: self.newcomer_bytes(),
        };
        match self.store.policy.judge(&standing) {
            evict @ Verdict::Evict { .. } => evict,
            keep if self.may_keep(sweep, bytes) => keep,
            _ => Verdict::Evict { remember: true },
        }
    }

    fn moved_or_gone(
        &self,
        sweep: &mut Sweep,
        hash: KeyHash,
        item: &Located,
        copied: Copied,
        bytes: usize,
        now: Seconds,
    ) -> Handled {
        match copied {
            Copied::Done => {
                self.spend(sweep, bytes);
                self.count(Count::MovedItems, 1);
                self.count(Count::MovedBytes, bytes as i64);
            }
            Copied::Overtaken => {}
            Copied::NoRoom if self.store.config().evict => {
                self.remove(hash, item, now, Some(false));
            }
            Copied::NoRoom => return Handled::NoRoom,
        }
        Handled::On
    }

    /// Takes an item out for good: evicted (`Some`, to be remembered or not) or found dead.
    fn remove(&self, hash: KeyHash, item: &Located, now: Seconds, evicted: Option<bool>) {
        if !self.unlink(hash, item.at) {
            return;
        }
        match evicted {
            Some(remember) => {
                self.evicted(item, now);
                if remember {
                    self.store.ghost.remember(hash);
                }
            }
            None => self.expired(item),
        }
        self.forget(item, &[]);
    }
}
