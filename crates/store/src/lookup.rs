//! Reading items in place: from an address to key, header, value and pieces.
//!
//! Every address comes from a slot (or from a piece's table) that was read in the current epoch, so the bytes at it
//! do not change (`memory`).

use std::sync::atomic::{AtomicU16, Ordering};

use crate::index::{Hit, ItemHashes};
use crate::item::{
    self, FIELD_BYTES_BY_KIND, FIXED_HEADER_BYTES, Header, KIND_MINIMAL, MINIMAL_HEADER_BYTES,
    PIECE_ADDRESS_BYTES, PIECE_COUNT_BYTES, PIECE_HEADER_BYTES, Record, bits,
};
use crate::memory::Addr;
use crate::memory::arena::ITEM_ALIGN;
use crate::open_segments::UniqueSource;
use crate::request::{Expiry, KeyHash, Seconds};
use crate::segments;
use crate::store::Store;

/// An item whose header was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocatedItem {
    pub(crate) addr: Addr,
    pub(crate) header: Header,
    /// Bytes before the key.
    header_bytes: usize,
    generation: u64,
    pub(crate) base_time: Seconds,
}

impl LocatedItem {
    /// The address at which the value, or the table of pieces, starts.
    #[inline]
    fn body_addr(&self) -> Addr {
        self.addr.plus(self.header_bytes + self.header.key_bytes)
    }

    /// Whether both items contribute the same to all counts, so that replacing one by the other changes none; false for
    /// items in pieces.
    #[inline]
    pub(crate) fn is_counted_like(&self, other: &LocatedItem) -> bool {
        let counted = |item: &LocatedItem| {
            let Header { key_bytes, value_bytes, flags, .. } = item.header;
            (item.header_bytes, key_bytes, value_bytes, flags)
        };
        !self.header.is_chained && !other.header.is_chained && counted(self) == counted(other)
    }
}

