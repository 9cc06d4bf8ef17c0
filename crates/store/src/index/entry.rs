//! The content of a slot, and a slot that a reader found: the item that it names, and how often that was used.

use crate::memory::Addr;
use crate::request::KeyHash;
use crate::sync::{AtomicU64, Ordering};

/// The frequency counts to three and stays there, as in S3-FIFO: a hot item is then read without a write.
const FREQUENCY_MAX: u8 = 3;

/// A slot's content: tag 14 bits, frequency 2, address 48. Zero is an empty slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(pub(crate) u64);

const ADDRESS_BITS: u32 = 48;
pub(super) const TAG_SHIFT: u32 = 50;
/// Bits of the hash that a slot keeps, its highest.
pub(crate) const TAG_BITS: u32 = u64::BITS - TAG_SHIFT;

impl Entry {
    /// The entry that names the item at `item_addr`.
    pub(crate) fn new(hash: KeyHash, frequency: u8, item_addr: Addr) -> Self {
        Entry(
            (hash.0 >> TAG_SHIFT << TAG_SHIFT)
                | u64::from(frequency & FREQUENCY_MAX) << ADDRESS_BITS
                | item_addr.0,
        )
    }

    /// The address of the item.
    #[inline]
    pub(crate) fn item_addr(self) -> Addr {
        Addr(self.0 & ((1 << ADDRESS_BITS) - 1))
    }

    /// The highest bits of the hash.
    #[inline]
    pub(crate) fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    /// How often the item was used recently, 0 to 3.
    #[inline]
    pub(crate) fn frequency(self) -> u8 {
        (self.0 >> ADDRESS_BITS) as u8 & FREQUENCY_MAX
    }

    /// The same item with another frequency.
    pub(crate) fn with_frequency(self, frequency: u8) -> Self {
        let mask = u64::from(FREQUENCY_MAX) << ADDRESS_BITS;
        Entry(self.0 & !mask | u64::from(frequency & FREQUENCY_MAX) << ADDRESS_BITS)
    }

    #[inline]
    pub(super) fn may_match(self, hash: KeyHash) -> bool {
        self.0 != 0 && self.has_tag(hash)
    }

    /// Whether the tags agree; an empty slot has tag 0.
    #[inline]
    pub(super) fn has_tag(self, hash: KeyHash) -> bool {
        self.0 ^ hash.0 < 1 << TAG_SHIFT
    }
}

/// A slot that was found by a reader.
#[derive(Clone, Copy)]
pub(crate) struct Hit<'i> {
    /// The content of the slot when it was read.
    pub(crate) entry: Entry,
    pub(super) slot: &'i AtomicU64,
}

impl Hit<'_> {
    /// The same slot as it is now, if it still names the same item.
    #[inline]
    pub(crate) fn reload(self) -> Option<Self> {
        // Acquire pairs with the Release that published the item.
        let entry = Entry(self.slot.load(Ordering::Acquire));
        let is_same = entry.with_frequency(0) == self.entry.with_frequency(0);
        is_same.then_some(Hit { entry, ..self })
    }

    /// Counts a use, unless the item `is_young`: what cannot be counted costs no more than before.
    // LOSSY: a use concurrent with another change of the slot is not counted.
    #[inline]
    pub(crate) fn record_use(&self, is_young: impl FnOnce(Addr) -> bool) {
        let frequency = self.entry.frequency();
        if frequency < FREQUENCY_MAX && !is_young(self.entry.item_addr()) {
            let incremented = self.entry.with_frequency(frequency + 1).0;
            // Relaxed: publishes nothing; Release all the same so that the slot continues to publish the item.
            let _ = self.slot.compare_exchange(
                self.entry.0,
                incremented,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }

    /// Gives the entry another frequency.
    // LOSSY: like a use, a change concurrent with another is dropped.
    pub(crate) fn set_frequency(&self, frequency: u8) {
        let updated = self.entry.with_frequency(frequency).0;
        let _ =
            self.slot.compare_exchange(self.entry.0, updated, Ordering::Release, Ordering::Relaxed);
    }
}
