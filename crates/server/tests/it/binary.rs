//! Streams of the binary protocol: however they are cut the responses are the same, in order and complete.

use glasscache_protocol::binary::request::{self, ArithParameters, BinaryStoreParameters};
use glasscache_protocol::binary::{OpcodeAndOpaque, Status, opcode, reply};
use glasscache_server::{Config, InMemorySession, Protocols, pieces};
use proptest::collection::vec;
use proptest::prelude::*;

fn new_session() -> InMemorySession {
    InMemorySession::new(Config { hash_seed: Some(7), memory_bytes: 64 << 20, ..Config::default() })
        .unwrap()
}

fn opcode_and_opaque(opcode: u8, opaque: u32) -> OpcodeAndOpaque {
    OpcodeAndOpaque { opcode, opaque }
}

fn set_request(opcode: u8, opaque: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let parameters = BinaryStoreParameters {
        flags: 5,
        exptime: 0,
        value_bytes: value.len() as u32,
        required_cas: 0,
    };
    request::store(&mut packet, opcode_and_opaque(opcode, opaque), key, &parameters);
    packet.extend_from_slice(value);
    packet
}

fn get_request(opcode: u8, opaque: u32, key: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    if matches!(opcode, opcode::GAT..=opcode::GATQ | opcode::GATK | opcode::GATKQ | opcode::TOUCH) {
        request::touch(&mut packet, opcode_and_opaque(opcode, opaque), key, 100);
    } else {
        request::get(&mut packet, opcode_and_opaque(opcode, opaque), key);
    }
    packet
}

fn header_only_request(opcode: u8, opaque: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    request::header_only(&mut packet, opcode_and_opaque(opcode, opaque));
    packet
}

/// Opcode, opaque, status and length of the value of each response.
fn parse_responses(mut bytes: &[u8]) -> Vec<(u8, u32, Status, usize)> {
    let mut responses = Vec::new();
    while !bytes.is_empty() {
        let (head, head_bytes) = reply::parse_head(bytes).unwrap().expect("a whole head");
        let end = head_bytes + head.value_bytes as usize;
        assert!(bytes.len() >= end, "a value is cut");
        responses.push((head.request.opcode, head.request.opaque, head.status, end - head_bytes));
        bytes = &bytes[end..];
    }
    responses
}