impl Store {
    /// Finds the slot of the key, whose item may be dead.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: KeyHash) -> Option<Hit<'_>> {
        self.index.find(hash, |addr| self.has_key(addr, key))
    }

    /// Like [`Store::find`], under the bucket's lock.
    #[cold]
    pub(crate) fn find_locked(&self, key: &[u8], hash: KeyHash) -> Option<Hit<'_>> {
        self.index.find_locked(hash, &mut |addr| self.has_key(addr, key))
    }

    /// Whether the item at `addr` has this key.
    #[inline]
    pub(crate) fn has_key(&self, addr: Addr, key: &[u8]) -> bool {
        let [key_bytes, kind] = self.fixed_header(addr);
        usize::from(key_bytes) == key.len() && {
            let field_bytes =
                usize::from(FIELD_BYTES_BY_KIND.get(usize::from(kind)).copied().unwrap_or(0));
            self.arena().published_range(addr.plus(FIXED_HEADER_BYTES + field_bytes), key.len())
                == key
        }
    }

    /// The record at `addr`, an offset in a segment where a record starts. Its state word is not read: others
    /// may change it concurrently.
    pub(crate) fn record_at(&self, addr: Addr) -> Option<Record> {
        let segment_bytes_left = self.arena().segment_bytes() - self.arena().offset_of(addr);
        let readable_bytes =
            PIECE_HEADER_BYTES.min(segment_bytes_left) - ITEM_ALIGN.min(segment_bytes_left);
        item::parse_record(self.arena().published_range(addr.plus(ITEM_ALIGN), readable_bytes))
    }

    /// Reads the header at `addr`.
    #[inline]
    pub(crate) fn locate(&self, addr: Addr) -> LocatedItem {
        let fixed_header = self.fixed_header(addr);
        let [_, kind] = fixed_header;
        let field_bytes =
            usize::from(FIELD_BYTES_BY_KIND.get(usize::from(kind)).copied().unwrap_or(0));
        let fields = self.arena().published_range(addr.plus(FIXED_HEADER_BYTES), field_bytes);
        let (generation, base_time) = self.segments.generation_and_base_time(addr);
        let header = Header::parse(fixed_header, fields, base_time);
        LocatedItem {
            addr,
            header,
            header_bytes: FIXED_HEADER_BYTES + field_bytes,
            generation,
            base_time,
        }
    }

    /// The value of a live minimal item with this key, and the time from which its accesses are counted; `None` if the
    /// item at `addr` is another one.
    #[inline]
    pub(crate) fn minimal_item_value(&self, addr: Addr, key: &[u8]) -> Option<(&[u8], Seconds)> {
        // Every item has these three bytes: length of the key, kind, and at least one byte of the value's length.
        let &[key_bytes, KIND_MINIMAL, value_bytes] =
            self.arena().published_range(addr.plus(2), MINIMAL_HEADER_BYTES - 2)
        else {
            return None;
        };
        let (key_bytes, value_bytes) = (usize::from(key_bytes), usize::from(value_bytes));
        let record =
            self.arena().published_range(addr.plus(MINIMAL_HEADER_BYTES), key_bytes + value_bytes);
        let (item_key, value) = record.split_at_checked(key_bytes)?;
        let (generation, base_time) = self.segments.generation_and_base_time(addr);
        let is_flushed = self.segments.flushes.is_flushed(generation, || item_key);
        (!is_flushed && keys_equal(item_key, key)).then_some((value, base_time))
    }

    #[inline]
    fn fixed_header(&self, addr: Addr) -> [u8; 2] {
        self.arena().published_range(addr.plus(2), 2).try_into().unwrap_or([0; 2])
    }

    /// Whether the item has neither expired nor been flushed.
    #[inline]
    pub(crate) fn is_alive(&self, item: &LocatedItem, now: Seconds) -> bool {
        !self.is_flushed(item)
            && match item.header.expiry {
                Expiry::Never => true,
                Expiry::At(second) => second > now,
            }
    }

    /// Whether it is dead by a flush, not by its own expiry.
    #[inline]
    pub(crate) fn is_flushed(&self, item: &LocatedItem) -> bool {
        let flushes = &self.segments.flushes;
        flushes.is_flushed(item.generation, || self.key_of(item))
    }

    /// Whether the item under `key` at `addr` is dead by a flush.
    #[inline]
    pub(crate) fn is_flushed_at(&self, addr: Addr, key: &[u8]) -> bool {
        let flushes = &self.segments.flushes;
        let (generation, _) = self.segments.generation_and_base_time(addr);
        flushes.is_flushed(generation, || key)
    }

    /// The key of an item.
    pub(crate) fn key_of(&self, item: &LocatedItem) -> &[u8] {
        self.arena().published_range(item.addr.plus(item.header_bytes), item.header.key_bytes)
    }

    /// The value of an item that is not chained; empty for one that is.
    #[inline]
    pub(crate) fn inline_value(&self, item: &LocatedItem) -> &[u8] {
        let value_bytes = if item.header.is_chained { 0 } else { item.header.value_bytes as usize };
        self.arena().published_range(item.body_addr(), value_bytes)
    }

    /// Addresses of the pieces of a chained item, none for another.
    pub(crate) fn pieces_of(
        &self,
        item: &LocatedItem,
    ) -> impl ExactSizeIterator<Item = Addr> + use<'_> {
        let table = item.body_addr().plus(PIECE_COUNT_BYTES);
        (0..self.piece_count(item)).map(move |index| {
            Addr(item::read_le(
                self.arena()
                    .published_range(table.plus(index * PIECE_ADDRESS_BYTES), PIECE_ADDRESS_BYTES),
            ))
        })
    }

    fn piece_count(&self, item: &LocatedItem) -> usize {
        if item.header.is_chained {
            item::read_le(self.arena().published_range(item.body_addr(), PIECE_COUNT_BYTES))
                as usize
        } else {
            0
        }
    }

    /// Length of a piece's data.
    pub(crate) fn piece_data_bytes(&self, piece: Addr) -> usize {
        match self.record_at(piece) {
            Some(Record::Piece { data_bytes, .. }) => data_bytes,
            _ => 0,
        }
    }

    /// A piece's data.
    pub(crate) fn piece_data(&self, piece: Addr) -> &[u8] {
        self.arena().published_range(piece.plus(PIECE_HEADER_BYTES), self.piece_data_bytes(piece))
    }

    /// Bytes of the item's own record, without pieces.
    pub(crate) fn record_bytes(&self, item: &LocatedItem) -> usize {
        let body_bytes = if item.header.is_chained {
            PIECE_COUNT_BYTES + self.piece_count(item) * PIECE_ADDRESS_BYTES
        } else {
            item.header.value_bytes as usize
        };
        item::padded_bytes(item.header_bytes + item.header.key_bytes + body_bytes)
    }

    /// Key and value bytes.
    pub(crate) fn user_bytes(item: &LocatedItem) -> usize {
        item.header.key_bytes + item.header.value_bytes as usize
    }

    /// The CAS unique of an item.
    pub(crate) fn unique_of(&self, item: &LocatedItem) -> u64 {
        let implied_unique = self.segments.implied_unique(item.addr);
        item.header.unique.map_or(implied_unique, |stored| stored.resolve(implied_unique))
    }

    /// The CAS unique for a copy of the same item: the old one if a client may know it.
    pub(crate) fn unique_for_copy(&self, item: &LocatedItem) -> UniqueSource {
        let unique = self.unique_of(item);
        if item.header.unique.is_some() || self.is_unique_exposed(item.addr) {
            UniqueSource::Exactly(unique)
        } else {
            UniqueSource::Renewed(unique)
        }
    }

    /// Whether the unique of the address was sent to a client.
    pub(crate) fn is_unique_exposed(&self, addr: Addr) -> bool {
        self.state_word_of(addr) & bits::UNIQUE_EXPOSED != 0
    }

    /// Guarantees that the unique stays, before it is sent to a client. Under the lock, so that no copy with
    /// another unique is published meanwhile; a comparison with an item that was replaced meanwhile fails anyway.
    #[cold]
    pub(crate) fn expose_unique(&self, item: &LocatedItem) {
        let hash = self.hash(self.key_of(item));
        let bucket = self.index.lock(hash);
        if bucket.find(hash, |slot_addr| slot_addr == item.addr).is_some() {
            let state_word = self.arena().state_word(item.addr);
            state_word.fetch_or(bits::UNIQUE_EXPOSED, Ordering::Relaxed);
        }
    }

    /// The current marks and last access.
    #[inline]
    pub(crate) fn state_word_of(&self, addr: Addr) -> u16 {
        self.arena().state_word(addr).load(Ordering::Relaxed)
    }

    /// Counts a use of the item in its slot, if an item at `used_addr` is old enough.
    pub(crate) fn record_use(&self, key: &[u8], hash: KeyHash, used_addr: Addr) {
        if let Some(hit) = self.find(key, hash) {
            hit.record_use(|_| self.segments.is_young(used_addr));
        }
    }

    /// Records the time of a use and a mark; returns the previous content.
    // LOSSY: an update concurrent with another change is dropped.
    #[inline]
    pub(crate) fn record_access(&self, item: &LocatedItem, mark_bit: u16, now: Seconds) -> u16 {
        let state_word = self.arena().state_word(item.addr);
        let old_word = state_word.load(Ordering::Relaxed);
        replace_access(state_word, old_word, mark_bit, (item.base_time, now));
        old_word
    }

    /// When an item with this state word was last used.
    pub(crate) fn access_of(item: &LocatedItem, state_word: u16) -> Seconds {
        Seconds(item.base_time.0.saturating_add(item::decode_access(state_word)))
    }

    /// The queue of an item.
    pub(crate) fn queue_of(&self, addr: Addr) -> segments::Queue {
        self.segments.queue_and_position(addr).0
    }
}

