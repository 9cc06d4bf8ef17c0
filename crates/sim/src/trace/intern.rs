//! Interning: every key of a stream is replaced by a small number once, so that all policies and sizes can work on
//! arrays.
//!
//! Numbers are given in the order of first use: 0, 1, 2 and so on, without a gap. The table is open addressing over
//! the multiplied key, at most half full; a key costs one probe of 16 bytes, about as fast as memory allows.

use super::timeline::{NO_OBJECT, Timeline};
use super::{Batch, Effect, KeyStream};
use crate::TraceError;

/// 2^64 divided by the golden ratio: spreads the bits of neighbouring keys (Knuth, volume 3, 6.4).
const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// An empty slot of the table; never an id.
const FREE_SLOT: u32 = u32::MAX;

/// A trace has fewer requests, so that every id is below [`FREE_SLOT`].
const REQUESTS_BOUND: u32 = FREE_SLOT;

/// Gives each distinct key a number.
#[derive(Debug, Clone)]
pub struct Interner {
    slots: Vec<Entry>,
    shift: u32,
    /// Number of ids given so far.
    id_count: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    second_key: u32,
    id: u32,
}

impl Default for Interner {
    fn default() -> Self {
        Self::new()
    }
}

impl Interner {
    /// An empty table.
    pub fn new() -> Self {
        let bits = 12;
        Self {
            slots: vec![Entry { key: 0, second_key: 0, id: FREE_SLOT }; 1 << bits],
            shift: 64 - bits,
            id_count: 0,
        }
    }

    /// Distinct keys so far; ids are below this.
    pub fn len(&self) -> u32 {
        self.id_count
    }

    /// Whether no key has been seen.
    pub fn is_empty(&self) -> bool {
        self.id_count == 0
    }

    /// The number of the pair (key, second key), a new one at its first use.
    pub fn intern(&mut self, key: u64, second_key: u32) -> u32 {
        let mut slot = self.first_slot(key, second_key);
        let mask = self.slots.len() - 1;
        loop {
            let entry = self.slots[slot & mask];
            if entry.id == FREE_SLOT {
                break;
            }
            if entry.key == key && entry.second_key == second_key {
                return entry.id;
            }
            slot += 1;
        }
        let id = self.id_count;
        self.slots[slot & mask] = Entry { key, second_key, id };
        self.id_count += 1;
        if self.id_count as usize * 2 > self.slots.len() {
            self.grow();
        }
        id
    }

    fn first_slot(&self, key: u64, second_key: u32) -> usize {
        ((key ^ u64::from(second_key).rotate_left(32)).wrapping_mul(HASH_MULTIPLIER) >> self.shift)
            as usize
    }

    fn grow(&mut self) {
        self.shift -= 1;
        let empty_slots =
            vec![Entry { key: 0, second_key: 0, id: FREE_SLOT }; self.slots.len() * 2];
        let old_slots = std::mem::replace(&mut self.slots, empty_slots);
        let mask = self.slots.len() - 1;
        for entry in old_slots.into_iter().filter(|entry| entry.id != FREE_SLOT) {
            let mut slot = self.first_slot(entry.key, entry.second_key);
            while self.slots[slot & mask].id != FREE_SLOT {
                slot += 1;
            }
            self.slots[slot & mask] = entry;
        }
    }
}

/// A whole key stream, interned.
#[derive(Debug, Clone, Default)]
pub struct InternedTrace {
    /// The object of each request.
    pub ids: Vec<u32>,
    /// The key of each object.
    pub keys: Vec<u64>,
    /// Bytes of each object, at least 1; empty where every object counts 1.
    pub sizes: Vec<u32>,
    /// Requests left out because their size is unknown (only if objects count their bytes).
    pub without_size: u64,
    /// Rows left out because their operation neither requests, stores nor deletes an object.
    pub without_effect: u64,
    /// Rows whose TTL is not honoured because the trace has no clock.
    pub without_clock: u64,
    /// Times, TTLs and effects of the rows; `None` where every row is a request and nothing expires.
    pub timeline: Option<Timeline>,
}

