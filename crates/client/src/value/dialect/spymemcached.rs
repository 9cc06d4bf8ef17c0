//! spymemcached and xmemcached: 1 Java object, 2 gzip, the type in bits 8 to 15, numbers big-endian without leading
//! zeros.

use std::borrow::Cow;

use super::{Form, Packing, ReadLimits, Refusal, Written, kind, refuse, text};
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

impl Form for Spymemcached {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<Written<'v>, Refusal> {
        Ok(match value {
            ValueRef::Str(text) => Written::unchanged(STRING, text.as_bytes()),
            ValueRef::Bytes(bytes) => Written::unchanged(BYTE_ARRAY, bytes),
            ValueRef::Bool(value) => Written::unchanged(BOOLEAN, if *value { b"1" } else { b"0" }),
            ValueRef::Int(number) => {
                let Ok(int) = i32::try_from(*number) else {
                    return Ok(big_endian(LONG, &number.to_be_bytes(), scratch));
                };
                big_endian(INT, &int.to_be_bytes(), scratch)
            }
            ValueRef::Float(number) => big_endian(DOUBLE, &number.to_be_bytes(), scratch),
            _ => return Err(kind(value)),
        })
    }

    fn packing_for_method(&self, method: Method) -> Option<(u32, Packing)> {
        (method == Method::Gzip).then_some((COMPRESSED, Packing::bare(method)))
    }

    fn packing_of_flags(&self, flags: u32) -> Option<Packing> {
        (flags & COMPRESSED != 0).then_some(Packing::bare(Method::Gzip))
    }

    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        _: ReadLimits,
    ) -> Result<Decoded<'b>, Refusal> {
        let number = || number(&body);
        Ok(match flags & !COMPRESSED {
            STRING => return text(body),
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

fn big_endian<'v>(flags: u32, bytes: &[u8], scratch: &mut Vec<u8>) -> Written<'v> {
    scratch.extend(bytes.iter().skip_while(|byte| **byte == 0));
    Written::scratch(flags)
}

fn number(body: &[u8]) -> Result<u64, Refusal> {
    if body.len() > size_of::<u64>() {
        return refuse("a number of more than 8 bytes");
    }
    Ok(body
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
