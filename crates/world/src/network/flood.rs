//! A flood: a server sends refusals without end, to quiet writes as to requests that have a reply.

use super::Network;
use super::link::{Direction, Flood, LinkId};
use super::queue::Event;
use crate::plan::{Micros, Misbehaviour};

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
const PAUSE_MICROS_MAX: Micros = 500;

impl Network {
    /// Begins a flood after the requests in `request_bytes`, if the server is to send one.
    pub(super) fn begin_flood(&mut self, link: LinkId, request_bytes: &[u8]) {
        let link_state = &mut self.links[link];
        let Some((Misbehaviour::Flood, one_in)) = self.hosts[link_state.server].misbehaviour else {
            return;
        };
        if link_state.flood.is_some()
            || request_bytes.is_empty()
            || self.random.below(u64::from(one_in)) != 0
        {
            return;
        }
        let refuses_first = self.random.chance(50);
        link_state.flood = Some(Flood {
            refusal: refusal_of(request_bytes, refuses_first),
            writes_left: WRITES_MAX,
        });
        self.has_misbehaved[link_state.server] = true;
        self.schedule(0, Event::Flood(link));
    }

    /// Sends as many refusals as the client's socket takes, and more of them later.
    pub(super) fn continue_flood(&mut self, link: LinkId) {
        let receive_window_bytes = self.plan.receive_window_bytes;
        let link_state = &mut self.links[link];
        let host = &self.hosts[link_state.server];
        let is_flooding = matches!(host.misbehaviour, Some((Misbehaviour::Flood, _)))
            && link_state.session.is_some()
            && link_state.end_at_client.is_none();
        let is_serving = host.is_serving(self.now);
        let Some(flood) = &mut link_state.flood else {
            return;
        };
        if !is_flooding || flood.writes_left == 0 {
            link_state.flood = None;
            return;
        }
        flood.writes_left -= 1;
        let unread_bytes = link_state.to_client.bytes_in_transit + link_state.client_input.len();
        let refusal_count = receive_window_bytes.saturating_sub(unread_bytes) / flood.refusal.len();
        let refusals = flood.refusal.repeat(refusal_count);
        if is_serving {
            self.transmit(link, Direction::ToClient, &refusals);
        }
        let pause = self.random.between(1, PAUSE_MICROS_MAX);
        self.schedule(pause, Event::Flood(link));
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
