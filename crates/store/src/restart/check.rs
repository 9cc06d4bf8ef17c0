//! The check of every item that the index names, before the first request: nothing in the memory is trusted.
//!
//! The index names records by address in random order. Sorted by segment they are compared with a walk over the
//! segment, which reads each byte once and in order: every entry must name the start of an item whose key has the
//! bucket and the tag of the entry, and every record, dead ones too, must end within its segment. The walk counts
//! the live bytes again. A piece must belong to the one item that names it.

use std::sync::PoisonError;

use crate::accounting::count_item_in_block;
use crate::counters::{CounterBlock, CounterId};
use crate::index::{Entry, TAG_BITS, bucket_of};
use crate::item::{
    self, FIELD_BYTES_BY_KIND, FIXED_HEADER_BYTES, Header, PIECE_ADDRESS_BYTES, PIECE_COUNT_BYTES,
    PIECE_HEADER_BYTES, Record, piece_record_bytes,
};
use crate::lookup::LocatedItem;
use crate::memory::arena::ITEM_ALIGN;
use crate::memory::{Addr, Arena, SegmentId};
use crate::request::{KEY_BYTES_MAX, KeyHash, Seconds};
use crate::segments::ItemSegment;
use crate::store::Store;
use crate::sync::plain::Mutex;
use crate::sync::{AtomicUsize, Ordering};

use super::bytes::checksum;

/// Why the memory is refused.
pub(super) type RefusalReason = &'static str;

/// An entry of the index as one number that sorts by the offset: offset over two, tag and bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PackedEntry(u64);

/// Bits of a bucket's number.
const BUCKET_BITS: u32 = 30;

impl PackedEntry {
    fn new(offset: usize, tag: u64, bucket: usize) -> Self {
        let position = (offset / ITEM_ALIGN) as u64;
        PackedEntry((position << TAG_BITS | tag) << BUCKET_BITS | bucket as u64)
    }

    fn offset(self) -> usize {
        (self.0 >> (BUCKET_BITS + TAG_BITS)) as usize * ITEM_ALIGN
    }

    fn tag_and_bucket(self) -> (u64, usize) {
        let tag = self.0 >> BUCKET_BITS & ((1 << TAG_BITS) - 1);
        (tag, (self.0 & ((1 << BUCKET_BITS) - 1)) as usize)
    }
}

/// The entries of the index, by segment.
pub(super) struct EntriesBySegment {
    by_segment: Vec<Vec<PackedEntry>>,
    /// Whether one of them names no address of an item.
    has_out_of_range: bool,
}

impl EntriesBySegment {
    pub(super) fn new(segment_count: usize) -> Self {
        EntriesBySegment { by_segment: vec![Vec::new(); segment_count], has_out_of_range: false }
    }

    pub(super) fn add(&mut self, store: &Store, bucket: usize, entry: Entry) {
        let addr = entry.item_addr();
        // Compared as 64 bits: a `SegmentId` of an address beyond the arena may be that of a segment in it.
        let segment_number = addr.0 / store.arena().segment_bytes() as u64;
        let index = usize::try_from(segment_number).ok();
        match index.and_then(|index| self.by_segment.get_mut(index)) {
            Some(segment_entries) if addr.0.is_multiple_of(ITEM_ALIGN as u64) => {
                let offset = store.arena().offset_of(addr);
                segment_entries.push(PackedEntry::new(offset, entry.tag(), bucket));
            }
            _ => self.has_out_of_range = true,
        }
    }
}

/// A record and its length.
struct RecordExtent {
    record: Record,
    padded_bytes: usize,
}

/// A piece of a value.
struct Piece {
    addr: Addr,
    data_bytes: usize,
    hash: KeyHash,
    /// Whether an item names it.
    is_owned: bool,
}

/// The contents of segments, as walks over them find them.
struct SegmentContents {
    /// Live bytes of each segment.
    live_bytes_by_segment: Vec<(SegmentId, usize)>,
    pieces: Vec<Piece>,
    /// The live items whose values are in pieces.
    chained_items: Vec<(LocatedItem, KeyHash)>,
    /// Counts the live items.
    counters: CounterBlock,
}

impl SegmentContents {
    fn new(store: &Store) -> Self {
        SegmentContents {
            live_bytes_by_segment: Vec::new(),
            pieces: Vec::new(),
            chained_items: Vec::new(),
            counters: CounterBlock::new(store.config().slab_chunk_bytes.len()),
        }
    }

