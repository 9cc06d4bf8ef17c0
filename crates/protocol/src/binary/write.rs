//! The server's responses, appended to its output.

use super::header::{HEADER_BYTES, Header, MAGIC_RESPONSE};
use super::{OpcodeAndOpaque, Status};

/// Length of the client flags that stand before key and value, in bytes.
const FLAGS_BYTES: u32 = 4;

/// The data of an item in the response to a read, besides its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredItem<'k> {
    /// Its key; sent only if the request wants it.
    pub key: &'k [u8],
    /// Client flags.
    pub flags: u32,
    /// Length of the value that follows.
    pub value_bytes: u32,
    /// Its CAS unique.
    pub cas: u64,
}

/// Appends the head of a value: header, client flags and, if the request wants it, the key. The value follows.
#[inline]
pub fn write_value_head(out: &mut Vec<u8>, request: OpcodeAndOpaque, item: &StoredItem<'_>) {
    let key = if request.returns_key() { item.key } else { b"" };
    let header = Header {
        magic: MAGIC_RESPONSE,
        opcode: request.opcode,
        key_bytes: key.len() as u16,
        extras_bytes: FLAGS_BYTES as u8,
        body_bytes: FLAGS_BYTES + key.len() as u32 + item.value_bytes,
        opaque: request.opaque,
        cas: item.cas,
        ..Header::default()
    };
    let mut head = [0; HEADER_BYTES + FLAGS_BYTES as usize];
    let (header_part, flags_part) = head.split_at_mut(HEADER_BYTES);
    header_part.copy_from_slice(&header.to_bytes());
    flags_part.copy_from_slice(&item.flags.to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(key);
}

/// The longest [`write_value_head`] in bytes, for a caller that reserves room once.
pub const fn value_head_bytes_max(key: &[u8]) -> usize {
    HEADER_BYTES + FLAGS_BYTES as usize + key.len()
}

/// Appends the response to a touch that found the item: its client flags and no value.
pub fn write_touched(out: &mut Vec<u8>, request: OpcodeAndOpaque, flags: u32, cas: u64) {
    let item = StoredItem { key: b"", flags, value_bytes: 0, cas };
    write_value_head(out, request, &item);
}

/// Appends a success without a value; `cas` is 0 where no item was stored.
#[inline]
pub fn write_success(out: &mut Vec<u8>, request: OpcodeAndOpaque, cas: u64) {
    write_response(out, request, (Status::Success, cas), b"", b"");
}

/// Appends the number that an increment or decrement came to.
pub fn write_number(out: &mut Vec<u8>, request: OpcodeAndOpaque, number: u64, cas: u64) {
    let value = number.to_be_bytes();
    write_response(out, request, (Status::Success, cas), b"", &value);
}

/// Appends a success whose value is a text.
pub fn write_text(out: &mut Vec<u8>, request: OpcodeAndOpaque, text: &[u8]) {
    write_response(out, request, (Status::Success, 0), b"", text);
}

/// Appends one row of statistics; an empty row ends the table.
pub fn write_stat(out: &mut Vec<u8>, request: OpcodeAndOpaque, name: &[u8], value: &[u8]) {
    write_response(out, request, (Status::Success, 0), name, value);
}

/// Appends an error with memcached's text for it.
#[inline]
pub fn write_error(out: &mut Vec<u8>, request: OpcodeAndOpaque, status: Status) {
    write_error_with_text(out, request, status, status.text());
}

/// Appends an error with a text of its own.
pub fn write_error_with_text(
    out: &mut Vec<u8>,
    request: OpcodeAndOpaque,
    status: Status,
    text: &[u8],
) {
    write_response(out, request, (status, 0), b"", text);
}

/// Appends the miss of a request whose responses repeat the key: the key stands in place of a text.
pub fn write_miss_with_key(out: &mut Vec<u8>, request: OpcodeAndOpaque, key: &[u8]) {
    write_response(out, request, (Status::NotFound, 0), key, b"");
}

/// Appends a response without extras. Keys are at most 250 bytes long, values far below 4 GiB.
fn write_response(
    out: &mut Vec<u8>,
    request: OpcodeAndOpaque,
    (status, cas): (Status, u64),
    key: &[u8],
    value: &[u8],
) {
    let header = Header {
        magic: MAGIC_RESPONSE,
        opcode: request.opcode,
        key_bytes: key.len() as u16,
        status: status.code(),
        body_bytes: (key.len() + value.len()) as u32,
        opaque: request.opaque,
        cas,
        ..Header::default()
    };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::super::opcode;
    use super::*;

    #[test]
    fn a_value_head_has_flags_and_the_key_only_if_the_opcode_returns_it() {
        let item = StoredItem { key: b"key", flags: 0x0102_0304, value_bytes: 5, cas: 9 };
        let value_head_for = |opcode| {
            let mut out = Vec::new();
            write_value_head(&mut out, OpcodeAndOpaque { opcode, opaque: 7 }, &item);
            out
        };
        let mut expected =
            b"\x81\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x07".to_vec();
        expected.extend_from_slice(b"\x00\x00\x00\x00\x00\x00\x00\x09\x01\x02\x03\x04");
        assert_eq!(value_head_for(opcode::GET), expected);
        let with_key = value_head_for(opcode::GETKQ);
        assert_eq!(with_key.get(2..4), Some(&b"\x00\x03"[..]));
        assert_eq!(with_key.get(8..12), Some(&b"\x00\x00\x00\x0c"[..]));
        assert!(with_key.ends_with(b"\x01\x02\x03\x04key"));
        assert_eq!(with_key.len(), value_head_bytes_max(b"key"));
    }

    #[test]
    fn an_error_carries_memcacheds_text() {
        let mut out = Vec::new();
        let request = OpcodeAndOpaque { opcode: opcode::SETQ, opaque: 1 };
        write_error(&mut out, request, Status::TooLarge);
        assert!(out.starts_with(b"\x81\x11\x00\x00\x00\x00\x00\x03\x00\x00\x00\x0a"));
        assert!(out.ends_with(b"Too large."));
    }
}
