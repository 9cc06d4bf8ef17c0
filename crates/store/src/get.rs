//! A get without options: a lookup and a record of the use.
//!
//! A hit writes at most two things, both conditionally and both lossy: two bits in the slot that was just read, and
//! the item's state word when the second has changed. Neither waits.

use std::sync::atomic::Ordering;

use crate::index::Hit;
use crate::item::bits;
use crate::item_view::Item;
use crate::lookup::{self, LocatedItem};
use crate::lookup_hint::LookupHint;
use crate::request::{Expiry, KeyHash, Seconds};
use crate::sampling::Operation;
use crate::worker::Worker;

impl Worker {
    /// A read without options that records the hit; `None` is a miss.
    #[inline]
    pub fn get(&self, key: &[u8], hash: KeyHash, now: Seconds) -> Option<Item<'_>> {
        self.get_hinted(key, hash, LookupHint::default(), now)
    }

    /// Like [`Worker::get`], with the hint of [`Worker::prefetch_item`]: right or wrong, it does not change the
    /// result.
    #[inline]
    pub fn get_hinted<'w>(
        &'w self,
        key: &[u8],
        hash: KeyHash,
        hint: LookupHint<'w>,
        now: Seconds,
    ) -> Option<Item<'w>> {
        let Some((hit, item)) = self.find_alive(key, hash, hint, now) else {
            self.accounting.sample(hash, || Operation::read(key, hash, None, now));
            return None;
        };
        hit.record_use(|addr| self.store.segments.is_young(addr));
        let old_state_word = self.store.record_access(&item, bits::FETCHED, now);
        let (value_bytes, expiry) = (item.header.value_bytes, item.header.expiry);
        self.accounting
            .sample(hash, || Operation::read(key, hash, Some((value_bytes, expiry)), now));
        Some(Item::new(self.mark_borrowed(), item, old_state_word))
    }

    /// Like [`Worker::get_hinted`] for the most common items, and cheaper: the value of a minimal item (client flags
    /// 0, no expiry, no stored unique, less than 256 bytes) without marks, if the hint was right. `None` does not
    /// mean a miss.
    #[inline]
    pub fn get_minimal_item_value<'w>(
        &'w self,
        key: &[u8],
        hash: KeyHash,
        hint: LookupHint<'w>,
        now: Seconds,
    ) -> Option<&'w [u8]> {
        if !self.begin_operation(now) {
            return None;
        }
        let hit = hint.hit?.reload()?;
        let addr = hit.entry.item_addr();
        let store = self.mark_borrowed();
        let (value, base_time) = store.minimal_item_value(addr, key)?;
        let state_word = store.arena().state_word(addr);
        let old_state_word = state_word.load(Ordering::Relaxed);
        if old_state_word & (bits::STALE | bits::WIN) != 0 {
            return None;
        }
        hit.record_use(|addr| store.segments.is_young(addr));
        lookup::replace_access(state_word, old_state_word, bits::FETCHED, (base_time, now));
        let found = Some((value.len() as u32, Expiry::Never));
        self.accounting.sample(hash, || Operation::read(key, hash, found, now));
        Some(value)
    }

    /// Reads without recording anything.
    pub fn peek(&self, key: &[u8], hash: KeyHash, now: Seconds) -> Option<Item<'_>> {
        let (_, item) = self.find_alive(key, hash, LookupHint::default(), now)?;
        Some(Item::new(self.mark_borrowed(), item, self.store.state_word_of(item.addr)))
    }

    #[inline]
    fn find_alive<'w>(
        &'w self,
        key: &[u8],
        hash: KeyHash,
        hint: LookupHint<'w>,
        now: Seconds,
    ) -> Option<(Hit<'w>, LocatedItem)> {
        if !self.begin_operation(now) {
            return None;
        }
        let has_same_key = |hit: &Hit<'_>| self.store.has_key(hit.entry.item_addr(), key);
        let hit = match hint.hit.and_then(Hit::reload).filter(has_same_key) {
            Some(hit) => hit,
            None => self.store.find(key, hash)?,
        };
        let item = self.store.locate(hit.entry.item_addr());
        if self.store.is_alive(&item, now) {
            return Some((hit, item));
        }
        self.accounting.remove_dead(hash, &item);
        None
    }
}
