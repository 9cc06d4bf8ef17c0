//! The layout of an item: the bytes in a segment, independent of their address.
//!
//! ```text
//! 0  state word 2 stale, win sent, fetched, unique exposed, and a coarse last access: the only bytes that ever change
//! 2  key       1  length of the key, 1 to 250; 0 marks a record that is not an item (below)
//! 3  kind      1  widths of the fields that follow, two bits each: value length, flags, expiry, unique
//! 4  value length 1, 2 or 4 · client flags 0, 1, 2 or 4 · expiry 0, 2 or 4 · CAS unique 0, 6 or 8 · key · value
//! ```
//!
//! Thus a minimal item (`KIND_MINIMAL`) costs 5 bytes, one of up to 64 KiB 6. Expiry is seconds since the segment's base
//! time (2 bytes) or of the clock (4); the unique is stored only where it differs from what the address gives, as the
//! distance from that (6 bytes) or itself (8). A
//! chained item has, in the value's place, the number of its pieces (4 bytes) and their addresses (6 each). A piece is a
//! record of its own, with the hash of its key, by which whoever moves it finds its head. What is abandoned
//! stays a record of valid length that nothing names.
//!
//! Words: the *marks* are the bits of the state word. A unique is *exposed* once a client was sent it: a move of the
//! item must then keep it. The *implied unique* follows from the address, so it need not be stored. A *minimal item*
//! has client flags 0, no expiry, no stored unique and a value of less than 256 bytes; its get has a path of its
//! own.

use crate::memory::arena::ITEM_ALIGN;
use crate::request::{Expiry, Seconds};

/// Bytes before the fields of variable width.
pub(crate) const FIXED_HEADER_BYTES: usize = 4;
/// Maximum length of the fields of variable width.
const VARIABLE_FIELDS_BYTES_MAX: usize = 4 + 4 + 4 + 8;
/// Maximum length of everything before the key.
pub(crate) const HEADER_BYTES_MAX: usize = FIXED_HEADER_BYTES + VARIABLE_FIELDS_BYTES_MAX;
/// Bytes before a piece's data: marker, kind, length, hash of the key.
pub(crate) const PIECE_HEADER_BYTES: usize = 16;
/// Bytes of the number of pieces before their addresses.
pub(crate) const PIECE_COUNT_BYTES: usize = 4;
/// Bytes of an address in a table of pieces.
pub(crate) const PIECE_ADDRESS_BYTES: usize = 6;
/// Bits of the state word of an item.
pub(crate) mod bits {
    /// The item was marked stale by `md I` or by a `ms I` with an older unique.
    pub(crate) const STALE: u16 = 1;
    /// One client has won the right to store the item again.
    pub(crate) const WIN: u16 = 2;
    /// The item was read at least once.
    pub(crate) const FETCHED: u16 = 4;
    /// The unique of the address was sent to a client: a copy must keep it.
    pub(crate) const UNIQUE_EXPOSED: u16 = 8;
    /// The last access starts here.
    pub(crate) const ACCESS_SHIFT: u32 = 4;
    /// What a copy of the same item takes over; its unique is either stored or was never exposed.
    pub(crate) const COPIED_MARKS: u16 = STALE | WIN | FETCHED;
    /// Everything but the last access.
    pub(crate) const MARKS: u16 = COPIED_MARKS | UNIQUE_EXPOSED;

    /// The mark of a write whose caller exposes the unique, if it does.
    pub(crate) fn exposed_bit(hides_unique: bool) -> u16 {
        if hides_unique { 0 } else { UNIQUE_EXPOSED }
    }
}

const VALUE_WIDTHS: [usize; 4] = [1, 2, 4, 4];
const VALUE_CODE_CHAINED: u8 = 3;
const FLAG_WIDTHS: [usize; 4] = [0, 1, 2, 4];
const EXPIRY_WIDTHS: [usize; 4] = [0, 2, 4, 4];
const UNIQUE_WIDTHS: [usize; 4] = [0, 6, 8, 8];

/// The kind of a minimal item: client flags 0, no expiry, no stored unique, and a value of less than 256 bytes, whose
/// length is the only field.
pub(crate) const KIND_MINIMAL: u8 = 0;
/// Bytes before the key of a minimal item.
pub(crate) const MINIMAL_HEADER_BYTES: usize = FIXED_HEADER_BYTES + VALUE_WIDTHS[0];

