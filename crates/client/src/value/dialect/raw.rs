//! No dialect: bytes in, bytes out, flags 0 whatever flags an item has; or flags and bytes as the caller has them.

use std::borrow::Cow;

use super::{DialectFormat, ReadLimits, ValueRefusal, WrittenValue, unsupported_type};
use crate::value::{Decoded, ValueRef};

pub(super) struct Raw;

impl DialectFormat for Raw {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<WrittenValue<'v>, ValueRefusal> {
        Ok(match value {
            ValueRef::Str(text) => WrittenValue::unchanged(0, text.as_bytes()),
            ValueRef::Bytes(bytes) | ValueRef::RawJson(bytes) => WrittenValue::unchanged(0, bytes),
            ValueRef::Int(number) => WrittenValue::text(0, &number.to_string(), scratch),
            ValueRef::BigInt(digits) => WrittenValue::unchanged(0, digits.as_bytes()),
            _ => return Err(unsupported_type(value)),
        })
    }

    fn read<'b>(
        &self,
        _: u32,
        body: Cow<'b, [u8]>,
        _: ReadLimits,
    ) -> Result<Decoded<'b>, ValueRefusal> {
        Ok(Decoded::Bytes(body))
    }
}

pub(super) struct Flagged;

impl DialectFormat for Flagged {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        _: &mut Vec<u8>,
    ) -> Result<WrittenValue<'v>, ValueRefusal> {
        match value {
            ValueRef::Flagged(flags, bytes) => Ok(WrittenValue::unchanged(*flags, bytes)),
            _ => Err(unsupported_type(value)),
        }
    }

    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        _: ReadLimits,
    ) -> Result<Decoded<'b>, ValueRefusal> {
        Ok(Decoded::Flagged(flags, body))
    }
}
