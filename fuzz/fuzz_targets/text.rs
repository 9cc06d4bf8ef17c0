//! The classic parser: it never takes more than it was given, makes progress or waits, and what it
//! takes holds the limits of the wire.

#![no_main]

use glasscache_protocol::command::{Command, LineRefusal};
use glasscache_protocol::limits::{KEY_BYTES_MAX, LINE_BYTES_MAX, VALUE_BYTES_MAX};
use glasscache_protocol::text::{KeyToken, Parsed, next_key, parse, parse_single_get};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    loop {
        if let Some((key, used)) = parse_single_get(rest) {
            // The short way must be what the long way finds.
            assert!(
                matches!(parse(rest), Parsed::Command(Command::Get(head), 3) if head == Default::default())
            );
            assert_eq!(next_key(&rest[3..]), KeyToken::Key(key, 1 + key.len()));
            assert!(used <= rest.len());
        }
        match parse(rest) {
            Parsed::Incomplete => {
                assert!(rest.len() <= LINE_BYTES_MAX);
                return;
            }
            Parsed::Refused(refusal, used) => {
                assert!(used > 0 && used <= rest.len());
                // Only who closes may go without a word.
                assert!(
                    refusal.reply.ends_with(b"\r\n")
                        || refusal.must_close && refusal.reply.is_empty()
                );
                assert!(
                    refusal.bytes_to_skip == LineRefusal::SKIP_UNKNOWN
                        || refusal.bytes_to_skip <= u64::from(VALUE_BYTES_MAX) + 2
                );
                rest = &rest[used..];
            }
            Parsed::Command(command, used) => {
                assert!(used > 0 && used <= rest.len());
                rest = &rest[used..];
                match command {
                    Command::Get(_) => rest = skip_keys(rest),
                    Command::Store(head) => {
                        assert!((1..=KEY_BYTES_MAX).contains(&head.key.len()));
                        assert!(head.value_bytes <= VALUE_BYTES_MAX);
                    }
                    _ => {}
                }
            }
        }
    }
});

fn skip_keys(mut rest: &[u8]) -> &[u8] {
    loop {
        match next_key(rest) {
            KeyToken::Key(key, used) => {
                assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
                assert!(!key.contains(&b' ') && !key.contains(&b'\n'));
                rest = &rest[used..];
            }
            KeyToken::End(used) => return &rest[used..],
            KeyToken::Incomplete => {
                assert!(
                    rest.len() <= KEY_BYTES_MAX + rest.iter().filter(|b| **b == b' ').count() + 1
                );
                return &[];
            }
            KeyToken::TooLong => return &[],
        }
    }
}
