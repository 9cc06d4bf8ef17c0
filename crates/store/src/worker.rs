//! A worker: one thread's handle on the store.
//!
//! It owns open segments, a place among the epochs, a block of counters, and at most one sweep in hand. After
//! each write it does its share of what keeps the store going (splits, evictions), in proportion to what it
//! wrote, so that no request pays for a whole segment.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::Store;
use crate::counters::{Block, Count};
use crate::eviction::{Aim, Sweep};
use crate::index::{Hit, Step};
use crate::log::{Draft, Log, Logs, Placed, Refill};
use crate::memory::{Line, LineId};
use crate::report::Evicted;
use crate::request::{KeyHash, Seconds};
use crate::segments::MOVER_FLOOR;

/// A worker tells the others of its new items once in so many.
const ITEMS_TOLD: i64 = 16;
/// Buckets split or merged at one such time: twice what that many items need.
const RESIZE_STEPS: usize = 5;
/// Bytes swept per byte written when one segment is missing from the reserve; more when more are missing.
const SWEEP_FACTOR: usize = 2;
/// Bytes that every write counts for at least, for what a sweep costs per item.
const WRITE_BYTES_MIN: usize = 64;
/// The most that is swept after one write, in bytes, while the reserve lasts.
const SWEEP_BYTES_MAX: usize = 64 << 10;
/// Sweeps tried at once by a writer that finds no segment at all.
const SWEEPS_IN_NEED: usize = 48;
/// Waits for other workers' epochs before a write is refused: with the sleeps below about a quarter of a second,
/// longer than the kernel keeps a thread from its processor on a crowded machine.
const EPOCH_WAITS: usize = 1000;
/// The first waits only give the time slice away; the later ones sleep, so that whoever is waited for can run.
const EPOCH_YIELDS: usize = 64;
/// How long one of the later waits sleeps.
const EPOCH_SLEEP: std::time::Duration = std::time::Duration::from_micros(250);
/// The mean size of newcomers is taken over about so many.
const NEWCOMERS: usize = 1024;
/// Bytes swept in one call of `maintain`: some twenty small items, for whoever asks meanwhile waits for them.
const MAINTAIN_BYTES: usize = 1 << 10;

/// A bucket's line that was asked for: where [`Worker::prefetch_item`] looks.
#[derive(Clone, Copy)]
pub struct Asked<'w>(Option<&'w Line>);

/// Where the item of a key probably is.
#[derive(Clone, Copy, Default)]
pub struct Guess<'w> {
    pub(crate) hit: Option<Hit<'w>>,
    /// The line to look at next; nearly every fourth item lies in an overflow line.
    further: Option<LineId>,
}

/// One thread's handle on the store: its epoch, its open segments, its counters. Not `Sync`.
///
/// Items borrow from `&self`; `pass` and `go_offline` take `&mut self`, so nothing can be borrowed when the
/// worker tells the others that it has let go. Between two passes at most 128 KiB should be written: what a
/// worker itself freed can be reused only after it passed.
pub struct Worker {
    pub(crate) store: Arc<Store>,
    /// Its place among the epochs; `None` beyond `config.workers`.
    place: Option<usize>,
    is_online: Cell<bool>,
    /// No item was handed out since the last pass: then the worker may pass by itself in need.
    is_clean: Cell<bool>,
    pub(crate) logs: Logs,
    pub(crate) sweep: RefCell<Option<Sweep>>,
    /// Bytes that its sweeps for room may still keep.
    pub(crate) keepable: Cell<usize>,
    /// Mean bytes of what came anew lately, in fractions of [`NEWCOMERS`].
    newcomer_bytes: Cell<usize>,
    untold_items: Cell<i64>,
    maintained: Cell<Seconds>,
}