/// The value of the kind byte in the record of a piece.
const KIND_PIECE: u8 = 2;

/// Bytes of the variable fields for each kind, so that a lookup finds the key with one load.
pub(crate) const FIELD_BYTES_BY_KIND: [u8; 256] = field_bytes_by_kind();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, with every index masked")]
const fn field_bytes_by_kind() -> [u8; 256] {
    let mut table = [0; 256];
    let mut kind = 0;
    while kind < 256 {
        let widths = VALUE_WIDTHS[kind & 3]
            + FLAG_WIDTHS[kind >> 2 & 3]
            + EXPIRY_WIDTHS[kind >> 4 & 3]
            + UNIQUE_WIDTHS[kind >> 6 & 3];
        table[kind] = widths as u8;
        kind += 1;
    }
    table
}

/// The fields of the header of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: u32,
    pub(crate) is_chained: bool,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    /// The unique, if it is stored.
    pub(crate) unique: Option<StoredUnique>,
}

/// A unique that an item has instead of the one that its address gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredUnique {
    /// Its distance from the one of the address, in six bytes: uniques begin at a number from the clock, and those of
    /// one store are close to each other.
    Distance(i64),
    /// The unique itself, in eight bytes.
    Whole(u64),
}

impl StoredUnique {
    /// The form of `unique` at an address that gives `implied_unique`.
    pub(crate) fn new(unique: u64, implied_unique: u64) -> Self {
        let distance = unique.wrapping_sub(implied_unique) as i64;
        if sign_extend(distance as u64) == distance {
            StoredUnique::Distance(distance)
        } else {
            StoredUnique::Whole(unique)
        }
    }

    /// The unique at an address that gives `implied_unique`.
    pub(crate) fn resolve(self, implied_unique: u64) -> u64 {
        match self {
            StoredUnique::Distance(distance) => implied_unique.wrapping_add_signed(distance),
            StoredUnique::Whole(unique) => unique,
        }
    }
}

/// The signed number in the lowest six bytes.
fn sign_extend(number: u64) -> i64 {
    (number << 16) as i64 >> 16
}

/// A record of a segment, as a walk finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// An item; its header must still be parsed.
    Item,
    /// Part of a chained item's value.
    Piece {
        /// Length of the data.
        data_bytes: usize,
        /// Hash of the key of the item it belongs to.
        hash: u64,
    },
}

/// The kind of a record, from its first sixteen bytes without the two that others may change meanwhile; `None` for
/// bytes that do not start a record.
pub(crate) fn parse_record(after_state_word: &[u8]) -> Option<Record> {
    match (*after_state_word.first()?, *after_state_word.get(1)?) {
        (0, KIND_PIECE) => Some(Record::Piece {
            data_bytes: read_le(after_state_word.get(2..6)?) as usize,
            hash: read_le(after_state_word.get(6..14)?),
        }),
        (0, _) => None,
        _ => Some(Record::Item),
    }
}

/// The header of a piece.
pub(crate) fn piece_header(data_bytes: usize, hash: u64) -> [u8; PIECE_HEADER_BYTES] {
    let mut header = [0; PIECE_HEADER_BYTES];
    write_le(&mut header, 3, u64::from(KIND_PIECE), 1);
    write_le(&mut header, 4, data_bytes as u64, 4);
    write_le(&mut header, 8, hash, 8);
    header
}

/// The bytes of a piece's record, with its padding.
pub(crate) fn piece_record_bytes(data_bytes: usize) -> usize {
    padded_bytes(PIECE_HEADER_BYTES + data_bytes)
}

/// The length of a record with its padding: records start at even addresses.
pub(crate) fn padded_bytes(unpadded_bytes: usize) -> usize {
    unpadded_bytes.next_multiple_of(ITEM_ALIGN)
}

impl Header {
    /// Reads the fields; `fields` are the variable ones, as many bytes as [`FIELD_BYTES_BY_KIND`] has for the kind.
    #[inline]
    pub(crate) fn parse(key_bytes_and_kind: [u8; 2], fields: &[u8], base_time: Seconds) -> Header {
        let [key_bytes, kind] = key_bytes_and_kind;
        if kind >> 2 != 0 {
            return Header::parse_all(key_bytes_and_kind, fields, base_time);
        }
        // Most items have a length and nothing else.
        Header {
            key_bytes: usize::from(key_bytes),
            value_bytes: read_le(fields) as u32,
            is_chained: kind == VALUE_CODE_CHAINED,
            flags: 0,
            expiry: Expiry::Never,
            unique: None,
        }
    }

