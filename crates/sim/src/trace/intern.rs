//! Interning: every key of a stream is replaced by a small number once, so that all policies and sizes can work on
//! arrays.
//!
//! Numbers are given in the order of first use: 0, 1, 2 and so on, without a gap. The table is open addressing over
//! the multiplied key, at most half full; a key costs one probe of 16 bytes, about as fast as memory allows.

use super::timeline::{NONE, Timeline};
use super::{Batch, Effect, KeyStream};
use crate::TraceError;

/// 2^64 divided by the golden ratio: spreads the bits of neighbouring keys (Knuth, volume 3, 6.4).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// An empty slot of the table. `u32::MAX` is never an id because a trace has fewer requests.
const FREE: u32 = u32::MAX;

/// Gives each distinct key a number.
#[derive(Debug, Clone)]
pub struct Interner {
    slots: Vec<Entry>,
    shift: u32,
    /// Number of ids given so far.
    count: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    extra: u32,
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
            slots: vec![
                Entry {
                    key: 0,
                    extra: 0,
                    id: FREE
                };
                1 << bits
            ],
            shift: 64 - bits,
            count: 0,
        }
    }

    /// Distinct keys so far; ids are below this.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether no key has been seen.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of the pair (key, extra), a new one at its first use.
    pub fn id(&mut self, key: u64, extra: u32) -> u32 {
        let mut at = self.first_slot(key, extra);
        let mask = self.slots.len() - 1;
        loop {
            let entry = self.slots[at & mask];
            if entry.id == FREE {
                break;
            }
            if entry.key == key && entry.extra == extra {
                return entry.id;
            }
            at += 1;
        }
        let id = self.count;
        self.slots[at & mask] = Entry { key, extra, id };
        self.count += 1;
        if self.count as usize * 2 > self.slots.len() {
            self.grow();
        }
        id
    }

    fn first_slot(&self, key: u64, extra: u32) -> usize {
        ((key ^ u64::from(extra).rotate_left(32)).wrapping_mul(SPREAD) >> self.shift) as usize
    }

    fn grow(&mut self) {
        self.shift -= 1;
        let empty = vec![
            Entry {
                key: 0,
                extra: 0,
                id: FREE
            };
            self.slots.len() * 2
        ];
        let old = std::mem::replace(&mut self.slots, empty);
        let mask = self.slots.len() - 1;
        for entry in old.into_iter().filter(|entry| entry.id != FREE) {
            let mut at = self.first_slot(entry.key, entry.extra);
            while self.slots[at & mask].id != FREE {
                at += 1;
            }
            self.slots[at & mask] = entry;
        }
    }
}

