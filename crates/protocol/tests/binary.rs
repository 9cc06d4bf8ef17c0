//! Properties of the binary protocol: what one end writes the other reads, complete, cut short or damaged.

use glasscache_protocol::binary::request::{self, ArithParameters, BinaryStoreParameters};
use glasscache_protocol::binary::{
    Command, Get, HEADER_BYTES, Header, OpcodeAndOpaque, Parsed, Status, StoredItem, opcode, parse,
    reply, write_error, write_stat, write_value_head,
};
use glasscache_protocol::limits::KEY_BYTES_MAX;
use proptest::collection::vec;
use proptest::prelude::*;

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..=KEY_BYTES_MAX)
}

/// Writes a request without its value; returns its bytes and its opcode.
fn write_request(
    opcode_choice: u8,
    opaque: u32,
    key: &[u8],
    numbers: (u64, u64, u32),
) -> (Vec<u8>, u8) {
    let mut out = Vec::new();
    let (number64, other_number64, number32) = numbers;
    let opcodes = [
        opcode::GET,
        opcode::GETKQ,
        opcode::TOUCH,
        opcode::GATK,
        opcode::SET,
        opcode::ADDQ,
        opcode::APPEND,
        opcode::DELETEQ,
        opcode::INCREMENT,
        opcode::DECREMENTQ,
        opcode::NOOP,
    ];
    let opcode = opcodes[usize::from(opcode_choice) % opcodes.len()];
    let opcode_and_opaque = OpcodeAndOpaque { opcode, opaque };
    match opcode {
        opcode::GET | opcode::GETKQ => request::get(&mut out, opcode_and_opaque, key),
        opcode::TOUCH | opcode::GATK => request::touch(&mut out, opcode_and_opaque, key, number32),
        opcode::SET | opcode::ADDQ => {
            let parameters = BinaryStoreParameters {
                flags: other_number64 as u32,
                exptime: number32,
                value_bytes: 0,
                required_cas: number64,
            };
            request::store(&mut out, opcode_and_opaque, key, &parameters);
        }
        opcode::APPEND => request::append_or_prepend(&mut out, opcode_and_opaque, key, 0, number64),
        opcode::DELETEQ => request::delete(&mut out, opcode_and_opaque, key, number64),
        opcode::NOOP => request::header_only(&mut out, opcode_and_opaque),
        _ => {
            let parameters = ArithParameters {
                delta: number64,
                initial: (number32 != u32::MAX).then_some((other_number64, number32)),
                required_cas: 0,
            };
            request::arith(&mut out, opcode_and_opaque, key, &parameters);
        }
    }
    (out, opcode)
}