    fn parse_all(key_bytes_and_kind: [u8; 2], fields: &[u8], base_time: Seconds) -> Header {
        let [key_bytes, kind] = key_bytes_and_kind;
        let (value_code, flag_code) = (kind & 3, usize::from(kind >> 2 & 3));
        let (expiry_code, unique_code) = (usize::from(kind >> 4 & 3), usize::from(kind >> 6));
        let mut remaining = fields;
        let value_bytes =
            read_field(&mut remaining, width(VALUE_WIDTHS, usize::from(value_code))) as u32;
        let flags = read_field(&mut remaining, width(FLAG_WIDTHS, flag_code)) as u32;
        let stored_expiry = read_field(&mut remaining, width(EXPIRY_WIDTHS, expiry_code)) as u32;
        let unique = read_field(&mut remaining, width(UNIQUE_WIDTHS, unique_code));
        Header {
            key_bytes: usize::from(key_bytes),
            value_bytes,
            is_chained: value_code == VALUE_CODE_CHAINED,
            flags,
            expiry: match expiry_code {
                0 => Expiry::Never,
                1 => Expiry::At(Seconds(base_time.0.saturating_add(stored_expiry))),
                _ => Expiry::At(Seconds(stored_expiry)),
            },
            unique: match unique_code {
                0 => None,
                1 => Some(StoredUnique::Distance(sign_extend(unique))),
                _ => Some(StoredUnique::Whole(unique)),
            },
        }
    }

    /// Writes the header, without the state word, and returns its length including that.
    pub(crate) fn write(&self, base_time: Seconds, buffer: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        let value_code = match self.value_bytes {
            _ if self.is_chained => usize::from(VALUE_CODE_CHAINED),
            0..=0xff => 0,
            0x100..=0xffff => 1,
            _ => 2,
        };
        let flag_code = match self.flags {
            0 => 0,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 3,
        };
        let (expiry_code, expiry_s) = match self.expiry {
            Expiry::Never => (0, 0),
            Expiry::At(second) => match second.0.checked_sub(base_time.0) {
                Some(delta) if delta <= 0xffff => (1, delta),
                _ => (2, second.0),
            },
        };
        let (unique_code, unique) = match self.unique {
            None => (0, 0),
            Some(StoredUnique::Distance(distance)) => (1, distance as u64),
            Some(StoredUnique::Whole(unique)) => (2, unique),
        };
        write_le(buffer, 2, self.key_bytes as u64, 1);
        write_le(
            buffer,
            3,
            (value_code | flag_code << 2 | expiry_code << 4 | unique_code << 6) as u64,
            1,
        );
        let fields = [
            (u64::from(self.value_bytes), width(VALUE_WIDTHS, value_code)),
            (u64::from(self.flags), width(FLAG_WIDTHS, flag_code)),
            (u64::from(expiry_s), width(EXPIRY_WIDTHS, expiry_code)),
            (unique, width(UNIQUE_WIDTHS, unique_code)),
        ];
        let mut offset = FIXED_HEADER_BYTES;
        for (number, field_width) in fields {
            write_le(buffer, offset, number, field_width);
            offset += field_width;
        }
        offset
    }
}

/// Seconds since the base time, in 12 bits: exact up to 255, then to one part in 128, never too late.
#[inline]
pub(crate) fn encode_access(seconds: u32) -> u16 {
    let encoded = if seconds < 128 {
        seconds
    } else {
        let shift = seconds.ilog2() - 7;
        (shift + 1) << 7 | (seconds >> shift & 0x7f)
    };
    (encoded as u16) << bits::ACCESS_SHIFT
}

/// The seconds that [`encode_access`] kept in a state word.
#[inline]
pub(crate) fn decode_access(state_word: u16) -> u32 {
    let encoded = u32::from(state_word >> bits::ACCESS_SHIFT);
    let (exponent, mantissa) = (encoded >> 7, encoded & 0x7f);
    if exponent == 0 { mantissa } else { (128 | mantissa) << (exponent - 1).min(24) }
}

/// Reads a number of as many bytes as there are, the least significant first.
#[inline]
pub(crate) fn read_le(bytes: &[u8]) -> u64 {
    match *bytes {
        [] => 0,
        [first] => u64::from(first),
        [first, second] => u64::from(u16::from_le_bytes([first, second])),
        [first, second, third, fourth] => {
            u64::from(u32::from_le_bytes([first, second, third, fourth]))
        }
        _ => read_le_any_width(bytes),
    }
}