/// A whole key stream, interned.
#[derive(Debug, Clone, Default)]
pub struct Interned {
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
    requests: Interned,
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
            requests: Interned::default(),
            timeline: Timeline::default(),
            row_sizes: Vec::new(),
        }
    }

    /// Adds a batch; in mode `Bytes` the batch must have a `size` column.
    ///
    /// # Errors
    /// The stream has more requests than fit into 32 bits.
    pub fn take(&mut self, file: &str, batch: &Batch) -> Result<(), TraceError> {
        if self.requests.ids.len() + batch.len() >= FREE as usize {
            return Err(TraceError::file(
                file,
                format!("has more than {FREE} requests"),
            ));
        }
        let has_events = self.start_timeline(batch);
        for (row, &key) in batch.key.iter().enumerate() {
            let op = batch.op.get(row).copied().flatten();
            let effect = op.map_or(Effect::Request, super::Op::effect);
            if effect == Effect::None {
                self.requests.without_effect += 1;
                continue;
            }
            if has_events {
                let time_us = batch.time.get(row).copied().unwrap_or(0);
                let ttl_s = batch.ttl.get(row).copied().flatten();
                self.timeline.push(time_us, ttl_s, effect);
            }
            let id = self.interner.id(key, 0);
            if id as usize == self.requests.keys.len() {
                self.requests.keys.push(key);
            }
            self.requests.ids.push(id);
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
            for _ in 0..self.requests.ids.len() {
                self.timeline.push(0, None, Effect::Request);
            }
        }
        is_eventful || !self.timeline.is_empty()
    }

    /// The requests; TTLs are honoured only if the rows have times of a clock.
    pub fn finish(mut self, has_clock: bool) -> Interned {
        if !has_clock {
            self.requests.without_clock = self.timeline.rows_with_ttl();
            self.timeline.forget_ttls();
        }
        let is_plain = self.timeline.is_plain();
        if self.mode == Mode::Bytes {
            if !is_plain {
                self.fill_sizes();
            }
            self.pair_sizes(is_plain);
        }
        self.requests.timeline = (!is_plain).then_some(self.timeline);
        self.requests
    }

    /// Gives rows of unknown size the last known size of their key, or else the next: a lookup that missed has no
    /// size, the write that follows has one.
    fn fill_sizes(&mut self) {
        let ids = &self.requests.ids;
        let mut known = vec![UNKNOWN_SIZE; self.requests.keys.len()];
        let mut fill = |row: usize, sizes: &mut Vec<u32>| {
            let last = &mut known[ids[row] as usize];
            if sizes[row] == UNKNOWN_SIZE {
                sizes[row] = *last;
            } else {
                *last = sizes[row];
            }
        };
        (0..ids.len()).for_each(|row| fill(row, &mut self.row_sizes));
        (0..ids.len())
            .rev()
            .for_each(|row| fill(row, &mut self.row_sizes));
    }

    /// Makes an object of each pair of key and size, and leaves out rows without a size.
    fn pair_sizes(&mut self, is_plain: bool) {
        let keys = std::mem::take(&mut self.requests.keys);
        let ids = std::mem::take(&mut self.requests.ids);
        let timeline = std::mem::take(&mut self.timeline);
        let mut pairs = Interner::new();
        let mut current = vec![NONE; if is_plain { 0 } else { keys.len() }];
        for (row, (&key_id, &size)) in ids.iter().zip(&self.row_sizes).enumerate() {
            if size == UNKNOWN_SIZE {
                self.requests.without_size += 1;
                continue;
            }
            let id = pairs.id(u64::from(key_id), size);
            if id as usize == self.requests.keys.len() {
                self.requests.keys.push(keys[key_id as usize]);
                self.requests.sizes.push(size.max(1));
            }
            self.requests.ids.push(id);
            if !is_plain {
                let earlier = std::mem::replace(&mut current[key_id as usize], id);
                self.timeline.times.push(timeline.times[row]);
                self.timeline.ttls.push(timeline.ttls[row]);
                self.timeline.effects.push(timeline.effects[row]);
                let is_other = earlier != id;
                self.timeline
                    .replaced
                    .push(if is_other { earlier } else { NONE });
            }
        }
    }
}

impl Interned {
    /// Reads a stream to its end.
    pub fn read(file: &str, stream: &mut dyn KeyStream, mode: Mode) -> Result<Self, TraceError> {
        let mut collector = Collector::new(mode);
        let mut batch = Batch::default();
        while stream.read(&mut batch)? > 0 {
            collector.take(file, &batch)?;
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
    fn ids_follow_first_use_and_survive_growth() {
        let mut interner = Interner::new();
        let mut expected: HashMap<(u64, u32), u32> = HashMap::new();
        let mut state = 1_u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(SPREAD).wrapping_add(1);
            let pair = ((state >> 40) % 30_000, (state >> 20) as u32 % 2);
            let next = expected.len() as u32;
            assert_eq!(
                interner.id(pair.0, pair.1),
                *expected.entry(pair).or_insert(next)
            );
        }
        assert_eq!(interner.len() as usize, expected.len());
    }

    #[test]
    fn a_resized_key_is_another_object_in_bytes() {
        let batch = Batch {
            key: vec![7, 7, 7, 8],
            size: vec![Some(0), Some(9), Some(0), None],
            ..Batch::default()
        };
        let mut collector = Collector::new(Mode::Bytes);
        collector.take("t", &batch).unwrap();
        let requests = collector.finish(true);
        assert_eq!((requests.ids, requests.sizes), (vec![0, 1, 0], vec![1, 9]));
        assert_eq!(requests.without_size, 1);
    }
}
