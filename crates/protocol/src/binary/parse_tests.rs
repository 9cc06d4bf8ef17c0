//! Tests of the binary parser: the lengths that each opcode allows, and what refused requests leave behind.

use super::*;

fn new_header(opcode: u8, key_bytes: u16, extras_bytes: u8, body_bytes: u32) -> Header {
    Header {
        magic: MAGIC_REQUEST,
        opcode,
        key_bytes,
        extras_bytes,
        body_bytes,
        opaque: 5,
        ..Header::default()
    }
}

/// A header with a body of as many bytes as it gives, up to 4 KiB.
fn packet(header: &Header) -> Vec<u8> {
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(HEADER_BYTES + header.body_bytes.min(4096) as usize, b'k');
    bytes
}

fn parse_refusal(header: &Header) -> Option<PacketRefusal> {
    match parse(&packet(header)) {
        Parsed::Refused(refusal, _) => Some(refusal),
        _ => None,
    }
}

fn parsed_command(bytes: &[u8]) -> Command<'_> {
    match parse(bytes) {
        Parsed::Request(request, command, _) => {
            assert_eq!(request.opaque, 5);
            command
        }
        other => panic!("{other:?}"),
    }
}

/// The lengths of extras that `opcode` takes, whether it has a key (`None` is either), whether a value.
fn allowed_lengths(opcode: u8) -> Option<(&'static [u8], Option<bool>, bool)> {
    Some(match opcode {
        0x00 | 0x09 | 0x0c | 0x0d | 0x04 | 0x14 => (&[0], Some(true), false),
        0x01..=0x03 | 0x11..=0x13 => (&[8], Some(true), true),
        0x05 | 0x06 | 0x15 | 0x16 => (&[20], Some(true), false),
        0x07 | 0x17 | 0x0a | 0x0b | 0x20 => (&[0], Some(false), false),
        0x08 | 0x18 => (&[0, 4], Some(false), false),
        0x0e | 0x0f | 0x19 | 0x1a | 0x21 | 0x22 => (&[0], Some(true), true),
        0x10 => (&[0], None, false),
        0x1c | 0x1d | 0x1e | 0x23 | 0x24 => (&[4], Some(true), false),
        _ => return None,
    })
}

#[test]
fn each_opcode_takes_its_lengths_and_no_others() {
    for opcode in 0..=255 {
        for extras_bytes in [0u8, 1, 4, 5, 8, 16, 20, 24, 255] {
            for key_bytes in [0u16, 1, 250] {
                for value_bytes in [0u32, 1, 70] {
                    let body_bytes = u32::from(extras_bytes) + u32::from(key_bytes) + value_bytes;
                    let is_valid =
                        allowed_lengths(opcode).is_none_or(|(lengths, has_key, has_value)| {
                            lengths.contains(&extras_bytes)
                                && has_key.is_none_or(|has_key| has_key == (key_bytes > 0))
                                && (has_value || value_bytes == 0)
                        });
                    let refusal =
                        parse_refusal(&new_header(opcode, key_bytes, extras_bytes, body_bytes));
                    let is_malformed = refusal.is_some_and(|refusal| {
                        refusal.must_close && refusal.status == Status::InvalidArguments
                    });
                    assert_eq!(
                        !is_malformed, is_valid,
                        "{opcode:#04x} {extras_bytes} {key_bytes} {value_bytes}"
                    );
                }
            }
        }
    }
}

#[test]
fn lengths_that_contradict_each_other_are_refused_by_the_header_alone() {
    for (key_bytes, extras_bytes, body_bytes) in
        [(10, 0, 9), (1, 8, 8), (0, 1, 0), (u16::MAX, 255, 65_789)]
    {
        let bytes = new_header(opcode::GET, key_bytes, extras_bytes, body_bytes).to_bytes();
        let Parsed::Refused(refusal, used) = parse(&bytes) else { panic!("accepted") };
        assert_eq!((refusal.status, used), (Status::UnknownCommand, HEADER_BYTES));
        assert!(refusal.must_close);
    }
    for (key_bytes, body_bytes) in
        [(251, 251), (u16::MAX, 65_535), (3, u32::MAX), (3, (1 << 30) + 1)]
    {
        let bytes = new_header(opcode::APPEND, key_bytes, 0, body_bytes).to_bytes();
        let Parsed::Refused(refusal, _) = parse(&bytes) else { panic!("accepted") };
        assert_eq!(refusal.status, Status::InvalidArguments);
        assert!(refusal.must_close);
    }
}

