//! The index: linear hashing over 64-byte buckets that lie in segments of the arena.
//!
//! A key belongs to one chain: a bucket of seven slots and, when it is full, overflow lines. Linear hashing
//! (Litwin, VLDB 1980) grows and shrinks it by one bucket at a time, so no request ever waits for a big copy, and
//! whole segments are returned to the items when the index needs fewer. Readers take no lock: a hit is valid as
//! read, a miss only if the bucket's word and the number of buckets did not change meanwhile. Writers take the
//! bucket's lock bit (docs/concurrency.md). The index uses addresses and hashes, never item bytes: callers pass `matches`
//! and [`ItemHashes`].
//!
//! A *line* is 64 bytes, a cache line: seven slots and the *control word*, which holds lock bit, version and link.

mod bucket;
mod entry;
mod linear_hashing;
mod overflow;
mod resize;
mod snapshot;
#[cfg(test)]
mod tests;

pub(crate) use bucket::{LINES_MAX, LockedBucket, LockedSlot};
pub(crate) use entry::{Entry, Hit, TAG_BITS};
pub(crate) use linear_hashing::{bucket_of, next_cursor};
pub(crate) use overflow::OverflowSnapshot;
pub(crate) use resize::ResizeOutcome;
pub(crate) use snapshot::IndexSnapshot;

use crate::memory::{Addr, Line, LineId, Lines, SLOTS_PER_LINE, SegmentId};
use crate::request::KeyHash;
use crate::sync::{AtomicU32, AtomicUsize, Ordering, fence, spin_or_yield};

/// Items per bucket at which the index splits one: with 7 slots, overflow lines included, slots are
/// used to 0.63 to 0.74, that is 12.4 to 14.6 bytes an item at every count.
const SPLIT_ITEMS_PER_16_BUCKETS: usize = 116;

/// Below this the index merges. Far from the split, so that a steady count never does both.
const MERGE_ITEMS_PER_16_BUCKETS: usize = 72;

/// Maximum number of overflow lines of one chain. With seven slots each and the bucket's own they hold 119 items,
/// which no chain reaches at the normal load of a table (below one in 10^60 for fourteen on average, a bucket just
/// before its split); more are chosen keys, and then the least used are evicted. A longer walk has strayed into
/// lines that were given to other chains. Lines are fetched one after the other, so this bounds the cost of a
/// lookup.
const CHAIN_LINES_MAX: usize = 16;

/// Consecutive lookups that writers may invalidate before the reader takes the bucket's lock.
const UNLOCKED_ROUNDS_MAX: u32 = 64;

/// What the index needs from the owner of the items: the hash, when a bucket is split.
pub(crate) trait ItemHashes {
    /// The hash of the key of a published item.
    fn hash_of(&self, addr: Addr) -> KeyHash;
    /// Prefetches the item's bytes for `hash_of`.
    fn prefetch(&self, _addr: Addr) {}
}

/// The source of the index's segments.
pub(crate) trait SegmentSource {
    /// A segment for lines; `None` if items need the memory more.
    fn allocate_segment(&self) -> Option<SegmentId>;
    /// A segment that nothing in the index names any more.
    fn free_segment(&self, segment: SegmentId);
}

/// A hash index from keys to the addresses of their items.
pub(crate) struct Index {
    lines: Lines,
    /// Segments of primary buckets, in order; written before the bucket count that makes them reachable.
    directory: Box<[AtomicU32]>,
    /// Number of primary buckets; Release when published by a split or merge, Acquire when read.
    bucket_count: AtomicUsize,
    lines_per_segment_shift: u32,
    overflow: overflow::Overflow,
    resize: resize::ResizeControl,
}

impl Index {
    /// An index of one segment of buckets. `segment` must read as zeros; it is never given back.
    pub(crate) fn new(lines: Lines, segment: SegmentId, segments_max: usize) -> Self {
        let lines_per_segment = lines.lines_per_segment();
        let directory: Box<[AtomicU32]> = (0..segments_max).map(|_| AtomicU32::new(0)).collect();
        if let Some(first_directory_entry) = directory.first() {
            first_directory_entry.store(segment.0, Ordering::Release);
        }
        Index {
            directory,
            bucket_count: AtomicUsize::new(lines_per_segment),
            lines_per_segment_shift: lines_per_segment.trailing_zeros(),
            overflow: overflow::Overflow::new(lines_per_segment),
            resize: resize::ResizeControl::new(1),
            lines,
        }
    }

