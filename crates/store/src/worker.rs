//! A worker: one thread's handle on the store.
//!
//! It owns its part in the epochs, its accounting, its open segments, and at most one sweep in progress. After each
//! write it does its share of maintaining the store (splits, evictions), in proportion to the bytes written, so
//! that no request pays for a whole segment. The decisions of each operation are in a module of its own.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::accounting::ItemAccounting;
use crate::chain::ValuePart;
use crate::epoch_participant::Participant;
use crate::error::Error;
use crate::eviction::{SweepGoal, Sweeper};
use crate::eviction_reports::EvictedItem;
use crate::index::ResizeOutcome;
use crate::item_view::Item;
use crate::open_segments::Appender;
use crate::publish::WriteContext;
use crate::record_allocator::RecordAllocator;
use crate::request::{
    ArithOptions, ArithOutcome, DeleteOptions, DeleteOutcome, GetOptions, KeyHash, Lease,
    NoRoomYet, Seconds, SetOptions, SetOutcome,
};
use crate::sampling::Operation;
use crate::set::{self, SetOperation};
use crate::store::Store;
use crate::write::WriteOperation;
use crate::{arith, delete, get_and_update};

/// Bytes swept in one call of `maintain`: about twenty small items, because requests wait for them.
const MAINTAIN_SWEEP_BYTES: usize = 1 << 10;

/// Bytes that one flush of a prefix sweeps at most.
const OUTDATED_SWEEP_BYTES_MAX: usize = 1 << 20;
/// And at least.
const OUTDATED_SWEEP_BYTES_MIN: usize = 16 << 10;

/// One thread's handle on the store: its epoch, its open segments, its counters. Not `Sync`.
///
/// Items borrow from `&self`; `pass` and `go_offline` take `&mut self`, so nothing can be borrowed when the worker
/// reports that it holds nothing. Between two passes at most 128 KiB should be written: what a worker itself freed
/// can be reused only after it passed.
pub struct Worker {
    pub(crate) store: Arc<Store>,
    pub(crate) accounting: ItemAccounting,
    pub(crate) appender: Appender,
    pub(crate) sweeper: Sweeper,
    last_maintained_at: Cell<Seconds>,
    /// Dropped last: the next owner of its record takes over its counters too.
    pub(crate) participant: Participant,
}

impl Store {
    /// Registers one worker; at most `config.workers` may exist at once. A further one can do nothing: its reads
    /// miss and its writes are refused.
    pub fn worker(self: &Arc<Self>) -> Worker {
        let participant = Participant::register(Arc::clone(self));
        Worker {
            store: Arc::clone(self),
            accounting: ItemAccounting::new(Arc::clone(self), participant.worker_index()),
            appender: Appender::new(Arc::clone(self)),
            sweeper: Sweeper::default(),
            last_maintained_at: Cell::new(Seconds(0)),
            participant,
        }
    }
}

impl Store {
    /// The bytes that one flush of a prefix sweeps: with as many flushes as there are free places when the first of
    /// them does, an eighth of all, everything twice.
    fn outdated_sweep_bytes(&self) -> usize {
        let segments = &self.segments;
        let stored_bytes = segments.usage.in_use() * self.arena().segment_bytes();
        let flush_count = segments.flushes.prefixes_max() / 8;
        (stored_bytes / flush_count.max(1))
            .clamp(OUTDATED_SWEEP_BYTES_MIN, OUTDATED_SWEEP_BYTES_MAX)
    }

    /// Whether a segment from before the flushes of prefixes that should be forgotten may still be read.
    fn has_outdated_segments(&self) -> bool {
        let awaited_generation = self.segments.flushes.awaited_generation();
        awaited_generation.is_some_and(|awaited| self.segments.oldest_generation() < awaited)
    }
}

impl Worker {
    /// The store it works on.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Reports that the worker may read from now on; must be called before the first lookup and after each sleep.
    pub fn go_online(&mut self) {
        self.participant.go_online();
    }

    /// Reports that nothing is borrowed and the thread may sleep.
    pub fn go_offline(&mut self) {
        self.participant.go_offline();
    }

    /// Reports that nothing is borrowed at this moment; called once per iteration of the event loop and between
    /// long slices.
    pub fn pass(&mut self) {
        self.participant.pass();
    }

