//! This client's own dialect: it stores every type, each in a compact form.
//!
//! Flags: `0x9c` in the top byte, which no other client uses; then four bits of compression, four bits of version
//! (0), a parameter of the type, and the type. Plain bytes carry flags 0, since the server keeps no flags that are
//! 0, and what was set by hand reads as bytes. A whole number is decimal text, so that `incr` works on it.

use std::borrow::Cow;

use super::{
    Body, CompressionFormat, DialectFormat, ReadLimits, ValueRefusal, WrittenValue, decode_decimal,
    decode_text, refuse, unsupported_type,
};
use crate::value::compress::Method;
use crate::value::ints::{MeasuredNumbers, pack, read_varint, unpack, write_varint};
use crate::value::{Array, Decoded, DecodedArray, ValueRef};
use crate::value::{packed_arrays, typed};

pub(super) const GLASSCACHE: Glasscache = Glasscache { marks_bytes: false };

/// For a cache that still holds another dialect's values: flags 0 belong to the other client there, so bytes are
/// marked.
pub(super) const MIGRATING: Glasscache = Glasscache { marks_bytes: true };

pub(super) struct Glasscache {
    marks_bytes: bool,
}

const DIALECT_MARK: u32 = 0x9c << 24;
const MARK_MASK: u32 = 0xff << 24;
const VERSION_MASK: u32 = 0xf << 16;
const COMPRESSION_SHIFT: u32 = 20;

const BYTES: u32 = 0;
const STR: u32 = 1;
const INT: u32 = 2;
const FLOAT: u32 = 3;
const BOOL: u32 = 4;
const NONE: u32 = 5;
const INTS: u32 = 6;
const ARRAY: u32 = 7;
const JSON: u32 = 8;
const RAW_JSON: u32 = 9;
const MSGPACK: u32 = 10;
const PICKLE: u32 = 11;
const PACKED_ARRAY: u32 = 12;
const TYPED: u32 = 13;
const MANIFEST: u32 = 14;
const COMPUTE_INFO: u32 = 15;

/// The client flags of a manifest.
pub(crate) const MANIFEST_FLAGS: u32 = DIALECT_MARK | MANIFEST;

/// Set in the parameter of an array that is `NumPy`'s; the rest is its letter.
const NUMPY: u32 = 0x80;

/// Compression by its number in the flags; 0 is none.
const COMPRESSION_NUMBERS: [(u32, Method); 4] =
    [(1, Method::Zlib), (2, Method::Zstd), (3, Method::Lz4), (4, Method::QuickLz)];

pub(super) fn is_expanding(flags: u32) -> bool {
    is_glasscache(flags) && matches!(flags & 0xff, INTS | PACKED_ARRAY | TYPED)
}

pub(super) fn is_bool(flags: u32) -> bool {
    flags == DIALECT_MARK | BOOL
}

pub(super) fn is_glasscache(flags: u32) -> bool {
    flags & MARK_MASK == DIALECT_MARK
}

/// The flags of a value that is stored with its compute info.
pub(super) const COMPUTE_INFO_FLAGS: u32 = DIALECT_MARK | COMPUTE_INFO;

/// Whether a value is decoded without unpacking it or calling another decoder: text, numbers and the like.
pub(super) fn is_cheap_to_decode(flags: u32) -> bool {
    let compression_number = flags >> COMPRESSION_SHIFT & 0xf;
    flags == 0 || is_glasscache(flags) && compression_number == 0 && flags & 0xff <= NONE
}

