//! The codec: a dialect, when to compress, what to refuse, and what each value cost.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::compress::{self, Compression};
use super::decompress_error::DecompressError;
use super::dialect::{
    Body, CompressionFormat, Dialect, DialectFormat, Frame, ReadLimits, ValueRefusal, WrittenValue,
};
use super::{
    Array, ComputeInfo, Decoded, Method, UnpackBudget, ValueCosts, ValueError, ValueRef, typed,
};

/// Settings of a codec; [`Default`] is what a new cache should use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodecOptions {
    /// The dialect that is written, and read.
    pub dialect: Dialect,
    /// When and how values are compressed; `None` never.
    pub compression: Option<Compression>,
    /// Bound of a value after decompression or unpacking.
    pub decompressed_bytes_max: usize,
    /// Whether pickles are accepted, which can run code: only for a cache without other writers.
    pub pickle: bool,
    /// Also reads this dialect, for a cache filled by another client; `dialect` must be [`Dialect::Glasscache`].
    pub migrate_from: Option<Dialect>,
}

/// Default of [`CodecOptions::decompressed_bytes_max`]: sixty-four times the largest item that servers take by default.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

impl Default for CodecOptions {
    fn default() -> Self {
        Self::of(Dialect::Glasscache)
    }
}

impl CodecOptions {
    /// The options of a dialect: the own one compresses by zstd, another only on request, because its readers may not.
    pub fn of(dialect: Dialect) -> Self {
        Self {
            dialect,
            compression: (dialect == Dialect::Glasscache).then(|| Compression::new(Method::Zstd)),
            decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
            pickle: false,
            migrate_from: None,
        }
    }
}

/// Encodes values as bytes and flags, and decodes them. Cheap to copy, without state.
#[derive(Clone, Copy)]
pub struct Codec {
    options: CodecOptions,
    writer: &'static dyn DialectFormat,
    /// When and how values are compressed, with the flags and the form of a compressed body in the dialect.
    active_compression: Option<(Compression, u32, CompressionFormat)>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Codec").field(&self.options).finish()
    }
}

impl Default for Codec {
    fn default() -> Self {
        Self {
            options: CodecOptions::default(),
            writer: Dialect::Glasscache.dialect_format(),
            active_compression: None,
        }
        .with_compression(CodecOptions::default().compression)
    }
}

/// An encoded value: its flags, its bytes and what they cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded<'v> {
    /// The client flags of the item.
    pub flags: u32,
    /// The bytes: the value's own where it travels as it is.
    pub bytes: Cow<'v, [u8]>,
    /// What encoding took.
    pub costs: ValueCosts,
}

impl Codec {
    /// A codec of these options, or the error that names which of them contradict each other.
    pub fn new(options: CodecOptions) -> Result<Self, ValueError> {
        let refuse_options = |message: String| Err(ValueError::Options(message));
        let writer = match options.migrate_from {
            None => options.dialect.dialect_format(),
            Some(_) if options.dialect == Dialect::Glasscache => Dialect::migration_format(),
            Some(source_dialect) => {
                return refuse_options(format!(
                    "migrating from {source_dialect} writes the own dialect, not {}",
                    options.dialect
                ));
            }
        };
        let codec = Self { options, writer, active_compression: None }
            .with_compression(options.compression);
        let Some(compression) = options.compression else {
            return Ok(codec);
        };
        let (method, [level_min, _, level_max]) = (compression.method, compression.method.levels());
        if codec.active_compression.is_none() {
            return refuse_options(format!(
                "dialect {} has no mark for {}",
                options.dialect,
                method.name()
            ));
        }
        let (level, method_name) = (compression.level, method.name());
        if method == Method::QuickLz && level == 2 {
            return refuse_options(format!("level 2 of {method_name}: 1 or 3"));
        }
        if !(level_min..=level_max).contains(&level) {
            return refuse_options(format!(
                "level {level} of {method_name}: {level_min} to {level_max}"
            ));
        }
        Ok(codec)
    }

    fn with_compression(mut self, compression: Option<Compression>) -> Self {
        self.active_compression = compression.and_then(|compression| {
            let (flags, compression_format) =
                self.writer.compression_for_method(compression.method)?;
            Some((compression, flags, compression_format))
        });
        self
    }

    /// The options this codec was made of.
    pub fn options(&self) -> &CodecOptions {
        &self.options
    }

    /// Whether values of these flags are raw bytes, which can be received directly into their target.
    pub fn is_raw(&self, flags: u32) -> bool {
        let reader = self.dialect_of(flags).dialect_format();
        // Unpacking nothing would be an error, which takes as long as a short value.
        reader.compression_of_flags(flags).is_none()
            && matches!(self.decode(flags, &[]), Ok((Decoded::Bytes(Cow::Borrowed(_)), _)))
    }