/// One request, well formed more often than not.
fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let key = "[a-d]{1,2}";
    let read_opcodes = vec![0x00u8, 0x09, 0x0c, 0x0d, 0x1c, 0x1d, 0x1e, 0x23, 0x24];
    let write_opcodes = vec![0x01u8, 0x02, 0x03, 0x11, 0x12, 0x13];
    prop_oneof![
        10 => (prop::sample::select(read_opcodes), any::<u32>(), key)
            .prop_map(|(opcode, opaque, key)| get_request(opcode, opaque, key.as_bytes())),
        6 => (prop::sample::select(write_opcodes.clone()), any::<u32>(), key, 0usize..200)
            .prop_map(|(opcode, opaque, key, value_bytes)| set_request(opcode, opaque, key.as_bytes(), &vec![b'v'; value_bytes])),
        1 => (prop::sample::select(write_opcodes), any::<u32>(), key, 60_000usize..140_000)
            .prop_map(|(opcode, opaque, key, value_bytes)| set_request(opcode, opaque, key.as_bytes(), &vec![b'w'; value_bytes])),
        2 => (prop::sample::select(vec![0x0eu8, 0x0f, 0x19, 0x1a]), key).prop_map(|(opcode, key)| {
            let mut packet = Vec::new();
            request::append_or_prepend(&mut packet, opcode_and_opaque(opcode, 1), key.as_bytes(), 2, 0);
            packet.extend_from_slice(b"11");
            packet
        }),
        2 => (prop::sample::select(vec![0x05u8, 0x06, 0x15, 0x16]), key).prop_map(|(opcode, key)| {
            let mut packet = Vec::new();
            let arith = ArithParameters { delta: 3, initial: Some((7, 0)), required_cas: 0 };
            request::arith(&mut packet, opcode_and_opaque(opcode, 2), key.as_bytes(), &arith);
            packet
        }),
        2 => (prop::sample::select(vec![0x04u8, 0x14]), key).prop_map(|(opcode, key)| {
            let mut packet = Vec::new();
            request::delete(&mut packet, opcode_and_opaque(opcode, 3), key.as_bytes(), 0);
            packet
        }),
        1 => any::<u32>().prop_map(|opaque| header_only_request(opcode::NOOP, opaque)),
        1 => (0x30u8..=0xff, 0usize..50).prop_map(|(opcode, value_bytes)| {
            let mut packet = Vec::new();
            request::append_or_prepend(&mut packet, opcode_and_opaque(opcode, 4), b"key", value_bytes as u32, 0);
            packet.resize(packet.len() + value_bytes, b'\n');
            packet
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same_responses(
        requests in vec(any_request(), 1..40),
        lengths in vec(1usize..3000, 1..60),
    ) {
        let stream = requests.concat();
        let mut whole_session = new_session();
        let expected = whole_session.feed(&stream, 10);
        let mut cut_session = new_session();
        let received: Vec<u8> = pieces(&stream, &lengths).flat_map(|piece| cut_session.feed(piece, 10)).collect();
        prop_assert_eq!(parse_responses(&received), parse_responses(&expected));
        prop_assert!(received == expected);
        prop_assert!(!whole_session.is_closed() && !cut_session.is_closed());
    }

    #[test]
    fn random_bytes_after_the_first_are_refused_or_wait_within_a_bound(
        mut stream in vec(any::<u8>(), 1..600),
    ) {
        stream[0] = 0x80;
        let mut server = new_session();
        let responses = server.feed(&stream, 10);
        if !server.is_closed() {
            // A value below the size of an upload and its head.
            prop_assert!(server.pending_bytes() <= (64 << 10) + 1024);
        }
        parse_responses(&responses);
    }
}

#[test]
fn values_larger_than_a_slice_keep_their_order_among_gets_of_every_form() {
    let mut server = new_session();
    for key in [b"a", b"b", b"c"] {
        server.feed(&set_request(opcode::SETQ, 0, key, &vec![key[0]; 90_000]), 10);
    }
    let forms =
        [opcode::GET, opcode::GETKQ, opcode::GAT, opcode::GATKQ, opcode::TOUCH, opcode::GETK];
    let mut stream = Vec::new();
    let mut expected = Vec::new();
    for number in 0..60u32 {
        let opcode = forms[number as usize % forms.len()];
        let key = [b"a", b"b", b"c", b"x"][number as usize % 4];
        stream.extend(get_request(opcode, number, key));
        let value_bytes = if opcode == opcode::TOUCH { 0 } else { 90_000 };
        match key {
            b"x" if opcode::is_quiet(opcode) => {}
            b"x" => {
                let text_bytes = if opcode::returns_key(opcode) { 0 } else { 9 };
                expected.push((opcode, number, Status::NotFound, text_bytes));
            }
            _ => expected.push((opcode, number, Status::Success, value_bytes)),
        }
    }
    assert_eq!(parse_responses(&server.feed(&stream, 10)), expected);
}

#[test]
fn a_malformed_header_gets_its_status_and_the_connection_closes_without_more_input() {
    for (key_bytes, extras_bytes, body_bytes, status) in [
        (9u16, 0u8, 8u32, Status::UnknownCommand),
        (0, 8, 7, Status::UnknownCommand),
        (0, 0, 0, Status::InvalidArguments),
        (60_000, 0, 60_000, Status::InvalidArguments),
        (1, 0, u32::MAX, Status::InvalidArguments),
    ] {
        let mut server = new_session();
        let mut header = header_only_request(opcode::GETQ, 6);
        header[2..4].copy_from_slice(&key_bytes.to_be_bytes());
        header[4] = extras_bytes;
        header[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        let received = parse_responses(&server.feed(&header, 10));
        let text_bytes = status.text().len();
        assert_eq!(received, [(opcode::GETQ, 6, status, text_bytes)]);
        assert!(server.is_closed());
    }
}

#[test]
fn the_first_byte_decides_for_the_whole_connection() {
    let mut binary_session = new_session();
    binary_session.feed(&header_only_request(opcode::NOOP, 0), 10);
    assert_eq!(binary_session.feed(b"get a\r\n", 10), b"");
    assert!(binary_session.is_closed());
    let mut text_session = new_session();
    assert_eq!(text_session.feed(b"get a\r\n", 10), b"END\r\n");
    // A noop's opcode is a line feed.
    let mut packet = header_only_request(opcode::VERSION, 0);
    packet.extend_from_slice(b"\r\n");
    assert_eq!(text_session.feed(&packet, 10), b"ERROR\r\n");
    assert!(!text_session.is_closed());
}

#[test]
fn a_protocol_that_the_settings_exclude_is_closed_at_its_first_byte() {
    let new_session_with = |protocol| {
        InMemorySession::new(Config { protocol, memory_bytes: 8 << 20, ..Config::default() })
            .unwrap()
    };
    for (protocol, first_byte, is_closed) in [
        (Protocols::Text, &b"\x80"[..], true),
        (Protocols::Text, b"g", false),
        (Protocols::Binary, b"g", true),
        (Protocols::Binary, b"\x80", false),
    ] {
        let mut server = new_session_with(protocol);
        assert_eq!(server.feed(first_byte, 10), b"");
        assert_eq!(server.is_closed(), is_closed, "{protocol:?} {first_byte:?}");
    }
}

#[test]
fn a_value_that_is_too_large_passes_by_and_the_next_request_is_served() {
    let mut server = new_session();
    for opcode in [opcode::SET, opcode::ADDQ] {
        let mut stream = set_request(opcode, 1, b"large", &vec![b'\x80'; (1 << 20) + 1]);
        stream.extend(header_only_request(opcode::NOOP, 2));
        let expected = [(opcode, 1, Status::TooLarge, 10), (opcode::NOOP, 2, Status::Success, 0)];
        assert_eq!(parse_responses(&server.feed(&stream, 10)), expected);
    }
}