impl DialectFormat for Glasscache {
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<WrittenValue<'v>, ValueRefusal> {
        Ok(match value {
            ValueRef::Bytes(bytes) if !self.marks_bytes => WrittenValue::unchanged(0, bytes),
            ValueRef::Bytes(bytes) => WrittenValue::unchanged(DIALECT_MARK | BYTES, bytes),
            ValueRef::Str(text) => WrittenValue::unchanged(DIALECT_MARK | STR, text.as_bytes()),
            ValueRef::Int(number) => {
                WrittenValue::text(DIALECT_MARK | INT, &number.to_string(), scratch)
            }
            ValueRef::BigInt(digits) => {
                WrittenValue::unchanged(DIALECT_MARK | INT, digits.as_bytes())
            }
            ValueRef::Float(number) => {
                scratch.extend_from_slice(&number.to_le_bytes());
                WrittenValue::in_scratch(DIALECT_MARK | FLOAT)
            }
            ValueRef::Bool(value) => {
                WrittenValue::unchanged(DIALECT_MARK | BOOL, if *value { b"1" } else { b"0" })
            }
            ValueRef::None => WrittenValue::unchanged(DIALECT_MARK | NONE, b""),
            ValueRef::Ints(numbers) => {
                pack(numbers, scratch);
                WrittenValue {
                    flags: DIALECT_MARK | INTS,
                    body: Body::Scratch,
                    is_compressible: false,
                }
            }
            ValueRef::Array(array) => {
                scratch.reserve(array.bytes.len() + 24);
                write_header(array, scratch);
                scratch.extend_from_slice(array.bytes);
                WrittenValue::in_scratch(DIALECT_MARK | array_parameter(array) << 8 | ARRAY)
            }
            ValueRef::Json(bytes) => WrittenValue::unchanged(DIALECT_MARK | JSON, bytes),
            ValueRef::RawJson(bytes) => WrittenValue::unchanged(DIALECT_MARK | RAW_JSON, bytes),
            ValueRef::Msgpack(bytes) => WrittenValue::unchanged(DIALECT_MARK | MSGPACK, bytes),
            ValueRef::Typed(bytes) => WrittenValue::unchanged(DIALECT_MARK | TYPED, bytes),
            ValueRef::Pickle(bytes) => WrittenValue::unchanged(DIALECT_MARK | PICKLE, bytes),
            ValueRef::Manifest(manifest) => WrittenValue::unchanged(MANIFEST_FLAGS, manifest),
            ValueRef::Flagged(..) => return Err(unsupported_type(value)),
        })
    }

    fn pack_array(
        &self,
        array: &Array<'_>,
        packed_bytes_max: usize,
        scratch: &mut Vec<u8>,
    ) -> Option<u32> {
        let numbers = packed_arrays::widen_array(array)?;
        let measured = MeasuredNumbers::new(&numbers);
        let header_bytes = 2 + 10 * array.shape.len();
        if header_bytes + measured.packed_bytes_max > packed_bytes_max {
            return None;
        }
        scratch.reserve(header_bytes + measured.packed_bytes_max);
        write_header(array, scratch);
        measured.pack(scratch);
        Some(DIALECT_MARK | array_parameter(array) << 8 | PACKED_ARRAY)
    }

    fn compression_for_method(&self, method: Method) -> Option<(u32, CompressionFormat)> {
        let (compression_number, _) =
            COMPRESSION_NUMBERS.iter().find(|(_, candidate)| *candidate == method)?;
        Some((
            DIALECT_MARK | compression_number << COMPRESSION_SHIFT,
            CompressionFormat::without_frame(method),
        ))
    }

    fn compression_of_flags(&self, flags: u32) -> Option<CompressionFormat> {
        let compression_number = flags >> COMPRESSION_SHIFT & 0xf;
        let (_, method) = COMPRESSION_NUMBERS
            .iter()
            .find(|(candidate, _)| is_glasscache(flags) && *candidate == compression_number)?;
        Some(CompressionFormat::without_frame(*method))
    }

    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        limits: ReadLimits,
    ) -> Result<Decoded<'b>, ValueRefusal> {
        if flags == 0 {
            return Ok(Decoded::Bytes(body));
        }
        if !is_glasscache(flags) {
            return refuse(
                "another client's flags; write that client's dialect and placement, as dialect=\"pymemcache\", placement=\"rendezvous\"",
            );
        }
        let compression_number = flags >> COMPRESSION_SHIFT & 0xf;
        if flags & VERSION_MASK != 0 || compression_number as usize > COMPRESSION_NUMBERS.len() {
            return refuse("a form of a later version of this client");
        }
        let parameter = flags >> 8 & 0xff;
        match flags & 0xff {
            BYTES => Ok(Decoded::Bytes(body)),
            STR => decode_text(body),
            FLOAT => decode_float(&body),
            BOOL if *body == *b"1" => Ok(Decoded::Bool(true)),
            BOOL if *body == *b"0" => Ok(Decoded::Bool(false)),
            // A boolean that `incr` has worked on: as in Python, True and 1 are 2.
            INT | BOOL => decode_decimal(&body),
            NONE if body.is_empty() => Ok(Decoded::None),
            INTS => unpack(&body, limits.bytes_max)
                .map(Decoded::Ints)
                .ok_or(ValueRefusal::new("a list of whole numbers that is cut or too long")),
            ARRAY => read_array(parameter, body)
                .map(Decoded::Array)
                .ok_or(ValueRefusal::new("an array whose header contradicts its length")),
            PACKED_ARRAY => read_packed_array(parameter, &body, limits.bytes_max)
                .map(Decoded::Array)
                .ok_or(ValueRefusal::new("an array of whole numbers that is cut or too long")),
            JSON => Ok(Decoded::Json(body)),
            RAW_JSON => Ok(Decoded::RawJson(body)),
            MSGPACK => Ok(Decoded::Msgpack(body)),
            TYPED if typed::is_valid(&body, limits.bytes_max) => Ok(Decoded::Typed(body)),
            TYPED => refuse("a typed value that is cut, malformed or too large"),
            MANIFEST => Ok(Decoded::Manifest(body)),
            COMPUTE_INFO => refuse("a value with compute info that is cut or nested"),
            // A reader stops at the pickle's end and does not see what was appended to it.
            PICKLE if limits.pickle && !body.ends_with(b".") => {
                refuse("a pickle with bytes after its end")
            }
            PICKLE if limits.pickle => Ok(Decoded::Pickle(body)),
            PICKLE => refuse("a pickle (allow it with pickle=True)"),
            _ => refuse("a type unknown to this version"),
        }
    }
}