fn read_le_any_width(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    for (target, source) in number.iter_mut().zip(bytes) {
        *target = *source;
    }
    u64::from_le_bytes(number)
}

#[inline]
fn width(table: [usize; 4], code: usize) -> usize {
    table.get(code).copied().unwrap_or(0)
}

#[inline]
fn read_field(remaining: &mut &[u8], width: usize) -> u64 {
    let (field, tail) = remaining.split_at_checked(width).unwrap_or((remaining, &[]));
    *remaining = tail;
    read_le(field)
}

fn write_le(buffer: &mut [u8], offset: usize, number: u64, width: usize) {
    for (target, source) in buffer.iter_mut().skip(offset).take(width).zip(number.to_le_bytes()) {
        *target = source;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_as_it_was_written() {
        for value_bytes in [0, 1, 255, 256, 65535, 65536, u32::MAX] {
            for flags in [0, 1, 255, 256, 70_000, u32::MAX] {
                for expiry in
                    [Expiry::Never, Expiry::At(Seconds(1005)), Expiry::At(Seconds(90_000_000))]
                {
                    for unique in [
                        None,
                        Some(StoredUnique::Distance(1)),
                        Some(StoredUnique::Distance(-1)),
                        Some(StoredUnique::Whole(u64::MAX)),
                    ] {
                        for is_chained in [false, true] {
                            let header = Header {
                                key_bytes: 250,
                                value_bytes,
                                is_chained,
                                flags,
                                expiry,
                                unique,
                            };
                            let mut buffer = [0; HEADER_BYTES_MAX];
                            let len = header.write(Seconds(1000), &mut buffer);
                            let field_bytes =
                                usize::from(FIELD_BYTES_BY_KIND[usize::from(buffer[3])]);
                            assert_eq!(len, FIXED_HEADER_BYTES + field_bytes);
                            let parsed = Header::parse(
                                [buffer[2], buffer[3]],
                                &buffer[4..len],
                                Seconds(1000),
                            );
                            assert_eq!(parsed, header);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_unique_is_stored_in_six_bytes_where_it_is_near_that_of_its_address() {
        let near_and_far = [0, 1, 1 << 46, (1 << 47) - 1, 1 << 47, 1 << 48, 1 << 62, u64::MAX / 2];
        for implied_unique in [0, 1, 1 << 47, 1 << 60, u64::MAX] {
            for distance in near_and_far
                .into_iter()
                .flat_map(|distance: u64| [distance, distance.wrapping_neg()])
            {
                let unique = implied_unique.wrapping_add(distance);
                let stored = StoredUnique::new(unique, implied_unique);
                assert_eq!(stored.resolve(implied_unique), unique);
                let is_near = (-(1 << 47)..1 << 47).contains(&(distance as i64));
                assert_eq!(matches!(stored, StoredUnique::Distance(_)), is_near, "{distance}");
                let header = Header {
                    key_bytes: 1,
                    value_bytes: 1,
                    is_chained: false,
                    flags: 0,
                    expiry: Expiry::Never,
                    unique: Some(stored),
                };
                let mut buffer = [0; HEADER_BYTES_MAX];
                let len = header.write(Seconds(0), &mut buffer);
                assert_eq!(len, MINIMAL_HEADER_BYTES + if is_near { 6 } else { 8 });
                let parsed = Header::parse([buffer[2], buffer[3]], &buffer[4..len], Seconds(0));
                assert_eq!(parsed, header);
            }
        }
    }

    #[test]
    fn a_last_access_is_exact_at_first_and_never_late() {
        for seconds in (0..2000).chain([10_000, 86_400, 2_592_000, 100_000_000]) {
            let decoded = decode_access(encode_access(seconds));
            assert!(
                decoded <= seconds && seconds - decoded <= seconds / 128,
                "{seconds} became {decoded}"
            );
            assert!(seconds >= 256 || decoded == seconds);
        }
    }

    #[test]
    fn a_piece_is_parsed_as_one_and_zeros_are_not_a_record() {
        assert_eq!(
            parse_record(&piece_header(77, u64::MAX - 5)[ITEM_ALIGN..]),
            Some(Record::Piece { data_bytes: 77, hash: u64::MAX - 5 })
        );
        assert_eq!(parse_record(&[0; 14]), None);
    }
}