/// How requests become objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// An object is a key and counts 1.
    Objects,
    /// An object is a key with a size and counts its bytes, so that a resized value is another object.
    Bytes,
}

/// A table and the requests interned through it so far.
#[derive(Debug, Clone)]
pub struct Collector {
    mode: Mode,
    interner: Interner,
    interned: InternedTrace,
    timeline: Timeline,
    /// The size of each row, or the mark of an unknown one, in mode `Bytes`.
    row_sizes: Vec<u32>,
}

/// A row of unknown size; a value is never as large.
const UNKNOWN_SIZE: u32 = u32::MAX;

impl Collector {
    /// Nothing collected yet.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            interner: Interner::new(),
            interned: InternedTrace::default(),
            timeline: Timeline::default(),
            row_sizes: Vec::new(),
        }
    }

    /// Adds a batch; in mode `Bytes` the batch must have a `size` column.
    ///
    /// # Errors
    /// The stream has more requests than fit into 32 bits.
    pub fn add_batch(&mut self, file: &str, batch: &Batch) -> Result<(), TraceError> {
        if self.interned.ids.len() + batch.len() >= REQUESTS_BOUND as usize {
            return Err(TraceError::file(file, format!("has more than {REQUESTS_BOUND} requests")));
        }
        let has_timeline = self.start_timeline(batch);
        for (row, &key) in batch.key.iter().enumerate() {
            let op = batch.op.get(row).copied().flatten();
            let effect = op.map_or(Effect::Request, super::Op::effect);
            if effect == Effect::None {
                self.interned.without_effect += 1;
                continue;
            }
            if has_timeline {
                let time_us = batch.time.get(row).copied().unwrap_or(0);
                let ttl_s = batch.ttl.get(row).copied().flatten();
                self.timeline.push(time_us, ttl_s, effect);
            }
            let id = self.interner.intern(key, 0);
            if id as usize == self.interned.keys.len() {
                self.interned.keys.push(key);
            }
            self.interned.ids.push(id);
            if self.mode == Mode::Bytes {
                let size = batch.size.get(row).copied().flatten();
                self.row_sizes.push(size.unwrap_or(UNKNOWN_SIZE));
            }
        }
        Ok(())
    }

    /// Whether rows have entries in the timeline: from the first batch on that has a TTL, a write or a delete.
    ///
    /// Times of the rows before it do not matter, for nothing that they store expires.
    fn start_timeline(&mut self, batch: &Batch) -> bool {
        let is_request = |op: &Option<super::Op>| {
            op.is_none_or(|op| matches!(op.effect(), Effect::Request | Effect::None))
        };
        let has_ttl = batch.ttl.iter().any(|ttl| ttl.is_some_and(|ttl| ttl > 0));
        let is_eventful = has_ttl || !batch.op.iter().all(is_request);
        if self.timeline.is_empty() && is_eventful {
            for _ in 0..self.interned.ids.len() {
                self.timeline.push(0, None, Effect::Request);
            }
        }
        is_eventful || !self.timeline.is_empty()
    }

    /// The requests; TTLs are honoured only if the rows have times of a clock.
    pub fn finish(mut self, has_clock: bool) -> InternedTrace {
        if !has_clock {
            self.interned.without_clock = self.timeline.rows_with_ttl();
            self.timeline.forget_ttls();
        }
        let has_only_requests = self.timeline.has_only_requests();
        if self.mode == Mode::Bytes {
            self.fill_sizes();
            self.pair_sizes(has_only_requests);
        }
        self.interned.timeline = (!has_only_requests).then_some(self.timeline);
        self.interned
    }

    /// Gives rows of unknown size the last known size of their key, or else the next: a lookup that missed has no
    /// size, the write that follows has one.
    fn fill_sizes(&mut self) {
        let ids = &self.interned.ids;
        let mut known_sizes = vec![UNKNOWN_SIZE; self.interned.keys.len()];
        let mut fill_row = |row: usize, sizes: &mut Vec<u32>| {
            let known_size = &mut known_sizes[ids[row] as usize];
            if sizes[row] == UNKNOWN_SIZE {
                sizes[row] = *known_size;
            } else {
                *known_size = sizes[row];
            }
        };
        (0..ids.len()).for_each(|row| fill_row(row, &mut self.row_sizes));
        (0..ids.len()).rev().for_each(|row| fill_row(row, &mut self.row_sizes));
    }

    /// Makes an object of each pair of key and size, and leaves out rows without a size.
    fn pair_sizes(&mut self, has_only_requests: bool) {
        let keys = std::mem::take(&mut self.interned.keys);
        let ids = std::mem::take(&mut self.interned.ids);
        let timeline = std::mem::take(&mut self.timeline);
        let mut pair_interner = Interner::new();
        let mut current_object_by_key =
            vec![NO_OBJECT; if has_only_requests { 0 } else { keys.len() }];
        for (row, (&key_id, &size)) in ids.iter().zip(&self.row_sizes).enumerate() {
            if size == UNKNOWN_SIZE {
                self.interned.without_size += 1;
                continue;
            }
            let id = pair_interner.intern(u64::from(key_id), size);
            if id as usize == self.interned.keys.len() {
                self.interned.keys.push(keys[key_id as usize]);
                self.interned.sizes.push(size.max(1));
            }
            self.interned.ids.push(id);
            if !has_only_requests {
                let replaced_object =
                    std::mem::replace(&mut current_object_by_key[key_id as usize], id);
                self.timeline.times.push(timeline.times[row]);
                self.timeline.ttls.push(timeline.ttls[row]);
                self.timeline.effects.push(timeline.effects[row]);
                let is_resized = replaced_object != id;
                self.timeline.replaced_ids.push(if is_resized {
                    replaced_object
                } else {
                    NO_OBJECT
                });
            }
        }
    }
}

