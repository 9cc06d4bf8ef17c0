//! Listing the items of a store in slices, each once, in an order that reveals nothing about the index.
//!
//! A client that can read keys bucket by bucket learns which of them share a bucket, and can then choose keys that
//! make one chain long. So a listing walks the buckets and keeps only hashes, each at a random index among those
//! kept, and reads the items in that order. Several passes, one for each class of tags, bound the number kept; the
//! bits of a tag are not used for the choice of a bucket.

use crate::index::{Entry, ItemHashes, TAG_BITS, next_cursor};
use crate::item_view::Item;
use crate::request::{KeyHash, Seconds};
use crate::store::Store;
use crate::worker::Worker;

/// Maximum number of hashes that one pass keeps while there are at most sixteen times as many items.
const PASS_ITEMS_MAX: u64 = 16 << 10;
/// Maximum number of passes: half a byte is kept for each item, a hundredth of the smallest.
const PASSES_MAX: u64 = 16;

/// The progress of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// State of the random numbers; clients must not be able to predict it.
    random_state: u64,
    /// A power of two.
    pass_count: u64,
    current_pass: u64,
    /// Expected number of hashes that one pass keeps, with a reserve: a vector that grew would be copied at once.
    pass_capacity: usize,
    /// Where the walk over the buckets continues; `None` when this pass has visited all.
    cursor: Option<u64>,
    /// Hashes found in this pass and not listed yet, in random order.
    hashes: Vec<KeyHash>,
    entries: Vec<Entry>,
}

impl Listing {
    /// A listing from the beginning. `seed` orders it and must be random if clients are not trusted.
    pub fn new(seed: u64, item_count: u64) -> Listing {
        let pass_count =
            item_count.div_ceil(PASS_ITEMS_MAX).next_power_of_two().clamp(1, PASSES_MAX);
        let expected_pass_items = item_count / pass_count;
        Listing {
            random_state: seed | 1,
            pass_count,
            current_pass: 0,
            pass_capacity: (expected_pass_items + expected_pass_items / 16 + 1024) as usize,
            cursor: Some(0),
            hashes: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<KeyHash>()
    }

    /// Keeps a hash at a random index among those kept.
    fn insert_shuffled(&mut self, hash: KeyHash) {
        self.random_state ^= self.random_state << 13;
        self.random_state ^= self.random_state >> 7;
        self.random_state ^= self.random_state << 17;
        if self.hashes.len() == self.hashes.capacity() {
            self.hashes.reserve_exact(self.pass_capacity.max(self.hashes.len() / 4));
        }
        self.hashes.push(hash);
        let kept_count = self.hashes.len();
        let index = ((u128::from(self.random_state) * kept_count as u128) >> 64) as usize;
        self.hashes.swap(index, kept_count - 1);
    }

    /// Keeps the hashes of this pass from some buckets; returns how many entries it examined.
    fn collect_hashes(&mut self, store: &Store, limit: usize) -> usize {
        let mut examined = 0;
        while let Some(cursor) = self.cursor {
            let mut entries = std::mem::take(&mut self.entries);
            let bucket_count = store.index.entries_of(KeyHash(cursor.reverse_bits()), &mut entries);
            for entry in &entries {
                if !self.is_in_current_pass(*entry) {
                    continue;
                }
                let hash = store.hash_of(entry.item_addr());
                // After a merge the bucket also contains hashes seen before.
                if hash.0.reverse_bits() >= cursor {
                    self.insert_shuffled(hash);
                }
            }
            examined += entries.len().max(1);
            self.entries = entries;
            self.cursor = next_cursor(cursor, bucket_count);
            if examined >= limit {
                break;
            }
        }
        examined
    }

    /// Whether an item with this tag belongs to the current pass.
    fn is_in_current_pass(&self, entry: Entry) -> bool {
        entry.tag() & (self.pass_count - 1) == self.current_pass
    }
}

const _: () = assert!(PASSES_MAX <= 1 << TAG_BITS, "there must be as many tags as passes");

impl Worker {
    /// Examines about `limit` entries of the index or items, and visits the items that it lists. Returns how many
    /// it examined; `None` when the listing is complete.
    ///
    /// An item that is present throughout is visited once, whatever is split, merged or moved meanwhile.
    pub fn list(
        &self,
        listing: &mut Listing,
        limit: usize,
        now: Seconds,
        visit: &mut dyn FnMut(&Item<'_>),
    ) -> Option<usize> {
        if !self.begin_operation(now) {
            return None;
        }
        if listing.cursor.is_some() {
            return Some(listing.collect_hashes(self.mark_borrowed(), limit));
        }
        for examined in 0..limit {
            let Some(hash) = listing.hashes.pop() else {
                listing.current_pass += 1;
                listing.cursor = (listing.current_pass < listing.pass_count).then_some(0);
                return listing.cursor.map(|_| examined + 1);
            };
            self.visit_hash(hash, now, visit);
        }
        Some(limit)
    }

    fn visit_hash(&self, hash: KeyHash, now: Seconds, visit: &mut dyn FnMut(&Item<'_>)) {
        let store = self.mark_borrowed();
        // The item may have been moved since its hash was kept, so it is looked up by the hash alone.
        let Some(hit) = store.index.find(hash, |addr| store.hash_of(addr) == hash) else {
            return;
        };
        let item = store.locate(hit.entry.item_addr());
        if store.is_alive(&item, now) {
            visit(&Item::new(store, item, store.state_word_of(item.addr)));
        }
    }
}
