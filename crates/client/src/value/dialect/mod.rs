//! Dialects: the flags and forms of the client that a codec follows.
//!
//! Each dialect is a [`DialectFormat`] in a file of its own family: how it writes a type, how it marks compression, how
//! it reads both back. Compressing itself is the codec's business. The facts come from each client's own source and
//! were checked against the running clients (`make dialects`).

mod dalli;
mod glasscache;
mod pecl;
mod php;
mod python;
mod raw;
mod spymemcached;

pub(crate) use glasscache::MANIFEST_FLAGS;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::compress::Method;
use super::{Array, Decoded, ValueError, ValueRef};

/// The client whose flags are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// This client's own: every type, high flag bits that collide with no other client's.
    #[default]
    Glasscache,
    /// pymemcache with its pickle or compressed serde.
    Pymemcache,
    /// pylibmc.
    Pylibmc,
    /// python-memcached.
    PythonMemcached,
    /// python-binary-memcached, and meta-memcache with its mixed and zstd serialisers.
    Bmemcached,
    /// PHP's `Memcached` class.
    PhpMemcached,
    /// PHP's `Memcache` class.
    PeclMemcache,
    /// Ruby's Dalli.
    Dalli,
    /// spymemcached and xmemcached.
    Spymemcached,
    /// Flags and bytes as the caller gives them, for a caller with a serialiser of another client.
    Flagged,
    /// Bytes as they are: emcache, aiomcache, gomemcache, pymemcache without serde.
    Raw,
}

/// Each dialect with its name.
pub const DIALECTS: [(Dialect, &str); 11] = [
    (Dialect::Glasscache, "own"),
    (Dialect::Pymemcache, "pymemcache"),
    (Dialect::Pylibmc, "pylibmc"),
    (Dialect::PythonMemcached, "python-memcached"),
    (Dialect::Bmemcached, "bmemcached"),
    (Dialect::PhpMemcached, "php-memcached"),
    (Dialect::PeclMemcache, "pecl-memcache"),
    (Dialect::Dalli, "dalli"),
    (Dialect::Spymemcached, "spymemcached"),
    (Dialect::Flagged, "flagged"),
    (Dialect::Raw, "raw"),
];

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            DIALECTS.iter().find(|(candidate, _)| candidate == self).map_or("", |(_, name)| name),
        )
    }
}

impl FromStr for Dialect {
    type Err = ValueError;

    fn from_str(name: &str) -> Result<Self, ValueError> {
        let entry = DIALECTS.iter().find(|(_, candidate)| *candidate == name);
        entry.map(|(dialect, _)| *dialect).ok_or_else(|| {
            let names: Vec<&str> = DIALECTS.iter().map(|(_, name)| *name).collect();
            ValueError::Options(format!("unknown dialect {name:?}: one of {}", names.join(", ")))
        })
    }
}

impl Dialect {
    /// The rules of this dialect.
    pub(super) fn dialect_format(self) -> &'static dyn DialectFormat {
        match self {
            Self::Glasscache => &glasscache::GLASSCACHE,
            Self::Pymemcache => &python::PYMEMCACHE,
            Self::Pylibmc => &python::PYLIBMC,
            Self::PythonMemcached => &python::PYTHON_MEMCACHED,
            Self::Bmemcached => &python::BMEMCACHED,
            Self::PhpMemcached => &php::Php,
            Self::PeclMemcache => &pecl::Pecl,
            Self::Dalli => &dalli::Dalli,
            Self::Spymemcached => &spymemcached::Spymemcached,
            Self::Flagged => &raw::Flagged,
            Self::Raw => &raw::Raw,
        }
    }

    /// The own dialect for a cache that still holds another client's values.
    pub(super) fn migration_format() -> &'static dyn DialectFormat {
        &glasscache::MIGRATING
    }

    /// True when values of `flags` are read without unpacking them or calling another reader.
    pub(super) fn is_cheap_to_decode(flags: u32) -> bool {
        glasscache::is_cheap_to_decode(flags)
    }

    /// Whether values of these flags take more memory than their plain bytes, in the own dialect.
    pub(super) fn is_expanding(flags: u32) -> bool {
        glasscache::is_expanding(flags)
    }

    /// Whether flags are those of a boolean of the own dialect.
    pub(super) fn is_bool(flags: u32) -> bool {
        glasscache::is_bool(flags)
    }

    /// The flags of a value that is stored with its compute info, in the own dialect.
    pub(crate) const COMPUTE_INFO_FLAGS: u32 = glasscache::COMPUTE_INFO_FLAGS;

    /// True when `flags` were written by this client's own dialect, whatever the codec's.
    pub(super) fn is_glasscache(flags: u32) -> bool {
        glasscache::is_glasscache(flags)
    }
}