    /// The flags of text whose bytes are all that is stored, in the own dialect.
    pub fn plain_text_flags(&self) -> Option<u32> {
        let is_glasscache = self.options.dialect == Dialect::Glasscache;
        let unchanged = self.encode_unchanged(&ValueRef::Str("")).filter(|_| is_glasscache);
        unchanged.map(|(flags, _)| flags)
    }

    /// Whether the dialect tells types apart by their flags, so that bytes cannot be joined to any value.
    pub fn has_types(&self) -> bool {
        !matches!(self.options.dialect, Dialect::Raw | Dialect::Flagged)
    }

    /// Whether a value of these flags is still one with `bytes` before or after it.
    pub fn can_extend(&self, flags: u32, bytes: &[u8]) -> bool {
        let reader = self.dialect_of(flags).dialect_format();
        if reader.compression_of_flags(flags).is_some() {
            return false;
        }
        let limits = ReadLimits { pickle: false, bytes_max: bytes.len() };
        match reader.read(flags, Cow::Borrowed(bytes), limits) {
            Ok(Decoded::Str(_) | Decoded::Bytes(_) | Decoded::RawJson(_)) => true,
            Ok(Decoded::Int(_) | Decoded::BigInt(_)) => {
                !Dialect::is_bool(flags) && bytes.iter().all(u8::is_ascii_digit)
            }
            _ => false,
        }
    }

    /// Whether decoding a short value of these flags takes less time than reading the clock.
    pub fn is_cheap_to_decode(&self, flags: u32) -> bool {
        Dialect::is_cheap_to_decode(flags)
    }

