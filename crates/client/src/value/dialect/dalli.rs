//! Ruby's Dalli: 1 serialised (Marshal, or JSON when so configured), 2 zlib, 4 text; 0 is raw.
//!
//! Scalars of Marshal are read and written; containers in Marshal are refused, those in JSON read.

use std::borrow::Cow;

use super::{
    CompressionFormat, DialectFormat, ReadLimits, ValueRefusal, WrittenValue, decode_text, refuse,
    unsupported_type,
};
use crate::value::compress::Method;
use crate::value::{Decoded, ValueRef, marshal};

const SERIALIZED: u32 = 1;
const COMPRESSED: u32 = 2;
const UTF8: u32 = 4;
/// The first byte of every Marshal stream, which no JSON text begins with.
const MARSHAL_MAJOR: u8 = 4;

pub(super) struct Dalli;

impl DialectFormat for Dalli {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<WrittenValue<'v>, ValueRefusal> {
        match value {
            ValueRef::Json(bytes) | ValueRef::RawJson(bytes) => {
                Ok(WrittenValue::unchanged(SERIALIZED, bytes))
            }
            _ if marshal::write(value, scratch) => Ok(WrittenValue::in_scratch(SERIALIZED)),
            _ => Err(unsupported_type(value)),
        }
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
        match flags & !COMPRESSED {
            0 => Ok(Decoded::Bytes(body)),
            UTF8 => decode_text(body),
            SERIALIZED if body.first() != Some(&MARSHAL_MAJOR) => Ok(Decoded::Json(body)),
            SERIALIZED => marshal::read_scalar(&body).ok_or(ValueRefusal::new(
                "Ruby Marshal of an object or container, which can build objects (use Dalli's serializer: JSON)",
            )),
            _ => refuse("another client's flags"),
        }
    }
}