    /// Finds the item for which `matches` holds among those with the tag of `hash`.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: KeyHash,
        mut matches: impl FnMut(Addr) -> bool,
    ) -> Option<Hit<'_>> {
        let mut round = 0;
        while round < UNLOCKED_ROUNDS_MAX {
            let primary_id = self.line_id_of_hash(hash);
            let primary = self.lines.line(primary_id);
            // Acquire pairs with the Release of the last unlock.
            let word_before = primary.control_word.load(Ordering::Acquire);
            let is_chain_complete = match self.scan_chain(primary, word_before, hash, &mut matches)
            {
                ScanResult::Hit(hit) => return Some(hit),
                ScanResult::NotFound => true,
                ScanResult::LeftChain => false,
            };
            // INVARIANT: the key's line is determined again between the slots and the word. A thread that empties a
            // slot, or moves the key to another bucket and back, locks this bucket first; Acquire of the slots, of
            // `word_before` and of the number of buckets makes that lock, or the version after it, visible here. The
            // line is compared and not the bucket's number: after a merge and a split the same bucket may be in
            // another segment.
            let is_same_line = self.line_id_of_hash(hash) == primary_id;
            fence(Ordering::Acquire);
            let word_after = primary.control_word.load(Ordering::Relaxed);
            if is_chain_complete
                && is_same_line
                && word_before == word_after
                && !bucket::is_locked(word_before)
            {
                return None;
            }
            spin_or_yield(&mut round);
        }
        self.find_locked(hash, &mut matches)
    }

    /// Like [`Index::find`], under the bucket's lock: no writer can invalidate it.
    #[cold]
    pub(crate) fn find_locked(
        &self,
        hash: KeyHash,
        matches: &mut dyn FnMut(Addr) -> bool,
    ) -> Option<Hit<'_>> {
        self.lock(hash).find(hash, matches).map(LockedSlot::to_hit)
    }

    #[inline]
    fn scan_chain<'i>(
        &'i self,
        primary: &'i Line,
        control_word: u64,
        hash: KeyHash,
        matches: &mut impl FnMut(Addr) -> bool,
    ) -> ScanResult<'i> {
        if let Some(hit) = scan_line(primary, hash, matches) {
            return ScanResult::Hit(hit);
        }
        let mut link = bucket::link_of(control_word);
        for _ in 0..CHAIN_LINES_MAX {
            let Some(id) = link else {
                return ScanResult::NotFound;
            };
            let line = self.lines.line(id);
            if let Some(hit) = scan_line(line, hash, matches) {
                return ScanResult::Hit(hit);
            }
            link = bucket::link_of(line.control_word.load(Ordering::Acquire));
        }
        match link {
            None => ScanResult::NotFound,
            Some(_) => ScanResult::LeftChain,
        }
    }

    /// Collects every entry of the bucket of `hash`, from one unchanged state; returns the number of buckets at
    /// that state.
    pub(crate) fn entries_of(&self, hash: KeyHash, entries: &mut Vec<Entry>) -> usize {
        let mut round = 0;
        while round < UNLOCKED_ROUNDS_MAX {
            entries.clear();
            let bucket_count = self.bucket_count();
            let primary_id = self.line_id_of_bucket(bucket_of(hash, bucket_count));
            let primary = self.lines.line(primary_id);
            let word_before = primary.control_word.load(Ordering::Acquire);
            let is_chain_complete = self.collect_entries(primary, word_before, entries);
            // INVARIANT: as in `find`.
            let is_same_line = self.bucket_count() == bucket_count
                && self.line_id_of_bucket(bucket_of(hash, bucket_count)) == primary_id;
            fence(Ordering::Acquire);
            let word_after = primary.control_word.load(Ordering::Relaxed);
            if is_chain_complete
                && is_same_line
                && word_before == word_after
                && !bucket::is_locked(word_before)
            {
                return bucket_count;
            }
            spin_or_yield(&mut round);
        }
        entries.clear();
        let bucket = self.lock(hash);
        entries.extend(bucket.entries());
        // While the bucket is locked it is neither split nor merged, so it covers the same hashes at every number
        // of buckets that is possible meanwhile.
        self.bucket_count()
    }

    /// Adds the entries of a chain; false if the walk strayed.
    fn collect_entries(&self, primary: &Line, control_word: u64, entries: &mut Vec<Entry>) -> bool {
        let mut line = primary;
        let mut link = bucket::link_of(control_word);
        for _ in 0..=CHAIN_LINES_MAX {
            let slots = line.slots.iter().map(|slot| Entry(slot.load(Ordering::Acquire)));
            entries.extend(slots.filter(|entry| entry.0 != 0));
            let Some(next) = link else { return true };
            line = self.lines.line(next);
            link = bucket::link_of(line.control_word.load(Ordering::Acquire));
        }
        false
    }

    /// Locks the chain of `hash`.
    pub(crate) fn lock(&self, hash: KeyHash) -> LockedBucket<'_> {
        // Each further round needs a split or merge of the key's own bucket while this thread waits for it. There
        // is one for each doubling or halving of the table, so the rounds end.
        loop {
            let bucket_number = self.bucket_number(hash);
            let bucket = LockedBucket::lock(self, bucket_number);
            // A split or merge may have moved the key during the wait, or the bucket to another segment.
            if self.bucket_number(hash) == bucket_number
                && bucket.starts_at(self.bucket_line(bucket_number))
            {
                return bucket;
            }
        }
    }

    /// Prefetches the bucket's line for a lookup, and returns it.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) -> &Line {
        let primary_id = self.line_id_of_hash(hash);
        self.lines.prefetch(primary_id);
        self.lines.line(primary_id)
    }

    /// The first slot that a lookup would compare, from the bucket's first line alone; the key is not compared.
    /// Otherwise the line with which a lookup would continue, which is prefetched.
    #[inline]
    pub(crate) fn probe_first_line<'i>(
        &'i self,
        primary: &'i Line,
        hash: KeyHash,
    ) -> Result<Hit<'i>, Option<LineId>> {
        scan_line(primary, hash, &mut |_| true).ok_or_else(|| {
            let next = bucket::link_of(primary.control_word.load(Ordering::Acquire));
            next.inspect(|id| self.lines.prefetch(*id))
        })
    }

    /// Like [`Index::probe_first_line`], from the line that it prefetched.
    #[inline]
    pub(crate) fn probe_next_line(&self, hash: KeyHash, id: LineId) -> Option<Hit<'_>> {
        scan_line(self.lines.line(id), hash, &mut |_| true)
    }

    /// The number of primary buckets.
    pub(crate) fn bucket_count(&self) -> usize {
        self.bucket_count.load(Ordering::Acquire)
    }

    /// Segments that the index holds.
    pub(crate) fn segment_count(&self) -> usize {
        let bucket_segments = self.bucket_count().div_ceil(1 << self.lines_per_segment_shift);
        bucket_segments + self.resize.segments_ahead() + self.overflow.segment_count()
    }

    /// Whether `item_count` items need another bucket.
    pub(crate) fn needs_split(&self, item_count: usize) -> bool {
        item_count * 16 > self.bucket_count.load(Ordering::Relaxed) * SPLIT_ITEMS_PER_16_BUCKETS
    }

    /// Whether one bucket less is enough for `item_count` items.
    pub(crate) fn needs_merge(&self, item_count: usize) -> bool {
        let bucket_count = self.bucket_count.load(Ordering::Relaxed);
        bucket_count > 1 << self.lines_per_segment_shift
            && item_count * 16 < bucket_count * MERGE_ITEMS_PER_16_BUCKETS
    }

    #[inline]
    fn bucket_number(&self, hash: KeyHash) -> usize {
        bucket_of(hash, self.bucket_count.load(Ordering::Acquire))
    }

    /// The first line of the bucket to which a hash belongs now.
    #[inline]
    fn line_id_of_hash(&self, hash: KeyHash) -> LineId {
        self.line_id_of_bucket(self.bucket_number(hash))
    }

    #[inline]
    fn line_id_of_bucket(&self, bucket_number: usize) -> LineId {
        let directory_entry = self.directory.get(bucket_number >> self.lines_per_segment_shift);
        let segment = directory_entry.map_or(0, |entry| entry.load(Ordering::Acquire));
        let line_in_segment = bucket_number & ((1 << self.lines_per_segment_shift) - 1);
        LineId((u64::from(segment) << self.lines_per_segment_shift) + line_in_segment as u64)
    }

    #[inline]
    fn bucket_line(&self, bucket_number: usize) -> &Line {
        self.lines.line(self.line_id_of_bucket(bucket_number))
    }
}