    /// Executes `write`, and while that finds no segment free lets `wait` pass the time and tries again; until
    /// `wait`, which gets the number of tries so far, returns false.
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
                outcome => return outcome,
            }
            self.go_offline();
            if !wait(tries) {
                return Err(NoRoomYet);
            }
            self.go_online();
        }
    }

    /// Like [`Worker::try_set`], but refused if that would have to wait.
    pub fn set(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        options: &SetOptions,
        now: Seconds,
    ) -> SetOutcome {
        self.try_set(key, hash, value, options, now)
            .unwrap_or_else(|NoRoomYet| set::refuse(&self.accounting, key, hash, options))
    }

    /// A write whose value is complete; meant for values below 64 KiB, larger ones are uploaded in pieces.
    pub fn try_set(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        options: &SetOptions,
        now: Seconds,
    ) -> Result<SetOutcome, NoRoomYet> {
        if !self.begin_operation(now) {
            return Ok(SetOutcome::NoMemory);
        }
        if self.store.is_too_large(key, value.len(), options.flags) {
            set::remove_refused(&self.accounting, key, hash, options);
            return Ok(SetOutcome::TooLarge);
        }
        let value_parts = &[ValuePart::Bytes(value)];
        let operation = SetOperation { value_parts, options };
        operation.run(&mut self.new_write(key, hash, now))
    }

    /// Like [`Worker::try_arith`], but refused if that would have to wait.
    pub fn arith(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &ArithOptions,
        now: Seconds,
    ) -> ArithOutcome {
        self.try_arith(key, hash, options, now)
            .unwrap_or_else(|NoRoomYet| arith::refuse(&self.accounting))
    }

    /// Adds to or subtracts from a decimal value. A new number that is shorter than the old value is padded with
    /// spaces to its length, as memcached writes it.
    pub fn try_arith(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &ArithOptions,
        now: Seconds,
    ) -> Result<ArithOutcome, NoRoomYet> {
        if !self.begin_operation(now) {
            return Ok(ArithOutcome::NoMemory);
        }
        arith::run_arith(&mut self.new_write(key, hash, now), options)
    }

    /// Like [`Worker::try_delete`], but if that would have to wait the item is removed, which is at least as strong
    /// as a mark.
    pub fn delete(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &DeleteOptions,
        now: Seconds,
    ) -> DeleteOutcome {
        self.try_delete(key, hash, options, now)
            .unwrap_or_else(|NoRoomYet| delete::remove_instead_of_mark(&self.accounting, key, hash))
    }

    /// Removes an item, or marks it as meta `md` requests, for which a new copy needs memory.
    pub fn try_delete(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &DeleteOptions,
        now: Seconds,
    ) -> Result<DeleteOutcome, NoRoomYet> {
        if !self.begin_operation(now) {
            return Ok(DeleteOutcome::NotFound);
        }
        delete::run_delete(&mut self.new_write(key, hash, now), options)
    }

    /// Like [`Worker::try_get_with`], but if that would have to wait it is a miss, and the item is removed, because
    /// its old expiry would be wrong.
    pub fn get_with(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &GetOptions,
        now: Seconds,
    ) -> Option<(Item<'_>, Lease)> {
        self.try_get_with(key, hash, options, now).unwrap_or_else(|NoRoomYet| {
            get_and_update::remove_instead_of_touch(&self.accounting, key, hash);
            None
        })
    }

    /// A read with the options of `gat` and meta `mg`. On a miss with `vivify`, the created item, won by this
    /// caller; otherwise `None` is a miss. With `touch` or `vivify` it needs memory for a new copy.
    pub fn try_get_with(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &GetOptions,
        now: Seconds,
    ) -> Result<Option<(Item<'_>, Lease)>, NoRoomYet> {
        if !self.begin_operation(now) {
            return Ok(None);
        }
        let found =
            get_and_update::run_get_and_update(&mut self.new_write(key, hash, now), options)?;
        if !options.no_bump {
            let hit = found.as_ref().filter(|returned| !returned.lease.created);
            let header = hit.map(|returned| returned.item.header);
            let item = header.map(|header| (header.value_bytes, header.expiry));
            self.accounting.sample(hash, || Operation::read(key, hash, item, now));
        }
        Ok(found.map(|returned| {
            let item = Item::with_last_access(
                self.mark_borrowed(),
                returned.item,
                returned.state_word,
                returned.last_access,
            );
            (item, returned.lease)
        }))
    }

    /// Like [`Worker::try_flush_prefix`], but refused if that would have to wait.
    ///
    /// # Errors
    /// [`Error::PrefixesFull`] if no further prefix can be remembered; then nothing changed.
    pub fn flush_prefix(&self, prefix: &[u8], now: Seconds) -> Result<(), Error> {
        self.record_allocator(now).sweep_outdated(OUTDATED_SWEEP_BYTES_MAX);
        self.store.flush_prefix(prefix, now)
    }

    /// Makes everything written before under keys that start with `prefix` dead, at once and without a walk.
    ///
    /// When three quarters of the prefixes that can be remembered are, each call also does its share of emptying old
    /// segments, so that prefixes are forgotten before there are too many. Waits while old segments are left.
    ///
    /// # Errors
    /// [`NoRoomYet`]; else as [`Store::flush_prefix`], if old segments cannot be emptied.
    pub fn try_flush_prefix(
        &self,
        prefix: &[u8],
        now: Seconds,
    ) -> Result<Result<(), Error>, NoRoomYet> {
        self.record_allocator(now).sweep_outdated(self.store.outdated_sweep_bytes());
        match self.store.flush_prefix(prefix, now) {
            Err(Error::PrefixesFull(_)) if self.store.has_outdated_segments() => Err(NoRoomYet),
            outcome => Ok(outcome),
        }
    }

    /// Reports that a client took so long to fill a miss of a key: what a miss of it costs, if the goal is time.
    pub fn note_fill(&self, hash: KeyHash, time: Duration, now: Seconds) {
        self.accounting.sample_fill(hash, time.as_micros().try_into().unwrap_or(usize::MAX), now);
    }

    /// Does a bounded amount of background work (compaction, expiry, splits); true while there is more.
    pub fn maintain(&mut self, now: Seconds) -> bool {
        if !self.begin_operation(now) {
            return false;
        }
        let is_new_second = self.last_maintained_at.replace(now) < now;
        if is_new_second {
            self.appender.seal(Some(now));
            self.store.segments.reclaim_limbo_now();
        }
        let is_sweeping = self.sweeper.is_sweeping();
        let context = self.context(now);
        let swept = if self.store.reserve_is_low() {
            self.sweeper.sweep(context, MAINTAIN_SWEEP_BYTES, SweepGoal::FreeSegments)
        } else {
            self.record_allocator(now).sweep_outdated(MAINTAIN_SWEEP_BYTES)
                || (is_new_second || is_sweeping)
                    && self.sweeper.sweep(context, MAINTAIN_SWEEP_BYTES, SweepGoal::Dead)
        };
        let resized = self.accounting.resize_index();
        let overflow_drained =
            self.store.index.drain_overflow_step(&*self.store) == ResizeOutcome::Done;
        swept || resized || overflow_drained
    }

    /// Takes the pending reports for `watch evictions`.
    pub fn take_evicted(&self, visit: &mut dyn FnMut(&EvictedItem)) {
        self.store.reports.take_pending().iter().for_each(visit);
    }

    /// Every operation calls this first; false for a worker that was never registered.
    #[inline]
    pub(crate) fn begin_operation(&self, now: Seconds) -> bool {
        self.participant.begin_operation(now)
    }

    /// Records that an item is about to be returned.
    #[inline]
    pub(crate) fn mark_borrowed(&self) -> &Arc<Store> {
        self.participant.mark_borrowed()
    }

    #[inline]
    pub(crate) fn context(&self, now: Seconds) -> WriteContext<'_> {
        WriteContext { accounting: &self.accounting, appender: &self.appender, now }
    }

    #[inline]
    pub(crate) fn record_allocator(&self, now: Seconds) -> RecordAllocator<'_> {
        RecordAllocator {
            context: self.context(now),
            sweeper: &self.sweeper,
            participant: &self.participant,
        }
    }

    #[inline]
    pub(crate) fn new_write<'w>(
        &'w self,
        key: &'w [u8],
        hash: KeyHash,
        now: Seconds,
    ) -> WriteOperation<'w> {
        WriteOperation::new(self.record_allocator(now), key, hash)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.sweeper.release_unfinished(&self.store);
        self.appender.seal(None);
    }
}
