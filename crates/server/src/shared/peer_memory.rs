//! The memory outside of the store that peers make the server hold: one budget for all connections.
//!
//! It covers replies that a socket did not take, unfinished commands, lines for watchers, and the bookkeeping of
//! uploads. Each holder keeps a [`Charge`], which gives its bytes back when it is dropped. The store evicts what is
//! charged, so the sum stays inside `-m`. From half of the budget on, pressure is high: input is only peeked at, so
//! that what cannot be used yet stays in the kernel, and replies are made in slices that a writable socket takes
//! whole. Whoever still needs memory, for a large value or a large command, asks first and waits in line.
//! See docs/decisions/0027-one-budget-for-peers.md.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use glasscache_store::{Seconds, Store};

use crate::shared::wake::Waker;

/// The budget is one in so many parts of `-m`; ...
const SHARE: u64 = 8;
/// ... but at least so many bytes.
const BYTES_MIN: u64 = 1 << 20;

/// How short memory for peers is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Replies and input may wait in the server's memory.
    Low,
    /// Values can hardly be held where they lie any more: a large one asks before it is read.
    Values,
    /// Nothing may wait that did not ask.
    High,
}

/// What all connections hold together, and who waits for some of it.
///
/// Aligned so that the request path, which reads it, does not share a cache line with what others write.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PeerMemory {
    charged: AtomicI64,
    /// Connections that wait for room.
    waiting: AtomicUsize,
    /// Bytes that they lack.
    wanted_bytes: AtomicU64,
    /// How often room was made while somebody waited.
    made: AtomicU64,
    /// The second of the last look for stalled connections.
    looked: AtomicU32,
    /// The next request is granted although there is no room.
    overdraft: AtomicBool,
    store: StoreRef,
    wakers: Vec<Waker>,
}

/// The store, without its contents in debug output.
struct StoreRef(Arc<Store>);

impl std::fmt::Debug for StoreRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Store")
    }
}

impl PeerMemory {
    /// A budget beside `store`; `wakers` wake the workers, among whose connections some may wait.
    pub(crate) fn new(store: Arc<Store>, wakers: Vec<Waker>) -> Arc<PeerMemory> {
        Arc::new(PeerMemory {
            charged: AtomicI64::new(0),
            waiting: AtomicUsize::new(0),
            wanted_bytes: AtomicU64::new(0),
            made: AtomicU64::new(0),
            looked: AtomicU32::new(0),
            overdraft: AtomicBool::new(false),
            store: StoreRef(store),
            wakers,
        })
    }

    /// Bytes that all connections may hold together.
    pub(crate) fn limit(&self) -> u64 {
        (self.store.0.memory_bytes() / SHARE).max(BYTES_MIN)
    }

    /// Bytes that they hold.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::SeqCst).max(0) as u64
    }

    /// How short memory is now.
    #[inline]
    pub(crate) fn pressure(&self) -> Pressure {
        let charged = self.charged.load(Ordering::Relaxed).max(0) as u64;
        if charged >= self.limit() / 2 {
            Pressure::High
        } else if self.store.0.holds_are_scarce() {
            Pressure::Values
        } else {
            Pressure::Low
        }
    }

    /// Charges `bytes` whether there is room or not.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.add(bytes as i64);
        Charge {
            memory: Arc::clone(self),
            bytes,
        }
    }

    /// Charges `bytes` if they fit; see [`PeerMemory::has_room`].
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize, is_first: bool) -> Option<Charge> {
        self.has_room(bytes, is_first).then(|| self.charge(bytes))
    }

    /// Whether `bytes` more may be held: by whoever waits first in line, by others only where nobody waits.
    ///
    /// Workers may see the same room at once, so the budget is exceeded by at most one request of each. A request
    /// that is larger than the budget is granted when nothing is held.
    pub(crate) fn has_room(&self, bytes: usize, is_first: bool) -> bool {
        if !is_first && self.waiting() > 0 {
            return false;
        }
        let charged = self.charged();
        charged == 0
            || charged + bytes as u64 <= self.limit()
            || (is_first && self.overdraft.swap(false, Ordering::Relaxed))
    }

    /// Grants the next request in line: all that is held is held by connections that wait themselves.
    pub(crate) fn allow_one(&self) {
        self.overdraft.store(true, Ordering::Relaxed);
    }

    /// Connections that wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Bytes that they lack.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        self.wanted_bytes.load(Ordering::Relaxed)
    }

    /// A connection that lacked `before` bytes lacks `now`; 0 means that it does not wait.
    pub(crate) fn note_wanted(&self, before: usize, now: usize) {
        // Wraps like the difference that it is.
        let difference = (now as u64).wrapping_sub(before as u64);
        self.wanted_bytes.fetch_add(difference, Ordering::Relaxed);
        match (before > 0, now > 0) {
            (false, true) => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                // Pairs with the fence in `note_room`: either the waiter sees the room or it is woken.
                fence(Ordering::SeqCst);
            }
            (true, false) => {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    /// Room was made: whoever waits looks again. Costs two loads where nobody waits.
    pub(crate) fn note_room(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.made.fetch_add(1, Ordering::SeqCst);
            self.wakers.iter().for_each(Waker::wake);
        }
    }

    /// How often room was made while somebody waited.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Whether somebody waits and nobody has looked for stalled connections in this second.
    pub(crate) fn should_look(&self, now: Seconds) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            && self.looked.load(Ordering::Relaxed) != now.0
            && self.looked.swap(now.0, Ordering::Relaxed) != now.0
    }

    fn add(&self, bytes: i64) {
        self.charged.fetch_add(bytes, Ordering::SeqCst);
        self.store.0.charge_buffers(bytes);
    }
}

