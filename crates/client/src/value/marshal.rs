//! Ruby Marshal of single scalars, read and written: nil, booleans, whole numbers, floats and text.
//!
//! Dalli marshals everything, text and numbers too, so without these a Ruby cache would be unreadable. Arrays,
//! hashes, symbols and objects are refused, because Marshal can build any object. The format is that of Ruby's
//! `marshal.rdoc`, version 4.8.

use std::borrow::Cow;

use super::{Decoded, ValueRef};

const VERSION: &[u8] = b"\x04\x08";
/// One instance variable `:E` that is true: the text is UTF-8.
const UTF8_VARIABLE: &[u8] = b"\x06:\x06ET";

/// The scalar that a Marshal stream holds, or `None` when it holds anything else.
pub(super) fn read_scalar(stream: &[u8]) -> Option<Decoded<'static>> {
    let (type_byte, remaining) = stream.strip_prefix(VERSION)?.split_first()?;
    Some(match (type_byte, remaining) {
        (b'0', []) => Decoded::None,
        (b'T', []) => Decoded::Bool(true),
        (b'F', []) => Decoded::Bool(false),
        (b'i', _) => Decoded::Int(require_end(read_fixnum(remaining)?)?),
        (b'l', _) => read_bignum(remaining)?,
        (b'f', _) => Decoded::Float(parse_float(require_end(read_sized(remaining)?)?)?),
        (b'"', _) => Decoded::Bytes(Cow::Owned(require_end(read_sized(remaining)?)?.to_vec())),
        (b'I', [b'"', remaining @ ..]) => decode_text(read_sized(remaining)?)?,
        _ => return None,
    })
}

/// The value, when nothing follows it.
fn require_end<T>((value, remaining): (T, &[u8])) -> Option<T> {
    remaining.is_empty().then_some(value)
}

/// Marshal's short form of a whole number below 31 bits.
fn read_fixnum(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (first_byte, remaining) = bytes.split_first()?;
    let length_or_number = *first_byte as i8;
    match length_or_number {
        0 => Some((0, remaining)),
        5..=127 => Some((i64::from(length_or_number) - 5, remaining)),
        -128..=-5 => Some((i64::from(length_or_number) + 5, remaining)),
        _ => {
            let (magnitude_bytes, remaining) =
                remaining.split_at_checked(usize::from(length_or_number.unsigned_abs()))?;
            let number = magnitude_bytes.iter().rev().fold(0, |n, byte| n << 8 | i64::from(*byte));
            let sign_bits =
                if length_or_number < 0 { -1 << (8 * magnitude_bytes.len()) } else { 0 };
            Some((number | sign_bits, remaining))
        }
    }
}

/// A run of bytes with its length before it.
fn read_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, remaining) = read_fixnum(bytes)?;
    remaining.split_at_checked(usize::try_from(len).ok()?)
}

/// Sign, count of 16-bit words, words from the least; those that fit `i64`.
fn read_bignum(bytes: &[u8]) -> Option<Decoded<'static>> {
    let (sign, remaining) = bytes.split_first()?;
    let (word_count, remaining) = read_fixnum(remaining)?;
    let magnitude_bytes = require_end(
        remaining.split_at_checked(usize::try_from(word_count).ok()?.checked_mul(2)?)?,
    )?;
    if magnitude_bytes.len() > 15 {
        return None;
    }
    let number = magnitude_bytes.iter().rev().fold(0i128, |n, byte| n << 8 | i128::from(*byte));
    let number = if *sign == b'-' { -number } else { number };
    Some(i64::try_from(number).map_or_else(|_| Decoded::BigInt(number.to_string()), Decoded::Int))
}

fn parse_float(text: &[u8]) -> Option<f64> {
    match text {
        b"inf" => Some(f64::INFINITY),
        b"-inf" => Some(f64::NEG_INFINITY),
        b"nan" => Some(f64::NAN),
        _ => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// Text in UTF-8, or in US-ASCII (`E` false); text in other encodings is refused.
fn decode_text((bytes, remaining): (&[u8], &[u8])) -> Option<Decoded<'static>> {
    let is_known_encoding = remaining == UTF8_VARIABLE || remaining == b"\x06:\x06EF";
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_known_encoding)?;
    Some(Decoded::Str(Cow::Owned(text.to_owned())))
}

