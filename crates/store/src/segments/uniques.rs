//! CAS uniques, none of which is used for two values: even numbers follow from the address of a record, odd ones are
//! counted.

use crate::memory::arena::ITEM_ALIGN;
use crate::sync::{AtomicU64, Ordering};

/// Uniques that are restored stay below this: they begin at a number from the clock, and no sum of them overflows.
const UNIQUE_MAX: u64 = 1 << 63;

/// The first uniques that are not used yet.
pub(crate) struct Uniques {
    /// The sequence of the next segment that is opened.
    next_sequence: AtomicU64,
    /// The last unique that was counted and not derived from an address, halved.
    halved_counted: AtomicU64,
    /// Addresses of a segment that a record can have.
    addresses_per_segment: u64,
}

/// The counters from which uniques are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UniquesSnapshot {
    pub(crate) next_sequence: u64,
    pub(crate) halved_counted: u64,
}

impl Uniques {
    pub(super) fn new(segment_bytes: usize) -> Self {
        Uniques {
            next_sequence: AtomicU64::new(1),
            halved_counted: AtomicU64::new(0),
            addresses_per_segment: (segment_bytes / ITEM_ALIGN) as u64,
        }
    }

    /// The sequence of a segment that is opened now: larger than those before.
    pub(super) fn take_sequence(&self) -> u64 {
        self.next_sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// The unique of the record at `offset` of a segment: larger for records appended later to the same segment, and for
    /// segments opened later. These are the even numbers.
    pub(super) fn implied(&self, sequence: u64, offset: usize) -> u64 {
        2 * (sequence * self.addresses_per_segment + (offset / ITEM_ALIGN) as u64)
    }

    /// A CAS unique above `old` for an item whose address gives a smaller one: an odd number, which no address
    /// gives and which was never used before, so that a unique sent to a client never returns for another value.
    ///
    /// Above a unique that a client chose beyond all of ours it is the next number, because the client is
    /// responsible for those.
    pub(crate) fn next_counted(&self, old: u64) -> u64 {
        let halved_implied_max =
            self.next_sequence.load(Ordering::Relaxed) * self.addresses_per_segment;
        if old / 2 > halved_implied_max.max(self.halved_counted.load(Ordering::Relaxed)) {
            return old.wrapping_add(1).max(1);
        }
        self.halved_counted.fetch_max(old / 2, Ordering::Relaxed);
        2 * (self.halved_counted.fetch_add(1, Ordering::Relaxed) + 1) + 1
    }

    /// A number above every unique so far, but for those that clients chose.
    pub(crate) fn end(&self) -> u64 {
        let sequence = self.next_sequence.load(Ordering::Relaxed);
        let counted = self.halved_counted.load(Ordering::Relaxed);
        2 * (sequence * self.addresses_per_segment).max(counted + 1)
    }

    /// No unique below `start` is given from now on; no segment has been opened.
    pub(crate) fn begin_at(&self, start: u64) {
        let sequence = (start / 2).div_ceil(self.addresses_per_segment);
        self.next_sequence.fetch_max(sequence, Ordering::Relaxed);
        self.halved_counted.fetch_max(start / 2, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> UniquesSnapshot {
        UniquesSnapshot {
            next_sequence: self.next_sequence.load(Ordering::Relaxed),
            halved_counted: self.halved_counted.load(Ordering::Relaxed),
        }
    }

    /// Continues from a snapshot; false if its numbers are out of range.
    pub(super) fn restore(&self, snapshot: UniquesSnapshot) -> bool {
        let sequence_max = UNIQUE_MAX / 2 / self.addresses_per_segment;
        let is_valid =
            snapshot.next_sequence <= sequence_max && snapshot.halved_counted <= UNIQUE_MAX / 2;
        if is_valid {
            self.next_sequence.store(snapshot.next_sequence, Ordering::Relaxed);
            self.halved_counted.store(snapshot.halved_counted, Ordering::Relaxed);
        }
        is_valid
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_counted_unique_is_above_the_old_one_and_never_implied() {
        let uniques = Uniques::new(1 << 16);
        let old = uniques.implied(uniques.take_sequence(), 4096);
        assert!(old.is_multiple_of(2));
        let mut last = old;
        for _ in 0..3 {
            let next = uniques.next_counted(last);
            assert!(next > last && !next.is_multiple_of(2), "{next} after {last}");
            last = next;
        }
        let of_another = uniques.next_counted(old);
        assert!(of_another > last, "{of_another} was given before");
        assert!(uniques.end() > of_another);
    }

    #[test]
    fn a_unique_that_a_client_chose_is_followed_by_the_next_number() {
        let uniques = Uniques::new(1 << 16);
        let chosen = 1 << 60;
        assert_eq!(uniques.next_counted(chosen), chosen + 1);
        assert_eq!(uniques.next_counted(u64::MAX), 1);
        assert!(uniques.end() < chosen);
    }

    #[test]
    fn uniques_after_a_restart_are_above_those_before_it() {
        let before = Uniques::new(1 << 16);
        let old = before.implied(before.take_sequence(), 65_528);
        let counted = before.next_counted(old);
        let after = Uniques::new(1 << 16);
        assert!(after.restore(before.snapshot()));
        assert!(after.implied(after.take_sequence(), 0) > old);
        assert!(after.next_counted(old) > counted);
        let elsewhere = Uniques::new(1 << 20);
        elsewhere.begin_at(before.end());
        assert!(elsewhere.implied(elsewhere.take_sequence(), 0) > counted);
        let snapshot = UniquesSnapshot { next_sequence: u64::MAX, ..before.snapshot() };
        assert!(!after.restore(snapshot));
    }
}
