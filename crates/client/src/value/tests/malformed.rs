//! Hostile streams: bombs, truncated ones, ones without their length.

use super::*;

#[test]
fn a_decompression_bomb_is_refused_at_the_limit() {
    let zeros = vec![0; 1 << 20];
    let methods = [Method::Zlib, Method::Zstd, Method::Lz4, Method::QuickLz];
    let php =
        [Method::Zlib, Method::Zstd, Method::FastLz].map(|method| (Dialect::PhpMemcached, method));
    let own = methods.map(|method| (Dialect::Glasscache, method));
    for (dialect, method) in own
        .into_iter()
        .chain(php)
        .chain([(Dialect::Spymemcached, Method::Gzip)])
    {
        let writer = compressing_codec(dialect, method);
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
    let text = text_of_length(3000);
    for method in [Method::Zlib, Method::Zstd, Method::Lz4, Method::QuickLz] {
        let codec = compressing_codec(Dialect::Glasscache, method);
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
    let frame = zstd::stream::encode_all(text_of_length(9000).as_bytes(), 3).unwrap();
    let flags = codec_of(Dialect::Glasscache)
        .encode(&ValueRef::Str(&text_of_length(9000)))
        .unwrap()
        .flags;
    assert_eq!(
        decode(Dialect::Glasscache, flags, &frame),
        Ok(Decoded::Str(text_of_length(9000).into()))
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