/// Bytes of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Arc<PeerMemory>,
    bytes: usize,
}

impl Charge {
    /// Bytes charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges `bytes` from now on.
    pub(crate) fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.memory.add(bytes as i64 - before as i64);
        if bytes < before {
            self.memory.note_room();
        }
    }

    /// Tells those who wait that values are no longer held.
    pub(crate) fn note_room(&self) {
        self.memory.note_room();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.add(-(self.bytes as i64));
        self.memory.note_room();
    }
}

impl PartialEq for Charge {
    fn eq(&self, other: &Charge) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Charge {}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<PeerMemory> {
        let config = glasscache_store::Config {
            memory_bytes: 64 << 20,
            workers: 1,
            ..glasscache_store::Config::default()
        };
        PeerMemory::new(Store::new(config).unwrap(), vec![Waker::new().unwrap()])
    }

    #[test]
    fn pressure_is_high_from_half_of_the_budget_on() {
        let memory = memory();
        assert_eq!(memory.limit(), 8 << 20);
        let half = memory.charge((4 << 20) - 1);
        assert_eq!(memory.pressure(), Pressure::Low);
        let more = memory.charge(1);
        assert_eq!(memory.pressure(), Pressure::High);
        drop((half, more));
        assert_eq!(memory.pressure(), Pressure::Low);
        assert_eq!(memory.charged(), 0);
    }

    #[test]
    fn a_request_beyond_the_budget_is_granted_only_where_nothing_is_held() {
        let memory = memory();
        assert!(memory.has_room(32 << 20, false));
        let held = memory.charge(8 << 20);
        assert!(!memory.has_room(1, false));
        drop(held);
        assert!(memory.has_room(8 << 20, false));
    }

    #[test]
    fn whoever_comes_later_gets_no_room_before_the_first_in_line() {
        let memory = memory();
        let held = memory.charge(1);
        memory.note_wanted(0, 8 << 20);
        assert!(!memory.has_room(100, false));
        assert!(memory.has_room(100, true));
        assert!(!memory.has_room(8 << 20, true));
        memory.allow_one();
        assert!(memory.has_room(8 << 20, true));
        assert!(!memory.has_room(8 << 20, true));
        memory.note_wanted(8 << 20, 0);
        assert_eq!((memory.waiting(), memory.wanted_bytes()), (0, 0));
        assert!(memory.has_room(100, false));
        drop(held);
    }

    #[test]
    fn room_is_announced_only_while_somebody_waits() {
        let memory = memory();
        drop(memory.charge(100));
        assert_eq!(memory.made(), 0);
        let mut held = memory.charge(100);
        memory.note_wanted(0, 1);
        held.set(200);
        assert_eq!(memory.made(), 0);
        held.set(50);
        drop(held);
        assert_eq!(memory.made(), 2);
    }
}
