//! Hostile streams: bombs, truncated ones, ones without their length.

use super::*;

#[test]
fn a_decompression_bomb_is_refused_at_the_limit() {
    let zeros = vec![0; 1 << 20];
    let methods = [Method::Zlib, Method::Zstd, Method::Lz4, Method::QuickLz];
    let php_methods =
        [Method::Zlib, Method::Zstd, Method::FastLz].map(|method| (Dialect::PhpMemcached, method));
    let own_dialect_methods = methods.map(|method| (Dialect::Glasscache, method));
    for (dialect, method) in own_dialect_methods
        .into_iter()
        .chain(php_methods)
        .chain([(Dialect::Spymemcached, Method::Gzip)])
    {
        let encoding_codec = compressing_codec(dialect, method);
        let encoded = encoding_codec.encode(&ValueRef::Bytes(&zeros)).unwrap();
        assert!(encoded.bytes.len() < 20_000, "{method:?}");
        for (limit, is_accepted) in [(zeros.len(), true), (zeros.len() - 1, false)] {
            let options =
                CodecOptions { decompressed_bytes_max: limit, ..*encoding_codec.options() };
            let decode_result =
                Codec::new(options).unwrap().decode(encoded.flags, &encoded.bytes).map(|_| ());
            assert_eq!(
                decode_result.is_ok(),
                is_accepted,
                "{dialect} {method:?} {limit} {decode_result:?}"
            );
            assert!(
                is_accepted || matches!(decode_result, Err(ValueError::TooLarge { .. })),
                "{dialect} {method:?} {decode_result:?}"
            );
        }
    }
}

#[test]
fn a_cut_stream_is_refused() {
    let text = text_of_length(3000);
    for method in [Method::Zlib, Method::Zstd, Method::Lz4, Method::QuickLz] {
        let codec = compressing_codec(Dialect::Glasscache, method);
        let encoded = codec.encode(&ValueRef::Str(&text)).unwrap();
        let cut_stream = &encoded.bytes[..encoded.bytes.len() - 3];
        let decode_result = codec.decode(encoded.flags, cut_stream);
        assert!(
            matches!(decode_result, Err(ValueError::Unreadable { .. })),
            "{method:?} {decode_result:?}"
        );
    }
}

#[test]
fn a_zstd_frame_without_its_length_is_read() {
    let frame = zstd::stream::encode_all(text_of_length(9000).as_bytes(), 3).unwrap();
    let flags =
        codec_of(Dialect::Glasscache).encode(&ValueRef::Str(&text_of_length(9000))).unwrap().flags;
    assert_eq!(
        decode(Dialect::Glasscache, flags, &frame),
        Ok(Decoded::Str(text_of_length(9000).into()))
    );
    let options = CodecOptions { decompressed_bytes_max: 8999, ..CodecOptions::default() };
    let decode_result = Codec::new(options).unwrap().decode(flags, &frame).map(|_| ());
    assert!(matches!(decode_result, Err(ValueError::TooLarge { .. })));
}
