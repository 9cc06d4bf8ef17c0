//! The memory outside of the store that peers cause the server to hold: one budget for all connections.
//!
//! It covers replies that a socket did not accept, incomplete commands, lines for watchers, and the bookkeeping of
//! uploads. Each holder has a [`Charge`], which returns its bytes when it is dropped. The store evicts as much as
//! is charged, so the sum stays inside `-m`. From half of the budget on, pressure is high: input is only peeked, so
//! that incomplete commands stay in the kernel, and replies are made in slices that fit a writable socket. A
//! connection that still needs memory, for a large value or a large command, requests it first and waits in line.
//! What TLS itself keeps, for handshakes and for open connections, has shares of its own (`shared/tls_memory`), which
//! are subtracted from the budget. See docs/decisions/server.md, 0027.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::time::Instant;

use glasscache_store::{Seconds, Store};

use crate::shared::tls_memory::TlsMemory;
use crate::shared::wake::Waker;

/// The limit is `-m` divided by this, but at least [`LIMIT_BYTES_MIN`].
const MEMORY_DIVISOR: u64 = 8;
/// Minimum of the limit in bytes.
const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// This part of the limit remains for requests, however many TLS connections are open.
const BUDGET_DIVISOR_MIN: u64 = 8;
/// Requests of at most [`SMALL_BYTES`] are granted up to this part of the limit beyond the budget, out of turn: those
/// that wait for much must not delay the others.
const SMALL_DIVISOR: u64 = 32;
/// Size of a small request for memory in bytes.
const SMALL_BYTES: usize = 2 << 10;
/// See [`PeerMemory::has_excess`].
const EXCESS_DIVISOR: u64 = 16;
/// See [`PeerMemory::has_free`].
const RESERVE_DIVISOR: u64 = 8;
/// More than the limit and a tenth of it is held: memory was held that was not granted.
const FAULT_DIVISOR: u64 = 10;
/// Time between two checks for stalled connections.
const CHECK_INTERVAL_MS: u64 = 100;

/// How short memory for peers is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Replies and input may wait in the server's memory.
    Low,
    /// Hardly any more values can be held in place: memory for a large one is requested before it is read.
    HoldsScarce,
    /// Nothing may wait in memory without a request for it.
    High,
}

