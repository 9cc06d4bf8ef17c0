//! No dialect: bytes in, bytes out, flags 0 whatever flags an item has; or flags and bytes as the caller has them.

use std::borrow::Cow;

use super::{Form, ReadLimits, Refusal, Written, kind};
use crate::value::{Decoded, ValueRef};

pub(super) struct Raw;

impl Form for Raw {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<Written<'v>, Refusal> {
        Ok(match value {
            ValueRef::Str(text) => Written::unchanged(0, text.as_bytes()),
            ValueRef::Bytes(bytes) | ValueRef::RawJson(bytes) => Written::unchanged(0, bytes),
            ValueRef::Int(number) => Written::text(0, &number.to_string(), scratch),
            ValueRef::BigInt(digits) => Written::unchanged(0, digits.as_bytes()),
            _ => return Err(kind(value)),
        })
    }

    fn read<'b>(&self, _: u32, body: Cow<'b, [u8]>, _: ReadLimits) -> Result<Decoded<'b>, Refusal> {
        Ok(Decoded::Bytes(body))
    }
}

pub(super) struct Flagged;

impl Form for Flagged {
    fn write<'v>(&self, value: &ValueRef<'v>, _: &mut Vec<u8>) -> Result<Written<'v>, Refusal> {
        match value {
            ValueRef::Flagged(flags, bytes) => Ok(Written::unchanged(*flags, bytes)),
            _ => Err(kind(value)),
        }
    }

    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        _: ReadLimits,
    ) -> Result<Decoded<'b>, Refusal> {
        Ok(Decoded::Flagged(flags, body))
    }
}
