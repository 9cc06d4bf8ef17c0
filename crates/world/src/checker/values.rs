//! Values that name the write they come from, and values of counters that show which additions were made.
//!
//! A *creation* is the number that a key's counter starts from, in its upper 16 bits; each *addition* has a *bit* of
//! its own, by which the checker sees it in what is read.

use crate::plan::{ADDITIONS_MAX, Key, key_bytes_of};

/// A counter's creation is stored above this many bits of its value, the sum of its additions below.
const CREATION_SHIFT: u32 = 48;

/// The number of a write in its world.
pub(crate) type WriteId = u32;

/// The bytes of a value: the id of its write, its key, and a padding that follows from these.
pub(crate) fn value_body(
    write_id: WriteId,
    key: Key,
    value_bytes: u32,
    has_protocol_text: bool,
) -> Vec<u8> {
    let mut body = format!("w{write_id:08x}:").into_bytes();
    body.extend_from_slice(&key_bytes_of(key));
    body.push(b':');
    let protocol_text: &[u8] = b"\r\nEND\r\nVALUE k0 0 3\r\nabc\r\nHD O1\r\nMN\r\nSTORED\r\n";
    let plain_text: &[u8] = b"the quick brown fox jumps over the lazy dog ";
    // Text of the protocol within values shows whether lengths are kept.
    let padding =
        if has_protocol_text && write_id.is_multiple_of(3) { protocol_text } else { plain_text };
    let first_offset = write_id as usize % padding.len();
    let length = (value_bytes as usize).max(body.len());
    body.reserve_exact(length - body.len());
    body.extend_from_slice(&padding[first_offset..]);
    while body.len() < length {
        body.extend_from_slice(padding);
    }
    body.truncate(length);
    body
}

/// Client flags of a write.
pub(crate) fn flags(write_id: WriteId) -> u32 {
    if write_id.is_multiple_of(4) { 0 } else { write_id.wrapping_mul(0x9E37_79B1) }
}

/// The write that a value names.
pub(crate) fn parse_write_id(body: &[u8]) -> Option<WriteId> {
    let digits = body.strip_prefix(b"w")?.get(..8)?;
    let digits_text = std::str::from_utf8(digits).ok()?;
    WriteId::from_str_radix(digits_text, 16).ok()
}

/// The value of a counter at its creation.
pub(crate) fn initial_counter_value(creation: u16) -> u64 {
    u64::from(creation) << CREATION_SHIFT
}

/// What an addition adds: a bit of its own. The bit above it is free, and is set if the addition is made twice.
pub(crate) fn addend(addition: u8) -> u64 {
    1 << (2 * addition)
}

/// The value of a counter, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CounterValue {
    /// Which creation it goes back to.
    pub(crate) creation: u16,
    sum: u64,
}

impl CounterValue {
    /// The parts of the value.
    pub(crate) fn from_value(value: u64) -> Self {
        Self {
            creation: (value >> CREATION_SHIFT) as u16,
            sum: value & ((1 << CREATION_SHIFT) - 1),
        }
    }

    /// The parts of the value that this text shows.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        text.trim_end().parse().ok().map(Self::from_value)
    }

    /// Whether an addition is in it.
    pub(crate) fn contains_addition(self, addition: u8) -> bool {
        self.sum & addend(addition) != 0
    }

    /// Whether it is more than the sum of additions that were each made once.
    pub(crate) fn has_double_additions(self) -> bool {
        let mut all_additions = 0;
        for addition in 0..ADDITIONS_MAX {
            all_additions |= addend(addition);
        }
        self.sum & !all_additions != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_write_and_has_its_length() {
        for (write_id, value_bytes) in [(3, 24), (4, 300), (0x0102_0304, 9000)] {
            let body = value_body(write_id, 2, value_bytes, true);
            assert_eq!((body.len(), parse_write_id(&body)), (value_bytes as usize, Some(write_id)));
        }
        assert_eq!(parse_write_id(b"x00000001:"), None);
    }

    #[test]
    fn a_counter_names_its_additions_and_shows_what_was_added_twice() {
        let value = initial_counter_value(7) + addend(0) + addend(5);
        let counter = CounterValue::parse(value.to_string().as_bytes()).unwrap();
        assert_eq!(counter.creation, 7);
        assert!(
            counter.contains_addition(0)
                && counter.contains_addition(5)
                && !counter.contains_addition(1)
                && !counter.has_double_additions()
        );
        assert!(CounterValue::from_value(value + addend(5)).has_double_additions());
        assert!(
            CounterValue::from_value(initial_counter_value(7) + 2 * addend(ADDITIONS_MAX - 1))
                .has_double_additions()
        );
    }
}