    /// Flags and bytes of a value that travels as it is; `None` when it must be converted or may be compressed.
    pub fn encode_unchanged<'v>(&self, value: &ValueRef<'v>) -> Option<(u32, &'v [u8])> {
        let bytes = match value {
            ValueRef::Str(text) => text.as_bytes(),
            ValueRef::Bytes(bytes) | ValueRef::RawJson(bytes) => bytes,
            _ => return None,
        };
        if self
            .active_compression
            .is_some_and(|(compression, ..)| bytes.len() >= compression.threshold_bytes)
        {
            return None;
        }
        let mut scratch = Vec::new();
        match self.writer.write(value, &mut scratch).ok()? {
            WrittenValue { flags, body: Body::Unchanged(bytes), .. } => Some((flags, bytes)),
            WrittenValue { body: Body::Scratch, .. } => None,
        }
    }

    /// The flags and bytes of `value`, borrowed from it where nothing had to be done.
    pub fn encode<'v>(&self, value: &ValueRef<'v>) -> Result<Encoded<'v>, ValueError> {
        if matches!(value, ValueRef::Pickle(_)) && !self.options.pickle {
            return Err(
                self.unwritable_error(&ValueRefusal::new("a pickle (allow it with pickle=True)"))
            );
        }
        if let ValueRef::Ints(numbers) = value {
            self.check_unpacked_length(numbers)?;
        }
        if let ValueRef::Typed(bytes) = value
            && !typed::is_valid(bytes, self.options.decompressed_bytes_max)
        {
            let items_max = self.options.decompressed_bytes_max / typed::BYTES_PER_VALUE;
            return Err(self.unwritable_error(&ValueRefusal(
                format!("a typed value that is malformed or has more than {items_max} items (decompressed_bytes_max)").into(),
            )));
        }
        let mut scratch = Vec::new();
        let mut costs = ValueCosts::default();
        if let ValueRef::Array(array) = value
            && let Some(flags) = self.pack_array(array, &mut scratch, &mut costs)
        {
            let bytes = Cow::Owned(scratch);
            return Ok(Encoded { flags, bytes, costs });
        }
        let written = match value {
            ValueRef::Ints(_) | ValueRef::Array(_) => {
                add_elapsed(&mut costs.serialise, || self.writer.write(value, &mut scratch))
            }
            _ => self.writer.write(value, &mut scratch),
        };
        let written = written.map_err(|refusal| self.unwritable_error(&refusal))?;
        let plain = match written.body {
            Body::Unchanged(bytes) => Cow::Borrowed(bytes),
            Body::Scratch => Cow::Owned(scratch),
        };
        costs.plain_bytes = plain.len();
        let packed = self.compress_body(&plain, written.is_compressible, &mut costs);
        let (flags, bytes) = match packed {
            Some((compression_flags, packed_body)) => {
                (written.flags | compression_flags, Cow::Owned(packed_body))
            }
            None => (written.flags, plain),
        };
        costs.wire_bytes = bytes.len();
        Ok(Encoded { flags, bytes, costs })
    }

    /// Refuses a list that is longer unpacked than a reader accepts.
    fn check_unpacked_length(&self, numbers: &[i64]) -> Result<(), ValueError> {
        let (unpacked_bytes, bytes_max) =
            (size_of_val(numbers), self.options.decompressed_bytes_max);
        if unpacked_bytes <= bytes_max {
            return Ok(());
        }
        let number_count = numbers.len();
        Err(self.unwritable_error(&ValueRefusal(
            format!("{number_count} whole numbers, {unpacked_bytes} bytes unpacked, limit {bytes_max} (decompressed_bytes_max)").into(),
        )))
    }

    /// Packs an array of whole numbers by their bits, if that saves as much as compression must.
    fn pack_array(
        &self,
        array: &Array<'_>,
        scratch: &mut Vec<u8>,
        costs: &mut ValueCosts,
    ) -> Option<u32> {
        let (compression, ..) = self.active_compression?;
        if array.bytes.len() > self.options.decompressed_bytes_max {
            return None;
        }
        let packed_bytes_max = compression.packed_bytes_max(array.bytes.len())?;
        let flags = add_elapsed(&mut costs.compress, || {
            self.writer.pack_array(array, packed_bytes_max, scratch)
        })?;
        if add_elapsed(&mut costs.compress, || {
            compression.would_be_shorter(scratch.len(), array.bytes)
        }) {
            scratch.clear();
            return None;
        }
        costs.plain_bytes = array.bytes.len();
        costs.wire_bytes = scratch.len();
        Some(flags)
    }

    fn compress_body(
        &self,
        plain: &[u8],
        is_compressible: bool,
        costs: &mut ValueCosts,
    ) -> Option<(u32, Vec<u8>)> {
        let (compression, compression_flags, compression_format) =
            self.active_compression.filter(|_| is_compressible)?;
        // A value above the bound could not be read again: it goes as it is, up to the longest that is sent.
        let bytes_max = self.options.decompressed_bytes_max;
        if !(compression.threshold_bytes..=bytes_max).contains(&plain.len()) {
            return None;
        }
        let packed =
            add_elapsed(&mut costs.compress, || compression.compress_if_worthwhile(plain))?;
        Some((compression_flags, add_frame(compression_format.frame, plain.len(), packed)?))
    }

    /// Flags and bytes of an encoded value with its compute info; `None` in a dialect that has no form for it.
    pub fn with_compute_info(
        &self,
        compute_info: ComputeInfo,
        flags: u32,
        bytes: &[u8],
    ) -> Option<(u32, Vec<u8>)> {
        let is_glasscache = self.options.dialect == Dialect::Glasscache;
        is_glasscache.then(|| (Dialect::COMPUTE_INFO_FLAGS, compute_info.to_body(flags, bytes)))
    }

    /// The compute info that an item was stored with, the flags of its value and its bytes.
    pub fn compute_info<'b>(
        &self,
        flags: u32,
        bytes: &'b [u8],
    ) -> Option<(ComputeInfo, u32, &'b [u8])> {
        let has_compute_info =
            flags == Dialect::COMPUTE_INFO_FLAGS && self.dialect_of(flags) == Dialect::Glasscache;
        has_compute_info.then(|| ComputeInfo::parse(bytes)).flatten()
    }

    /// The value of an item; borrows from `bytes` where nothing had to be converted.
    pub fn decode<'b>(
        &self,
        flags: u32,
        bytes: &'b [u8],
    ) -> Result<(Decoded<'b>, ValueCosts), ValueError> {
        self.decode_within(flags, bytes, self.options.decompressed_bytes_max)
    }

    /// As [`Self::decode`], of one of the values of a call, which are bounded together.
    pub fn decode_of_call<'b>(
        &self,
        flags: u32,
        bytes: &'b [u8],
        budget: &mut UnpackBudget,
    ) -> Result<(Decoded<'b>, ValueCosts), ValueError> {
        let value_bytes_max = self.options.decompressed_bytes_max;
        let bytes_max = budget.bytes_max(bytes.len(), value_bytes_max);
        let (decoded, costs) = match self.decode_within(flags, bytes, bytes_max) {
            Err(error) if bytes_max < value_bytes_max && is_expanding(flags, &error) => {
                let limit = value_bytes_max;
                return Err(ValueError::CallTooLarge { flags, wire_bytes: bytes.len(), limit });
            }
            result => result?,
        };
        budget.add(bytes.len(), unpacked_bytes(&decoded, &costs));
        Ok((decoded, costs))
    }

    fn decode_within<'b>(
        &self,
        flags: u32,
        bytes: &'b [u8],
        bytes_max: usize,
    ) -> Result<(Decoded<'b>, ValueCosts), ValueError> {
        let stored_bytes = bytes.len();
        let (flags, bytes) = match self.compute_info(flags, bytes) {
            Some((_, flags, bytes)) => (flags, bytes),
            None => (flags, bytes),
        };
        let (decoded, costs) = self.decode_value(flags, bytes, bytes_max)?;
        Ok((decoded, ValueCosts { wire_bytes: stored_bytes, ..costs }))
    }

    /// The value of flags and bytes without compute info.
    fn decode_value<'b>(
        &self,
        flags: u32,
        bytes: &'b [u8],
        bytes_max: usize,
    ) -> Result<(Decoded<'b>, ValueCosts), ValueError> {
        let dialect = self.dialect_of(flags);
        let reader = dialect.dialect_format();
        let mut costs = ValueCosts {
            wire_bytes: bytes.len(),
            plain_bytes: bytes.len(),
            ..ValueCosts::default()
        };
        let unreadable =
            |problem: &str| ValueError::Unreadable { flags, dialect, what: problem.to_owned() };
        let plain = match reader.compression_of_flags(flags) {
            None => Cow::Borrowed(bytes),
            Some(compression_format) => {
                let plain = add_elapsed(&mut costs.compress, || {
                    remove_frame(compression_format, bytes, bytes_max)
                });
                Cow::Owned(plain.map_err(|error| match error {
                    DecompressError::TooLarge => {
                        ValueError::TooLarge { flags, wire_bytes: bytes.len(), limit: bytes_max }
                    }
                    DecompressError::Corrupt => unreadable(&format!(
                        "not a whole {} stream",
                        compression_format.method.name()
                    )),
                })?)
            }
        };
        costs.plain_bytes = plain.len();
        let limits = ReadLimits { pickle: self.options.pickle, bytes_max };
        let decoded = match plain.len() {
            0..TIMED_BYTES_MIN => reader.read(flags, plain, limits),
            _ => add_elapsed(&mut costs.serialise, || reader.read(flags, plain, limits)),
        };
        Ok((decoded.map_err(|refusal| unreadable(&refusal.0))?, costs))
    }

    /// The owner of these flags: while migrating, our mark separates our values from the other client's.
    fn dialect_of(&self, flags: u32) -> Dialect {
        self.options
            .migrate_from
            .filter(|_| !Dialect::is_glasscache(flags))
            .unwrap_or(self.options.dialect)
    }

    fn unwritable_error(&self, refusal: &ValueRefusal) -> ValueError {
        ValueError::Unwritable { dialect: self.options.dialect, what: refusal.0.to_string() }
    }
}

