//! Values that name the write they come from, and numbers that name what was added to them.

use crate::plan::{ADDITIONS_MAX, Key, wire_key};

/// Bits of a number below that of its creation.
const CREATION_SHIFT: u32 = 48;

/// The number of a write in its world.
pub(crate) type WriteId = u32;

/// The bytes of a value: whose write, under which key, and a filling that follows from these.
pub(crate) fn value_body(write: WriteId, key: Key, bytes: u32, has_protocol_text: bool) -> Vec<u8> {
    let mut body = format!("w{write:08x}:").into_bytes();
    body.extend_from_slice(&wire_key(key));
    body.push(b':');
    let protocol_text: &[u8] = b"\r\nEND\r\nVALUE k0 0 3\r\nabc\r\nHD O1\r\nMN\r\nSTORED\r\n";
    let plain_text: &[u8] = b"the quick brown fox jumps over the lazy dog ";
    // Text of the protocol within values shows whether lengths are kept.
    let padding = if has_protocol_text && write.is_multiple_of(3) {
        protocol_text
    } else {
        plain_text
    };
    let first_letter = write as usize % padding.len();
    let length = (bytes as usize).max(body.len());
    body.reserve_exact(length - body.len());
    body.extend_from_slice(&padding[first_letter..]);
    while body.len() < length {
        body.extend_from_slice(padding);
    }
    body.truncate(length);
    body
}

/// Client flags of a write.
pub(crate) fn flags(write: WriteId) -> u32 {
    if write.is_multiple_of(4) {
        0
    } else {
        write.wrapping_mul(0x9E37_79B1)
    }
}

/// The write that a value names.
pub(crate) fn parse_write_id(body: &[u8]) -> Option<WriteId> {
    let digits = body.strip_prefix(b"w")?.get(..8)?;
    let digits = std::str::from_utf8(digits).ok()?;
    WriteId::from_str_radix(digits, 16).ok()
}

/// The number that a creation begins with.
pub(crate) fn initial_number(creation: u16) -> u64 {
    u64::from(creation) << CREATION_SHIFT
}

/// What the addition with these bits adds: each leaves the bit above its own free, which is set when it is made twice.
pub(crate) fn addend(bit: u8) -> u64 {
    1 << (2 * bit)
}

/// A number, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    /// Which creation it goes back to.
    pub(crate) creation: u16,
    sum: u64,
}

impl Number {
    /// The parts of a number.
    pub(crate) fn from_value(number: u64) -> Self {
        Self {
            creation: (number >> CREATION_SHIFT) as u16,
            sum: number & ((1 << CREATION_SHIFT) - 1),
        }
    }

    /// The number that the text of a value shows.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        text.trim_end().parse().ok().map(Self::from_value)
    }

    /// Whether an addition is in it.
    pub(crate) fn contains_addition(self, bit: u8) -> bool {
        self.sum & addend(bit) != 0
    }

    /// Whether it is more than the sum of additions that were each made once.
    pub(crate) fn has_double_additions(self) -> bool {
        let mut all_additions = 0;
        for bit in 0..ADDITIONS_MAX {
            all_additions |= addend(bit);
        }
        self.sum & !all_additions != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_write_and_has_its_length() {
        for (write, bytes) in [(3, 24), (4, 300), (0x0102_0304, 9000)] {
            let body = value_body(write, 2, bytes, true);
            assert_eq!(
                (body.len(), parse_write_id(&body)),
                (bytes as usize, Some(write))
            );
        }
        assert_eq!(parse_write_id(b"x00000001:"), None);
    }

    #[test]
    fn a_number_names_its_additions_and_shows_what_was_added_twice() {
        let number = initial_number(7) + addend(0) + addend(5);
        let read = Number::read(number.to_string().as_bytes()).unwrap();
        assert_eq!(read.creation, 7);
        assert!(
            read.contains_addition(0)
                && read.contains_addition(5)
                && !read.contains_addition(1)
                && !read.has_double_additions()
        );
        assert!(Number::from_value(number + addend(5)).has_double_additions());
        assert!(
            Number::from_value(initial_number(7) + 2 * addend(ADDITIONS_MAX - 1))
                .has_double_additions()
        );
    }
}
