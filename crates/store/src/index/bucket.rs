//! One locked chain: the changes that a writer may make while readers read it.
//!
//! The control word of a bucket: bit 0 the lock, bits 1 to 29 the version, bits 30 to 63 the first overflow line
//! (0: none).
//! Each change bumps the version when the lock is released, which makes readers that missed look again. An overflow
//! line has its successor in the same bits and its bucket's number in the low bits.

use super::{CHAIN_LINES_MAX, Entry, Hit, Index, SegmentSource};
use crate::memory::{Addr, Line, LineId};
use crate::request::KeyHash;
use crate::sync::{AtomicU64, Ordering, spin_or_yield};

const LOCK_BIT: u64 = 1;
const VERSION_UNIT: u64 = 2;
const LINK_SHIFT: u32 = 30;
const LOW_MASK: u64 = (1 << LINK_SHIFT) - 1;

/// An odd number with well mixed bits (2^64 over the golden ratio).
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maximum number of buckets whose number fits into the control word of an overflow line.
pub(super) const BUCKETS_MAX: usize = 1 << LINK_SHIFT;

#[inline]
pub(super) fn is_locked(control_word: u64) -> bool {
    control_word & LOCK_BIT != 0
}

#[inline]
pub(super) fn link_of(control_word: u64) -> Option<LineId> {
    let link = control_word >> LINK_SHIFT;
    (link != 0).then_some(LineId(link))
}

pub(super) fn with_link(control_word: u64, link: Option<LineId>) -> u64 {
    control_word & LOW_MASK | link.map_or(0, |line| line.0) << LINK_SHIFT
}

/// The bucket to whose chain an overflow line belongs.
pub(super) fn owner_of(control_word: u64) -> usize {
    (control_word & LOW_MASK) as usize
}

/// Lines that links can name: 2^34, which is 1 TiB. Larger links would be truncated, so no larger arena is made.
pub(crate) const LINES_MAX: u64 = 1 << (u64::BITS - LINK_SHIFT);

/// All slots of the chain are used, and no line can be added: it has its maximum length, or no memory is left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChainFull;

/// A slot of a locked chain.
#[derive(Clone, Copy)]
pub(crate) struct LockedSlot<'i> {
    slot: &'i AtomicU64,
    /// Its content under the lock (the frequency may still grow).
    pub(crate) entry: Entry,
}

/// A locked chain; dropping it unlocks.
pub(crate) struct LockedBucket<'i> {
    index: &'i Index,
    primary: &'i Line,
    /// Its number in the index.
    number: usize,
}

impl<'i> LockedSlot<'i> {
    /// The slot as a reader sees it.
    pub(super) fn to_hit(self) -> Hit<'i> {
        Hit { entry: self.entry, slot: self.slot }
    }
}

impl<'i> LockedBucket<'i> {
    pub(super) fn lock(index: &'i Index, bucket_number: usize) -> Self {
        let primary = index.bucket_line(bucket_number);
        let mut round = 0;
        loop {
            let control_word = primary.control_word.load(Ordering::Relaxed);
            // Acquire pairs with the Release of the unlock: the chain is as its last holder left it.
            let try_lock = |()| {
                primary.control_word.compare_exchange_weak(
                    control_word,
                    control_word | LOCK_BIT,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
            };
            if !is_locked(control_word) && try_lock(()).is_ok() {
                return LockedBucket { index, primary, number: bucket_number };
            }
            spin_or_yield(&mut round);
        }
    }

    /// Whether this is its first line.
    pub(super) fn starts_at(&self, primary: &Line) -> bool {
        std::ptr::eq(self.primary, primary)
    }

    /// The slot for which `matches` holds among those with the tag of `hash`.
    pub(crate) fn find(
        &self,
        hash: KeyHash,
        mut matches: impl FnMut(Addr) -> bool,
    ) -> Option<LockedSlot<'i>> {
        self.slots().find(|locked_slot| {
            locked_slot.entry.may_match(hash) && matches(locked_slot.entry.item_addr())
        })
    }