/// Whether an error may mean that a value takes too much memory: it is compressed, or of a form that says so by a refusal.
fn is_expanding(flags: u32, error: &ValueError) -> bool {
    matches!(error, ValueError::TooLarge { .. }) || Dialect::is_expanding(flags)
}

/// The bytes of a value in memory, as far as they are bounded.
fn unpacked_bytes(decoded: &Decoded<'_>, costs: &ValueCosts) -> usize {
    match decoded {
        Decoded::Ints(numbers) => size_of_val(numbers.as_slice()),
        Decoded::Array(array) => array.body.len(),
        _ => costs.plain_bytes,
    }
}

/// Values shorter than this are read faster than the clock is.
const TIMED_BYTES_MIN: usize = 512;

fn add_elapsed<T>(total_time: &mut Duration, work: impl FnOnce() -> T) -> T {
    let began_at = Instant::now();
    let result = work();
    *total_time += began_at.elapsed();
    result
}

/// The magic bytes of a zstd frame, which meta-memcache leaves out.
const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

fn add_frame(frame: Frame, plain_bytes: usize, packed: Vec<u8>) -> Option<Vec<u8>> {
    match frame {
        Frame::Bare => Some(packed),
        Frame::Length => {
            Some([&u32::try_from(plain_bytes).ok()?.to_le_bytes(), &packed[..]].concat())
        }
        Frame::Magicless => packed.strip_prefix(&ZSTD_MAGIC).map(<[u8]>::to_vec),
    }
}

fn remove_frame(
    compression_format: CompressionFormat,
    bytes: &[u8],
    bytes_max: usize,
) -> Result<Vec<u8>, DecompressError> {
    match compression_format.frame {
        Frame::Bare => compress::decompress(compression_format.method, bytes, bytes_max),
        Frame::Length => {
            let (length, stream) =
                bytes.split_first_chunk::<4>().ok_or(DecompressError::Corrupt)?;
            let plain_bytes = u32::from_le_bytes(*length) as usize;
            compress::decompress_sized(compression_format.method, stream, plain_bytes, bytes_max)
        }
        Frame::Magicless => compress::decompress(
            compression_format.method,
            &[&ZSTD_MAGIC, bytes].concat(),
            bytes_max,
        ),
    }
}
