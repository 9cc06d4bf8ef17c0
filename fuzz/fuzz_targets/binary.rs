//! The binary parsers of both ends: they never take more than they were given, make progress or wait within a
//! bound, and what they take holds the limits of the wire.

#![no_main]

use glasscache_protocol::binary::{Command, HEADER_BYTES, Parsed, likely_key, parse, reply};
use glasscache_protocol::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

/// Header, extras and key of the longest request that is waited for.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + 255 + KEY_BYTES_MAX;

fuzz_target!(|input: &[u8]| {
    requests(input);
    responses(input);
});

fn requests(mut rest: &[u8]) {
    loop {
        let guess = likely_key(rest);
        assert!(guess.is_none_or(|key| (1..=KEY_BYTES_MAX).contains(&key.len())));
        match parse(rest) {
            Parsed::Incomplete => {
                assert!(rest.len() < HEAD_BYTES_MAX);
                return;
            }
            Parsed::BadMagic => {
                assert!(!rest.starts_with(&[0x80]) && !rest.is_empty());
                return;
            }
            Parsed::Refused(refusal, used) => {
                assert!((HEADER_BYTES..=rest.len()).contains(&used));
                assert!(refusal.bytes_to_skip <= VALUE_BYTES_MAX);
                if refusal.must_close {
                    assert_eq!(used, HEADER_BYTES);
                    return;
                }
                rest = &rest[used..];
                rest = &rest[rest.len().min(refusal.bytes_to_skip as usize)..];
            }
            Parsed::Request(_, command, used) => {
                assert!((HEADER_BYTES..=rest.len()).contains(&used));
                rest = &rest[used..];
                let key = match command {
                    Command::Get(get) => get.key,
                    Command::Touch { key, .. }
                    | Command::Delete { key, .. }
                    | Command::Arith { key, .. } => key,
                    Command::Store(head) => {
                        assert!(head.value_bytes <= VALUE_BYTES_MAX && head.exptime >= 0);
                        rest = &rest[rest.len().min(head.value_bytes as usize)..];
                        head.key
                    }
                    Command::Stat(name) => {
                        assert!(name.len() <= KEY_BYTES_MAX);
                        continue;
                    }
                    Command::SaslLogin { mechanism, message_bytes, .. } => {
                        assert!(message_bytes <= VALUE_BYTES_MAX);
                        rest = &rest[rest.len().min(message_bytes as usize)..];
                        mechanism
                    }
                    Command::Flush { .. }
                    | Command::SaslMechanisms
                    | Command::Noop
                    | Command::Version
                    | Command::Quit => continue,
                };
                assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
                assert!(guess == Some(key));
            }
        }
    }
}

fn responses(mut rest: &[u8]) {
    while let Ok(Some((head, used))) = reply::parse_head(rest) {
        assert!((HEADER_BYTES..=rest.len()).contains(&used));
        assert!(head.key.len() <= KEY_BYTES_MAX && head.value_bytes <= VALUE_BYTES_MAX);
        rest = &rest[used..];
        rest = &rest[rest.len().min(head.value_bytes as usize)..];
    }
}