impl InternedTrace {
    /// Reads a stream to its end.
    pub fn read(file: &str, stream: &mut dyn KeyStream, mode: Mode) -> Result<Self, TraceError> {
        let mut collector = Collector::new(mode);
        let mut batch = Batch::default();
        while stream.read(&mut batch)? > 0 {
            collector.add_batch(file, &batch)?;
        }
        Ok(collector.finish(stream.facts().has_time))
    }

    /// Number of distinct objects.
    pub fn distinct(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn ids_follow_first_use_and_stay_when_the_table_grows() {
        let mut interner = Interner::new();
        let mut expected: HashMap<(u64, u32), u32> = HashMap::new();
        let mut random_bits = 1_u64;
        for _ in 0..200_000 {
            random_bits = random_bits.wrapping_mul(HASH_MULTIPLIER).wrapping_add(1);
            let (key, second_key) = ((random_bits >> 40) % 30_000, (random_bits >> 20) as u32 % 2);
            let next_id = expected.len() as u32;
            assert_eq!(
                interner.intern(key, second_key),
                *expected.entry((key, second_key)).or_insert(next_id)
            );
        }
        assert_eq!(interner.len() as usize, expected.len());
    }

    #[test]
    fn reads_of_unknown_size_have_the_last_or_the_next_size_of_their_key() {
        let batch = Batch {
            key: vec![7, 8, 7, 7, 8, 9],
            size: vec![Some(10), None, None, Some(20), Some(5), None],
            ..Batch::default()
        };
        let mut collector = Collector::new(Mode::Bytes);
        collector.add_batch("t", &batch).unwrap();
        let trace = collector.finish(true);
        assert_eq!((trace.ids, trace.sizes), (vec![0, 1, 0, 2, 1], vec![10, 5, 20]));
        assert_eq!(trace.without_size, 1);
    }

    #[test]
    fn a_resized_key_is_another_object_in_bytes() {
        let batch = Batch {
            key: vec![7, 7, 7, 8],
            size: vec![Some(0), Some(9), Some(0), None],
            ..Batch::default()
        };
        let mut collector = Collector::new(Mode::Bytes);
        collector.add_batch("t", &batch).unwrap();
        let trace = collector.finish(true);
        assert_eq!((trace.ids, trace.sizes), (vec![0, 1, 0], vec![1, 9]));
        assert_eq!(trace.without_size, 1);
    }
}
