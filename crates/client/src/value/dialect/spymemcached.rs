//! spymemcached and xmemcached: 1 Java object, 2 gzip, the type in bits 8 to 15, numbers big-endian without leading
//! zeros.

use std::borrow::Cow;

use super::{
    CompressionFormat, DialectFormat, ReadLimits, ValueRefusal, WrittenValue, decode_text, refuse,
    unsupported_type,
};
use crate::value::compress::Method;
use crate::value::{Decoded, ValueRef};

const SERIALIZED: u32 = 1;
const COMPRESSED: u32 = 2;
const STRING: u32 = 0;
const BOOLEAN: u32 = 1 << 8;
const INT: u32 = 2 << 8;
const LONG: u32 = 3 << 8;
const DATE: u32 = 4 << 8;
const BYTE: u32 = 5 << 8;
const FLOAT: u32 = 6 << 8;
const DOUBLE: u32 = 7 << 8;
const BYTE_ARRAY: u32 = 8 << 8;

pub(super) struct Spymemcached;

impl DialectFormat for Spymemcached {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<WrittenValue<'v>, ValueRefusal> {
        Ok(match value {
            ValueRef::Str(text) => WrittenValue::unchanged(STRING, text.as_bytes()),
            ValueRef::Bytes(bytes) => WrittenValue::unchanged(BYTE_ARRAY, bytes),
            ValueRef::Bool(value) => {
                WrittenValue::unchanged(BOOLEAN, if *value { b"1" } else { b"0" })
            }
            ValueRef::Int(number) => {
                let Ok(int) = i32::try_from(*number) else {
                    return Ok(write_big_endian(LONG, &number.to_be_bytes(), scratch));
                };
                write_big_endian(INT, &int.to_be_bytes(), scratch)
            }
            ValueRef::Float(number) => write_big_endian(DOUBLE, &number.to_be_bytes(), scratch),
            _ => return Err(unsupported_type(value)),
        })
    }

    fn compression_for_method(&self, method: Method) -> Option<(u32, CompressionFormat)> {
        (method == Method::Gzip).then_some((COMPRESSED, CompressionFormat::without_frame(method)))
    }

    fn compression_of_flags(&self, flags: u32) -> Option<CompressionFormat> {
        (flags & COMPRESSED != 0).then_some(CompressionFormat::without_frame(Method::Gzip))
    }

    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        _: ReadLimits,
    ) -> Result<Decoded<'b>, ValueRefusal> {
        let number = || read_number(&body);
        Ok(match flags & !COMPRESSED {
            STRING => return decode_text(body),
            BYTE_ARRAY => Decoded::Bytes(body),
            BOOLEAN => Decoded::Bool(*body == *b"1"),
            INT => Decoded::Int(i64::from(number()? as u32 as i32)),
            LONG => Decoded::Int(number()? as i64),
            BYTE => Decoded::Int(i64::from(number()? as u8 as i8)),
            DATE => Decoded::DateMs(number()? as i64),
            FLOAT => Decoded::Float(f64::from(f32::from_bits(number()? as u32))),
            DOUBLE => Decoded::Float(f64::from_bits(number()?)),
            SERIALIZED => return refuse("a serialised Java object"),
            _ => return refuse("another client's flags"),
        })
    }
}

fn write_big_endian<'v>(flags: u32, bytes: &[u8], scratch: &mut Vec<u8>) -> WrittenValue<'v> {
    scratch.extend(bytes.iter().skip_while(|byte| **byte == 0));
    WrittenValue::in_scratch(flags)
}

fn read_number(body: &[u8]) -> Result<u64, ValueRefusal> {
    if body.len() > size_of::<u64>() {
        return refuse("a number of more than 8 bytes");
    }
    Ok(body.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
