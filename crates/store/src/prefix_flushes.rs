//! Flushes of prefixes: for each prefix that was flushed, the number of its last flush, found without a lock.
//!
//! An item is dead if a prefix of its key was flushed after its segment was opened. The table maps the hash of a
//! prefix to that number. A lookup hashes the start of the key once for each length in use, eight bytes at a time,
//! so its cost is bounded by the lengths and not by the prefixes. Mostly one hash is enough: each prefix starts with
//! as many bytes as the shortest one has, and the latest flush of those with the same start is known.
//!
//! The prefixes themselves are not kept: if two have the same hash of 56 bits, which is seeded, a flush of one
//! flushes the other too, and that is only a miss.
//!
//! Readers never wait. A writer, one at a time, that needs a larger table fills another one and then makes it the
//! active one. At the largest size two tables alternate; a lookup that found nothing is repeated if the table that
//! it read was meanwhile cleared for reuse.

use std::sync::OnceLock;

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of prefixes that are remembered at once: two tables of them take 4 MiB.
pub(crate) const PREFIXES_MAX: usize = 65_536;
/// All tables take at most this part of the memory: in a small store they have fewer slots.
const MEMORY_DIVISOR: u64 = 8;
/// Of all tables, in slots of the largest: that and another one of its size, and the smaller ones.
const LARGEST_TABLES: u64 = 3;
/// Slots of the first table; it is at most half full, as each of them is.
const FIRST_TABLE_SLOTS: usize = if cfg!(loom) { 2 } else { 1024 };
/// Tables, each of twice the slots of the one before it; the last two are equal.
const TABLE_COUNT: usize = if cfg!(loom) { 2 } else { 9 };
/// The first table of the largest size.
const FIRST_LARGEST_TABLE: usize = TABLE_COUNT - 2;
/// Lengths in one word of the set of lengths.
const WORD_BITS: usize = 64;
/// The lowest bits of a hash are the length of the prefix; the others choose its slot.
const LENGTH_BITS: u32 = 8;
/// The bits of a hash that are the length of the prefix.
pub(crate) const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
/// An odd number with half of its bits set: it spreads the bits of what it is multiplied with.
const HASH_MULTIPLIER: u64 = 0xe703_7ed1_a0b4_28db;
/// The highest bits of a hash choose the group of a start.
const GROUP_BITS: u32 = if cfg!(loom) { 0 } else { 12 };
/// Groups of starts, each with the number of its latest flush: 32 KiB.
const GROUP_COUNT: usize = 1 << GROUP_BITS;

#[cfg(not(loom))]
const _: () = assert!((FIRST_TABLE_SLOTS << FIRST_LARGEST_TABLE) / 2 == PREFIXES_MAX);

/// The slot of one prefix.
struct PrefixSlot {
    /// The length of the prefix in the lowest bits; 0 if the slot is unused.
    hash: AtomicU64,
    /// The number of its last flush.
    flush_number: AtomicU64,
}

/// The table of the prefixes that were flushed.
pub(crate) struct PrefixFlushes {
    seed: u64,
    /// The first table of the largest size that this store may have; the one after it is as large.
    first_largest_table: usize,
    /// Bytes of the shortest prefix.
    shortest_length: AtomicUsize,
    /// By the hash of that many bytes: at least the number of the latest flush of a prefix that starts with them.
    latest_flush_by_group: OnceLock<Box<[AtomicU64]>>,
    tables: [OnceLock<Box<[PrefixSlot]>>; TABLE_COUNT],
    /// That of the table to read.
    active_table_index: AtomicUsize,
    /// How often a table that readers may still read was cleared.
    clear_count: AtomicU64,
    /// Prefixes in the active table.
    prefix_count: AtomicUsize,
    /// Once no segment is older than this flush, many prefixes can be forgotten; 0 while there is room for more.
    awaited_generation: AtomicU64,
    /// The lengths of prefixes: bit `n` of these 256 is set if one has `n` bytes.
    length_set: [AtomicU64; 4],
}

/// No prefix can be added: items from before the flush of each remembered one may still be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableFull;

