//! A flood: a server sends refusals without end, to quiet writes as to requests that have a reply.

use super::Network;
use super::link::{Flood, LinkId};
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
const OUT_OF_MEMORY: u8 = 0x82;

/// How often a server writes to one connection, at most.
const WRITES_MAX: u32 = 200;
/// The longest time between two of these.
const PAUSE_MAX_MICROS: Micros = 500;

impl Network {
    /// Begins a flood behind `request`, if the server is to.
    pub(super) fn begin_flood(&mut self, link: LinkId, request: &[u8]) {
        let state = &mut self.links[link];
        let Some((Misbehaviour::Flood, one_in)) = self.hosts[state.server].misbehaviour else {
            return;
        };
        if state.flood.is_some() || request.is_empty() || self.random.below(u64::from(one_in)) != 0
        {
            return;
        }
        let is_of_first = self.random.chance(50);
        state.flood = Some(Flood {
            refusal: refusal_of(request, is_of_first),
            writes_left: WRITES_MAX,
        });
        self.has_misbehaved[state.server] = true;
        self.schedule(0, Event::Flood(link));
    }

    /// Sends as many refusals as the client's socket takes, and more of them later.
    pub(super) fn continue_flood(&mut self, link: LinkId) {
        let window = self.plan.window_bytes;
        let state = &mut self.links[link];
        let host = &self.hosts[state.server];
        let is_flooding = matches!(host.misbehaviour, Some((Misbehaviour::Flood, _)))
            && state.session.is_some()
            && state.client_end.is_none();
        let is_serving = host.is_serving(self.now);
        let Some(flood) = &mut state.flood else {
            return;
        };
        if !is_flooding || flood.writes_left == 0 {
            state.flood = None;
            return;
        }
        flood.writes_left -= 1;
        let unread_bytes = state.to_client.bytes + state.client_input.len();
        let count = window.saturating_sub(unread_bytes) / flood.refusal.len();
        let refusals = flood.refusal.repeat(count);
        if is_serving {
            self.transmit(link, false, &refusals);
        }
        let pause = self.random.between(1, PAUSE_MAX_MICROS);
        self.schedule(pause, Event::Flood(link));
    }
}

/// The refusal of the first or of the last whole request, in its protocol.
fn refusal_of(request: &[u8], is_of_first: bool) -> Vec<u8> {
    let mut refused_header = None;
    let mut remaining = request;
    while remaining.first() == Some(&MAGIC_REQUEST)
        && let Some((header, body)) = remaining.split_first_chunk::<HEADER_BYTES>()
    {
        if refused_header.is_none() || !is_of_first {
            refused_header = Some(header);
        }
        let length = &header[BODY_LENGTH_OFFSET..OPAQUE_OFFSET];
        let body_bytes = length
            .iter()
            .fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
        remaining = body.get(body_bytes..).unwrap_or_default();
    }
    let Some(header) = refused_header else {
        return TEXT_REFUSAL.to_vec();
    };
    let mut refusal = vec![0; HEADER_BYTES];
    refusal[0] = MAGIC_RESPONSE;
    refusal[OPCODE_OFFSET] = header[OPCODE_OFFSET];
    refusal[STATUS_OFFSET] = OUT_OF_MEMORY;
    refusal[OPAQUE_OFFSET..OPAQUE_END].copy_from_slice(&header[OPAQUE_OFFSET..OPAQUE_END]);
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_in_the_protocol_of_the_request_and_names_the_first_or_the_last() {
        assert_eq!(
            refusal_of(b"set a 0 0 1 noreply\r\nx\r\n", true),
            TEXT_REFUSAL
        );
        let request = |opaque| {
            let mut packet = [0; HEADER_BYTES];
            packet[0] = MAGIC_REQUEST;
            packet[OPCODE_OFFSET] = 0x11;
            packet[OPAQUE_OFFSET - 1] = 2;
            packet[OPAQUE_END - 1] = opaque;
            [&packet[..], b"k1"].concat()
        };
        let requests = [request(7), request(8)].concat();
        assert_eq!(refusal_of(&requests, true)[OPAQUE_END - 1], 7);
        let refusal = refusal_of(&requests, false);
        assert_eq!(refusal[..2], [MAGIC_RESPONSE, 0x11]);
        assert_eq!(refusal[STATUS_OFFSET], OUT_OF_MEMORY);
        assert_eq!(refusal[OPAQUE_END - 1], 8);
    }
}
