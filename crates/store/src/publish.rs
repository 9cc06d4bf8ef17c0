//! Publication: the moment at which a new copy takes the old one's place, and the accounts that follow.

use std::sync::atomic::Ordering;

use crate::counters::Count;
use crate::index::Entry;
use crate::item::piece_bytes;
use crate::lookup::Located;
use crate::memory::Addr;
use crate::request::{KeyHash, Seconds};
use crate::write::Found;
use crate::{Store, Worker};

/// What a publication replaces.
pub(crate) struct Publication<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hash: KeyHash,
    /// The item that the slot must name; `None`: the key must have no slot.
    pub(crate) expected: Option<Addr>,
    pub(crate) new: Addr,
    /// `None` inherits.
    pub(crate) frequency: Option<u8>,
    pub(crate) keeps: u16,
    /// The copy was made of `expected`, or decided upon because that was alive: no flush may part the two.
    pub(crate) is_of_expected: bool,
    /// The copy has another unique than the old one, which must not have been told.
    pub(crate) is_renewed: bool,
}

impl Worker {
    /// Puts a new copy into the key's slot, if that still names what was expected.
    pub(crate) fn publish(&self, publication: &Publication<'_>, now: Seconds) -> bool {
        let Publication {
            key,
            hash,
            expected,
            new,
            frequency,
            keeps,
            is_of_expected,
            is_renewed,
        } = *publication;
        let store = &*self.store;
        // Generations of segments in use stand still, so this needs no lock: either both die with the next flush, or
        // there was one since the decision and the copy would outlive it.
        if is_of_expected && expected.is_some_and(|source| !store.dies_with(source, new)) {
            return false;
        }
        let mut bucket = store.index.lock(hash);
        let Some(expected) = expected else {
            if bucket.find(hash, |at| store.has_key(at, key)).is_some() {
                return false;
            }
            let entry = Entry::new(hash, frequency.unwrap_or(0), new);
            if bucket.insert(entry, store).is_err()
                && let Some(victim) = bucket.least_used(entry)
            {
                bucket.replace(victim, entry);
                drop(bucket);
                self.displaced(victim.entry.item(), now);
            }
            return true;
        };
        let Some(place) = bucket.find(hash, |at| at == expected) else {
            return false;
        };
        if is_renewed && store.is_told(expected) {
            return false;
        }
        if keeps != 0 {
            // Under the lock nobody wins or marks, so nothing is lost between the copies.
            let kept = store.mutable_of(expected) & keeps;
            store.arena().mutable(new).fetch_or(kept, Ordering::Relaxed);
        }
        bucket.replace(
            place,
            Entry::new(hash, frequency.unwrap_or(place.entry.frequency()), new),
        );
        true
    }

    /// The chain was at its bound or the index had no room for a line: one of the chain's least used items went.
    #[cold]
    fn displaced(&self, at: Addr, now: Seconds) {
        let item = self.store.locate(at);
        self.count(Count::Displaced, 1);
        self.evicted(&item, now);
        self.forget(&item, &[]);
    }

    pub(crate) fn account_swap(&self, found: &Found, new: Addr, pieces: &[Addr]) {
        let new = self.store.locate(new);
        self.account(&new, 1);
        self.count(Count::ItemsTotal, 1);
        if found.present.is_none() {
            self.note_newcomer(Store::user_bytes(&new));
        }
        if let Some(old) = found.present {
            if !found.is_alive {
                self.expired(&old);
            }
            self.forget(&old, pieces);
        }
    }

    /// Counts an item in (1) or out (-1).
    pub(crate) fn account(&self, item: &Located, sign: i64) {
        let store = &*self.store;
        let pieces: usize = store
            .pieces_of(item)
            .map(|piece| piece_bytes(store.piece_data_bytes(piece)))
            .sum();
        if let Some(block) = self.block() {
            block.add(Count::Items, sign);
            block.add(Count::UserBytes, sign * Store::user_bytes(item) as i64);
            block.add(
                Count::ItemBytes,
                sign * (store.record_bytes(item) + pieces) as i64,
            );
            let peer = Store::peer_bytes(
                item.header.key_bytes,
                item.header.value_bytes as usize,
                item.header.flags,
            );
            block.add_class(store.slab_class(peer), sign, sign * peer as i64);
        }
        self.tell_items(sign);
    }

    /// Lets go of an item that no slot names any more; `shared` pieces live on in its successor.
    pub(crate) fn forget(&self, item: &Located, shared: &[Addr]) {
        self.account(item, -1);
        let store = &*self.store;
        if item.header.is_chained {
            let mut shared = shared.to_vec();
            shared.sort_unstable();
            for piece in store.pieces_of(item) {
                if shared.binary_search(&piece).is_err() {
                    store
                        .segments
                        .unlive(piece, piece_bytes(store.piece_data_bytes(piece)));
                }
            }
        }
        store.segments.unlive(item.at, store.record_bytes(item));
    }
}