/// The memory that all connections hold together, and the connections that wait for some of it.
///
/// Aligned so that the request path, which reads it, does not share a cache line with fields that others write.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PeerMemory {
    charged_bytes: AtomicI64,
    /// What TLS keeps; not part of `charged_bytes`.
    pub(crate) tls: TlsMemory,
    /// Connections that wait for memory.
    waiting_connections: AtomicUsize,
    /// Bytes that these connections need.
    wanted_bytes: AtomicU64,
    /// The number of releases while a connection waited.
    releases: AtomicU64,
    /// The time of the last check for stalled connections, in milliseconds since `origin`.
    last_checked_ms: AtomicU64,
    origin: Instant,
    /// How often more was held than the limit and a tenth of it.
    faults: AtomicU64,
    /// The second in which a request was last granted beyond the budget.
    last_overdraft_s: AtomicU32,
    /// Whether the next request is granted although the budget is used up.
    may_overdraw: AtomicBool,
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
    /// A budget next to `store`; `wakers` wake the workers, whose connections may wait.
    pub(crate) fn new(store: Arc<Store>, wakers: Vec<Waker>) -> Arc<PeerMemory> {
        Arc::new(PeerMemory {
            charged_bytes: AtomicI64::new(0),
            waiting_connections: AtomicUsize::new(0),
            wanted_bytes: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            tls: TlsMemory::default(),
            last_checked_ms: AtomicU64::new(0),
            origin: Instant::now(),
            faults: AtomicU64::new(0),
            last_overdraft_s: AtomicU32::new(u32::MAX),
            may_overdraw: AtomicBool::new(false),
            store: StoreRef(store),
            wakers,
        })
    }

    /// Bytes that all connections may hold together, those of TLS included.
    pub(crate) fn limit_bytes(&self) -> u64 {
        (self.store.0.memory_bytes() / MEMORY_DIVISOR).max(LIMIT_BYTES_MIN)
    }

    /// Bytes that all connections hold together, those of TLS included.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.charged_bytes() + self.tls.held_bytes()
    }

    /// How often more was held than the limit and a tenth of it.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Bytes that all connections may hold beside what TLS keeps, and what is left to its handshakes.
    pub(crate) fn budget_bytes(&self) -> u64 {
        let limit_bytes = self.limit_bytes();
        limit_bytes
            .saturating_sub(self.tls.bytes_left_by_requests(limit_bytes))
            .max(limit_bytes / BUDGET_DIVISOR_MIN)
    }

    /// Bytes that all connections hold beside what TLS keeps.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.charged_bytes.load(Ordering::SeqCst).max(0) as u64
    }

    /// How short memory is now.
    #[inline]
    pub(crate) fn pressure(&self) -> Pressure {
        let charged_bytes = self.charged_bytes.load(Ordering::Relaxed).max(0) as u64;
        if charged_bytes >= self.budget_bytes() / 2 {
            Pressure::High
        } else if self.store.0.holds_are_scarce() {
            Pressure::HoldsScarce
        } else {
            Pressure::Low
        }
    }

    /// Charges `bytes`, also beyond the budget.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.add(bytes as i64);
        Charge { memory: Arc::clone(self), bytes }
    }

    /// Charges `bytes` if they fit; see [`PeerMemory::try_grant`].
    pub(crate) fn try_charge(
        self: &Arc<Self>,
        bytes: usize,
        is_first_waiter: bool,
    ) -> Option<Charge> {
        self.try_grant(bytes, is_first_waiter).then(|| self.charge(bytes))
    }

    /// Whether `bytes` more may be held: by the connection that waits first in line, by others only if none waits.
    ///
    /// Workers may see the same free memory at once, so the budget is exceeded by at most one request of each. A
    /// request that is larger than the budget is granted when nothing is held.
    pub(crate) fn try_grant(&self, bytes: usize, is_first_waiter: bool) -> bool {
        if !is_first_waiter && self.waiting_connections() > 0 {
            return false;
        }
        let charged_bytes = self.charged_bytes();
        charged_bytes == 0
            || charged_bytes + bytes as u64 <= self.budget_bytes()
            || (is_first_waiter && self.may_overdraw.swap(false, Ordering::Relaxed))
    }

    /// Like [`PeerMemory::try_grant`], but at most [`SMALL_BYTES`] are granted also if others wait.
    pub(crate) fn try_grant_input(&self, bytes: usize, is_first_waiter: bool) -> bool {
        let small_limit_bytes = self.budget_bytes() + self.limit_bytes() / SMALL_DIVISOR;
        let is_small =
            bytes <= SMALL_BYTES && self.charged_bytes() + bytes as u64 <= small_limit_bytes;
        is_small || self.try_grant(bytes, is_first_waiter)
    }

    /// Whether `bytes` are free now, and a reserve beside them if `with_reserve`: those in line leave it to those whose
    /// peers have just sent something.
    pub(crate) fn has_free(&self, bytes: usize, with_reserve: bool) -> bool {
        let budget_bytes = self.budget_bytes();
        let reserve_bytes = if with_reserve { budget_bytes / RESERVE_DIVISOR } else { 0 };
        self.charged_bytes() + bytes as u64 + reserve_bytes <= budget_bytes
    }

    /// Whether `bytes` fit into the little that may be held beyond the limit.
    pub(crate) fn has_excess(&self, bytes: usize) -> bool {
        let limit_bytes = self.limit_bytes();
        self.held_bytes() + bytes as u64 <= limit_bytes + limit_bytes / EXCESS_DIVISOR
    }

    /// Makes the next request in line be granted, once a second: only connections that wait themselves hold memory.
    pub(crate) fn allow_overdraft(&self, now: Seconds) {
        if self.last_overdraft_s.swap(now.0, Ordering::Relaxed) != now.0 {
            self.may_overdraw.store(true, Ordering::Relaxed);
            self.record_release();
        }
    }

    /// Connections that wait for memory.
    pub(crate) fn waiting_connections(&self) -> usize {
        self.waiting_connections.load(Ordering::SeqCst)
    }

    /// Bytes that the waiting connections need.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        self.wanted_bytes.load(Ordering::Relaxed)
    }

    /// Records that a connection that needed `previously_wanted_bytes` needs `wanted_bytes`; 0 means that it does not
    /// wait.
    pub(crate) fn record_wanted(&self, previously_wanted_bytes: usize, wanted_bytes: usize) {
        // Wraps like the difference.
        let difference = (wanted_bytes as u64).wrapping_sub(previously_wanted_bytes as u64);
        self.wanted_bytes.fetch_add(difference, Ordering::Relaxed);
        match (previously_wanted_bytes > 0, wanted_bytes > 0) {
            (false, true) => {
                self.waiting_connections.fetch_add(1, Ordering::SeqCst);
                // Pairs with the fence in `record_release`: either the waiting connection sees the free memory or it is
                // woken.
                fence(Ordering::SeqCst);
            }
            (true, false) => {
                self.waiting_connections.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    /// Notifies waiting connections that memory was released. Costs two loads if none waits.
    pub(crate) fn record_release(&self) {
        fence(Ordering::SeqCst);
        if self.waiting_connections.load(Ordering::SeqCst) > 0 {
            self.releases.fetch_add(1, Ordering::SeqCst);
            self.wakers.iter().for_each(Waker::wake);
        }
    }

    /// The number of releases while a connection waited.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    /// Whether a connection waits, or more is held than may be now, and stalled ones were not checked in the last
    /// [`CHECK_INTERVAL_MS`].
    pub(crate) fn should_check_stalled(&self) -> bool {
        if self.waiting_connections.load(Ordering::Relaxed) == 0
            && self.charged_bytes() <= self.budget_bytes()
        {
            return false;
        }
        // Counted from 1, so that the first check is due.
        let now_ms = self.origin.elapsed().as_millis() as u64 + CHECK_INTERVAL_MS;
        let last_checked_ms = self.last_checked_ms.load(Ordering::Relaxed);
        now_ms - last_checked_ms.min(now_ms) >= CHECK_INTERVAL_MS
            && self.last_checked_ms.swap(now_ms, Ordering::Relaxed) == last_checked_ms
    }

    /// Bytes by which what is held and what is waited for exceed the budget.
    pub(crate) fn missing_bytes(&self) -> u64 {
        (self.charged_bytes() + self.wanted_bytes()).saturating_sub(self.budget_bytes())
    }

    fn add(&self, bytes: i64) {
        self.charged_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.record_change(bytes);
    }

    /// Makes the store evict for `bytes` more, of requests or of TLS, and counts when the limit is exceeded.
    pub(crate) fn record_change(&self, bytes: i64) {
        self.store.0.charge_buffers(bytes);
        let (limit_bytes, held_bytes) = (self.limit_bytes(), self.held_bytes());
        let fault_bytes = limit_bytes + limit_bytes / FAULT_DIVISOR;
        if bytes > 0
            && held_bytes > fault_bytes
            && held_bytes.saturating_sub(bytes as u64) <= fault_bytes
        {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Bytes of the budget, returned when dropped.
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
        let previous_bytes = std::mem::replace(&mut self.bytes, bytes);
        self.memory.add(bytes as i64 - previous_bytes as i64);
        if bytes < previous_bytes {
            self.memory.record_release();
        }
    }

    /// Notifies waiting connections that values are no longer held.
    pub(crate) fn record_release(&self) {
        self.memory.record_release();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.add(-(self.bytes as i64));
        self.memory.record_release();
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
        assert_eq!(memory.budget_bytes(), 8 << 20);
        let low_charge = memory.charge((4 << 20) - 1);
        assert_eq!(memory.pressure(), Pressure::Low);
        let last_byte_charge = memory.charge(1);
        assert_eq!(memory.pressure(), Pressure::High);
        drop((low_charge, last_byte_charge));
        assert_eq!(memory.pressure(), Pressure::Low);
        assert_eq!(memory.charged_bytes(), 0);
    }

    #[test]
    fn a_request_beyond_the_budget_is_granted_only_if_nothing_is_held() {
        let memory = memory();
        assert!(memory.try_grant(32 << 20, false));
        let held_charge = memory.charge(8 << 20);
        assert!(!memory.try_grant(1, false));
        drop(held_charge);
        assert!(memory.try_grant(8 << 20, false));
    }

    #[test]
    fn a_later_connection_gets_no_memory_before_the_first_in_line() {
        let memory = memory();
        let held_charge = memory.charge(1);
        memory.record_wanted(0, 8 << 20);
        assert!(!memory.try_grant(100, false));
        assert!(memory.try_grant(100, true));
        assert!(!memory.try_grant(8 << 20, true));
        memory.allow_overdraft(Seconds(2));
        assert!(memory.try_grant(8 << 20, true));
        assert!(!memory.try_grant(8 << 20, true));
        memory.record_wanted(8 << 20, 0);
        assert_eq!((memory.waiting_connections(), memory.wanted_bytes()), (0, 0));
        assert!(memory.try_grant(100, false));
        drop(held_charge);
    }

    #[test]
    fn a_release_is_announced_only_while_a_connection_waits() {
        let memory = memory();
        drop(memory.charge(100));
        assert_eq!(memory.releases(), 0);
        let mut held_charge = memory.charge(100);
        memory.record_wanted(0, 1);
        held_charge.set(200);
        assert_eq!(memory.releases(), 0);
        held_charge.set(50);
        drop(held_charge);
        assert_eq!(memory.releases(), 2);
    }
}