    /// One of the least used entries, to be evicted when the bucket has no free slot for `new_entry`. The address of
    /// `new_entry` chooses among them, so that successive new entries do not replace each other.
    pub(crate) fn least_used(&self, new_entry: Entry) -> Option<LockedSlot<'i>> {
        let used_slots = || self.slots().filter(|locked_slot| locked_slot.entry.0 != 0);
        let lowest_frequency =
            used_slots().map(|locked_slot| locked_slot.entry.frequency()).min()?;
        let candidates =
            || used_slots().filter(|locked_slot| locked_slot.entry.frequency() == lowest_frequency);
        let spread = new_entry.item_addr().0.wrapping_mul(HASH_MULTIPLIER) >> u32::BITS;
        let candidate_count = candidates().count();
        candidates().nth(spread as usize % candidate_count.max(1))
    }

    /// Replaces the entry of a slot that was found under this lock.
    #[expect(clippy::unused_self, reason = "the lock is what makes it right")]
    pub(crate) fn replace(&mut self, locked_slot: LockedSlot<'i>, entry: Entry) {
        // Release: the new item's bytes are visible with it.
        exchange_slot(locked_slot.slot, entry.0);
    }

    /// Adds an entry, in a new overflow line if needed and if the chain may have one more.
    pub(crate) fn insert(
        &mut self,
        entry: Entry,
        source: &dyn SegmentSource,
    ) -> Result<(), ChainFull> {
        if let Some(empty) = self.slots().find(|locked_slot| locked_slot.entry.0 == 0) {
            empty.slot.store(entry.0, Ordering::Release);
            return Ok(());
        }
        if self.overflow_lines().count() >= CHAIN_LINES_MAX {
            return Err(ChainFull);
        }
        let (id, line) =
            self.index.overflow.allocate_line(&self.index.lines, source).ok_or(ChainFull)?;
        line.control_word.store(self.number as u64, Ordering::Relaxed);
        for slot in &line.slots {
            slot.store(0, Ordering::Relaxed);
        }
        if let Some(first_slot) = line.slots.first() {
            first_slot.store(entry.0, Ordering::Release);
        }
        let tail = self.overflow_lines().last().unwrap_or(self.primary);
        // Release: a reader that follows the link sees the line filled.
        tail.control_word.store(
            with_link(tail.control_word.load(Ordering::Relaxed), Some(id)),
            Ordering::Release,
        );
        Ok(())
    }

    /// Empties a slot; the chain's last entry moves into the gap and an empty last line is returned.
    pub(crate) fn remove(&mut self, locked_slot: LockedSlot<'i>) {
        let last_used_slot = self.slots().filter(|slot| slot.entry.0 != 0).last();
        if let Some(last_used_slot) = last_used_slot
            && !std::ptr::eq(last_used_slot.slot, locked_slot.slot)
        {
            exchange_slot(locked_slot.slot, last_used_slot.slot.load(Ordering::Relaxed));
            exchange_slot(last_used_slot.slot, 0);
        } else {
            exchange_slot(locked_slot.slot, 0);
        }
        self.trim();
    }

    /// Returns empty overflow lines at the end of the chain.
    pub(super) fn trim(&mut self) {
        let mut last_used_line = self.primary;
        let mut line = self.primary;
        while let Some(next) = link_of(line.control_word.load(Ordering::Relaxed)) {
            line = self.index.lines.line(next);
            if line.slots.iter().any(|slot| slot.load(Ordering::Relaxed) != 0) {
                last_used_line = line;
            }
        }
        let mut next_surplus_line = link_of(last_used_line.control_word.load(Ordering::Relaxed));
        last_used_line.control_word.store(
            with_link(last_used_line.control_word.load(Ordering::Relaxed), None),
            Ordering::Release,
        );
        while let Some(id) = next_surplus_line {
            next_surplus_line =
                link_of(self.index.lines.line(id).control_word.load(Ordering::Relaxed));
            self.index.overflow.free_line(&self.index.lines, id);
        }
    }

    /// Writes exactly `entries` into the chain, which has enough slots, in this order.
    ///
    /// No entry is missing at any moment if each was in the same or a later slot before.
    pub(super) fn rewrite(&mut self, entries: &[Entry]) {
        let mut remaining = entries.iter();
        for locked_slot in self.slots() {
            let entry_bits = remaining.next().map_or(0, |entry| entry.0);
            locked_slot.slot.store(entry_bits, Ordering::Release);
        }
        self.trim();
    }

    /// Everything in the chain, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + use<'_, 'i> {
        self.slots().map(|locked_slot| locked_slot.entry).filter(|entry| entry.0 != 0)
    }

    /// Replaces an overflow line by another line, to empty its segment.
    pub(super) fn relocate(&mut self, old: LineId, new: LineId) -> bool {
        let link_from = |line: &Line| link_of(line.control_word.load(Ordering::Relaxed));
        let predecessor = std::iter::once(self.primary)
            .chain(self.overflow_lines())
            .find(|line| link_from(line) == Some(old));
        let Some(predecessor) = predecessor else {
            return false;
        };
        let (old_line, new_line) = (self.index.lines.line(old), self.index.lines.line(new));
        for (old_slot, new_slot) in old_line.slots.iter().zip(&new_line.slots) {
            new_slot.store(old_slot.load(Ordering::Relaxed), Ordering::Release);
        }
        new_line
            .control_word
            .store(old_line.control_word.load(Ordering::Relaxed), Ordering::Release);
        predecessor.control_word.store(
            with_link(predecessor.control_word.load(Ordering::Relaxed), Some(new)),
            Ordering::Release,
        );
        true
    }

    /// The overflow lines, in order.
    fn overflow_lines(&self) -> impl Iterator<Item = &'i Line> + use<'i> {
        let index = self.index;
        let next_line = move |line: &Line| {
            link_of(line.control_word.load(Ordering::Relaxed)).map(|id| index.lines.line(id))
        };
        std::iter::successors(next_line(self.primary), move |line| next_line(line))
    }

    fn slots(&self) -> impl Iterator<Item = LockedSlot<'i>> + use<'i> {
        let all_lines = std::iter::once(self.primary).chain(self.overflow_lines());
        all_lines
            .flat_map(|line| &line.slots)
            .map(|slot| LockedSlot { slot, entry: Entry(slot.load(Ordering::Relaxed)) })
    }
}

/// Changes a slot in which readers may be counting a use. An exchange and not a store: of two read-modify-writes
/// one comes second and sees the first, which is easier to prove (and for loom to check) than a store among them.
fn exchange_slot(slot: &AtomicU64, entry_bits: u64) {
    slot.swap(entry_bits, Ordering::AcqRel);
}

impl Drop for LockedBucket<'_> {
    fn drop(&mut self) {
        let control_word = self.primary.control_word.load(Ordering::Relaxed);
        let version = (control_word & LOW_MASK & !LOCK_BIT).wrapping_add(VERSION_UNIT) & LOW_MASK;
        // Release pairs with the Acquire of readers and of the next lock.
        self.primary.control_word.store(control_word & !LOW_MASK | version, Ordering::Release);
    }
}