/// The result of a walk along a chain.
enum ScanResult<'i> {
    Hit(Hit<'i>),
    /// The chain ended.
    NotFound,
    /// It was longer than any chain: the walk continued in lines of others.
    LeftChain,
}

#[inline]
fn scan_line<'i>(
    line: &'i Line,
    hash: KeyHash,
    matches: &mut impl FnMut(Addr) -> bool,
) -> Option<Hit<'i>> {
    // All tags first, without a branch between them, because the matching slot is unpredictable.
    let mut candidate_bits = 0u32;
    for (slot_index, slot) in line.slots.iter().enumerate() {
        // Acquire: a reader that misses because of a cleared slot sees that the bucket was locked.
        let entry = Entry(slot.load(Ordering::Acquire));
        candidate_bits |= u32::from(entry.has_tag(hash)) << slot_index;
    }
    while candidate_bits != 0 {
        let slot = line.slots.get(candidate_bits.trailing_zeros() as usize)?;
        candidate_bits &= candidate_bits - 1;
        // Acquire pairs with the Release that published the item: its bytes are visible. A slot that was changed
        // since the first read was changed under the lock, so a miss is checked again.
        let entry = Entry(slot.load(Ordering::Acquire));
        if entry.may_match(hash) && matches(entry.item_addr()) {
            return Some(Hit { entry, slot });
        }
    }
    None
}

const _: () = assert!(
    SLOTS_PER_LINE == 7,
    "the thresholds of splits and merges are measured for seven slots"
);