/// Updates the access time, relative to the base time of the segment, and a mark in a state word that was `old_word`.
#[inline]
pub(crate) fn replace_access(
    state_word: &AtomicU16,
    old_word: u16,
    mark_bit: u16,
    (base_time, now): (Seconds, Seconds),
) {
    let access = item::encode_access(now.0.saturating_sub(base_time.0));
    let new_word = old_word & bits::MARKS | mark_bit | access;
    if new_word != old_word {
        let _ =
            state_word.compare_exchange(old_word, new_word, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Whether two keys are equal: those of most caches have 8 to 32 bytes, which two comparisons cover without a call.
#[inline]
fn keys_equal(lhs: &[u8], rhs: &[u8]) -> bool {
    fn first_and_last_bytes<const END: usize>(key: &[u8]) -> Option<([u8; END], [u8; END])> {
        (key.len() <= 2 * END).then(|| Some((*key.first_chunk()?, *key.last_chunk()?))).flatten()
    }
    lhs.len() == rhs.len()
        && match (first_and_last_bytes::<16>(lhs), first_and_last_bytes::<16>(rhs)) {
            (Some(lhs_ends), Some(rhs_ends)) => lhs_ends == rhs_ends,
            _ => match (first_and_last_bytes::<8>(lhs), first_and_last_bytes::<8>(rhs)) {
                (Some(lhs_ends), Some(rhs_ends)) => lhs_ends == rhs_ends,
                _ => lhs == rhs,
            },
        }
}

impl ItemHashes for Store {
    fn hash_of(&self, addr: Addr) -> KeyHash {
        let located = self.locate(addr);
        self.hash(self.key_of(&located))
    }

    fn prefetch(&self, addr: Addr) {
        self.arena().prefetch(addr);
    }
}
