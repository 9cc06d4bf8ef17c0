//! How long the misses take that clients make good: from the reply that gave one client the right to store the item
//! (a lease, `W` in the reply to `mg`) to the value that it stores.
//!
//! A table of fixed size remembers when leases were given. A key has a few slots that it may be in; if all are taken it
//! displaces the oldest lease there, whose time is not measured. That must be rare, for it is the long times that would be
//! missing. How many leases were given is counted all the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use glasscache_store::KeyHash;

use crate::shared::time_histogram::{TimeHistogram, Times};

/// Leases whose beginning is remembered at once.
const SLOTS: usize = 2048;

/// The slots in which a key may be.
const SLOTS_OF_KEY: usize = 8;

/// A mean of fewer fills is not reported as the time of a miss.
const FILLS_MIN: u64 = 20;

/// A percentile of fills is exact within 0.8 %.
const PARTS_BITS: u32 = 6;

/// The table and what was measured.
#[derive(Debug)]
pub(crate) struct FillTimes {
    started_at: Instant,
    /// Whether a lease was ever given: without one a write looks at nothing else.
    is_used: AtomicBool,
    slots: Box<[Slot]>,
    leases: AtomicU64,
    times: TimeHistogram,
}

/// A lease that was given and not used yet.
// LOSSY: the two words are written one after the other, so two leases of one slot at one moment may exchange times.
#[derive(Debug, Default)]
struct Slot {
    /// The hash of the key; 0: none.
    hash: AtomicU64,
    /// Nanoseconds since the start.
    given_ns: AtomicU64,
}

impl FillTimes {
    pub(crate) fn new() -> FillTimes {
        FillTimes {
            started_at: Instant::now(),
            is_used: AtomicBool::new(false),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            leases: AtomicU64::new(0),
            times: TimeHistogram::new(PARTS_BITS),
        }
    }

    /// A client was given the lease on a key.
    pub(crate) fn begin(&self, hash: KeyHash) {
        self.leases.fetch_add(1, Ordering::Relaxed);
        self.is_used.store(true, Ordering::Relaxed);
        // The slot that it has, an empty one, or the oldest.
        let rank = |slot: &&Slot| match slot.hash.load(Ordering::Relaxed) {
            taken_by if taken_by == hash.0 => (0, 0),
            0 => (1, 0),
            _ => (2, slot.given_ns.load(Ordering::Relaxed)),
        };
        if let Some(slot) = self.slots_of(hash).iter().min_by_key(rank) {
            slot.given_ns.store(self.now_ns(), Ordering::Relaxed);
            slot.hash.store(hash.0, Ordering::Relaxed);
        }
    }

    /// A value was stored under a key: if its lease was given, this is the end of it, after the time that is returned.
    #[inline]
    pub(crate) fn end(&self, hash: KeyHash) -> Option<Duration> {
        if self.is_used.load(Ordering::Relaxed) { self.end_if_given(hash) } else { None }
    }

    fn end_if_given(&self, hash: KeyHash) -> Option<Duration> {
        let is_of_key = |slot: &&Slot| slot.hash.load(Ordering::Relaxed) == hash.0 && hash.0 != 0;
        let slot = self.slots_of(hash).iter().find(is_of_key)?;
        let given_ns = slot.given_ns.load(Ordering::Relaxed);
        // Of two writers at once, one takes it.
        slot.hash.compare_exchange(hash.0, 0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let time = Duration::from_nanos(self.now_ns().saturating_sub(given_ns));
        self.times.record(time, 1);
        Some(time)
    }

    fn slots_of(&self, hash: KeyHash) -> &[Slot] {
        let first_slot = hash.0 as usize % (SLOTS / SLOTS_OF_KEY) * SLOTS_OF_KEY;
        self.slots.get(first_slot..first_slot + SLOTS_OF_KEY).unwrap_or_default()
    }

    fn now_ns(&self) -> u64 {
        self.started_at.elapsed().as_nanos() as u64
    }

    /// Leases that were given.
    pub(crate) fn leases(&self) -> u64 {
        self.leases.load(Ordering::Relaxed)
    }

    /// The mean time in microseconds; `None` if too few were measured.
    pub(crate) fn mean_us(&self) -> Option<u64> {
        let times = self.times();
        (times.count() >= FILLS_MIN).then(|| times.mean_us() as u64)
    }

    /// The times of those that ended with a value.
    pub(crate) fn times(&self) -> Times {
        Times::read(std::iter::once(&self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_is_measured_once_and_only_under_a_lease() {
        let fills = FillTimes::new();
        fills.end(KeyHash(7));
        fills.begin(KeyHash(7));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(fills.end(KeyHash(8)), None);
        assert!(fills.end(KeyHash(7)) >= Some(Duration::from_millis(5)));
        assert_eq!(fills.end(KeyHash(7)), None);
        assert_eq!((fills.leases(), fills.times().count()), (1, 1));
        assert!(fills.times().percentile_us(0.5) > 4900.0);
    }

    #[test]
    fn one_lease_more_than_its_slots_hold_displaces_the_oldest() {
        let fills = FillTimes::new();
        let keys: Vec<KeyHash> =
            (0..=SLOTS_OF_KEY as u64).map(|number| KeyHash(1 + number * SLOTS as u64)).collect();
        for key in &keys {
            fills.begin(*key);
            std::thread::sleep(Duration::from_micros(1));
        }
        fills.end(keys[0]);
        assert_eq!(fills.times().count(), 0);
        for key in &keys {
            fills.end(*key);
        }
        assert_eq!(fills.times().count(), SLOTS_OF_KEY as u64);
        // Given twice it has one slot.
        fills.begin(keys[0]);
        fills.begin(keys[0]);
        fills.end(keys[0]);
        fills.end(keys[0]);
        assert_eq!(fills.times().count(), SLOTS_OF_KEY as u64 + 1);
    }
}