/// How one dialect writes and reads.
pub(super) trait DialectFormat: Sync {
    /// Writes a value: its type flags, and its bytes as they are or appended to `scratch`.
    fn write<'v>(
        &self,
        value: &ValueRef<'v>,
        scratch: &mut Vec<u8>,
    ) -> Result<WrittenValue<'v>, ValueRefusal>;

    /// Appends the form of an array that is packed to the bits of its numbers, and returns its flags; `None`
    /// where there is none, or none of at most `packed_bytes_max` bytes.
    fn pack_array(
        &self,
        _array: &Array<'_>,
        _packed_bytes_max: usize,
        _scratch: &mut Vec<u8>,
    ) -> Option<u32> {
        None
    }

    /// How a compressed body is marked and framed, `None` when this dialect has no mark for the method.
    fn compression_for_method(&self, _method: Method) -> Option<(u32, CompressionFormat)> {
        None
    }

    /// How the body under these flags is compressed, if it is.
    fn compression_of_flags(&self, _flags: u32) -> Option<CompressionFormat> {
        None
    }

    /// Reads a plain body under its flags.
    fn read<'b>(
        &self,
        flags: u32,
        body: Cow<'b, [u8]>,
        limits: ReadLimits,
    ) -> Result<Decoded<'b>, ValueRefusal>;
}

/// Limits for reading a body.
#[derive(Clone, Copy)]
pub(super) struct ReadLimits {
    /// Whether pickles are returned.
    pub(super) pickle: bool,
    /// Bytes that an expanding form may take.
    pub(super) bytes_max: usize,
}

/// A value's flags and bytes before compression.
pub(super) struct WrittenValue<'v> {
    pub(super) flags: u32,
    pub(super) body: Body<'v>,
    /// False for forms that are dense already, on which a compressor would only spend time.
    pub(super) is_compressible: bool,
}

/// Where a value's bytes are.
pub(super) enum Body<'v> {
    /// The value's own.
    Unchanged(&'v [u8]),
    /// Appended to the scratch buffer.
    Scratch,
}

impl<'v> WrittenValue<'v> {
    fn unchanged(flags: u32, bytes: &'v [u8]) -> Self {
        Self { flags, body: Body::Unchanged(bytes), is_compressible: true }
    }

    fn in_scratch(flags: u32) -> Self {
        Self { flags, body: Body::Scratch, is_compressible: true }
    }

    fn text(flags: u32, text: &str, scratch: &mut Vec<u8>) -> Self {
        scratch.extend_from_slice(text.as_bytes());
        Self::in_scratch(flags)
    }
}

/// How a body is compressed and framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompressionFormat {
    pub(super) method: Method,
    pub(super) frame: Frame,
}

impl CompressionFormat {
    fn without_frame(method: Method) -> Self {
        Self { method, frame: Frame::Bare }
    }
}

/// What a compressed stream is framed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Nothing.
    Bare,
    /// The plain length before it, 32 bits, little-endian: php-memcached.
    Length,
    /// zstd without its four magic bytes: meta-memcache.
    Magicless,
}

/// Why a form does not write or read something; the codec adds flags and dialect.
pub(super) struct ValueRefusal(pub(super) Cow<'static, str>);

impl ValueRefusal {
    pub(super) fn new(problem: &'static str) -> Self {
        Self(Cow::Borrowed(problem))
    }
}

fn refuse<T>(problem: &'static str) -> Result<T, ValueRefusal> {
    Err(ValueRefusal::new(problem))
}

/// The name of a value's type in a refusal to write it.
fn unsupported_type(value: &ValueRef<'_>) -> ValueRefusal {
    ValueRefusal::new(match value {
        ValueRef::Str(_) => "text",
        ValueRef::Bytes(_) => "bytes",
        ValueRef::Int(_) | ValueRef::BigInt(_) => "a whole number of this size",
        ValueRef::Float(_) => "a float",
        ValueRef::Bool(_) => "a boolean",
        ValueRef::None => "None",
        ValueRef::Ints(_) => "a packed list of whole numbers",
        ValueRef::Array(_) => "a typed array",
        ValueRef::Json(_) => "a container in JSON",
        ValueRef::RawJson(_) => "raw JSON",
        ValueRef::Msgpack(_) => "a container in MessagePack",
        ValueRef::Typed(_) => "a value of types that JSON does not have",
        ValueRef::Pickle(_) => "a pickle",
        ValueRef::Manifest(_) => "a value in pieces (split=True)",
        ValueRef::Flagged(..) => "bytes under flags of the caller's",
    })
}

/// The body as text.
fn decode_text(body: Cow<'_, [u8]>) -> Result<Decoded<'_>, ValueRefusal> {
    let text = match body {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    text.map(Decoded::Str).ok_or(ValueRefusal::new("text that is not UTF-8"))
}

/// The body as a whole number in decimal. memcached's `decr` leaves blanks after a number that got shorter.
fn decode_decimal<'b>(body: &[u8]) -> Result<Decoded<'b>, ValueRefusal> {
    let text = std::str::from_utf8(body).unwrap_or_default().trim_end_matches(' ');
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return refuse("a whole number that is not decimal");
    }
    Ok(text.parse().map_or_else(|_| Decoded::BigInt(text.to_owned()), Decoded::Int))
}
