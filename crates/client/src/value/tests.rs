//! Round trips of every dialect and method, what is refused, and bombs; `tests/dialects` asks the real clients.

use proptest::prelude::*;

use super::*;

fn codec(dialect: Dialect) -> Codec {
    Codec::new(CodecOptions::of(dialect)).unwrap()
}

fn compressing(dialect: Dialect, method: Method) -> Codec {
    let compression = Some(Compression {
        threshold_bytes: 1,
        ..Compression::new(method)
    });
    Codec::new(CodecOptions {
        compression,
        ..CodecOptions::of(dialect)
    })
    .unwrap()
}

fn decode(dialect: Dialect, flags: u32, bytes: &[u8]) -> Result<Decoded<'_>, ValueError> {
    codec(dialect)
        .decode(flags, bytes)
        .map(|(decoded, _)| decoded)
}

fn text_of(len: usize) -> String {
    let rows = (0..len / 8).flat_map(|i| ["row 00", ["1 ", "2 ", "3 "][i % 3]]);
    rows.collect()
}

/// Whether `decoded` is `value` as this dialect can tell it.
fn is_same(dialect: Dialect, value: &ValueRef<'_>, decoded: &Decoded<'_>) -> bool {
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
enum Any {
    Str(String),
    Bytes(Vec<u8>),
    Int(i64),
    Float(f64),
    Bool(bool),
    None,
}

impl Any {
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

fn any_value() -> impl Strategy<Value = Any> {
    prop_oneof![
        ".{0,200}".prop_map(Any::Str),
        (0usize..5000).prop_map(|len| Any::Str(text_of(len))),
        prop::collection::vec(any::<u8>(), 0..3000).prop_map(Any::Bytes),
        any::<i64>().prop_map(Any::Int),
        (-300i64..300).prop_map(Any::Int),
        any::<f64>().prop_map(Any::Float),
        any::<bool>().prop_map(Any::Bool),
        Just(Any::None),
    ]
}

proptest! {
    #[test]
    fn decode_undoes_encode_in_every_dialect(any in any_value(), which in 0..DIALECTS.len(), packed in any::<bool>()) {
        let dialect = DIALECTS[which].0;
        let methods = [Method::Zlib, Method::Zstd, Method::Gzip, Method::FastLz, Method::Lz4, Method::QuickLz];
        for method in methods.into_iter().filter(|_| packed) {
            let options = CodecOptions { compression: Some(Compression::new(method)), ..CodecOptions::of(dialect) };
            if Codec::new(options).is_err() { continue }
            check(&compressing(dialect, method), dialect, &any)?;
        }
        check(&codec(dialect), dialect, &any)?;
    }

    #[test]
    fn any_flags_and_bytes_are_read_or_refused(flags in any::<u32>(), low in any::<u8>(),
            bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for (dialect, _) in DIALECTS {
            let options = CodecOptions { decompressed_bytes_max: 4096, ..CodecOptions::of(dialect) };
            let codec = Codec::new(options).unwrap();
            for flags in [flags, u32::from(low), u32::from(low) << 8, flags & 0xff_ffff | 0x9c00_0000] {
                if let Ok((Decoded::Bytes(read), _)) = codec.decode(flags, &bytes) {
                    prop_assert!(read.len() <= 4096);
                }
            }
        }
    }
}

fn check(codec: &Codec, dialect: Dialect, any: &Any) -> Result<(), TestCaseError> {
    let value = any.value();
    let Ok(encoded) = codec.encode(&value) else {
        prop_assert!(matches!(
            dialect,
            Dialect::Raw | Dialect::Flagged | Dialect::Spymemcached
        ));
        return Ok(());
    };
    let (decoded, costs) = codec.decode(encoded.flags, &encoded.bytes).unwrap();
    prop_assert!(
        is_same(dialect, &value, &decoded),
        "{dialect}: {value:?} came back as {decoded:?}"
    );
    prop_assert_eq!(costs.wire_bytes, encoded.bytes.len());
    prop_assert_eq!(costs.plain_bytes, encoded.costs.plain_bytes);
    Ok(())
}

#[test]
fn own_containers_arrays_and_lists_come_back() {
    let codec = codec(Dialect::Own);
    let numbers: Vec<i64> = (0..5000).map(|i| i * i).collect();
    let encoded = codec.encode(&ValueRef::Ints(&numbers)).unwrap();
    assert_eq!(
        codec.decode(encoded.flags, &encoded.bytes).unwrap().0,
        Decoded::Ints(numbers.clone())
    );

    let (shape, bytes) = ([3, 500], [1u8; 12_000]);
    let array = Array {
        typecode: b'd',
        is_numpy: true,
        itemsize: 8,
        shape: &shape,
        bytes: &bytes,
    };
    let encoded = codec.encode(&ValueRef::Array(array)).unwrap();
    assert!(encoded.bytes.len() < 100, "zeros and ones compress");
    let Decoded::Array(back) = codec.decode(encoded.flags, &encoded.bytes).unwrap().0 else {
        panic!()
    };
    assert_eq!(
        (back.typecode, back.is_numpy, back.itemsize, &back.shape[..]),
        (b'd', true, 8, &shape[..])
    );
    assert_eq!(back.bytes(), bytes);

    for value in [
        ValueRef::Json(b"[1]"),
        ValueRef::RawJson(b"{}"),
        ValueRef::Msgpack(b"\x90"),
    ] {
        let encoded = codec.encode(&value).unwrap();
        assert_eq!(
            encoded.bytes,
            codec
                .as_is(&value)
                .map_or(encoded.bytes.clone(), |(_, same)| same.into())
        );
        assert!(codec.decode(encoded.flags, &encoded.bytes).is_ok());
    }
}

#[test]
fn plain_bytes_are_neither_copied_nor_flagged() {
    let encoded = codec(Dialect::Own)
        .encode(&ValueRef::Bytes(b"abc"))
        .unwrap();
    assert!(matches!(encoded.bytes, std::borrow::Cow::Borrowed(b"abc")));
    assert_eq!(encoded.flags, 0);
    assert_eq!(
        codec(Dialect::Own).as_is(&ValueRef::Bytes(b"abc")),
        Some((0, &b"abc"[..]))
    );
}

#[test]
fn what_saves_too_little_stays_plain() {
    let step = |word: &mut u64| {
        *word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Some((*word >> 56) as u8)
    };
    let noise: Vec<u8> = (0..4000).scan(7u64, |word, _| step(word)).collect();
    for method in [Method::Zlib, Method::Zstd, Method::Lz4, Method::QuickLz] {
        let encoded = compressing(Dialect::Own, method)
            .encode(&ValueRef::Bytes(&noise))
            .map(|e| e.bytes.len());
        assert_eq!(encoded, Ok(4000), "{method:?}");
    }
    let short = codec(Dialect::Own)
        .encode(&ValueRef::Str(&text_of(1000)))
        .map(|e| e.bytes.len());
    assert_eq!(short, Ok(1000));
}

#[test]
fn a_bomb_is_refused_at_the_bound() {
    let zeros = vec![0; 1 << 20];
    let methods = [Method::Zlib, Method::Zstd, Method::Lz4, Method::QuickLz];
    let php =
        [Method::Zlib, Method::Zstd, Method::FastLz].map(|method| (Dialect::PhpMemcached, method));
    let own = methods.map(|method| (Dialect::Own, method));
    for (dialect, method) in own
        .into_iter()
        .chain(php)
        .chain([(Dialect::Spymemcached, Method::Gzip)])
    {
        let writer = compressing(dialect, method);
        let encoded = writer.encode(&ValueRef::Bytes(&zeros)).unwrap();
        assert!(encoded.bytes.len() < 20_000, "{method:?}");
        for (limit, is_read) in [(zeros.len(), true), (zeros.len() - 1, false)] {
            let options = CodecOptions {
                decompressed_bytes_max: limit,
                ..*writer.options()
            };
            let read = Codec::new(options)
                .unwrap()
                .decode(encoded.flags, &encoded.bytes)
                .map(|_| ());
            assert_eq!(
                read.is_ok(),
                is_read,
                "{dialect} {method:?} {limit} {read:?}"
            );
            assert!(
                is_read || matches!(read, Err(ValueError::TooLarge { .. })),
                "{dialect} {method:?} {read:?}"
            );
        }
    }
}

#[test]
fn a_cut_or_lengthened_stream_is_refused() {
    let text = text_of(3000);
    for method in [Method::Zlib, Method::Zstd, Method::Lz4, Method::QuickLz] {
        let codec = compressing(Dialect::Own, method);
        let encoded = codec.encode(&ValueRef::Str(&text)).unwrap();
        let cut = &encoded.bytes[..encoded.bytes.len() - 3];
        let refused = codec.decode(encoded.flags, cut);
        assert!(
            matches!(refused, Err(ValueError::Unreadable { .. })),
            "{method:?} {refused:?}"
        );
    }
}

#[test]
fn a_zstd_frame_without_its_length_is_read() {
    let frame = zstd::stream::encode_all(text_of(9000).as_bytes(), 3).unwrap();
    let flags = codec(Dialect::Own)
        .encode(&ValueRef::Str(&text_of(9000)))
        .unwrap()
        .flags;
    assert_eq!(
        decode(Dialect::Own, flags, &frame),
        Ok(Decoded::Str(text_of(9000).into()))
    );
    let options = CodecOptions {
        decompressed_bytes_max: 8999,
        ..CodecOptions::default()
    };
    let refused = Codec::new(options)
        .unwrap()
        .decode(flags, &frame)
        .map(|_| ());
    assert!(matches!(refused, Err(ValueError::TooLarge { .. })));
}

#[test]
fn pickles_are_read_and_written_only_by_name() {
    let pickle = b"\x80\x05]\x94.";
    for dialect in [Dialect::Pymemcache, Dialect::Pylibmc, Dialect::Bmemcached] {
        let refused = decode(dialect, 1, pickle).unwrap_err();
        assert!(refused.to_string().contains("pickle=True"), "{refused}");
        assert!(codec(dialect).encode(&ValueRef::Pickle(pickle)).is_err());
        let allowed = Codec::new(CodecOptions {
            pickle: true,
            ..CodecOptions::of(dialect)
        })
        .unwrap();
        assert_eq!(
            allowed.decode(1, pickle).unwrap().0,
            Decoded::Pickle(pickle.into())
        );
        assert_eq!(allowed.encode(&ValueRef::Pickle(pickle)).unwrap().flags, 1);
    }
}

#[test]
fn objects_of_other_languages_are_refused_by_name() {
    let cases: [(Dialect, u32, &[u8], &str); 5] = [
        (Dialect::Dalli, 1, b"\x04\x08[\x06i\x06", "Marshal"),
        (Dialect::PhpMemcached, 4, b"a:1:{i:0;i:1;}", "PHP serialize"),
        (Dialect::PhpMemcached, 5, b"\0\0\0\x02\x14\x01", "igbinary"),
        (Dialect::PeclMemcache, 1, b"a:0:{}", "PHP serialize"),
        (Dialect::Spymemcached, 1, b"\xac\xed\0\x05", "Java object"),
    ];
    for (dialect, flags, bytes, word) in cases {
        let refused = decode(dialect, flags, bytes).unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

#[test]
fn foreign_flags_are_refused_by_the_own_dialect() {
    for flags in [1, 2, 16, 0x10, 768, 2048] {
        let refused = decode(Dialect::Own, flags, b"x").unwrap_err();
        assert!(
            refused.to_string().contains("another client's flags"),
            "{refused}"
        );
    }
    let later = decode(Dialect::Own, 0x9c01_0001, b"x").unwrap_err();
    assert!(later.to_string().contains("later version"), "{later}");
}

#[test]
fn spymemcached_numbers_lose_their_leading_noughts() {
    let codec = codec(Dialect::Spymemcached);
    let wire = |number| {
        codec
            .encode(&ValueRef::Int(number))
            .map(|e| (e.flags, e.bytes.into_owned()))
            .unwrap()
    };
    assert_eq!(wire(42), (512, vec![0x2a]));
    assert_eq!(wire(-7), (512, vec![0xff, 0xff, 0xff, 0xf9]));
    assert_eq!(wire(0), (512, vec![]));
    assert_eq!(wire(1 << 40).0, 768);
    assert_eq!(
        decode(Dialect::Spymemcached, 1280, &[0xff]),
        Ok(Decoded::Int(-1))
    );
    assert_eq!(
        decode(Dialect::Spymemcached, 1024, &[1, 0]),
        Ok(Decoded::DateMs(256))
    );
}

#[test]
fn a_number_that_decr_padded_is_read() {
    assert_eq!(decode(Dialect::Pymemcache, 2, b"9 "), Ok(Decoded::Int(9)));
    assert!(decode(Dialect::Pymemcache, 2, b" 9").is_err());
    let big = "123456789012345678901234567890";
    assert_eq!(
        decode(Dialect::Pylibmc, 4, big.as_bytes()),
        Ok(Decoded::BigInt(big.to_owned()))
    );
}

#[test]
fn migrating_reads_the_old_and_writes_our_own() {
    let migrating = Codec::new(CodecOptions {
        migrate_from: Some(Dialect::Bmemcached),
        ..CodecOptions::default()
    });
    let migrating = migrating.unwrap();
    assert_eq!(
        migrating.decode(0, b"old").unwrap().0,
        Decoded::Str("old".into())
    );
    let new = migrating.encode(&ValueRef::Bytes(b"new")).unwrap();
    assert_ne!(new.flags, 0, "flags 0 are still the old client's text");
    assert_eq!(
        migrating.decode(new.flags, &new.bytes).unwrap().0,
        Decoded::Bytes(b"new"[..].into())
    );
    assert_eq!(
        decode(Dialect::Own, new.flags, &new.bytes),
        Ok(Decoded::Bytes(b"new"[..].into()))
    );
}

#[test]
fn flags_of_the_callers_own_go_both_ways() {
    let codec = codec(Dialect::Flagged);
    let encoded = codec.encode(&ValueRef::Flagged(77, b"x")).unwrap();
    assert_eq!((encoded.flags, &encoded.bytes[..]), (77, &b"x"[..]));
    assert_eq!(
        codec.decode(77, b"x").unwrap().0,
        Decoded::Flagged(77, b"x"[..].into())
    );
}

#[test]
fn contradicting_options_are_a_sentence() {
    let bad = |options| Codec::new(options).unwrap_err().to_string();
    let gzip = Some(Compression::new(Method::Gzip));
    assert_eq!(
        bad(CodecOptions {
            compression: gzip,
            ..CodecOptions::of(Dialect::Pylibmc)
        }),
        "codec: dialect pylibmc has no mark for gzip"
    );
    let level = Some(Compression {
        level: 23,
        ..Compression::new(Method::Zstd)
    });
    assert_eq!(
        bad(CodecOptions {
            compression: level,
            ..CodecOptions::default()
        }),
        "codec: level 23 of zstd: -7 to 22"
    );
    let from = Some(Dialect::Dalli);
    assert!(
        bad(CodecOptions {
            migrate_from: from,
            ..CodecOptions::of(Dialect::Raw)
        })
        .contains("writes the own")
    );
}

#[test]
fn each_dialect_and_method_is_named_by_one_word() {
    for (dialect, word) in DIALECTS {
        assert_eq!(word.parse(), Ok(dialect));
        assert_eq!(dialect.to_string(), word);
    }
    assert!("pymemcached".parse::<Dialect>().is_err());
    assert_eq!(Method::named("quicklz"), Some(Method::QuickLz));
    assert_eq!(Method::named("rar"), None);
}
