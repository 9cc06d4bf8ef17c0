//! Our own dialect: what it packs, what it leaves as it is, what saves too little.

use super::*;

#[test]
fn own_containers_arrays_and_lists_come_back() {
    let codec = codec_of(Dialect::Glasscache);
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
        is_swapped: false,
        itemsize: 8,
        shape: &shape,
        bytes: &bytes,
    };
    let encoded = codec.encode(&ValueRef::Array(array)).unwrap();
    assert!(encoded.bytes.len() < 100, "zeros and ones compress");
    let Decoded::Array(decoded) = codec.decode(encoded.flags, &encoded.bytes).unwrap().0 else {
        panic!()
    };
    assert_eq!(
        (decoded.typecode, decoded.is_numpy, decoded.itemsize, &decoded.shape[..]),
        (b'd', true, 8, &shape[..])
    );
    assert_eq!(decoded.bytes(), bytes);

    for value in [ValueRef::Json(b"[1]"), ValueRef::RawJson(b"{}"), ValueRef::Msgpack(b"\x90")] {
        let encoded = codec.encode(&value).unwrap();
        assert_eq!(
            encoded.bytes,
            codec
                .encode_unchanged(&value)
                .map_or(encoded.bytes.clone(), |(_, unchanged_bytes)| { unchanged_bytes.into() })
        );
        assert!(codec.decode(encoded.flags, &encoded.bytes).is_ok());
    }
}

#[test]
fn typed_values_come_back_whole_and_are_refused_otherwise() {
    let codec = codec_of(Dialect::Glasscache);
    let complete_value = [9, 2, 3, 14, 6, 1, b'a'];
    let encoded = codec.encode(&ValueRef::Typed(&complete_value)).unwrap();
    assert_eq!((encoded.flags, &encoded.bytes[..]), (0x9c00_000d, &complete_value[..]));
    assert_eq!(
        codec.decode(encoded.flags, &complete_value).unwrap().0,
        Decoded::Typed(complete_value[..].into())
    );
    for malformed in [&complete_value[..6], &[complete_value.as_slice(), &[0]].concat()] {
        assert!(codec.encode(&ValueRef::Typed(malformed)).is_err());
        let decode_result = codec.decode(encoded.flags, malformed);
        assert!(matches!(decode_result, Err(ValueError::Unreadable { .. })));
    }
    let php_result =
        super::codec_of(Dialect::PhpMemcached).encode(&ValueRef::Typed(&complete_value));
    assert!(matches!(php_result, Err(ValueError::Unwritable { .. })));
}

#[test]
fn plain_bytes_are_neither_copied_nor_flagged() {
    let encoded = codec_of(Dialect::Glasscache).encode(&ValueRef::Bytes(b"abc")).unwrap();
    assert!(matches!(encoded.bytes, std::borrow::Cow::Borrowed(b"abc")));
    assert_eq!(encoded.flags, 0);
    assert_eq!(
        codec_of(Dialect::Glasscache).encode_unchanged(&ValueRef::Bytes(b"abc")),
        Some((0, &b"abc"[..]))
    );
}

#[test]
fn a_value_that_compression_hardly_shortens_stays_plain() {
    let next_byte = |random_state: &mut u64| {
        *random_state = random_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Some((*random_state >> 56) as u8)
    };
    let noise: Vec<u8> = (0..4000).scan(7u64, |random_state, _| next_byte(random_state)).collect();
    for method in [Method::Zlib, Method::Zstd, Method::Lz4, Method::QuickLz] {
        let encoded_length = compressing_codec(Dialect::Glasscache, method)
            .encode(&ValueRef::Bytes(&noise))
            .map(|encoded| encoded.bytes.len());
        assert_eq!(encoded_length, Ok(4000), "{method:?}");
    }
    let short_length = codec_of(Dialect::Glasscache)
        .encode(&ValueRef::Str(&text_of_length(1000)))
        .map(|encoded| encoded.bytes.len());
    assert_eq!(short_length, Ok(1000));
}

#[test]
fn packed_bytes_and_text_are_not_raw() {
    let codec = compressing_codec(Dialect::Glasscache, Method::Zstd);
    let text = text_of_length(4000);
    let packed = codec.encode(&ValueRef::Bytes(text.as_bytes())).unwrap();
    assert!(packed.bytes.len() < text.len());
    assert!(!codec.is_raw(packed.flags));
    assert!(!codec.is_raw(codec.encode(&ValueRef::Str("text")).unwrap().flags));
    assert!(codec.is_raw(codec.encode(&ValueRef::Bytes(b"raw")).unwrap().flags));
}

/// An array of one dimension, as Python's `array` has it.
fn array<'v>(typecode: u8, itemsize: u8, shape: &'v [u64; 1], bytes: &'v [u8]) -> Array<'v> {
    Array { typecode, is_numpy: false, is_swapped: false, itemsize, shape, bytes }
}

/// Encodes and decodes an array; returns the bytes on the wire and the elements that came back.
fn round_trip(original: Array<'_>) -> (usize, Vec<u8>) {
    let codec = codec_of(Dialect::Glasscache);
    let encoded = codec.encode(&ValueRef::Array(original)).unwrap();
    let Decoded::Array(decoded) = codec.decode(encoded.flags, &encoded.bytes).unwrap().0 else {
        panic!()
    };
    assert_eq!((decoded.typecode, &decoded.shape[..]), (original.typecode, original.shape));
    (encoded.bytes.len(), decoded.bytes().to_vec())
}

