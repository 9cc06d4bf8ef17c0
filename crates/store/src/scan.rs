//! Walking over all items, for `metadump`, `stats` of keys, and tests.

use crate::Worker;
use crate::index::next_cursor;
use crate::request::{KeyHash, Seconds};
use crate::view::Item;

impl Worker {
    /// Visits live items from `cursor` (0 at first), at most about `limit`; returns the next cursor or `None` at
    /// the end. Every item present throughout the walk is seen at least once, whatever splits or merges.
    pub fn scan(
        &self,
        cursor: u64,
        limit: usize,
        now: Seconds,
        visit: &mut dyn FnMut(&Item<'_>),
    ) -> Option<u64> {
        if !self.begin(now) {
            return None;
        }
        let store = self.lend();
        let (mut next, mut seen, mut entries) = (Some(cursor), 0, Vec::new());
        while let Some(at) = next {
            let buckets = store
                .index
                .entries_of(KeyHash(at.reverse_bits()), &mut entries);
            next = next_cursor(at, buckets);
            for entry in &entries {
                let item = store.locate(entry.item());
                if store.is_alive(&item, now) {
                    visit(&Item::new(store, item, store.mutable_of(item.at)));
                }
            }
            seen += entries.len().max(1);
            if seen >= limit {
                return next;
            }
        }
        None
    }
}
