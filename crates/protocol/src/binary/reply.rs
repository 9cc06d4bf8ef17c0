//! Binary responses, read by a client: nothing is trusted, each length is checked before it is used.

use super::header::{HEADER_BYTES, Header, MAGIC_RESPONSE};
use super::{OpcodeAndOpaque, Status};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Longest key of a response in bytes: names of statistics are no longer than keys of items.
const RESPONSE_KEY_BYTES_MAX: usize = KEY_BYTES_MAX;

/// A response up to its value, of which `value_bytes` bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The request that the reply belongs to.
    pub request: OpcodeAndOpaque,
    /// How it ended.
    pub status: Status,
    /// The CAS unique of the item; 0 if there is none.
    pub cas: u64,
    /// The client flags of a read, otherwise empty.
    pub extras: &'a [u8],
    /// The key, where the request wanted it, or the name of a row of statistics.
    pub key: &'a [u8],
    /// Length of the value that follows, or of the text of an error.
    pub value_bytes: u32,
}

impl ResponseHead<'_> {
    /// The client flags that a read returns; 0 where there are none.
    pub fn flags(&self) -> u32 {
        let bytes = self.extras.first_chunk();
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }
}

/// Why received bytes cannot be a response; the connection must close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The first byte is not that of a response.
    #[error("a response that does not begin with 0x81")]
    Magic,
    /// A status that memcached does not have.
    #[error("a response with an unknown status, {0:#06x}")]
    Status(u16),
    /// Extras, key and value do not fit the length of the body, or exceed their bounds.
    #[error("a response whose lengths contradict each other")]
    Lengths,
}

/// Reads the response at the front of `input` up to its value: the head, and the bytes taken.
///
/// `Ok(None)` means: not complete yet.
pub fn parse_head(input: &[u8]) -> Result<Option<(ResponseHead<'_>, usize)>, Fault> {
    if input.first().is_some_and(|magic| *magic != MAGIC_RESPONSE) {
        return Err(Fault::Magic);
    }
    let Some(header) = Header::read(input) else {
        return Ok(None);
    };
    let status = Status::from_code(header.status).ok_or(Fault::Status(header.status))?;
    let value_bytes = header.value_bytes().ok_or(Fault::Lengths)?;
    let key_bytes = usize::from(header.key_bytes);
    if key_bytes > RESPONSE_KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
        return Err(Fault::Lengths);
    }
    let extras_bytes = usize::from(header.extras_bytes);
    let used = HEADER_BYTES + extras_bytes + key_bytes;
    let Some(extras_and_key) = input.get(HEADER_BYTES..used) else {
        return Ok(None);
    };
    let (extras, key) = extras_and_key.split_at_checked(extras_bytes).unwrap_or_default();
    let head = ResponseHead {
        request: OpcodeAndOpaque { opcode: header.opcode, opaque: header.opaque },
        status,
        cas: header.cas,
        extras,
        key,
        value_bytes,
    };
    Ok(Some((head, used)))
}

/// The number that an increment or decrement returns as its value.
pub fn parse_number(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::{StoredItem, opcode, write};
    use super::*;

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let request = OpcodeAndOpaque { opcode: opcode::GETK, opaque: 77 };
        let item = StoredItem { key: b"key", flags: 9, value_bytes: 1000, cas: u64::MAX };
        let mut bytes = Vec::new();
        write::write_value_head(&mut bytes, request, &item);
        for length in 0..bytes.len() {
            assert_eq!(parse_head(&bytes[..length]), Ok(None), "{length}");
        }
        let (parsed_head, used) = parse_head(&bytes).unwrap().unwrap();
        assert_eq!(
            (parsed_head.request, parsed_head.status, used),
            (request, Status::Success, bytes.len())
        );
        assert_eq!((parsed_head.key, parsed_head.flags()), (&b"key"[..], 9));
        assert_eq!((parsed_head.value_bytes, parsed_head.cas), (1000, u64::MAX));
    }

    #[test]
    fn what_cannot_be_a_response_is_a_fault() {
        assert_eq!(parse_head(b"E"), Err(Fault::Magic));
        let header = Header { magic: MAGIC_RESPONSE, ..Header::default() };
        let parse_header = |header: Header| {
            parse_head(&header.to_bytes()).map(|parsed_head| parsed_head.map(|(_, used)| used))
        };
        assert_eq!(parse_header(Header { status: 7, ..header }), Err(Fault::Status(7)));
        let long = Header { key_bytes: 251, body_bytes: 251, ..header };
        assert_eq!(parse_header(long), Err(Fault::Lengths));
        let short = Header { extras_bytes: 4, body_bytes: 3, ..header };
        assert_eq!(parse_header(short), Err(Fault::Lengths));
        let large = Header { body_bytes: u32::MAX, ..header };
        assert_eq!(parse_header(large), Err(Fault::Lengths));
        assert_eq!(parse_number(b"\0\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(parse_number(b"\0"), None);
    }
}