impl PrefixFlushes {
    /// An empty table for a store with this much memory.
    pub(crate) fn new(seed: u64, memory_bytes: u64) -> Self {
        let bytes_with_largest = |table_index: &usize| {
            LARGEST_TABLES * ((size_of::<PrefixSlot>() * FIRST_TABLE_SLOTS) << table_index) as u64
        };
        let affordable_tables =
            |table_index: &usize| bytes_with_largest(table_index) <= memory_bytes / MEMORY_DIVISOR;
        PrefixFlushes {
            seed: mix(seed | 1, HASH_MULTIPLIER),
            first_largest_table: (0..=FIRST_LARGEST_TABLE)
                .rev()
                .find(affordable_tables)
                .unwrap_or(0),
            shortest_length: AtomicUsize::new(0),
            latest_flush_by_group: OnceLock::new(),
            tables: std::array::from_fn(|_| OnceLock::new()),
            active_table_index: AtomicUsize::new(0),
            clear_count: AtomicU64::new(0),
            prefix_count: AtomicUsize::new(0),
            awaited_generation: AtomicU64::new(0),
            length_set: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Number of prefixes remembered.
    pub(crate) fn prefix_count(&self) -> usize {
        self.prefix_count.load(Ordering::Relaxed)
    }

    /// Maximum number of prefixes.
    pub(crate) fn prefixes_max(&self) -> usize {
        self.slots_of_table(self.first_largest_table) / 2
    }

    fn slots_of_table(&self, table_index: usize) -> usize {
        FIRST_TABLE_SLOTS << table_index.min(self.first_largest_table)
    }

    /// Segments older than this flush should be swept, so that prefixes can be forgotten; `None` while there is room.
    #[inline]
    pub(crate) fn awaited_generation(&self) -> Option<u64> {
        let generation = self.awaited_generation.load(Ordering::Relaxed);
        (generation != 0).then_some(generation)
    }

    /// Once the table is three quarters full, chooses which half of its prefixes should be forgotten next, unless that
    /// is chosen and has not become possible yet.
    fn await_generation_if_nearly_full(&self, last_forgettable_flush: impl FnOnce() -> u64) {
        let is_nearly_full = self.prefix_count() * 4 >= self.prefixes_max() * 3;
        let is_awaiting =
            self.awaited_generation().is_some_and(|awaited| awaited > last_forgettable_flush());
        if !is_nearly_full || is_awaiting {
            return;
        }
        let mut flush_numbers: Vec<u64> =
            self.snapshot().into_iter().map(|(_, flush_number)| flush_number).collect();
        let middle = flush_numbers.len() / 2;
        if middle < flush_numbers.len() {
            let (_, median, _) = flush_numbers.select_nth_unstable(middle);
            self.awaited_generation.store(*median, Ordering::Relaxed);
        }
    }

    /// Bytes of all tables.
    pub(crate) fn table_bytes(&self) -> usize {
        let count_slots =
            |table: &OnceLock<Box<[PrefixSlot]>>| table.get().map_or(0, |slots| slots.len());
        let group_count =
            self.latest_flush_by_group.get().map_or(0, |latest_flushes| latest_flushes.len());
        self.tables.iter().map(count_slots).sum::<usize>() * size_of::<PrefixSlot>()
            + group_count * size_of::<AtomicU64>()
    }

    /// Whether a prefix of `key` was flushed after the flush with number `since`.
    #[inline]
    pub(crate) fn is_flushed_since(&self, key: &[u8], since: u64) -> bool {
        let Some(latest_flushes) = self.latest_flush_by_group.get() else {
            return false;
        };
        let shortest_length = self.shortest_length.load(Ordering::Acquire);
        if key.len() < shortest_length {
            return false;
        }
        let mut hasher = PrefixHasher::new(self.seed);
        let hash = hasher.hash(key, shortest_length);
        let group_latest_flush = latest_flushes.get(group_of(hash));
        let may_match = group_latest_flush
            .is_some_and(|flush_number| flush_number.load(Ordering::Acquire) > since);
        may_match && self.is_match_retrying_clears(key, since)
    }

    /// The same by all lengths, again if the table was cleared meanwhile.
    #[inline(never)]
    fn is_match_retrying_clears(&self, key: &[u8], since: u64) -> bool {
        loop {
            let clear_count_before = self.clear_count.load(Ordering::Acquire);
            if self.matches_any_length(key, since) {
                return true;
            }
            // Whoever read a slot that was cleared, or filled again, sees that here.
            if self.clear_count.load(Ordering::Acquire) == clear_count_before {
                return false;
            }
        }
    }

    #[inline]
    fn matches_any_length(&self, key: &[u8], since: u64) -> bool {
        let Some(slots) = self.active_slots() else {
            return false;
        };
        let mut hasher = PrefixHasher::new(self.seed);
        for (word_index, length_word) in self.length_set.iter().enumerate() {
            let mut remaining_lengths = length_word.load(Ordering::Acquire);
            while remaining_lengths != 0 {
                let length = word_index * WORD_BITS + remaining_lengths.trailing_zeros() as usize;
                if length > key.len() {
                    return false;
                }
                let slot = find_slot(slots, hasher.hash(key, length));
                if slot.is_some_and(|slot| slot.flush_number.load(Ordering::Acquire) > since) {
                    return true;
                }
                remaining_lengths &= remaining_lengths - 1;
            }
            if key.len() < (word_index + 1) * WORD_BITS {
                return false;
            }
        }
        false
    }

    /// Records that `prefix` was flushed with the flush `flush_number`; one thread at a time. When all slots are used,
    /// `last_forgettable_flush` is called for the number of the last flush that no longer concerns any item.
    pub(crate) fn record(
        &self,
        prefix: &[u8],
        flush_number: u64,
        last_forgettable_flush: impl Fn() -> u64,
    ) -> Result<(), TableFull> {
        let hash = PrefixHasher::new(self.seed).hash(prefix, prefix.len());
        if let Some(slot) = self.active_slots().and_then(|slots| find_slot(slots, hash)) {
            slot.flush_number.store(flush_number, Ordering::Release);
        } else {
            let is_full = |slots: &[PrefixSlot]| self.prefix_count() >= slots.len() / 2;
            if self.active_slots().is_none_or(is_full) {
                let last_forgettable_flush = last_forgettable_flush();
                let rebuilt = self.rebuild(last_forgettable_flush);
                if rebuilt.is_err() {
                    self.await_generation_if_nearly_full(|| last_forgettable_flush);
                }
                rebuilt?;
            }
            if let Some(length_word) = self.length_set.get(prefix.len() / WORD_BITS) {
                length_word.fetch_or(1 << (prefix.len() % WORD_BITS), Ordering::AcqRel);
            }
            insert_hash(self.active_slots().unwrap_or_default(), hash, flush_number);
            self.prefix_count.fetch_add(1, Ordering::Relaxed);
            if self.awaited_generation().is_none() {
                self.await_generation_if_nearly_full(|| 0);
            }
        }
        self.record_group(prefix, flush_number);
        Ok(())
    }

    /// Records the flush `flush_number` for the group of the prefix. Where the shortest length has changed, each group
    /// gets the number of the flush before, because the starts of that length are not known.
    fn record_group(&self, prefix: &[u8], flush_number: u64) {
        let latest_flushes = self.latest_flush_by_group.get_or_init(|| {
            let new_group = || AtomicU64::new(0);
            (0..GROUP_COUNT).map(|_| new_group()).collect()
        });
        let words = self.length_set.iter().enumerate();
        let mut loaded_words =
            words.map(|(word_index, word)| (word_index, word.load(Ordering::Relaxed)));
        let first_word = loaded_words.find(|&(_, lengths)| lengths != 0);
        let shortest_length = first_word.map_or(prefix.len(), |(word_index, lengths)| {
            word_index * WORD_BITS + lengths.trailing_zeros() as usize
        });
        if shortest_length != self.shortest_length.load(Ordering::Relaxed) {
            for group in latest_flushes {
                group.store(flush_number - 1, Ordering::Release);
            }
            self.shortest_length.store(shortest_length, Ordering::Release);
        }
        let hash = PrefixHasher::new(self.seed).hash(prefix, shortest_length);
        if let Some(group) = latest_flushes.get(group_of(hash)) {
            group.store(flush_number, Ordering::Release);
        }
    }

    /// Hash and number of each remembered prefix.
    pub(crate) fn snapshot(&self) -> Vec<(u64, u64)> {
        let slots = self.active_slots().unwrap_or_default().iter().map(|slot| {
            let hash = slot.hash.load(Ordering::Relaxed);
            (hash, slot.flush_number.load(Ordering::Relaxed))
        });
        slots.filter(|&(hash, _)| hash != 0).collect()
    }

    /// Restores what a [`PrefixFlushes::snapshot`] of a table with the same seed returned, in a table that no other
    /// thread uses yet. `last_flush_number` is that of the last flush of all.
    pub(crate) fn restore(&self, prefixes: &[(u64, u64)], last_flush_number: u64) {
        let table_index = (0..=self.first_largest_table)
            .find(|&table_index| self.slots_of_table(table_index) / 2 >= prefixes.len());
        let (Some(table_index), false) = (table_index, prefixes.is_empty()) else {
            return;
        };
        let Some(table) = self.tables.get(table_index) else {
            return;
        };
        let new_slot = || PrefixSlot { hash: AtomicU64::new(0), flush_number: AtomicU64::new(0) };
        let slots = table
            .get_or_init(|| (0..self.slots_of_table(table_index)).map(|_| new_slot()).collect());
        let mut shortest_length = usize::MAX;
        for &(hash, flush_number) in prefixes {
            insert_hash(slots, hash, flush_number);
            let length = (hash & LENGTH_MASK) as usize;
            shortest_length = shortest_length.min(length);
            if let Some(word) = self.length_set.get(length / WORD_BITS) {
                word.fetch_or(1 << (length % WORD_BITS), Ordering::Release);
            }
        }
        // The starts are not known: each group may have had the latest flush.
        let new_group = || AtomicU64::new(last_flush_number);
        self.latest_flush_by_group.get_or_init(|| (0..GROUP_COUNT).map(|_| new_group()).collect());
        self.shortest_length.store(shortest_length, Ordering::Release);
        self.prefix_count.store(prefixes.len(), Ordering::Relaxed);
        self.active_table_index.store(table_index, Ordering::Release);
    }

    /// Moves the prefixes to the next table, without those last flushed by the flush `last_forgettable_flush` or
    /// before.
    #[cold]
    fn rebuild(&self, last_forgettable_flush: u64) -> Result<(), TableFull> {
        let active_table_index = self.active_table_index.load(Ordering::Relaxed);
        let old_slots = self.active_slots().unwrap_or_default();
        let retained = || {
            let slots = old_slots.iter().map(|slot| {
                let hash = slot.hash.load(Ordering::Relaxed);
                (hash, slot.flush_number.load(Ordering::Relaxed))
            });
            slots.filter(|&(hash, flush_number)| hash != 0 && flush_number > last_forgettable_flush)
        };
        let retained_count = retained().count();
        let first_largest_table = self.first_largest_table;
        let next_table_index = match active_table_index {
            _ if old_slots.is_empty() => active_table_index,
            _ if active_table_index <= first_largest_table => active_table_index + 1,
            _ => first_largest_table,
        };
        if !old_slots.is_empty()
            && active_table_index >= first_largest_table
            && retained_count >= old_slots.len() / 2
        {
            return Err(TableFull);
        }
        let Some(table) = self.tables.get(next_table_index) else {
            return Err(TableFull);
        };
        let slots = table.get_or_init(|| {
            let new_slot =
                || PrefixSlot { hash: AtomicU64::new(0), flush_number: AtomicU64::new(0) };
            (0..self.slots_of_table(next_table_index)).map(|_| new_slot()).collect()
        });
        // INVARIANT: counted before the first slot is cleared. The stores are Release, so a reader that read one of
        // them sees the count.
        self.clear_count.fetch_add(1, Ordering::AcqRel);
        for slot in slots {
            slot.hash.store(0, Ordering::Release);
        }
        let mut retained_lengths = [0; 4];
        for (hash, flush_number) in retained() {
            insert_hash(slots, hash, flush_number);
            let length = (hash & LENGTH_MASK) as usize;
            if let Some(word) = retained_lengths.get_mut(length / WORD_BITS) {
                *word |= 1 << (length % WORD_BITS);
            }
        }
        // A reader of the old table finds what it still needs: only lengths of forgotten prefixes are removed.
        for (word, retained_word) in self.length_set.iter().zip(retained_lengths) {
            word.store(retained_word, Ordering::Release);
        }
        self.prefix_count.store(retained_count, Ordering::Relaxed);
        self.active_table_index.store(next_table_index, Ordering::Release);
        self.awaited_generation.store(0, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn active_slots(&self) -> Option<&[PrefixSlot]> {
        let active_table_index = self.active_table_index.load(Ordering::Acquire);
        self.tables.get(active_table_index)?.get().map(|slots| &**slots)
    }
}

/// The slot of a hash.
#[inline]
fn find_slot(slots: &[PrefixSlot], hash: u64) -> Option<&PrefixSlot> {
    let mask = slots.len() - 1;
    let mut index = (hash >> LENGTH_BITS) as usize & mask;
    loop {
        let slot = slots.get(index)?;
        match slot.hash.load(Ordering::Acquire) {
            0 => return None,
            slot_hash if slot_hash == hash => return Some(slot),
            _ => index = (index + 1) & mask,
        }
    }
}

/// Writes a hash that is not there into a table that is at most half full.
fn insert_hash(slots: &[PrefixSlot], hash: u64, flush_number: u64) {
    let mask = slots.len().wrapping_sub(1);
    let mut index = (hash >> LENGTH_BITS) as usize & mask;
    while let Some(slot) = slots.get(index) {
        if slot.hash.load(Ordering::Relaxed) == 0 {
            // The number first: a reader that finds the hash also finds its number.
            slot.flush_number.store(flush_number, Ordering::Release);
            slot.hash.store(hash, Ordering::Release);
            return;
        }
        index = (index + 1) & mask;
    }
}

/// The group of a hash of the shortest length.
#[inline]
fn group_of(hash: u64) -> usize {
    (hash >> 32) as usize >> (32 - GROUP_BITS)
}

/// The hashes of the starts of one key, by increasing length.
struct PrefixHasher {
    state: u64,
    /// Bytes in `state`, a multiple of eight.
    hashed_bytes: usize,
}

impl PrefixHasher {
    #[inline]
    fn new(seed: u64) -> Self {
        PrefixHasher { state: seed, hashed_bytes: 0 }
    }

    /// The hash of the first `length` bytes, with the length in its lowest bits. `length` is not below that of the
    /// call before.
    #[inline]
    fn hash(&mut self, key: &[u8], length: usize) -> u64 {
        while self.hashed_bytes + 8 <= length {
            self.state = mix(self.state ^ read_word(key, self.hashed_bytes), HASH_MULTIPLIER);
            self.hashed_bytes += 8;
        }
        let remaining_bits = (length - self.hashed_bytes) as u32 * 8;
        let hash = if remaining_bits == 0 {
            self.state
        } else {
            let last_bytes = read_word(key, self.hashed_bytes) & !(u64::MAX << remaining_bits);
            mix(self.state ^ last_bytes, HASH_MULTIPLIER)
        };
        hash & (u64::MAX << LENGTH_BITS) | length as u64
    }
}

/// The eight bytes of `key` from `offset`, with zeros after its end.
#[inline]
fn read_word(key: &[u8], offset: usize) -> u64 {
    if let Some(bytes) = key.get(offset..offset + 8).and_then(|bytes| bytes.first_chunk()) {
        return u64::from_le_bytes(*bytes);
    }
    last_word(key, offset)
}

/// The same where fewer than eight bytes are left.
#[inline(never)]
fn last_word(key: &[u8], offset: usize) -> u64 {
    let bytes = key.get(offset..).unwrap_or_default();
    // The last eight bytes of the key, without those before `offset`.
    if let Some(last_bytes) = key.last_chunk() {
        let skipped_bits = (8 - bytes.len()) as u32 * 8;
        return u64::from_le_bytes(*last_bytes).checked_shr(skipped_bits).unwrap_or(0);
    }
    let shifted = |word, byte: &u8| word << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, shifted)
}

/// Both halves of a product, combined: each bit of the factors changes half of the bits.
#[inline]
fn mix(first_factor: u64, second_factor: u64) -> u64 {
    let product = u128::from(first_factor) * u128::from(second_factor);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(all(test, not(loom)))]
mod tests;
