//! The fetches of one request that are in flight, and what the reads need that wait for them.
//!
//! A request fetches a key once: a read that needs a key which another read of the request is fetching waits until that
//! fetch has ended, and looks again. Only the ends of fetches are waited for, and a read that waits has no fetch of its own
//! in flight, so no two reads wait for each other. No socket and no clock: a read that waits leaves the waker of its task
//! or thread, which the end of the fetch wakes.
//!
//! A key that a read needs and another read of its request is fetching is an *awaited* key.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::entry::NearKey;
use crate::fork::Process;

/// The keys that the reads of one request are fetching.
#[derive(Debug, Default)]
pub(super) struct FetchesInFlight {
    by_key: HashMap<NearKey, Arc<FetchInFlight>>,
}

impl FetchesInFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The fetch in flight that brings a key; it has not ended.
    pub(super) fn get(&self, key: &NearKey) -> Option<&Arc<FetchInFlight>> {
        self.by_key.get(key)
    }

    /// Begins a fetch of these keys.
    pub(super) fn begin(&mut self, keys: &[NearKey], process: &Process) -> Arc<FetchInFlight> {
        let fetch = Arc::new(FetchInFlight { process: process.clone(), state: Mutex::default() });
        for key in keys {
            let fetch_of_key = self.by_key.entry(key.clone());
            fetch_of_key.or_insert_with(|| fetch.clone());
        }
        fetch
    }

    /// Removes the keys of a fetch that ends; [`FetchInFlight::end`] follows.
    pub(super) fn remove(&mut self, keys: &[NearKey], fetch: &Arc<FetchInFlight>) {
        for key in keys {
            if self.get(key).is_some_and(|in_flight| Arc::ptr_eq(in_flight, fetch)) {
                self.by_key.remove(key);
            }
        }
    }
}

/// Keys for which a fetch found no value, each with its generation when the fetch began.
pub(super) type AbsentKeys = HashMap<NearKey, u64>;

/// One fetch, shared by the read that makes it and by those that wait for it.
#[derive(Debug)]
pub(super) struct FetchInFlight {
    process: Process,
    state: Mutex<FetchState>,
}

#[derive(Debug, Default)]
struct FetchState {
    has_ended: bool,
    absent_keys: AbsentKeys,
    /// The wakers of the reads that wait, by the number of the waiter.
    wakers: BTreeMap<u64, Waker>,
    next_waiter_number: u64,
}

impl FetchInFlight {
    /// `None`: in a child after a fork the lock may be held by a thread that does not exist there.
    fn state(&self) -> Option<MutexGuard<'_, FetchState>> {
        if self.process.is_current() {
            // One field changes at a time: after a panic they are still consistent.
            return Some(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.state.try_lock().ok()
    }

    /// Whether it brings nothing more: its values are held, if it brought any.
    pub(super) fn has_ended(&self) -> bool {
        self.state().is_none_or(|state| state.has_ended)
    }

    /// The generation of a key without a value when the fetch began that found none.
    pub(super) fn absent_generation(&self, key: &NearKey) -> Option<u64> {
        self.state()?.absent_keys.get(key).copied()
    }

    /// Ends the fetch, once, and wakes the reads that wait. No lock may be held: a waker is the driver's.
    pub(super) fn end(&self, absent_keys: AbsentKeys) {
        let Some(mut state) = self.state().filter(|state| !state.has_ended) else {
            return;
        };
        state.has_ended = true;
        state.absent_keys = absent_keys;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }
}

/// The keys of one read that other reads of its request are fetching.
#[derive(Debug, Default)]
pub(super) struct AwaitedKeys {
    awaited: Vec<AwaitedKey>,
    /// Waits for the fetch of the first key.
    waiter: Option<Waiter>,
}

/// A key of a read, by its index, and the fetch that brings it.
#[derive(Debug)]
pub(super) struct AwaitedKey {
    pub(super) index: usize,
    pub(super) fetch: Arc<FetchInFlight>,
}

impl AwaitedKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.awaited.is_empty()
    }

    pub(super) fn extend(&mut self, awaited_keys: impl Iterator<Item = AwaitedKey>) {
        self.awaited.extend(awaited_keys);
    }

    /// Whether the read has to wait: for the fetch of its first key. Those of the others proceed meanwhile.
    pub(super) fn are_in_flight(&self) -> bool {
        let first_key = self.awaited.first();
        first_key.is_some_and(|first_key| !first_key.fetch.has_ended())
    }

    /// Has `waker` woken, instead of an earlier one, when [`Self::are_in_flight`] may have changed; ready: it has.
    pub(super) fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let Some(first_key) = self.awaited.first() else {
            return Poll::Ready(());
        };
        let waiter = self
            .waiter
            .get_or_insert_with(|| Waiter { fetch: first_key.fetch.clone(), waiter_number: None });
        waiter.poll(waker)
    }

    /// Removes and returns the keys whose fetch has ended.
    pub(super) fn take_ended(&mut self) -> Vec<AwaitedKey> {
        self.waiter = None;
        let ended = self.awaited.extract_if(.., |key| key.fetch.has_ended());
        ended.collect()
    }

    /// Removes and returns all keys.
    pub(super) fn take_all(&mut self) -> Vec<AwaitedKey> {
        self.waiter = None;
        std::mem::take(&mut self.awaited)
    }
}

/// A read that waits for a fetch, until it is dropped.
#[derive(Debug)]
struct Waiter {
    fetch: Arc<FetchInFlight>,
    /// Its number among the waiters of the fetch, once it has left a waker.
    waiter_number: Option<u64>,
}

impl Waiter {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let Some(mut state) = self.fetch.state().filter(|state| !state.has_ended) else {
            return Poll::Ready(());
        };
        let waiter_number = *self.waiter_number.get_or_insert(state.next_waiter_number);
        state.next_waiter_number = state.next_waiter_number.max(waiter_number + 1);
        let earlier_waker = state.wakers.insert(waiter_number, waker.clone());
        // Not under the lock: a waker is the driver's.
        drop(state);
        drop(earlier_waker);
        Poll::Pending
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let Some(waiter_number) = self.waiter_number else {
            return;
        };
        let state = self.fetch.state();
        let waker = state.and_then(|mut state| state.wakers.remove(&waiter_number));
        drop(waker);
    }
}
