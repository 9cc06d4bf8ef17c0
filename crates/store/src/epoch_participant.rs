//! A worker's part in the epochs: whether it reads, and whether something that it returned is still borrowed.
//!
//! A worker *passes* when it borrows nothing from the store (its quiescent state in epoch-based reclamation): memory
//! that was retired before may then be used again. A sleeping worker is *offline* and delays nobody; it goes
//! *online* before it reads.

use std::cell::Cell;
use std::sync::Arc;

use crate::request::Seconds;
use crate::store::Store;

/// One thread's registration among the epochs.
pub(crate) struct Participant {
    store: Arc<Store>,
    /// Its record among the epochs; `None` beyond `config.workers`.
    worker_index: Option<usize>,
    is_online: Cell<bool>,
    /// Whether no item was returned since the last pass: then an operation may pass by itself if needed.
    borrows_nothing: Cell<bool>,
}

impl Participant {
    /// Takes a record, offline at first.
    pub(crate) fn register(store: Arc<Store>) -> Self {
        Participant {
            worker_index: store.segments.epochs.register(),
            is_online: Cell::new(false),
            borrows_nothing: Cell::new(true),
            store,
        }
    }

    pub(crate) fn worker_index(&self) -> Option<usize> {
        self.worker_index
    }

    /// Every operation calls this first; false for a worker that was never registered.
    #[inline]
    pub(crate) fn begin_operation(&self, now: Seconds) -> bool {
        self.store.apply_due_flush(now);
        self.is_online.get() || self.go_online()
    }

    /// Goes online; false for a worker that was never registered.
    #[cold]
    pub(crate) fn go_online(&self) -> bool {
        if let Some(worker_index) = self.worker_index {
            self.store.segments.epochs.set_online(worker_index);
            self.is_online.set(true);
        }
        self.is_online.get()
    }

    #[inline]
    pub(crate) fn is_online(&self) -> bool {
        self.is_online.get()
    }

    /// Records that the caller borrows nothing and sleeps.
    pub(crate) fn go_offline(&self) {
        if let Some(worker_index) = self.worker_index {
            self.store.segments.epochs.set_offline(worker_index);
        }
        self.is_online.set(false);
        self.borrows_nothing.set(true);
    }

    /// Records that the caller borrows nothing at this moment.
    pub(crate) fn pass(&self) {
        if let Some(worker_index) = self.worker_index
            && self.is_online.get()
        {
            self.store.segments.epochs.pass(worker_index);
        }
        self.borrows_nothing.set(true);
    }

    /// Passes within an operation, if nothing is borrowed; false if something may be.
    pub(crate) fn pass_if_nothing_borrowed(&self) -> bool {
        let borrows_nothing = self.borrows_nothing.get();
        if borrows_nothing {
            self.pass();
        }
        borrows_nothing
    }

    /// Records that an item is about to be returned.
    #[inline]
    pub(crate) fn mark_borrowed(&self) -> &Arc<Store> {
        self.borrows_nothing.set(false);
        &self.store
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if let Some(worker_index) = self.worker_index {
            self.store.segments.epochs.unregister(worker_index);
        }
    }
}