    /// Walks over a segment and counts its live items; `sorted_entries` are those that name it.
    fn walk(
        &mut self,
        store: &Store,
        segment: &ItemSegment,
        sorted_entries: &[PackedEntry],
    ) -> Result<(), RefusalReason> {
        let (start, used_bytes) =
            (store.arena().segment_start(SegmentId(segment.id)), segment.used_bytes as usize);
        let bytes = store.arena().published_range(start, used_bytes);
        let mut remaining_entries = sorted_entries.iter().copied().peekable();
        let (mut offset, mut live_bytes) = (0, 0);
        while offset < used_bytes {
            let extent = bytes.get(offset..).and_then(parse_extent);
            let extent = extent.ok_or("a segment holds bytes that are not a record")?;
            let addr = start.plus(offset);
            let packed_entry =
                remaining_entries.next_if(|packed_entry| packed_entry.offset() == offset);
            match (extent.record, packed_entry) {
                (Record::Item, Some(packed_entry)) => {
                    self.verify_item(store, addr, packed_entry)?;
                    live_bytes += extent.padded_bytes;
                }
                (Record::Item, None) => {}
                (Record::Piece { .. }, Some(_)) => return Err("an entry names part of a value"),
                (Record::Piece { data_bytes, hash }, None) => self.pieces.push(Piece {
                    addr,
                    data_bytes,
                    hash: KeyHash(hash),
                    is_owned: false,
                }),
            }
            offset += extent.padded_bytes;
        }
        self.live_bytes_by_segment.push((SegmentId(segment.id), live_bytes));
        // Two entries for one item, or one for no start of a record.
        remaining_entries.next().map_or(Ok(()), |_| Err("an entry names no item"))
    }

    /// Compares a live item, whose extent was checked, with its entry, and counts it.
    fn verify_item(
        &mut self,
        store: &Store,
        addr: Addr,
        packed_entry: PackedEntry,
    ) -> Result<(), RefusalReason> {
        let item = store.locate(addr);
        let hash = store.hash(store.key_of(&item));
        let (tag, bucket) = packed_entry.tag_and_bucket();
        let expected = Entry::new(hash, 0, addr);
        if expected.tag() != tag || bucket_of(hash, store.index.bucket_count()) != bucket {
            return Err("an entry names an item with another key");
        }
        if item.header.is_chained {
            self.chained_items.push((item, hash));
        } else {
            self.count_stored(store, &item);
        }
        Ok(())
    }

    /// Counts an item as one that was stored, as memcached does.
    fn count_stored(&self, store: &Store, item: &LocatedItem) {
        count_item_in_block(store, &self.counters, item, 1);
        self.counters.add(CounterId::ItemsTotal, 1);
    }

    /// Adds the contents of other segments.
    fn merge(&mut self, other: SegmentContents) {
        self.live_bytes_by_segment.extend(other.live_bytes_by_segment);
        self.pieces.extend(other.pieces);
        self.chained_items.extend(other.chained_items);
        self.counters.add_all(&other.counters);
    }

    /// Assigns its pieces to each live item that is in pieces, and counts these items.
    fn assign_pieces(&mut self, store: &Store) -> Result<(), RefusalReason> {
        self.live_bytes_by_segment.sort_unstable();
        self.pieces.sort_unstable_by_key(|piece| piece.addr);
        for (item, hash) in std::mem::take(&mut self.chained_items) {
            let mut value_bytes = 0;
            for addr in store.pieces_of(&item) {
                let piece_index = self.pieces.binary_search_by_key(&addr, |piece| piece.addr);
                let piece = piece_index.ok().and_then(|index| self.pieces.get_mut(index));
                let piece = piece.filter(|piece| piece.hash == hash && !piece.is_owned);
                let piece = piece.ok_or("an item names a piece that is not its own")?;
                piece.is_owned = true;
                value_bytes += piece.data_bytes;
                let record_bytes = piece_record_bytes(piece.data_bytes);
                let segment_id = store.arena().segment_of(addr);
                let segment_index =
                    self.live_bytes_by_segment.binary_search_by_key(&segment_id, |&(id, _)| id);
                if let Some((_, live_bytes)) =
                    segment_index.ok().and_then(|index| self.live_bytes_by_segment.get_mut(index))
                {
                    *live_bytes += record_bytes;
                }
            }
            if value_bytes != item.header.value_bytes as usize {
                return Err("the pieces of a value have another length");
            }
            self.count_stored(store, &item);
        }
        Ok(())
    }
}

/// The segments of items, with the checksum of each, and the entries that name something in them.
pub(super) struct SegmentVerifier<'s> {
    pub(super) store: &'s Store,
    pub(super) segments: &'s [ItemSegment],
    /// `None` if they need not be compared.
    pub(super) checksums: Option<&'s [u64]>,
    pub(super) entries_by_segment: EntriesBySegment,
}

