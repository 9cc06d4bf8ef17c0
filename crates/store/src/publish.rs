//! Publication: a new copy of an item replaces the old one in the index.

use std::sync::atomic::Ordering;

use crate::accounting::ItemAccounting;
use crate::index::Entry;
use crate::memory::Addr;
use crate::open_segments::Appender;
use crate::request::{KeyHash, Seconds};

/// What a worker needs to write and count records, at one second.
#[derive(Clone, Copy)]
pub(crate) struct WriteContext<'w> {
    pub(crate) accounting: &'w ItemAccounting,
    pub(crate) appender: &'w Appender,
    pub(crate) now: Seconds,
}

/// A new copy to be published, and the item that it replaces.
pub(crate) struct Publication<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hash: KeyHash,
    /// The item that the slot must name; `None`: the key must have no slot.
    pub(crate) expected_addr: Option<Addr>,
    pub(crate) new_addr: Addr,
    /// The frequency of the new copy; `None` inherits it.
    pub(crate) frequency: Option<u8>,
    pub(crate) inherited_bits: u16,
    /// Whether the copy was made of the expected item, or decided because that was alive: a flush must remove both or
    /// none, so nothing is published if the expected item was flushed.
    pub(crate) only_if_expected_unflushed: bool,
    /// Whether the copy has another unique than the old one, which must not have been exposed.
    pub(crate) has_new_unique: bool,
}

impl Publication<'_> {
    /// Replaces the content of the key's slot by the new copy, if the slot still names the expected item; else
    /// false.
    pub(crate) fn publish(&self, context: WriteContext<'_>) -> bool {
        let (store, hash) = (context.accounting.store(), self.hash);
        // Generations of segments in use do not change, so this needs no lock: the copy is in a segment whose
        // generation was known before this check, so a flush that comes after it ends both, and one that came before
        // is found here.
        if self.only_if_expected_unflushed
            && self.expected_addr.is_some_and(|addr| store.is_flushed_at(addr, self.key))
        {
            return false;
        }
        let mut bucket = store.index.lock(hash);
        let Some(expected_addr) = self.expected_addr else {
            if bucket.find(hash, |addr| store.has_key(addr, self.key)).is_some() {
                return false;
            }
            let entry = Entry::new(hash, self.frequency.unwrap_or(0), self.new_addr);
            if bucket.insert(entry, store).is_err()
                && let Some(victim) = bucket.least_used(entry)
            {
                bucket.replace(victim, entry);
                drop(bucket);
                context.accounting.release_displaced(victim.entry.item_addr(), context.now);
            }
            return true;
        };
        let Some(slot) = bucket.find(hash, |addr| addr == expected_addr) else {
            return false;
        };
        if self.has_new_unique && store.is_unique_exposed(expected_addr) {
            return false;
        }
        if self.inherited_bits != 0 {
            // Under the lock no thread wins or marks, so nothing is lost between the copies.
            let inherited = store.state_word_of(expected_addr) & self.inherited_bits;
            store.arena().state_word(self.new_addr).fetch_or(inherited, Ordering::Relaxed);
        }
        let frequency = self.frequency.unwrap_or(slot.entry.frequency());
        bucket.replace(slot, Entry::new(hash, frequency, self.new_addr));
        true
    }
}
