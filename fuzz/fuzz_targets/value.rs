//! Decoding arbitrary bytes under arbitrary flags in every dialect: refused or read, never beyond the bound; and what
//! was read is written and read again to the same value.

#![no_main]

use glasscache_client::value::typed::Typed;
use glasscache_client::value::{Codec, CodecOptions, DIALECTS, Decoded, ValueRef};
use libfuzzer_sys::fuzz_target;

/// Bound of a decoded value in this run.
const BYTES_MAX: usize = 1 << 16;

fuzz_target!(|input: (u8, u32, bool, &[u8])| {
    let (dialect_index, flags, is_own, bytes) = input;
    if let Some(typed) = Typed::parse(bytes, BYTES_MAX) {
        assert!(Typed::parse(&typed.to_bytes(), BYTES_MAX).is_some());
    }
    let (dialect, _) = DIALECTS[usize::from(dialect_index) % DIALECTS.len()];
    let options = CodecOptions {
        decompressed_bytes_max: BYTES_MAX,
        pickle: true,
        ..CodecOptions::of(dialect)
    };
    let codec = Codec::new(options).expect("the options of a dialect hold");
    let flags = if is_own { 0x9c00_0000 | flags & 0x00f0_ffff } else { flags };
    let Ok((decoded, costs)) = codec.decode(flags, bytes) else { return };
    assert!(costs.plain_bytes <= BYTES_MAX.max(bytes.len()));
    let value = match &decoded {
        Decoded::Str(text) => ValueRef::Str(text),
        Decoded::Bytes(bytes) => ValueRef::Bytes(bytes),
        Decoded::Int(number) => ValueRef::Int(*number),
        Decoded::Ints(numbers) => ValueRef::Ints(numbers),
        Decoded::Typed(bytes) => {
            assert!(Typed::parse(bytes, BYTES_MAX).is_some());
            ValueRef::Typed(bytes)
        }
        Decoded::Manifest(manifest) => ValueRef::Manifest(manifest),
        _ => return,
    };
    let Ok(encoded) = codec.encode(&value) else { return };
    if let Ok((again, _)) = codec.decode(encoded.flags, &encoded.bytes) {
        assert!(
            again == decoded
                || matches!((&again, &decoded), (Decoded::Str(_), _) | (Decoded::Bytes(_), _))
        );
    }
});