impl SegmentVerifier<'_> {
    /// Checks everything, counts the items and sets the live bytes of each segment. `in_parallel` may call its
    /// argument in several threads at once.
    pub(super) fn verify(
        &self,
        in_parallel: impl Fn(&(dyn Fn() + Sync)),
    ) -> Result<(), RefusalReason> {
        let store = self.store;
        let next_segment_index = AtomicUsize::new(0);
        let shared_outcome = Mutex::new(Ok(SegmentContents::new(store)));
        let walk_and_merge = || {
            let contents = self.walk_unclaimed(&next_segment_index);
            let mut outcome = shared_outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *outcome, contents) {
                (Ok(all), Ok(contents)) => all.merge(contents),
                (Ok(_), Err(reason)) => *outcome = Err(reason),
                (Err(_), _) => {}
            }
        };
        in_parallel(&walk_and_merge);
        walk_and_merge();
        let outcome = shared_outcome.into_inner();
        let mut contents = outcome.unwrap_or_else(PoisonError::into_inner)?;
        if self.has_unreached_entry() {
            return Err("an entry names an address outside of the items");
        }
        contents.assign_pieces(store)?;
        for &(segment_id, live_bytes) in &contents.live_bytes_by_segment {
            store.segments.restore_live_bytes(segment_id, live_bytes as u32);
        }
        if let Some(block) = store.counter_blocks.first() {
            block.add_all(&contents.counters);
        }
        Ok(())
    }

    /// Walks over segments that no other thread has taken, until there are none.
    fn walk_unclaimed(
        &self,
        next_segment_index: &AtomicUsize,
    ) -> Result<SegmentContents, RefusalReason> {
        let mut contents = SegmentContents::new(self.store);
        let mut sorted_entries = Vec::new();
        loop {
            let index = next_segment_index.fetch_add(1, Ordering::Relaxed);
            let Some(segment) = self.segments.get(index) else {
                return Ok(contents);
            };
            if let Some(checksums) = self.checksums {
                let &checksum = checksums.get(index).ok_or("a checksum is missing")?;
                compare_checksum(
                    self.store.arena(),
                    (segment.id, segment.used_bytes as usize),
                    checksum,
                )?;
            }
            let segment_entries = self.entries_by_segment.by_segment.get(segment.id as usize);
            sorted_entries.clear();
            sorted_entries.extend_from_slice(segment_entries.map_or(&[], Vec::as_slice));
            sorted_entries.sort_unstable();
            contents.walk(self.store, segment, &sorted_entries)?;
        }
    }

    /// Whether an entry names something outside of the segments that were walked.
    fn has_unreached_entry(&self) -> bool {
        let entry_count = |segment: &ItemSegment| {
            let segment_entries = self.entries_by_segment.by_segment.get(segment.id as usize);
            segment_entries.map_or(0, Vec::len)
        };
        let walked_entries: usize = self.segments.iter().map(entry_count).sum();
        self.entries_by_segment.has_out_of_range
            || walked_entries != self.entries_by_segment.by_segment.iter().map(Vec::len).sum()
    }
}

/// Compares the first `used_bytes` bytes of a segment with their checksum.
pub(super) fn compare_checksum(
    arena: &Arena,
    (id, used_bytes): (u32, usize),
    expected: u64,
) -> Result<(), RefusalReason> {
    let bytes = arena.published_range(arena.segment_start(SegmentId(id)), used_bytes);
    if checksum(bytes) == expected { Ok(()) } else { Err("the checksum of the memory is wrong") }
}

/// The record that `bytes` start with, if it does not reach beyond them.
fn parse_extent(bytes: &[u8]) -> Option<RecordExtent> {
    let visible = bytes.get(ITEM_ALIGN..PIECE_HEADER_BYTES.min(bytes.len()))?;
    let record = item::parse_record(visible)?;
    let unpadded_bytes = match record {
        Record::Piece { data_bytes, .. } => PIECE_HEADER_BYTES + data_bytes,
        Record::Item => parse_item_bytes(bytes)?,
    };
    let padded_bytes = item::padded_bytes(unpadded_bytes);
    (padded_bytes <= bytes.len()).then_some(RecordExtent { record, padded_bytes })
}

/// Unpadded bytes of the item that `bytes` start with; its table of pieces must be in them.
fn parse_item_bytes(bytes: &[u8]) -> Option<usize> {
    let (key_bytes, kind) = (usize::from(*bytes.get(2)?), *bytes.get(3)?);
    if key_bytes > KEY_BYTES_MAX {
        return None;
    }
    let key_offset = FIXED_HEADER_BYTES + usize::from(*FIELD_BYTES_BY_KIND.get(usize::from(kind))?);
    let fields = bytes.get(FIXED_HEADER_BYTES..key_offset)?;
    let header = Header::parse([key_bytes as u8, kind], fields, Seconds(0));
    let body_offset = key_offset + key_bytes;
    let body_bytes = if header.is_chained {
        let piece_count =
            item::read_le(bytes.get(body_offset..body_offset + PIECE_COUNT_BYTES)?) as usize;
        PIECE_COUNT_BYTES + piece_count.checked_mul(PIECE_ADDRESS_BYTES)?
    } else {
        header.value_bytes as usize
    };
    body_offset.checked_add(body_bytes)
}
