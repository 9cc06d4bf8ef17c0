//! The keys of one bulk read: the request line itself, and the span of each key in it.
//!
//! Keeping the line means one copy of the keys serves as request and as the measure of its replies.

use std::collections::HashMap;

/// Keys of a `get` in flight.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "nearly always none: a list is moved with each request")]
pub struct KeyList {
    line: Vec<u8>,
    spans: Vec<(u32, u32)>,
    /// Made only when values arrive in another order than requested, as from a proxy.
    indices: Option<Box<HashMap<Box<[u8]>, usize>>>,
}

impl KeyList {
    /// Begins a line with a command word such as `get`.
    #[inline]
    pub fn begin(&mut self, command: &[u8]) {
        self.clear();
        self.line.extend_from_slice(command);
    }

    /// Adds a key, which goes on the wire as `prefix` and `key` together.
    pub fn push(&mut self, prefix: &[u8], key: &[u8]) {
        self.line.push(b' ');
        let key_start = self.line.len() as u32;
        if !prefix.is_empty() {
            self.line.extend_from_slice(prefix);
        }
        self.line.extend_from_slice(key);
        self.spans.push((key_start, self.line.len() as u32));
    }

    /// Ends the line and returns it.
    pub fn finish(&mut self) -> &[u8] {
        self.line.extend_from_slice(b"\r\n");
        &self.line
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The key at an index, as it goes on the wire.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let &(key_start, key_end) = self.spans.get(index)?;
        self.line.get(key_start as usize..key_end as usize)
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.line.clear();
        self.spans.clear();
        if self.indices.is_some() {
            self.indices = None; // nearly always there are none: the test is cheaper than the drop
        }
    }

    /// Finds a key, looking first from `cursor` on, where a server that keeps the order has it.
    pub(crate) fn find(&mut self, key: &[u8], cursor: usize) -> Option<usize> {
        // Misses are skipped by walking; few consecutive ones are expected.
        const NEARBY_KEYS_MAX: usize = 16;
        let nearby_index = (cursor..self.len().min(cursor + NEARBY_KEYS_MAX))
            .find(|&index| self.get(index) == Some(key));
        if nearby_index.is_some() {
            return nearby_index;
        }
        if self.indices.is_none() {
            let indexed_keys =
                (0..self.len()).filter_map(|index| Some((self.get(index)?.into(), index)));
            self.indices = Some(Box::new(indexed_keys.collect()));
        }
        self.indices.as_ref()?.get(key).copied()
    }
}
