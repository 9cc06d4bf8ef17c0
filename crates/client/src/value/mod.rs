//! Values: what an application stores, as bytes and client flags on the wire.
//!
//! The server never looks into a value; what the 32 client flags mean is an agreement among clients, and the
//! ecosystems disagree (16 is text for one family and bytes for another). So a [`Codec`] is given its [`Dialect`] and
//! never guesses: what it cannot read safely is a typed [`ValueError`], not a silent miss. Serialising and compressing
//! are measured apart ([`ValueCosts`]), because most of the time "in the cache" is spent there.

mod codec;
mod compress;
mod compute_info;
mod decompress_error;
mod dialect;
mod fastlz;
mod ints;
mod marshal;
mod packed_arrays;
mod pickle;
#[cfg(test)]
mod tests;
pub mod typed;
mod unpack_budget;

use std::borrow::Cow;
use std::time::Duration;

pub use codec::{Codec, CodecOptions, Encoded};
pub use compress::{Compression, Method};
pub use compute_info::ComputeInfo;
pub(crate) use dialect::MANIFEST_FLAGS;
pub use dialect::{DIALECTS, Dialect};
pub use unpack_budget::UnpackBudget;

/// A value to be stored, borrowed from its owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'v> {
    /// Text.
    Str(&'v str),
    /// Bytes without meaning.
    Bytes(&'v [u8]),
    /// A whole number.
    Int(i64),
    /// A whole number outside `i64`, in decimal.
    BigInt(&'v str),
    /// A binary64 number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// The absence of a value, stored.
    None,
    /// A list of whole numbers, packed.
    Ints(&'v [i64]),
    /// A typed array in C order.
    Array(Array<'v>),
    /// A container serialised to JSON; it comes back as a container.
    Json(&'v [u8]),
    /// JSON that the application holds as text; it comes back as that text.
    RawJson(&'v [u8]),
    /// A container serialised to `MessagePack`.
    Msgpack(&'v [u8]),
    /// A value of types that JSON does not distinguish, as [`typed::Typed::to_bytes`] makes it.
    Typed(&'v [u8]),
    /// A pickle, made because the application allowed pickles.
    Pickle(&'v [u8]),
    /// The manifest of a value that is stored in pieces under other keys; the Python client writes and reads them.
    Manifest(&'v [u8]),
    /// Bytes under flags that the caller chose: only for [`Dialect::Flagged`].
    Flagged(u32, &'v [u8]),
}

/// A typed array: little-endian elements in C order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<'v> {
    /// The element's letter, as in Python's `array` and `NumPy`'s `dtype.char`.
    pub typecode: u8,
    /// True for a `NumPy` array, false for `array.array`.
    pub is_numpy: bool,
    /// Whether its owner keeps the elements in the byte order that is not the machine's; here they are little-endian.
    pub is_swapped: bool,
    /// Bytes of one element.
    pub itemsize: u8,
    /// Length of each dimension; one for `array.array`.
    pub shape: &'v [u64],
    /// The elements.
    pub bytes: &'v [u8],
}

/// A value read back; borrows from the reply where nothing had to be decompressed or converted.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded<'b> {
    /// Text.
    Str(Cow<'b, str>),
    /// Bytes without meaning.
    Bytes(Cow<'b, [u8]>),
    /// A whole number.
    Int(i64),
    /// A whole number outside `i64`, in decimal.
    BigInt(String),
    /// A binary64 number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A stored absence.
    None,
    /// A list of whole numbers.
    Ints(Vec<i64>),
    /// A typed array.
    Array(DecodedArray<'b>),
    /// A container in JSON, to be parsed.
    Json(Cow<'b, [u8]>),
    /// JSON text, to be handed on.
    RawJson(Cow<'b, [u8]>),
    /// A container in `MessagePack`, to be parsed.
    Msgpack(Cow<'b, [u8]>),
    /// A value of types that JSON does not distinguish, whole and within bounds; [`typed::Typed::parse`] reads it.
    Typed(Cow<'b, [u8]>),
    /// A pickle; only a codec that allows pickles returns it.
    Pickle(Cow<'b, [u8]>),
    /// Milliseconds since 1970, which spymemcached writes for a Java `Date`.
    DateMs(i64),
    /// The manifest of a value that is stored in pieces under other keys.
    Manifest(Cow<'b, [u8]>),
    /// Bytes and the flags they came under: only from [`Dialect::Flagged`].
    Flagged(u32, Cow<'b, [u8]>),
}

/// A typed array read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedArray<'b> {
    /// The element's letter.
    pub typecode: u8,
    /// True for a `NumPy` array.
    pub is_numpy: bool,
    /// Whether its owner kept the elements in the byte order that is not the machine's.
    pub is_swapped: bool,
    /// Bytes of one element.
    pub itemsize: u8,
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// Header and elements together; the elements begin at `start`.
    pub body: Cow<'b, [u8]>,
    /// Where the elements begin in `body`.
    pub start: usize,
}

impl DecodedArray<'_> {
    /// The elements, little-endian, in C order.
    pub fn bytes(&self) -> &[u8] {
        self.body.get(self.start..).unwrap_or_default()
    }
}

/// What encoding or decoding one value cost. Values that travel as they are cost nothing and are not timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueCosts {
    /// Packing or unpacking the type.
    pub serialise: Duration,
    /// Compressing or decompressing.
    pub compress: Duration,
    /// Bytes before compression.
    pub plain_bytes: usize,
    /// Bytes on the wire.
    pub wire_bytes: usize,
}

/// Why a value cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The flags or the bytes are of a kind this codec does not read.
    #[error("unreadable value: {what}, flags {flags:#x}, dialect {dialect}")]
    Unreadable {
        /// The flags of the item.
        flags: u32,
        /// The dialect it was read in.
        dialect: Dialect,
        /// What it is, and the setting that would read it where there is one.
        what: String,
    },
    /// The dialect has no form for this type.
    #[error("unwritable value: {what}, dialect {dialect}")]
    Unwritable {
        /// The dialect it was to be written in.
        dialect: Dialect,
        /// What it is.
        what: String,
    },
    /// Decompressed, the value would pass the bound.
    #[error(
        "decompression bomb: more than {limit} bytes from {wire_bytes} (decompressed_bytes_max), flags {flags:#x}"
    )]
    TooLarge {
        /// The flags of the item.
        flags: u32,
        /// Bytes on the wire.
        wire_bytes: usize,
        /// `decompressed_bytes_max`.
        limit: usize,
    },
    /// The values of one call, of which this is not the first, would pass their bound together.
    #[error(
        "the values of one call take too much memory: more than {limit} bytes and 32 for each byte on the wire, {wire_bytes} of this one; read fewer keys in a call, or raise decompressed_bytes_max, flags {flags:#x}"
    )]
    CallTooLarge {
        /// The flags of the item.
        flags: u32,
        /// Bytes on the wire.
        wire_bytes: usize,
        /// `decompressed_bytes_max`.
        limit: usize,
    },
    /// Options that contradict each other.
    #[error("codec: {0}")]
    Options(String),
}
