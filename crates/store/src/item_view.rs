//! The item that a caller gets, and a value that is held beyond the epoch.

use std::sync::Arc;

use crate::item::bits;
use crate::lookup::LocatedItem;
use crate::memory::Addr;
use crate::request::{CasUnique, Expiry, Seconds};
use crate::store::Store;

/// A live item, borrowed until the worker passes.
pub struct Item<'w> {
    store: &'w Arc<Store>,
    located: LocatedItem,
    /// The state word as it was before this read.
    state_word: u16,
    /// The last access, if it is not in the state word.
    last_access: Option<Seconds>,
}

impl<'w> Item<'w> {
    #[inline]
    pub(crate) fn new(store: &'w Arc<Store>, located: LocatedItem, state_word: u16) -> Self {
        Item { store, located, state_word, last_access: None }
    }

    pub(crate) fn with_last_access(
        store: &'w Arc<Store>,
        located: LocatedItem,
        state_word: u16,
        last_access: Seconds,
    ) -> Self {
        Item { store, located, state_word, last_access: Some(last_access) }
    }

    /// Whether both are the same copy of the same item; for items of one epoch.
    pub fn is_same_copy(&self, other: &Item<'_>) -> bool {
        self.located.addr == other.located.addr
    }

    /// The key of the item.
    pub fn key(&self) -> &'w [u8] {
        self.store.key_of(&self.located)
    }

    /// The client's 32 bits.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.located.header.flags
    }

    /// Length of the value.
    #[inline]
    pub fn value_bytes(&self) -> u32 {
        self.located.header.value_bytes
    }

    /// The value when it is in one piece (as every value below a sixteenth of a segment is).
    #[inline]
    pub fn value(&self) -> Option<&'w [u8]> {
        (!self.located.header.is_chained).then(|| self.store.inline_value(&self.located))
    }

    /// The value in one or more pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &'w [u8]> + use<'w> {
        let store: &'w Store = self.store;
        let inline_value = self.value();
        let pieces: Vec<Addr> = store.pieces_of(&self.located).collect();
        inline_value.into_iter().chain(pieces.into_iter().map(|piece| store.piece_data(piece)))
    }

    /// Its CAS unique, to be sent to a client: from now on it stays, even if the item is moved.
    ///
    /// Call it only to send the unique, because this guarantee costs six bytes once the item is moved. If the item
    /// was moved at the very moment between the lookup and this call, a comparison with it fails, as after a write.
    pub fn unique(&self) -> CasUnique {
        if self.located.header.unique.is_none() && !self.store.is_unique_exposed(self.located.addr)
        {
            self.store.expose_unique(&self.located);
        }
        CasUnique(self.store.unique_of(&self.located))
    }

    /// Whether this is its CAS unique; guarantees nothing.
    pub fn has_unique(&self, unique: CasUnique) -> bool {
        self.store.unique_of(&self.located) == unique.0
    }

    /// When the item dies.
    #[inline]
    pub fn expiry(&self) -> Expiry {
        self.located.header.expiry
    }

    /// Whether it had been read before this read (meta `h`).
    pub fn was_fetched(&self) -> bool {
        self.state_word & bits::FETCHED != 0
    }

    /// Whether it is marked stale or the right to store it again was won: only [`crate::Worker::get_with`] returns
    /// which, and gives a correct reply for such an item.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.state_word & (bits::STALE | bits::WIN) != 0
    }

    /// When it was last read or written before this read (meta `l` is computed from it): exact for the first
    /// four minutes of a segment's life, then to one part in 128, never later than it was.
    pub fn last_access(&self) -> Seconds {
        self.last_access.unwrap_or_else(|| Store::access_of(&self.located, self.state_word))
    }

    /// Keeps the value's segments alive beyond the epoch, for a socket that does not take it all.
    /// `None` when an eighth of all segments is already held: then the caller copies the value, or waits.
    pub fn hold(&self) -> Option<HeldValue> {
        let store = Arc::clone(self.store);
        let mut held_value = HeldValue { store, inline_extent: None, pieces: Vec::new() };
        if let Some(value) = self.value() {
            let addr = self.located.addr;
            if !held_value.store.segments.hold(addr) {
                return None;
            }
            let offset = value.as_ptr().addr()
                - held_value.store.arena().published_range(addr, 0).as_ptr().addr();
            held_value.inline_extent = Some((addr, offset, value.len()));
        }
        for piece in self.store.pieces_of(&self.located) {
            if !held_value.store.segments.hold(piece) {
                return None;
            }
            held_value.pieces.push(piece);
        }
        Some(held_value)
    }
}

/// A value held by reference beyond the epoch; dropping it releases the segments.
pub struct HeldValue {
    store: Arc<Store>,
    /// The address of the item, and offset and length of its value, if that is in the item itself.
    inline_extent: Option<(Addr, usize, usize)>,
    pieces: Vec<Addr>,
}

impl HeldValue {
    /// The value in one or more pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let inline_value = self
            .inline_extent
            .iter()
            .map(|&(addr, offset, len)| self.store.arena().published_range(addr.plus(offset), len));
        inline_value.chain(self.pieces.iter().map(|&piece| self.store.piece_data(piece)))
    }
}

impl Drop for HeldValue {
    fn drop(&mut self) {
        let inline_addr = self.inline_extent.iter().map(|&(addr, ..)| addr);
        inline_addr
            .chain(self.pieces.iter().copied())
            .for_each(|addr| self.store.segments.unhold(addr));
    }
}
