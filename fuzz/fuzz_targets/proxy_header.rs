//! The header of the PROXY protocol: what is taken was given, an incomplete one is waited for within its bound, and
//! more input never changes what was found.

#![no_main]

use glasscache_protocol::proxy_header::{HEADER_BYTES_MAX, Parsed, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = parse(input);
    match whole {
        Parsed::Incomplete => assert!(input.len() < HEADER_BYTES_MAX),
        Parsed::Header { used, .. } => {
            assert!((15..=input.len().min(HEADER_BYTES_MAX)).contains(&used))
        }
        Parsed::Invalid => {}
    }
    for length in 0..input.len().min(HEADER_BYTES_MAX) {
        match parse(&input[..length]) {
            Parsed::Incomplete => {}
            found => {
                assert_eq!(found, whole);
                return;
            }
        }
    }
});
