//! Our own dialect: what it packs, what it leaves as it is, what saves too little.

use super::*;

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
