//! A worker: one thread's handle on the store.
//!
//! It owns open segments, a place among the epochs, a block of counters, and at most one sweep in hand. After
//! each write it does its share of what keeps the store going (splits, evictions), in proportion to what it
//! wrote, so that no request pays for a whole segment.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::Store;
use crate::counters::{Block, Count};
use crate::eviction::{Aim, Nothing, Sweep};
use crate::index::Step;
use crate::log::Logs;
use crate::report::Evicted;
use crate::request::{NoRoomYet, Seconds};
use crate::segments::MOVER_FLOOR;

/// A worker tells the others of its new items once in so many.
const ITEMS_TOLD: i64 = 16;
/// Buckets split or merged at one such time: twice what that many items need.
const RESIZE_STEPS: usize = 5;
/// The mean size of newcomers is taken over about so many.
const NEWCOMERS: usize = 1024;
/// Bytes swept in one call of `maintain`: some twenty small items, for whoever asks meanwhile waits for them.
const MAINTAIN_BYTES: usize = 1 << 10;

/// One thread's handle on the store: its epoch, its open segments, its counters. Not `Sync`.
///
/// Items borrow from `&self`; `pass` and `go_offline` take `&mut self`, so nothing can be borrowed when the
/// worker tells the others that it has let go. Between two passes at most 128 KiB should be written: what a
/// worker itself freed can be reused only after it passed.
pub struct Worker {
    pub(crate) store: Arc<Store>,
    /// Its place among the epochs; `None` beyond `config.workers`.
    pub(crate) place: Option<usize>,
    pub(crate) is_online: Cell<bool>,
    /// No item was handed out since the last pass: then the worker may pass by itself in need.
    pub(crate) is_clean: Cell<bool>,
    pub(crate) logs: Logs,
    pub(crate) sweep: RefCell<Option<Sweep>>,
    /// What its last choice of a victim found nothing for.
    pub(crate) nothing: Cell<Option<Nothing>>,
    /// Bytes written for what the records fetched last kept.
    pub(crate) carried: Cell<usize>,
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
            nothing: Cell::new(None),
            carried: Cell::new(0),
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

    /// Carries out `write`, and while that finds no segment free lets `wait` pass the time and tries again; until `wait`,
    /// which is given the number of tries so far, returns false.
    ///
    /// The worker is offline while `wait` runs, so that other workers do not wait for it.
    ///
    /// ```
    /// use glasscache_store::{Config, Seconds, SetOptions, Store};
    ///
    /// let store = Store::new(Config::default())?;
    /// let (mut worker, hash, options) = (store.worker(), store.hash(b"key"), SetOptions::default());
    /// let outcome = worker.retry(
    ///     |worker| worker.try_set(b"key", hash, b"value", &options, Seconds(2)),
    ///     |tries| {
    ///         std::thread::yield_now();
    ///         tries < 1000
    ///     },
    /// );
    /// assert!(outcome.is_ok());
    /// # Ok::<(), glasscache_store::Error>(())
    /// ```
    pub fn retry<T>(
        &mut self,
        write: impl Fn(&Worker) -> Result<T, NoRoomYet>,
        mut wait: impl FnMut(u32) -> bool,
    ) -> Result<T, NoRoomYet> {
        let mut tries = 0;
        loop {
            match write(self) {
                Err(NoRoomYet) => tries += 1,
                done => return done,
            }
            self.go_offline();
            if !wait(tries) {
                return Err(NoRoomYet);
            }
            self.go_online();
        }
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
