//! A flood: a server sends refusals without end, to quiet writes as to requests that have a reply.

use crate::plan::Micros;

/// The refusal in text.
const TEXT_REFUSAL: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";

/// The first bytes of a request and of a response in binary, the length of their headers.
const MAGIC_REQUEST: u8 = 0x80;
const MAGIC_RESPONSE: u8 = 0x81;
const HEADER_BYTES: usize = 24;

/// Offsets in the header: the opcode, the status (its lower byte), the length of the body, the opaque.
const OPCODE_OFFSET: usize = 1;
const STATUS_OFFSET: usize = 7;
const BODY_LENGTH_OFFSET: usize = 8;
const OPAQUE_OFFSET: usize = 12;
const OPAQUE_END: usize = 16;
/// The status "out of memory".
const OUT_OF_MEMORY_STATUS: u8 = 0x82;

/// How often a server writes to one connection, at most.
const WRITES_MAX: u32 = 200;
/// The longest time between two of these.
pub(super) const PAUSE_MICROS_MAX: Micros = 500;

/// What a server sends to one connection without end.
#[derive(Debug)]
pub(super) struct Flood {
    refusal: Vec<u8>,
    writes_left: u32,
}

impl Flood {
    /// A flood after the requests in `request_bytes`, of refusals of the first or of the last of them.
    pub(super) fn new(request_bytes: &[u8], refuses_first: bool) -> Self {
        Self { refusal: refusal_of(request_bytes, refuses_first), writes_left: WRITES_MAX }
    }

    /// As many refusals as fit in a window; `None` once the server has written often enough.
    pub(super) fn next_refusals(&mut self, window_bytes: usize) -> Option<Vec<u8>> {
        self.writes_left = self.writes_left.checked_sub(1)?;
        Some(self.refusal.repeat(window_bytes / self.refusal.len()))
    }
}

/// The refusal of the first or of the last whole request in `request_bytes`, in its protocol.
fn refusal_of(request_bytes: &[u8], refuses_first: bool) -> Vec<u8> {
    let mut refused_header = None;
    let mut remaining = request_bytes;
    while remaining.first() == Some(&MAGIC_REQUEST)
        && let Some((header, body)) = remaining.split_first_chunk::<HEADER_BYTES>()
    {
        if refused_header.is_none() || !refuses_first {
            refused_header = Some(header);
        }
        let body_length_field = &header[BODY_LENGTH_OFFSET..OPAQUE_OFFSET];
        let body_bytes =
            body_length_field.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        remaining = body.get(body_bytes..).unwrap_or_default();
    }
    let Some(header) = refused_header else {
        return TEXT_REFUSAL.to_vec();
    };
    let mut refusal = vec![0; HEADER_BYTES];
    refusal[0] = MAGIC_RESPONSE;
    refusal[OPCODE_OFFSET] = header[OPCODE_OFFSET];
    refusal[STATUS_OFFSET] = OUT_OF_MEMORY_STATUS;
    refusal[OPAQUE_OFFSET..OPAQUE_END].copy_from_slice(&header[OPAQUE_OFFSET..OPAQUE_END]);
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_in_the_protocol_of_the_request_and_names_the_first_or_the_last() {
        assert_eq!(refusal_of(b"set a 0 0 1 noreply\r\nx\r\n", true), TEXT_REFUSAL);
        let new_request = |opaque| {
            let mut packet = [0; HEADER_BYTES];
            packet[0] = MAGIC_REQUEST;
            packet[OPCODE_OFFSET] = 0x11;
            packet[OPAQUE_OFFSET - 1] = 2;
            packet[OPAQUE_END - 1] = opaque;
            [&packet[..], b"k1"].concat()
        };
        let requests = [new_request(7), new_request(8)].concat();
        assert_eq!(refusal_of(&requests, true)[OPAQUE_END - 1], 7);
        let refusal = refusal_of(&requests, false);
        assert_eq!(refusal[..2], [MAGIC_RESPONSE, 0x11]);
        assert_eq!(refusal[STATUS_OFFSET], OUT_OF_MEMORY_STATUS);
        assert_eq!(refusal[OPAQUE_END - 1], 8);
    }
}
