//! The keys of a recorded trace as the keys of a load test: numbered in the order of their first use, with their sizes.

use std::sync::Arc;

use glasscache_sim::TraceError;
use glasscache_sim::trace::intern::Interner;
use glasscache_sim::trace::{Batch as Rows, KeyStream};

use crate::load::{Size, mix};

/// A trace in memory.
#[derive(Debug, Clone)]
pub struct KeyTrace {
    /// The number of the key of each request, in their order.
    pub requested_key_numbers: Arc<[u32]>,
    /// Number of distinct keys.
    pub keys: u64,
    /// Bytes of each key's value at its first use with a size; empty if no row has a size.
    pub value_bytes: Arc<[u32]>,
}

impl KeyTrace {
    /// Reads a stream to its end. Values longer than `value_bytes_max` are cut; a key whose size is unknown gets that
    /// of another key.
    pub fn read(stream: &mut dyn KeyStream, value_bytes_max: u32) -> Result<Self, TraceError> {
        let (mut rows, mut interner) = (Rows::default(), Interner::new());
        let (mut requested_key_numbers, mut sizes) = (Vec::new(), Vec::<Option<u32>>::new());
        while stream.read(&mut rows)? > 0 {
            for (row_index, &key) in rows.key.iter().enumerate() {
                let key_number = interner.intern(key, 0);
                requested_key_numbers.push(key_number);
                sizes.resize(interner.len() as usize, None);
                if let Some(first_size) = sizes.get_mut(key_number as usize) {
                    *first_size = first_size.or(rows.size.get(row_index).copied().flatten());
                }
            }
        }
        let known_sizes: Vec<u32> = sizes.iter().flatten().copied().collect();
        let size_of_another_key = |key_number: u64| {
            let index = mix(key_number) % known_sizes.len().max(1) as u64;
            known_sizes.get(index as usize).copied().unwrap_or(0)
        };
        let value_bytes = (0..).zip(&sizes).map(|(key_number, size)| {
            let uncut_bytes = size.unwrap_or_else(|| size_of_another_key(key_number));
            uncut_bytes.min(value_bytes_max)
        });
        Ok(Self {
            requested_key_numbers: requested_key_numbers.into(),
            keys: u64::from(interner.len()),
            value_bytes: if known_sizes.is_empty() {
                Arc::default()
            } else {
                value_bytes.collect()
            },
        })
    }

    /// The sizes as those of values; `None` if the trace has none.
    pub fn size(&self) -> Option<Size> {
        (!self.value_bytes.is_empty()).then(|| Size::FromTrace(self.value_bytes.clone()))
    }
}

#[cfg(test)]
mod tests {
    use glasscache_sim::trace::{Columns, InMemoryFile, open};

    use super::*;

    fn read(text: &'static str) -> KeyTrace {
        let mut stream = open("t.csv", InMemoryFile::new(text.as_bytes()), Columns::ALL).unwrap();
        KeyTrace::read(&mut *stream, 1000).unwrap()
    }

    #[test]
    fn keys_are_numbered_in_order_and_have_their_first_known_size() {
        let trace = read("key,size\n7,\n9,20\n7,30\n9,40\n5,5000\n");
        assert_eq!(trace.requested_key_numbers[..], [0, 1, 0, 1, 2]);
        assert_eq!((trace.keys, &trace.value_bytes[..]), (3, &[30, 20, 1000][..]));
    }

    #[test]
    fn a_key_without_a_size_gets_that_of_another_and_a_trace_without_sizes_has_none() {
        assert_eq!(read("key,size\n7,\n9,20\n").value_bytes[..], [20, 20]);
        assert_eq!(read("key\n7\n9\n").size(), None);
    }
}