proptest! {
    #[test]
    fn the_server_reads_what_the_client_writes_and_waits_for_its_end(
        opcode_choice: u8,
        opaque: u32,
        key in any_key(),
        numbers: (u64, u64, u32),
    ) {
        let (bytes, opcode) = write_request(opcode_choice, opaque, &key, numbers);
        for length in 0..bytes.len() {
            prop_assert_eq!(parse(&bytes[..length]), Parsed::Incomplete);
        }
        let Parsed::Request(opcode_and_opaque, command, used) = parse(&bytes) else {
            return Err(TestCaseError::fail("refused"));
        };
        prop_assert_eq!((opcode_and_opaque, used), (OpcodeAndOpaque { opcode, opaque }, bytes.len()));
        let (number64, other_number64, number32) = numbers;
        let required_cas = (number64 != 0).then_some(number64);
        match command {
            Command::Get(get) => {
                let touch = (opcode == opcode::GATK).then_some(number32);
                prop_assert_eq!(get, Get { key: &key, touch });
            }
            Command::Touch { key: parsed_key, exptime } => {
                prop_assert_eq!((parsed_key, exptime), (&key[..], number32));
            }
            Command::Store(head) => {
                prop_assert_eq!((head.key, head.required_cas), (&key[..], required_cas));
                if opcode != opcode::APPEND {
                    prop_assert_eq!((head.flags, head.exptime), (other_number64 as u32, i64::from(number32)));
                }
                prop_assert_eq!(head.noreply, opcode == opcode::ADDQ);
            }
            Command::Delete { key: parsed_key, required_cas: parsed_cas } => {
                prop_assert_eq!((parsed_key, parsed_cas), (&key[..], required_cas));
            }
            Command::Arith { key: parsed_key, delta, initial, is_decrement, .. } => {
                prop_assert_eq!((parsed_key, delta), (&key[..], number64));
                prop_assert_eq!(initial, (number32 != u32::MAX).then_some((other_number64, number32)));
                prop_assert_eq!(is_decrement, opcode == opcode::DECREMENTQ);
            }
            other => prop_assert_eq!(other, Command::Noop),
        }
    }

    #[test]
    fn no_input_makes_the_parser_take_more_than_it_was_given(mut input in vec(any::<u8>(), 0..400)) {
        if let Some(first) = input.first_mut() {
            *first = 0x80;
        }
        match parse(&input) {
            Parsed::Incomplete => {
                // Only a header with lengths within their bounds is waited for.
                if let Some(header) = Header::read(&input) {
                    let extras_and_key_bytes = usize::from(header.key_bytes) + usize::from(header.extras_bytes);
                    prop_assert!(input.len() < HEADER_BYTES + extras_and_key_bytes);
                    prop_assert!(extras_and_key_bytes <= KEY_BYTES_MAX + 255);
                }
            }
            Parsed::Request(_, _, used) => prop_assert!((HEADER_BYTES..=input.len()).contains(&used)),
            Parsed::Refused(refusal, used) => {
                prop_assert!((HEADER_BYTES..=input.len()).contains(&used));
                prop_assert!(refusal.must_close || refusal.status == Status::UnknownCommand);
                prop_assert!(!refusal.must_close || refusal.bytes_to_skip == 0);
            }
            Parsed::BadMagic => prop_assert!(input.is_empty()),
        }
    }

    #[test]
    fn the_client_reads_what_the_server_writes_and_waits_for_its_end(
        opcode in prop::sample::select(vec![opcode::GET, opcode::GETK, opcode::GATKQ]),
        opaque: u32,
        key in any_key(),
        numbers: (u32, u64),
        value in vec(any::<u8>(), 0..200),
    ) {
        let opcode_and_opaque = OpcodeAndOpaque { opcode, opaque };
        let (flags, cas) = numbers;
        let item = StoredItem { key: &key, flags, value_bytes: value.len() as u32, cas };
        let mut bytes = Vec::new();
        write_value_head(&mut bytes, opcode_and_opaque, &item);
        for length in 0..bytes.len() {
            prop_assert_eq!(reply::parse_head(&bytes[..length]), Ok(None));
        }
        let (head, used) = reply::parse_head(&bytes).unwrap().unwrap();
        prop_assert_eq!(used, bytes.len());
        prop_assert_eq!((head.request, head.status, head.cas), (opcode_and_opaque, Status::Success, cas));
        prop_assert_eq!((head.flags(), head.value_bytes as usize), (flags, value.len()));
        prop_assert_eq!(head.key, if opcode == opcode::GET { &b""[..] } else { &key[..] });
    }

    #[test]
    fn no_input_makes_the_reader_of_replies_take_more_than_it_was_given(
        mut input in vec(any::<u8>(), 0..400),
        status in prop::sample::select(Status::ALL.to_vec()),
    ) {
        if let Some(first) = input.first_mut() {
            *first = 0x81;
        }
        if let Some(status_bytes) = input.get_mut(6..8) {
            status_bytes.copy_from_slice(&status.code().to_be_bytes());
        }
        if let Ok(Some((head, used))) = reply::parse_head(&input) {
            prop_assert!(used <= input.len());
            prop_assert!(head.key.len() <= KEY_BYTES_MAX);
        }
    }
}

#[test]
fn an_error_and_a_row_of_statistics_are_read_as_written() {
    let opcode_and_opaque = OpcodeAndOpaque { opcode: opcode::STAT, opaque: 3 };
    let mut bytes = Vec::new();
    write_stat(&mut bytes, opcode_and_opaque, b"pid", b"17");
    let (head, used) = reply::parse_head(&bytes).unwrap().unwrap();
    assert_eq!((head.key, head.value_bytes), (&b"pid"[..], 2));
    assert_eq!(&bytes[used..], b"17");
    for status in Status::ALL {
        bytes.clear();
        write_error(&mut bytes, opcode_and_opaque, status);
        let (head, used) = reply::parse_head(&bytes).unwrap().unwrap();
        assert_eq!(head.status, status);
        assert_eq!(head.value_bytes as usize, bytes.len() - used);
    }
}