#[test]
fn an_unknown_opcode_is_refused_and_its_value_swallowed() {
    for opcode in [opcode::VERBOSITY, 0x1f, 0x25, 0x30, 0x60, 0xff] {
        let bytes = packet(&new_header(opcode, 3, 4, 17));
        let Parsed::Refused(refusal, used) = parse(&bytes) else { panic!("accepted") };
        assert_eq!(used, HEADER_BYTES + 7);
        assert_eq!((refusal.status, refusal.bytes_to_skip), (Status::UnknownCommand, 10));
        assert!(!refusal.must_close);
    }
}

#[test]
fn a_login_names_its_mechanism_and_its_message_follows() {
    let list = new_header(opcode::SASL_LIST_MECHANISMS, 0, 0, 0).to_bytes();
    let Parsed::Request(_, command, used) = parse(&list) else { panic!("refused") };
    assert_eq!((command, used), (Command::SaslMechanisms, HEADER_BYTES));
    for (opcode, is_step) in [(opcode::SASL_AUTH, false), (opcode::SASL_STEP, true)] {
        let bytes = packet(&new_header(opcode, 5, 0, 25));
        let Parsed::Request(_, command, used) = parse(&bytes) else { panic!("refused") };
        let expected = Command::SaslLogin {
            mechanism: &bytes[HEADER_BYTES..used],
            message_bytes: 20,
            is_step,
        };
        assert_eq!((command, used), (expected, HEADER_BYTES + 5));
        let nameless = parse_refusal(&new_header(opcode, 0, 0, 20)).unwrap();
        assert_eq!(nameless.status, Status::InvalidArguments);
    }
}

#[test]
fn another_first_byte_is_not_a_request_whatever_follows() {
    for magic in (0..=255u8).filter(|magic| *magic != MAGIC_REQUEST) {
        assert_eq!(parse(&[magic]), Parsed::BadMagic);
        let mut bytes = packet(&new_header(opcode::NOOP, 0, 0, 0));
        bytes[0] = magic;
        assert_eq!(parse(&bytes), Parsed::BadMagic);
    }
    assert_eq!(parse(b""), Parsed::Incomplete);
    assert_eq!(parse(&[MAGIC_REQUEST]), Parsed::Incomplete);
}

#[test]
fn numbers_are_read_at_the_offsets_that_memcached_uses() {
    let mut bytes = new_header(opcode::INCREMENTQ, 1, 20, 21).to_bytes().to_vec();
    bytes.extend_from_slice(b"\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x07\0\0\0\x3ck");
    let expected = Command::Arith {
        key: b"k",
        delta: 258,
        is_decrement: false,
        initial: Some((7, 60)),
        required_cas: None,
    };
    assert_eq!(parsed_command(&bytes), expected);
    bytes[1] = opcode::DECREMENT;
    bytes[40..44].fill(0xff);
    bytes[23] = 9;
    let expected = Command::Arith {
        key: b"k",
        delta: 258,
        is_decrement: true,
        initial: None,
        required_cas: Some(9),
    };
    assert_eq!(parsed_command(&bytes), expected);
    let mut bytes = new_header(opcode::SETQ, 1, 8, 12).to_bytes().to_vec();
    bytes.extend_from_slice(b"\xff\0\0\x01\xff\xff\xff\xffkvvv");
    let expected = StoreHead {
        verb: StoreCommand::Set,
        key: b"k",
        flags: 0xff00_0001,
        exptime: 0xffff_ffff,
        value_bytes: 3,
        required_cas: None,
        noreply: true,
    };
    assert_eq!(parsed_command(&bytes), Command::Store(expected));
}

#[test]
fn a_store_with_a_cas_unique_is_a_cas_but_an_append_or_prepend_keeps_its_verb() {
    let verb_of = |opcode, extras_bytes| {
        let header =
            Header { cas: 3, ..new_header(opcode, 1, extras_bytes, u32::from(extras_bytes) + 1) };
        match parsed_command(&packet(&header)) {
            Command::Store(head) => {
                assert_eq!(head.required_cas, Some(3));
                head.verb
            }
            other => panic!("{other:?}"),
        }
    };
    for opcode in [opcode::SET, opcode::ADD, opcode::REPLACEQ] {
        assert_eq!(verb_of(opcode, 8), StoreCommand::Cas);
    }
    assert_eq!(verb_of(opcode::APPEND, 0), StoreCommand::Append);
    assert_eq!(verb_of(opcode::PREPENDQ, 0), StoreCommand::Prepend);
}

#[test]
fn the_key_to_fetch_ahead_is_that_of_the_first_request() {
    let bytes = packet(&new_header(opcode::GAT, 3, 4, 7));
    assert_eq!(likely_key(&bytes), Some(&b"kkk"[..]));
    assert_eq!(likely_key(&bytes[..bytes.len() - 1]), None);
    assert_eq!(likely_key(&packet(&new_header(opcode::NOOP, 0, 0, 0))), None);
    assert_eq!(likely_key(b"get a\r\n"), None);
}