impl Worker {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let place = store.segments.epochs().register();
        Worker {
            place,
            is_online: Cell::new(false),
            is_clean: Cell::new(true),
            logs: Logs::default(),
            sweep: RefCell::default(),
            keepable: Cell::new(0),
            newcomer_bytes: Cell::new(0),
            untold_items: Cell::new(0),
            maintained: Cell::new(Seconds(0)),
            store,
        }
    }

    /// The store it works on.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Must be called before the first lookup and after each sleep.
    pub fn go_online(&mut self) {
        self.enter();
    }

    /// Says that nothing is borrowed and the thread may sleep.
    pub fn go_offline(&mut self) {
        if let Some(place) = self.place {
            self.store.segments.epochs().offline(place);
        }
        self.is_online.set(false);
        self.is_clean.set(true);
    }

    /// Says that nothing is borrowed at this moment; call once a loop turn and between long slices.
    pub fn pass(&mut self) {
        if let Some(place) = self.place
            && self.is_online.get()
        {
            self.store.segments.epochs().pass(place);
        }
        self.is_clean.set(true);
    }

    /// Bounded background work (compaction, expiry, splits); true while more is waiting.
    pub fn maintain(&mut self, now: Seconds) -> bool {
        if !self.begin(now) {
            return false;
        }
        let is_new_second = self.maintained.replace(now) < now;
        if is_new_second {
            self.logs.seal(&self.store, Some(now));
            self.store.segments.settle_now();
        }
        let is_sweeping = self.sweep.borrow().is_some();
        let swept = if self.is_behind() {
            self.sweep_for(MAINTAIN_BYTES, Aim::Room, now)
        } else {
            (is_new_second || is_sweeping) && self.sweep_for(MAINTAIN_BYTES, Aim::Dead, now)
        };
        let resized = self.resize();
        let tidied = self.store.index.tidy(&*self.store) == Step::Done;
        swept || resized || tidied
    }

    /// Takes what `watch evictions` has not seen yet.
    pub fn take_evicted(&self, visit: &mut dyn FnMut(&Evicted)) {
        self.store.reports.take().iter().for_each(visit);
    }

    /// Asks for the bucket of a key, ahead of a lookup.
    #[inline]
    pub fn prefetch_bucket(&self, hash: KeyHash) -> Asked<'_> {
        if !self.is_online.get() {
            return Asked(None);
        }
        // What was asked for is a line of the index: borrowed until the next pass, as an item is.
        Asked(Some(self.lend().index.prefetch(hash)))
    }

    /// Asks for the item's first two lines ahead of a lookup; best after [`Worker::prefetch_bucket`] and a little
    /// other work. What it saw spares [`Worker::get_guessed`] the search.
    #[inline]
    pub fn prefetch_item<'w>(&'w self, hash: KeyHash, asked: Asked<'w>) -> Guess<'w> {
        let Some(line) = asked.0 else {
            return Guess::default();
        };
        match self.store.index.guess(line, hash) {
            Ok(hit) => self.ask_for(hit),
            Err(further) => Guess { hit: None, further },
        }
    }

    /// Looks where [`Worker::prefetch_item`] asked for another line of the index; best some work later.
    #[inline]
    pub fn prefetch_further<'w>(&'w self, hash: KeyHash, guess: Guess<'w>) -> Guess<'w> {
        let Some(line) = guess.further else {
            return guess;
        };
        let hit = self.store.index.guess_further(hash, line);
        hit.map_or(Guess::default(), |hit| self.ask_for(hit))
    }

    #[inline]
    fn ask_for<'w>(&'w self, hit: Hit<'w>) -> Guess<'w> {
        let item = hit.entry.item();
        let arena = self.store.arena();
        arena.prefetch(item);
        arena.prefetch(item.plus(crate::memory::lines::LINE_BYTES));
        Guess {
            hit: Some(hit),
            further: None,
        }
    }

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

    /// Every operation starts here; false for a worker that was never registered.
    #[inline]
    pub(crate) fn begin(&self, now: Seconds) -> bool {
        self.store.note_time(now);
        self.is_online.get() || self.enter()
    }

    #[cold]
    fn enter(&self) -> bool {
        if let Some(place) = self.place {
            self.store.segments.epochs().online(place);
            self.is_online.set(true);
        }
        self.is_online.get()
    }

    #[inline]
    pub(crate) fn count(&self, count: Count, amount: i64) {
        if let Some(block) = self.block() {
            block.add(count, amount);
        }
    }

    pub(crate) fn block(&self) -> Option<&Block> {
        self.store.blocks.get(self.place?)
    }

    /// Notes the size of an item whose key was not there.
    #[inline]
    pub(crate) fn note_newcomer(&self, bytes: usize) {
        let mean = self.newcomer_bytes.get();
        self.newcomer_bytes.set(mean - mean / NEWCOMERS + bytes);
    }

    /// Mean key and value bytes of the newcomers of late.
    pub(crate) fn newcomer_bytes(&self) -> usize {
        self.newcomer_bytes.get() / NEWCOMERS
    }

    /// Notes that items came or went, and now and then lets the index follow.
    #[inline]
    pub(crate) fn tell_items(&self, amount: i64) {
        let untold = self.untold_items.get() + amount;
        self.untold_items.set(untold);
        if untold.abs() >= ITEMS_TOLD {
            self.store
                .items
                .fetch_add(untold, std::sync::atomic::Ordering::Relaxed);
            self.untold_items.set(0);
            self.resize();
        }
    }

    /// A few splits or merges, if the number of items asks for them; true if more would be due.
    fn resize(&self) -> bool {
        let store = &*self.store;
        let items = store
            .items
            .load(std::sync::atomic::Ordering::Relaxed)
            .max(0) as usize;
        for _ in 0..RESIZE_STEPS {
            let step = if store.index.wants_split(items) {
                store.index.split(store, store)
            } else if store.index.wants_merge(items) {
                store.index.merge(store)
            } else {
                return false;
            };
            if step != Step::Done {
                return false;
            }
        }
        store.index.wants_split(items) || store.index.wants_merge(items)
    }

    /// Lets the ghost follow the number of items; once per victim, for only a store that evicts needs one.
    pub(crate) fn fit_ghost(&self) {
        let percent = self.store.policy.ghost_percent();
        if percent > 0 && self.store.config().evict {
            let items = self
                .store
                .items
                .load(std::sync::atomic::Ordering::Relaxed)
                .max(0) as usize;
            self.store
                .ghost
                .fit(items * percent / 100, &self.store.segments, MOVER_FLOOR);
        }
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
    pub(crate) fn place(&self, log: Log, draft: &Draft<'_>, now: Seconds) -> Option<Placed> {
        self.with_room(now, |refill| {
            self.logs.place(&self.store, log, draft, now, refill)
        })
    }

    /// Tries `append`, and wins segments until it succeeds or nothing more can be won.
    pub(crate) fn with_room<T>(
        &self,
        now: Seconds,
        append: impl Fn(Refill) -> Option<T>,
    ) -> Option<T> {
        let refill = |floor| Refill {
            floor,
            base: now,
            order: None,
        };
        if let Some(done) = append(refill(MOVER_FLOOR)) {
            return Some(done);
        }
        for _ in 0..SWEEPS_IN_NEED {
            let won = self.sweep_for(self.store.arena().segment_bytes(), Aim::Room, now);
            self.store.segments.settle_now();
            if let Some(done) = append(refill(MOVER_FLOOR)) {
                return Some(done);
            }
            if !won {
                break;
            }
        }
        if let Some(done) = append(refill(0)) {
            return Some(done);
        }
        self.wait_for_epochs(refill(0), append)
    }

    /// Waits inside a write, for a worker that handed items out: others pass soon, their loop turns are short.
    fn wait_for_epochs<T>(
        &self,
        refill: Refill,
        append: impl Fn(Refill) -> Option<T>,
    ) -> Option<T> {
        for round in 0..EPOCH_WAITS {
            let is_own_fault = self
                .place
                .is_none_or(|own| self.store.segments.waits_for(own));
            if self.store.segments.spare() == 0 || self.is_clean.get() || is_own_fault {
                break;
            }
            self.count(Count::EpochWaits, 1);
            wait(round);
            if let Some(done) = append(refill) {
                return Some(done);
            }
        }
        None
    }

    /// Whether a write that found no segment should start again. If nothing is borrowed the worker passes by
    /// itself, so that writers that wait for each other do not wait for ever; all it knew is void then.
    pub(crate) fn may_retry(&self, tries: &mut usize) -> bool {
        *tries += 1;
        let may = *tries < EPOCH_WAITS && self.is_clean.get() && self.store.segments.spare() > 0;
        if may && let Some(place) = self.place {
            self.store.segments.epochs().pass(place);
            self.store.segments.settle_now();
            self.count(Count::EpochWaits, 1);
            wait(*tries);
        } else {
            self.count(Count::Refused, 1);
        }
        may
    }

    /// An item is about to be handed out.
    #[inline]
    pub(crate) fn lend(&self) -> &Arc<Store> {
        self.is_clean.set(false);
        &self.store
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.put_sweep_back();
        self.logs.seal(&self.store, None);
        self.store.items.fetch_add(
            self.untold_items.get(),
            std::sync::atomic::Ordering::Relaxed,
        );
        if let Some(place) = self.place {
            self.store.segments.epochs().unregister(place);
        }
    }
}

/// Waits a moment for another worker; `round` counts the waits of one write.
fn wait(round: usize) {
    if round < EPOCH_YIELDS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(EPOCH_SLEEP);
    }
}