fn decode_float<'b>(body: &[u8]) -> Result<Decoded<'b>, ValueRefusal> {
    let bytes = body.try_into().map_err(|_| ValueRefusal::new("a float that is not 8 bytes"))?;
    Ok(Decoded::Float(f64::from_le_bytes(bytes)))
}

fn array_parameter(array: &Array<'_>) -> u32 {
    u32::from(array.typecode & 0x7f) | if array.is_numpy { NUMPY } else { 0 }
}

/// Set together with the count of dimensions of an array in the other byte order.
const SWAPPED_BYTE_ORDER: u8 = 0x80;

/// Element size, count of dimensions and each length; the elements follow.
fn write_header(array: &Array<'_>, out: &mut Vec<u8>) {
    let byte_order = if array.is_swapped { SWAPPED_BYTE_ORDER } else { 0 };
    out.extend([array.itemsize, array.shape.len() as u8 | byte_order]);
    array.shape.iter().for_each(|len| write_varint(*len, out));
}

/// Most dimensions of an array, as in `NumPy` 2.
const DIMENSIONS_MAX: u8 = 64;

/// The header of an array.
struct ArrayHeader {
    itemsize: u8,
    is_swapped: bool,
    shape: Vec<u64>,
    element_count: u64,
}

/// The header of an array, and what follows it.
fn read_header(body: &[u8]) -> Option<(ArrayHeader, &[u8])> {
    let (first_bytes, mut remaining) = body.split_first_chunk::<2>()?;
    let [itemsize, dimensions_and_order] = *first_bytes;
    if itemsize == 0 {
        return None; // a few bytes could claim any number of such elements
    }
    let is_swapped = dimensions_and_order & SWAPPED_BYTE_ORDER != 0;
    let dimensions = dimensions_and_order & !SWAPPED_BYTE_ORDER;
    if dimensions > DIMENSIONS_MAX {
        return None;
    }
    let shape =
        (0..dimensions).map(|_| read_varint(&mut remaining)).collect::<Option<Vec<u64>>>()?;
    let element_count = shape.iter().try_fold(1u64, |product, len| product.checked_mul(*len))?;
    let header = ArrayHeader { itemsize, is_swapped, shape, element_count };
    Some((header, remaining))
}

fn read_packed_array(
    parameter: u32,
    body: &[u8],
    bytes_max: usize,
) -> Option<DecodedArray<'static>> {
    let (header, remaining) = read_header(body)?;
    let (typecode, itemsize) = ((parameter & 0x7f) as u8, header.itemsize);
    let elements = packed_arrays::unpack_array(
        remaining,
        typecode,
        itemsize,
        header.element_count,
        bytes_max,
    )?;
    Some(DecodedArray {
        typecode,
        is_numpy: parameter & NUMPY != 0,
        is_swapped: header.is_swapped,
        itemsize,
        shape: header.shape,
        body: Cow::Owned(elements),
        start: 0,
    })
}

fn read_array(parameter: u32, body: Cow<'_, [u8]>) -> Option<DecodedArray<'_>> {
    let (header, remaining) = read_header(&body)?;
    if header.element_count.checked_mul(u64::from(header.itemsize))? != remaining.len() as u64 {
        return None;
    }
    let start = body.len() - remaining.len();
    Some(DecodedArray {
        typecode: (parameter & 0x7f) as u8,
        is_numpy: parameter & NUMPY != 0,
        is_swapped: header.is_swapped,
        itemsize: header.itemsize,
        shape: header.shape,
        body,
        start,
    })
}
