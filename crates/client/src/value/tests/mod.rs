//! Round trips of every dialect and method, what is refused, and bombs; `tests/dialects` compares with the real
//! clients.

mod dialects;
mod glasscache;
mod malformed;

use proptest::prelude::*;

use super::*;

fn codec_of(dialect: Dialect) -> Codec {
    Codec::new(CodecOptions::of(dialect)).unwrap()
}

fn compressing_codec(dialect: Dialect, method: Method) -> Codec {
    let compression = Some(Compression { threshold_bytes: 1, ..Compression::new(method) });
    Codec::new(CodecOptions { compression, ..CodecOptions::of(dialect) }).unwrap()
}

fn decode(dialect: Dialect, flags: u32, bytes: &[u8]) -> Result<Decoded<'_>, ValueError> {
    codec_of(dialect).decode(flags, bytes).map(|(decoded, _)| decoded)
}

fn text_of_length(len: usize) -> String {
    let rows = (0..len / 8).flat_map(|row| ["row 00", ["1 ", "2 ", "3 "][row % 3]]);
    rows.collect()
}

/// Whether `decoded` equals `value` as far as this dialect can represent it.
fn is_same_value(dialect: Dialect, value: &ValueRef<'_>, decoded: &Decoded<'_>) -> bool {
    let has_one_string_type = matches!(dialect, Dialect::PhpMemcached | Dialect::PeclMemcache);
    match (value, decoded) {
        (ValueRef::Str(a), Decoded::Str(b)) => a == b,
        (ValueRef::Bytes(a), Decoded::Str(b)) => has_one_string_type && *a == b.as_bytes(),
        (ValueRef::Str(a), Decoded::Bytes(b)) => dialect == Dialect::Raw && a.as_bytes() == &b[..],
        (ValueRef::Int(a), Decoded::Bytes(b)) => {
            dialect == Dialect::Raw && a.to_string().as_bytes() == &b[..]
        }
        (ValueRef::Int(a), Decoded::Int(b)) => a == b,
        (ValueRef::Float(a), Decoded::Float(b)) => {
            a.total_cmp(b).is_eq() || a.is_nan() && b.is_nan()
        }
        (ValueRef::Bool(a), Decoded::Bool(b)) => a == b,
        (ValueRef::None, Decoded::None) => true,
        (ValueRef::Bytes(a), Decoded::Bytes(b)) | (ValueRef::Json(a), Decoded::Json(b)) => {
            **a == **b
        }
        _ => false,
    }
}

#[derive(Clone, Debug)]
enum AnyValue {
    Str(String),
    Bytes(Vec<u8>),
    Int(i64),
    Float(f64),
    Bool(bool),
    None,
}

impl AnyValue {
    fn value(&self) -> ValueRef<'_> {
        match self {
            Self::Str(text) => ValueRef::Str(text),
            Self::Bytes(bytes) => ValueRef::Bytes(bytes),
            Self::Int(number) => ValueRef::Int(*number),
            Self::Float(number) => ValueRef::Float(*number),
            Self::Bool(value) => ValueRef::Bool(*value),
            Self::None => ValueRef::None,
        }
    }
}

fn any_value() -> impl Strategy<Value = AnyValue> {
    prop_oneof![
        ".{0,200}".prop_map(AnyValue::Str),
        (0usize..5000).prop_map(|len| AnyValue::Str(text_of_length(len))),
        prop::collection::vec(any::<u8>(), 0..3000).prop_map(AnyValue::Bytes),
        any::<i64>().prop_map(AnyValue::Int),
        (-300i64..300).prop_map(AnyValue::Int),
        any::<f64>().prop_map(AnyValue::Float),
        any::<bool>().prop_map(AnyValue::Bool),
        Just(AnyValue::None),
    ]
}

proptest! {
    #[test]
    fn decode_undoes_encode_in_every_dialect(owned_value in any_value(), dialect_index in 0..DIALECTS.len(), is_compressed in any::<bool>()) {
        let dialect = DIALECTS[dialect_index].0;
        let methods = [Method::Zlib, Method::Zstd, Method::Gzip, Method::FastLz, Method::Lz4, Method::QuickLz];
        for method in methods.into_iter().filter(|_| is_compressed) {
            let options = CodecOptions { compression: Some(Compression::new(method)), ..CodecOptions::of(dialect) };
            if Codec::new(options).is_err() { continue }
            check_round_trip(&compressing_codec(dialect, method), dialect, &owned_value)?;
        }
        check_round_trip(&codec_of(dialect), dialect, &owned_value)?;
    }

    #[test]
    fn any_flags_and_bytes_are_read_or_refused(flags in any::<u32>(), low_byte in any::<u8>(),
            bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for (dialect, _) in DIALECTS {
            let options = CodecOptions { decompressed_bytes_max: 4096, ..CodecOptions::of(dialect) };
            let codec = Codec::new(options).unwrap();
            for tried_flags in [flags, u32::from(low_byte), u32::from(low_byte) << 8, flags & 0xff_ffff | 0x9c00_0000] {
                if let Ok((Decoded::Bytes(decoded_bytes), _)) = codec.decode(tried_flags, &bytes) {
                    prop_assert!(decoded_bytes.len() <= 4096);
                }
            }
        }
    }
}

fn check_round_trip(
    codec: &Codec,
    dialect: Dialect,
    owned_value: &AnyValue,
) -> Result<(), TestCaseError> {
    let value = owned_value.value();
    let Ok(encoded) = codec.encode(&value) else {
        prop_assert!(matches!(dialect, Dialect::Raw | Dialect::Flagged | Dialect::Spymemcached));
        return Ok(());
    };
    let (decoded, costs) = codec.decode(encoded.flags, &encoded.bytes).unwrap();
    prop_assert!(
        is_same_value(dialect, &value, &decoded),
        "{dialect}: {value:?} came back as {decoded:?}"
    );
    prop_assert_eq!(costs.wire_bytes, encoded.bytes.len());
    prop_assert_eq!(costs.plain_bytes, encoded.costs.plain_bytes);
    Ok(())
}