#[test]
fn arrays_of_ids_take_as_many_bits_per_id_as_the_greatest() {
    let ids = (0..20_000u64).map(|i| 10_000_000 + i * 1_000_003 % 50_000_000);
    let eight_byte_ids: Vec<u8> = ids.clone().flat_map(u64::to_le_bytes).collect();
    let four_byte_ids: Vec<u8> = ids.flat_map(|id| (id as u32).to_le_bytes()).collect();
    for (typecode, itemsize, bytes) in
        [(b'Q', 8, &eight_byte_ids), (b'q', 8, &eight_byte_ids), (b'I', 4, &four_byte_ids)]
    {
        let (wire_bytes, decoded) = round_trip(array(typecode, itemsize, &[20_000], bytes));
        assert!(wire_bytes < 20_000 * 27 / 8, "{wire_bytes}");
        assert_eq!(&decoded, bytes);
    }
}

#[test]
fn an_array_that_repeats_itself_is_compressed_and_not_packed() {
    let numbers = (0..20_000u64).map(|i| (i % 100).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 4);
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    let (wire_bytes, decoded) = round_trip(array(b'q', 8, &[20_000], &bytes));
    assert!(wire_bytes < 10_000, "{wire_bytes}");
    assert_eq!(decoded, bytes);
}

#[test]
fn a_packed_array_whose_numbers_do_not_fit_its_element_is_refused() {
    let bytes: Vec<u8> = (0..1000u32).map(|i| i + 70_000).flat_map(u32::to_le_bytes).collect();
    let codec = codec_of(Dialect::Glasscache);
    let encoded = codec.encode(&ValueRef::Array(array(b'I', 4, &[1000], &bytes)));
    let encoded = encoded.unwrap();
    let mut malformed = encoded.bytes.to_vec();
    malformed[0] = 2; // bytes of an element
    let flags = encoded.flags & !0x7f00 | u32::from(b'H') << 8;
    assert!(codec.decode(encoded.flags, &encoded.bytes).is_ok());
    assert!(matches!(codec.decode(flags, &malformed), Err(ValueError::Unreadable { .. })));
    assert!(codec.decode(encoded.flags, &malformed[..200]).is_err());
}

proptest! {
    #[test]
    fn arrays_of_whole_numbers_come_back(
        numbers in prop::collection::vec(any::<u64>(), 1..300), shift in 0u32..64, element_type_index in 0usize..8,
    ) {
        let (typecode, itemsize) =
            [(b'h', 2), (b'H', 2), (b'i', 4), (b'I', 4), (b'l', 8), (b'L', 8), (b'q', 8), (b'B', 1)][element_type_index];
        let mut bytes = Vec::new();
        for number in numbers.iter().cycle().take(2000).map(|number| number >> shift) {
            bytes.extend_from_slice(&number.to_le_bytes()[..usize::from(itemsize)]);
        }
        let shape = [bytes.len() as u64 / u64::from(itemsize)];
        prop_assert_eq!(round_trip(array(typecode, itemsize, &shape, &bytes)).1, bytes);
    }
}

#[test]
fn a_manifest_has_flags_of_its_own_and_no_other_dialect_writes_one() {
    let codec = super::codec_of(Dialect::Glasscache);
    let encoded = codec.encode(&ValueRef::Manifest(b"manifest")).unwrap();
    assert_eq!(encoded.flags, 0x9c00_000e);
    let decoded = codec.decode(encoded.flags, &encoded.bytes).unwrap().0;
    assert_eq!(decoded, Decoded::Manifest(b"manifest"[..].into()));
    for (dialect, _) in DIALECTS {
        if dialect != Dialect::Glasscache {
            let encode_result = super::codec_of(dialect).encode(&ValueRef::Manifest(b"manifest"));
            assert!(encode_result.is_err(), "{dialect}");
        }
    }
}

#[test]
fn a_value_with_compute_info_reads_as_the_value() {
    let codec = codec_of(Dialect::Glasscache);
    let compute_info = ComputeInfo { made_at_ms: 1_700_000_000_123, cost_us: 50_000 };
    for value in [ValueRef::Str("text"), ValueRef::Bytes(b"b"), ValueRef::Int(7), ValueRef::None] {
        let encoded_value = codec.encode(&value).unwrap();
        let (flags, body) = codec
            .with_compute_info(compute_info, encoded_value.flags, &encoded_value.bytes)
            .unwrap();
        assert_eq!(
            codec.decode(flags, &body).unwrap().0,
            codec.decode(encoded_value.flags, &encoded_value.bytes).unwrap().0
        );
        assert_eq!(
            codec.compute_info(flags, &body),
            Some((compute_info, encoded_value.flags, &encoded_value.bytes[..]))
        );
        let cut_result = codec.decode(flags, &body[..15]);
        assert!(matches!(cut_result, Err(ValueError::Unreadable { .. })));
        let (nested_flags, nested_body) =
            codec.with_compute_info(compute_info, flags, &body).unwrap();
        assert!(codec.decode(nested_flags, &nested_body).is_err());
    }
    assert!(
        super::codec_of(Dialect::Pymemcache).with_compute_info(compute_info, 0, b"x").is_none()
    );
    assert!(super::codec_of(Dialect::Pymemcache).compute_info(0x9c00_000f, &[0; 20]).is_none());
}