/// Appends a scalar as Marshal; false when it has no scalar form.
pub(super) fn write(value: &ValueRef<'_>, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend_from_slice(VERSION);
    match value {
        ValueRef::None => out.push(b'0'),
        ValueRef::Bool(value) => out.push(if *value { b'T' } else { b'F' }),
        ValueRef::Int(number) => write_int(*number, out),
        ValueRef::Float(number) => write_float(*number, out),
        ValueRef::Str(text) => {
            out.extend_from_slice(b"I\"");
            write_sized(text.as_bytes(), out);
            out.extend_from_slice(UTF8_VARIABLE);
        }
        ValueRef::Bytes(bytes) => {
            out.push(b'"');
            write_sized(bytes, out);
        }
        _ => {
            out.truncate(start);
            return false;
        }
    }
    true
}

/// Numbers within 31 bits are fixnums, larger ones bignums.
fn write_int(number: i64, out: &mut Vec<u8>) {
    if (-(1 << 30)..1 << 30).contains(&number) {
        out.push(b'i');
        return write_fixnum(number, out);
    }
    out.extend([b'l', if number < 0 { b'-' } else { b'+' }]);
    let magnitude_bytes = number.unsigned_abs().to_le_bytes();
    let used_bytes =
        magnitude_bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last_index| last_index + 1);
    let word_count = used_bytes.div_ceil(2);
    write_fixnum(word_count as i64, out);
    out.extend_from_slice(magnitude_bytes.get(..word_count * 2).unwrap_or_default());
}

fn write_fixnum(number: i64, out: &mut Vec<u8>) {
    match number {
        0 => out.push(0),
        1..=122 => out.push(number as u8 + 5),
        -123..=-1 => out.push((number - 5) as u8),
        _ => {
            let len = (1..4).find(|len| number >> (8 * len) == number >> 63).unwrap_or(4);
            out.push(if number < 0 { (-(len as i8)) as u8 } else { len as u8 });
            out.extend_from_slice(number.to_le_bytes().get(..len).unwrap_or_default());
        }
    }
}

fn write_float(number: f64, out: &mut Vec<u8>) {
    let text = match number {
        _ if number.is_nan() => "nan".to_owned(),
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        _ => number.to_string(),
    };
    out.push(b'f');
    write_sized(text.as_bytes(), out);
}

fn write_sized(bytes: &[u8], out: &mut Vec<u8>) {
    write_fixnum(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_dumped_by_ruby_are_read() {
        // Marshal.dump(value) of Ruby 3.1.
        let cases: [(&[u8], Decoded<'_>); 7] = [
            (b"\x04\x080", Decoded::None),
            (b"\x04\x08i/", Decoded::Int(42)),
            (b"\x04\x08i\xf4", Decoded::Int(-7)),
            (b"\x04\x08i\x02\xe8\x03", Decoded::Int(1000)),
            (b"\x04\x08l+\x09\0\0\0\0\x01\0\0\0", Decoded::Int(1 << 32)),
            (b"\x04\x08f\x081.5", Decoded::Float(1.5)),
            (b"\x04\x08I\"\x07hi\x06:\x06ET", Decoded::Str("hi".into())),
        ];
        for (stream, value) in cases {
            assert_eq!(read_scalar(stream), Some(value), "{stream:?}");
        }
    }

    #[test]
    fn objects_are_refused() {
        for stream in [
            &b"\x04\x08[\x06i\x06"[..],
            b"\x04\x08{\0",
            b"\x04\x08o:\x0bObject\0",
            b"\x04\x07i\x06",
            b"",
        ] {
            assert_eq!(read_scalar(stream), None);
        }
    }

    proptest! {
        #[test]
        fn integers_round_trip(number in prop_oneof![any::<i64>(), -70_000i64..70_000]) {
            let mut out = Vec::new();
            prop_assert!(write(&ValueRef::Int(number), &mut out));
            prop_assert_eq!(read_scalar(&out), Some(Decoded::Int(number)));
        }

        #[test]
        fn text_round_trips(text in ".{0,300}") {
            let mut out = Vec::new();
            prop_assert!(write(&ValueRef::Str(&text), &mut out));
            prop_assert_eq!(read_scalar(&out), Some(Decoded::Str(text.into())));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = read_scalar(&[VERSION, &bytes].concat());
        }
    }
}
