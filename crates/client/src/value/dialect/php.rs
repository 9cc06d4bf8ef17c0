//! PHP's `Memcached` class (php-memcached 3): type in the low four bits, compression in the next four.
//!
//! Numbers and booleans are text, false is the empty text. A compressed body has its plain length before it. The upper
//! sixteen bits are the application's own and are ignored. PHP's serialize and igbinary build objects and are refused,
//! except the null, which PHP writes as a serialised value.

use std::borrow::Cow;

use super::{
    CompressionFormat, DialectFormat, Frame, ReadLimits, ValueRefusal, WrittenValue,
    decode_decimal, decode_text, refuse, unsupported_type,
};
use crate::value::compress::Method;
use crate::value::{Decoded, ValueRef};

const TYPE_MASK: u32 = 0xf;
const STRING: u32 = 0;
const LONG: u32 = 1;
const DOUBLE: u32 = 2;
const BOOL: u32 = 3;
const SERIALIZED: u32 = 4;
const IGBINARY: u32 = 5;
const JSON: u32 = 6;
const MSGPACK: u32 = 7;

const COMPRESSED: u32 = 0x10;
const METHOD_MASK: u32 = 0xe0;
const METHODS: [(u32, Method); 3] =
    [(0x20, Method::Zlib), (0x40, Method::FastLz), (0x80, Method::Zstd)];

pub(super) struct Php;

impl DialectFormat for Php {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<WrittenValue<'v>, ValueRefusal> {
        Ok(match value {
            ValueRef::Str(text) => WrittenValue::unchanged(STRING, text.as_bytes()),
            ValueRef::Bytes(bytes) => WrittenValue::unchanged(STRING, bytes),
            ValueRef::Int(number) => WrittenValue::text(LONG, &number.to_string(), scratch),
            ValueRef::Float(number) => WrittenValue::text(DOUBLE, &format_float(*number), scratch),
            ValueRef::Bool(value) => WrittenValue::unchanged(BOOL, if *value { b"1" } else { b"" }),
            ValueRef::None => WrittenValue::unchanged(SERIALIZED, b"N;"),
            ValueRef::Json(bytes) | ValueRef::RawJson(bytes) => {
                WrittenValue::unchanged(JSON, bytes)
            }
            ValueRef::Msgpack(bytes) => WrittenValue::unchanged(MSGPACK, bytes),
            _ => return Err(unsupported_type(value)),
        })
    }

    fn compression_for_method(&self, method: Method) -> Option<(u32, CompressionFormat)> {
        let (method_bit, _) = METHODS.iter().find(|(_, candidate)| *candidate == method)?;
        Some((COMPRESSED | method_bit, CompressionFormat { method, frame: Frame::Length }))
    }

    fn compression_of_flags(&self, flags: u32) -> Option<CompressionFormat> {
        let method_bits = flags & METHOD_MASK;
        let (_, method) = METHODS
            .iter()
            .find(|(method_bit, _)| flags & COMPRESSED != 0 && *method_bit == method_bits)?;
        Some(CompressionFormat { method: *method, frame: Frame::Length })
    }

    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        _: ReadLimits,
    ) -> Result<Decoded<'b>, ValueRefusal> {
        if flags & COMPRESSED != 0 && self.compression_of_flags(flags).is_none() {
            return refuse("a compression of PHP that is not zlib, fastlz or zstd");
        }
        match flags & TYPE_MASK {
            STRING => Ok(decode_string(body)),
            LONG => decode_decimal(&body),
            DOUBLE => decode_float(&body),
            BOOL => Ok(Decoded::Bool(!body.is_empty() && *body != *b"0")),
            SERIALIZED if *body == *b"N;" => Ok(Decoded::None),
            SERIALIZED => refuse("PHP serialize, which can build objects (store JSON instead)"),
            IGBINARY => refuse("igbinary, which can build objects (store JSON instead)"),
            JSON => Ok(Decoded::Json(body)),
            MSGPACK => Ok(Decoded::Msgpack(body)),
            _ => refuse("another client's flags"),
        }
    }
}

/// PHP has one string type: text when it is UTF-8, else bytes.
pub(super) fn decode_string(body: Cow<'_, [u8]>) -> Decoded<'_> {
    if std::str::from_utf8(&body).is_err() {
        return Decoded::Bytes(body);
    }
    decode_text(body).unwrap_or(Decoded::None)
}

/// A float as PHP spells it, which also knows `INF`, `-INF` and `NAN`.
pub(super) fn decode_float<'b>(body: &[u8]) -> Result<Decoded<'b>, ValueRefusal> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    text.parse().map(Decoded::Float).map_err(|_| ValueRefusal::new("a float that is not decimal"))
}

pub(super) fn format_float(number: f64) -> String {
    match number {
        _ if number.is_nan() => "NAN".to_owned(),
        f64::INFINITY => "INF".to_owned(),
        f64::NEG_INFINITY => "-INF".to_owned(),
        _ => number.to_string(),
    }
}
