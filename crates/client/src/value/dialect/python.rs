//! The Python clients: six flag bits that they share, and the two of them that two families swap.
//!
//! 1 pickle, 2 and 4 whole number, 8 zlib, 32 zstd without magic (meta-memcache). In pymemcache, pylibmc and
//! python-memcached 0 is bytes and 16 text; in python-binary-memcached and meta-memcache it is the other way round.
//! pylibmc marks a boolean with 2 and a whole number with 4; the others pickle a boolean.

use std::borrow::Cow;

use super::{
    CompressionFormat, DialectFormat, Frame, ReadLimits, ValueRefusal, WrittenValue,
    decode_decimal, decode_text, refuse, unsupported_type,
};
use crate::value::compress::Method;
use crate::value::{Decoded, ValueRef, pickle};

const PICKLE: u32 = 1;
const INTEGER: u32 = 2;
const LONG: u32 = 4;
const ZLIB: u32 = 8;
const TEXT_OR_BYTES: u32 = 16;
const ZSTD: u32 = 32;

const MAGICLESS_ZSTD: CompressionFormat =
    CompressionFormat { method: Method::Zstd, frame: Frame::Magicless };

/// The flags of one Python client, as far as the clients differ.
pub(super) struct Python {
    /// Flags of text and of bytes: 16 and 0, or 0 and 16.
    str_flags: u32,
    bytes_flags: u32,
    int_flags: u32,
    /// 2 means a boolean.
    has_bool_flag: bool,
    /// meta-memcache's zstd serialiser shares these flags.
    has_zstd: bool,
}

const PYMEMCACHE_LIKE: Python = Python {
    str_flags: TEXT_OR_BYTES,
    bytes_flags: 0,
    int_flags: INTEGER,
    has_bool_flag: false,
    has_zstd: false,
};

pub(super) const PYMEMCACHE: Python = PYMEMCACHE_LIKE;
pub(super) const PYTHON_MEMCACHED: Python = PYMEMCACHE_LIKE;
pub(super) const PYLIBMC: Python =
    Python { int_flags: LONG, has_bool_flag: true, ..PYMEMCACHE_LIKE };
pub(super) const BMEMCACHED: Python =
    Python { str_flags: 0, bytes_flags: TEXT_OR_BYTES, has_zstd: true, ..PYMEMCACHE_LIKE };

impl DialectFormat for Python {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<WrittenValue<'v>, ValueRefusal> {
        match value {
            ValueRef::Str(text) => {
                return Ok(WrittenValue::unchanged(self.str_flags, text.as_bytes()));
            }
            ValueRef::Bytes(bytes) => return Ok(WrittenValue::unchanged(self.bytes_flags, bytes)),
            ValueRef::BigInt(digits) => {
                return Ok(WrittenValue::unchanged(self.int_flags, digits.as_bytes()));
            }
            ValueRef::Pickle(bytes) => return Ok(WrittenValue::unchanged(PICKLE, bytes)),
            ValueRef::Int(number) => {
                return Ok(WrittenValue::text(self.int_flags, &number.to_string(), scratch));
            }
            ValueRef::Bool(value) if self.has_bool_flag => {
                return Ok(WrittenValue::unchanged(INTEGER, if *value { b"1" } else { b"0" }));
            }
            ValueRef::Bool(value) => pickle::write_bool(*value, scratch),
            ValueRef::None => pickle::write_none(scratch),
            ValueRef::Float(number) => pickle::write_float(*number, scratch),
            ValueRef::Json(_) | ValueRef::Msgpack(_) => {
                return refuse("a dict or list, which these clients pickle (codec=\"pickle\")");
            }
            _ => return Err(unsupported_type(value)),
        }
        Ok(WrittenValue::in_scratch(PICKLE))
    }

    fn compression_for_method(&self, method: Method) -> Option<(u32, CompressionFormat)> {
        match method {
            Method::Zlib => Some((ZLIB, CompressionFormat::without_frame(method))),
            Method::Zstd if self.has_zstd => Some((ZSTD, MAGICLESS_ZSTD)),
            _ => None,
        }
    }

    fn compression_of_flags(&self, flags: u32) -> Option<CompressionFormat> {
        match flags & (ZLIB | ZSTD) {
            ZLIB => Some(CompressionFormat::without_frame(Method::Zlib)),
            ZSTD if self.has_zstd => Some(MAGICLESS_ZSTD),
            _ => None,
        }
    }

    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        limits: ReadLimits,
    ) -> Result<Decoded<'b>, ValueRefusal> {
        let compression_flags = if self.has_zstd { ZLIB | ZSTD } else { ZLIB };
        match flags & !compression_flags {
            type_flags if type_flags == self.bytes_flags => Ok(Decoded::Bytes(body)),
            type_flags if type_flags == self.str_flags => decode_text(body),
            INTEGER if self.has_bool_flag && *body == *b"1" => Ok(Decoded::Bool(true)),
            INTEGER if self.has_bool_flag && *body == *b"0" => Ok(Decoded::Bool(false)),
            INTEGER | LONG => decode_decimal(&body),
            PICKLE => unpickle(body, limits),
            _ => refuse("another client's flags"),
        }
    }
}

fn unpickle(body: Cow<'_, [u8]>, limits: ReadLimits) -> Result<Decoded<'_>, ValueRefusal> {
    match pickle::read_scalar(&body) {
        Some(scalar) => Ok(scalar),
        None if limits.pickle => Ok(Decoded::Pickle(body)),
        None => refuse("a pickle (allow it with pickle=True)"),
    }
}
