//! PHP's `Memcache` class (pecl-memcache 8): 1 serialised, 2 zlib, the type in bits 8 to 11.

use std::borrow::Cow;

use super::php::{decode_float, decode_string, format_float};
use super::{
    CompressionFormat, DialectFormat, ReadLimits, ValueRefusal, WrittenValue, decode_decimal,
    refuse, unsupported_type,
};
use crate::value::compress::Method;
use crate::value::{Decoded, ValueRef};

const SERIALIZED: u32 = 1;
const COMPRESSED: u32 = 2;
const STRING: u32 = 0;
const BOOL: u32 = 0x100;
const LONG: u32 = 0x300;
const DOUBLE: u32 = 0x700;
/// The lower sixteen bits, which are this client's; the upper sixteen are the application's own.
const PECL_FLAGS_MASK: u32 = 0xffff;

pub(super) struct Pecl;

impl DialectFormat for Pecl {
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
            ValueRef::Bool(value) => {
                WrittenValue::unchanged(BOOL, if *value { b"1" } else { b"0" })
            }
            ValueRef::None => WrittenValue::unchanged(SERIALIZED, b"N;"),
            _ => return Err(unsupported_type(value)),
        })
    }

    fn compression_for_method(&self, method: Method) -> Option<(u32, CompressionFormat)> {
        (method == Method::Zlib).then_some((COMPRESSED, CompressionFormat::without_frame(method)))
    }

    fn compression_of_flags(&self, flags: u32) -> Option<CompressionFormat> {
        (flags & COMPRESSED != 0).then_some(CompressionFormat::without_frame(Method::Zlib))
    }

    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        _: ReadLimits,
    ) -> Result<Decoded<'b>, ValueRefusal> {
        match flags & PECL_FLAGS_MASK & !COMPRESSED {
            STRING => Ok(decode_string(body)),
            BOOL => Ok(Decoded::Bool(!body.is_empty() && *body != *b"0")),
            LONG => decode_decimal(&body),
            DOUBLE => decode_float(&body),
            SERIALIZED if *body == *b"N;" => Ok(Decoded::None),
            SERIALIZED => refuse("PHP serialize, which can build objects"),
            _ => refuse("another client's flags"),
        }
    }
}
