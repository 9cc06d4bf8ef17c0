//! Values of other clients: which flags are read, which are refused, and with which error.

use super::*;

#[test]
fn pickles_are_read_and_written_only_when_allowed() {
    let pickle = b"\x80\x05]\x94.";
    for dialect in [Dialect::Pymemcache, Dialect::Pylibmc, Dialect::Bmemcached] {
        let error = decode(dialect, 1, pickle).unwrap_err();
        assert!(error.to_string().contains("pickle=True"), "{error}");
        assert!(codec_of(dialect).encode(&ValueRef::Pickle(pickle)).is_err());
        let pickling_codec =
            Codec::new(CodecOptions { pickle: true, ..CodecOptions::of(dialect) }).unwrap();
        assert_eq!(pickling_codec.decode(1, pickle).unwrap().0, Decoded::Pickle(pickle.into()));
        assert_eq!(pickling_codec.encode(&ValueRef::Pickle(pickle)).unwrap().flags, 1);
    }
}

#[test]
fn objects_of_other_languages_are_refused_with_their_format_in_the_error() {
    let cases: [(Dialect, u32, &[u8], &str); 5] = [
        (Dialect::Dalli, 1, b"\x04\x08[\x06i\x06", "Marshal"),
        (Dialect::PhpMemcached, 4, b"a:1:{i:0;i:1;}", "PHP serialize"),
        (Dialect::PhpMemcached, 5, b"\0\0\0\x02\x14\x01", "igbinary"),
        (Dialect::PeclMemcache, 1, b"a:0:{}", "PHP serialize"),
        (Dialect::Spymemcached, 1, b"\xac\xed\0\x05", "Java object"),
    ];
    for (dialect, flags, bytes, expected_word) in cases {
        let error = decode(dialect, flags, bytes).unwrap_err();
        assert!(error.to_string().contains(expected_word), "{error}");
    }
}

#[test]
fn foreign_flags_are_refused_by_the_own_dialect() {
    for flags in [1, 2, 16, 0x10, 768, 2048] {
        let error = decode(Dialect::Glasscache, flags, b"x").unwrap_err();
        assert!(error.to_string().contains("another client's flags"), "{error}");
    }
    let later_version_error = decode(Dialect::Glasscache, 0x9c01_0001, b"x").unwrap_err();
    assert!(later_version_error.to_string().contains("later version"), "{later_version_error}");
}

#[test]
fn spymemcached_numbers_have_no_leading_zeros() {
    let codec = codec_of(Dialect::Spymemcached);
    let encode_int = |number| {
        codec
            .encode(&ValueRef::Int(number))
            .map(|encoded| (encoded.flags, encoded.bytes.into_owned()))
            .unwrap()
    };
    assert_eq!(encode_int(42), (512, vec![0x2a]));
    assert_eq!(encode_int(-7), (512, vec![0xff, 0xff, 0xff, 0xf9]));
    assert_eq!(encode_int(0), (512, vec![]));
    assert_eq!(encode_int(1 << 40).0, 768);
    assert_eq!(decode(Dialect::Spymemcached, 1280, &[0xff]), Ok(Decoded::Int(-1)));
    assert_eq!(decode(Dialect::Spymemcached, 1024, &[1, 0]), Ok(Decoded::DateMs(256)));
}

#[test]
fn a_number_that_decr_padded_is_read() {
    assert_eq!(decode(Dialect::Pymemcache, 2, b"9 "), Ok(Decoded::Int(9)));
    assert!(decode(Dialect::Pymemcache, 2, b" 9").is_err());
    let big_number = "123456789012345678901234567890";
    assert_eq!(
        decode(Dialect::Pylibmc, 4, big_number.as_bytes()),
        Ok(Decoded::BigInt(big_number.to_owned()))
    );
}

#[test]
fn migrating_reads_the_old_and_writes_our_own() {
    let migrating_codec = Codec::new(CodecOptions {
        migrate_from: Some(Dialect::Bmemcached),
        ..CodecOptions::default()
    });
    let migrating_codec = migrating_codec.unwrap();
    assert_eq!(migrating_codec.decode(0, b"old").unwrap().0, Decoded::Str("old".into()));
    let encoded = migrating_codec.encode(&ValueRef::Bytes(b"new")).unwrap();
    assert_ne!(encoded.flags, 0, "flags 0 are still the old client's text");
    assert_eq!(
        migrating_codec.decode(encoded.flags, &encoded.bytes).unwrap().0,
        Decoded::Bytes(b"new"[..].into())
    );
    assert_eq!(
        decode(Dialect::Glasscache, encoded.flags, &encoded.bytes),
        Ok(Decoded::Bytes(b"new"[..].into()))
    );
}

#[test]
fn caller_flags_are_written_and_read() {
    let codec = codec_of(Dialect::Flagged);
    let encoded = codec.encode(&ValueRef::Flagged(77, b"x")).unwrap();
    assert_eq!((encoded.flags, &encoded.bytes[..]), (77, &b"x"[..]));
    assert_eq!(codec.decode(77, b"x").unwrap().0, Decoded::Flagged(77, b"x"[..].into()));
}

#[test]
fn contradicting_options_are_refused_with_an_error_message() {
    let options_error = |options| Codec::new(options).unwrap_err().to_string();
    let gzip_compression = Some(Compression::new(Method::Gzip));
    assert_eq!(
        options_error(CodecOptions {
            compression: gzip_compression,
            ..CodecOptions::of(Dialect::Pylibmc)
        }),
        "codec: dialect pylibmc has no mark for gzip"
    );
    let compression_with_level_23 =
        Some(Compression { level: 23, ..Compression::new(Method::Zstd) });
    assert_eq!(
        options_error(CodecOptions {
            compression: compression_with_level_23,
            ..CodecOptions::default()
        }),
        "codec: level 23 of zstd: -7 to 22"
    );
    let source_dialect = Some(Dialect::Dalli);
    assert!(
        options_error(CodecOptions {
            migrate_from: source_dialect,
            ..CodecOptions::of(Dialect::Raw)
        })
        .contains("writes the own")
    );
}

#[test]
fn each_dialect_and_method_has_one_name() {
    for (dialect, name) in DIALECTS {
        assert_eq!(name.parse(), Ok(dialect));
        assert_eq!(dialect.to_string(), name);
    }
    assert!("pymemcached".parse::<Dialect>().is_err());
    assert_eq!(Method::from_name("quicklz"), Some(Method::QuickLz));
    assert_eq!(Method::from_name("rar"), None);
}
