//! Compression methods, each bounded on the way back: a value may not grow past the caller's limit.
//!
//! Contexts of zlib and zstd are kept per thread, because creating one costs more than compressing a small value.
//! Output is limited on the way in as well: a value that does not save enough stops the compressor early.

use std::cell::RefCell;
use std::io::Read;

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use super::decompress_error::DecompressError;
use super::fastlz;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// zlib, levels 0 to 9.
    Zlib,
    /// zlib in gzip's frame, levels 0 to 9: spymemcached.
    Gzip,
    /// zstd, levels -7 to 22.
    Zstd,
    /// lz4 blocks with the plain length before them.
    Lz4,
    /// `QuickLZ`, levels 1 and 3, for comparison.
    QuickLz,
    /// `FastLZ`, level 1: php-memcached.
    FastLz,
}

/// Each method with its name and its least, usual and greatest level.
pub(super) const METHODS: [(Method, &str, [i32; 3]); 6] = [
    (Method::Zlib, "zlib", [0, 1, 9]),
    (Method::Gzip, "gzip", [0, 1, 9]),
    (Method::Zstd, "zstd", [-7, 1, 22]),
    (Method::Lz4, "lz4", [1, 1, 1]),
    (Method::QuickLz, "quicklz", [1, 1, 3]),
    (Method::FastLz, "fastlz", [1, 1, 1]),
];

impl Method {
    /// The method's name.
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|(method, ..)| *method == self).map_or("", |(_, name, _)| name)
    }

    /// The names of all methods.
    pub fn names() -> impl Iterator<Item = &'static str> {
        METHODS.iter().map(|(_, name, _)| *name)
    }

    /// The method of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        METHODS.iter().find(|(_, candidate, _)| *candidate == name).map(|(method, ..)| *method)
    }

    /// Least, usual and greatest level.
    pub fn levels(self) -> [i32; 3] {
        METHODS.iter().find(|(method, ..)| *method == self).map_or([0; 3], |(.., levels)| *levels)
    }
}

/// When and how a codec compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The method.
    pub method: Method,
    /// Its level.
    pub level: i32,
    /// Values shorter than this are left alone; below 1 KiB compression without a dictionary rarely pays.
    pub threshold_bytes: usize,
    /// Per cent of the plain length that must be saved for the compressed form to be used.
    pub min_saving_percent: u8,
}

impl Compression {
    /// `method` at its usual level, from 1 KiB, when it saves a tenth.
    pub fn new(method: Method) -> Self {
        let [_, level, _] = method.levels();
        Self { method, level, threshold_bytes: 1024, min_saving_percent: 10 }
    }

    /// The compressed form of `plain`, or `None` when it is too short or saves too little.
    pub(super) fn compress_if_worthwhile(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let packed_bytes_max = self.packed_bytes_max(plain.len())?;
        compress(self.method, self.level, plain, packed_bytes_max)
    }

    /// Whether a sample of `plain` promises a shorter form than one of `packed_bytes`, which is not short itself.
    pub(super) fn would_be_shorter(&self, packed_bytes: usize, plain: &[u8]) -> bool {
        if packed_bytes * 4 < plain.len() {
            return false;
        }
        let sample = plain.get(..SAMPLE_BYTES).unwrap_or(plain);
        let expected_bytes =
            packed_bytes as u128 * sample.len() as u128 / plain.len().max(1) as u128;
        compress(self.method, self.level, sample, expected_bytes as usize).is_some()
    }

    /// How long the compressed form of this many bytes may be; `None`: they are left alone.
    pub(super) fn packed_bytes_max(&self, plain_bytes: usize) -> Option<usize> {
        if plain_bytes < self.threshold_bytes.max(1) {
            return None;
        }
        let min_saving_bytes =
            plain_bytes as u128 * u128::from(self.min_saving_percent.min(100)) / 100;
        Some(plain_bytes - min_saving_bytes as usize)
    }
}

/// Length of the sample that is compressed to estimate whether compressing all is worthwhile.
const SAMPLE_BYTES: usize = 16 << 10;

/// `plain` compressed into at most `packed_bytes_max` bytes.
fn compress(method: Method, level: i32, plain: &[u8], packed_bytes_max: usize) -> Option<Vec<u8>> {
    match method {
        Method::Zlib | Method::Gzip => {
            deflate(method == Method::Gzip, level, plain, packed_bytes_max)
        }
        Method::Zstd => compress_zstd(level, plain, packed_bytes_max),
        Method::Lz4 => {
            keep_if_short_enough(lz4_flex::block::compress_prepend_size(plain), packed_bytes_max)
        }
        Method::QuickLz => {
            use quicklz::CompressionLevel::{Lvl1, Lvl3};
            keep_if_short_enough(
                quicklz::compress(plain, if level == 3 { Lvl3 } else { Lvl1 }),
                packed_bytes_max,
            )
        }
        Method::FastLz => keep_if_short_enough(fastlz::compress(plain), packed_bytes_max),
    }
}

fn keep_if_short_enough(packed: Vec<u8>, packed_bytes_max: usize) -> Option<Vec<u8>> {
    (packed.len() <= packed_bytes_max).then_some(packed)
}

/// Level, gzip or not, and the compressor that was made for them.
type Deflater = (i32, bool, Compress);

thread_local! {
    static DEFLATER: RefCell<Option<Deflater>> = const { RefCell::new(None) };
    static ZSTD_COMPRESSOR: RefCell<Option<(i32, zstd::bulk::Compressor<'static>)>> = const { RefCell::new(None) };
    static ZSTD_DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The deflate window that every zlib and gzip reader has, in bits.
const WINDOW_BITS: u8 = 15;

fn deflate(is_gzip: bool, level: i32, plain: &[u8], packed_bytes_max: usize) -> Option<Vec<u8>> {
    DEFLATER.with_borrow_mut(|cached| {
        if cached.as_ref().is_none_or(|(cached_level, cached_is_gzip, _)| {
            (*cached_level, *cached_is_gzip) != (level, is_gzip)
        }) {
            let deflate_level = flate2::Compression::new(level.clamp(0, 9) as u32);
            let new_deflater = if is_gzip {
                Compress::new_gzip(deflate_level, WINDOW_BITS)
            } else {
                Compress::new(deflate_level, true)
            };
            *cached = Some((level, is_gzip, new_deflater));
        }
        let (_, _, deflater) = cached.as_mut()?;
        deflater.reset();
        let mut packed = Vec::with_capacity(packed_bytes_max);
        let status = deflater.compress_vec(plain, &mut packed, FlushCompress::Finish).ok()?;
        (status == Status::StreamEnd).then_some(packed)
    })
}

fn compress_zstd(level: i32, plain: &[u8], packed_bytes_max: usize) -> Option<Vec<u8>> {
    ZSTD_COMPRESSOR.with_borrow_mut(|cached| {
        if cached.as_ref().is_none_or(|(cached_level, _)| *cached_level != level) {
            *cached = Some((level, zstd::bulk::Compressor::new(level).ok()?));
        }
        let (_, compressor) = cached.as_mut()?;
        let mut packed = Vec::with_capacity(packed_bytes_max);
        compressor.compress_to_buffer(plain, &mut packed).ok()?;
        Some(packed)
    })
}

/// The plain form of `packed`, at most `bytes_max` long.
pub(super) fn decompress(
    method: Method,
    packed: &[u8],
    bytes_max: usize,
) -> Result<Vec<u8>, DecompressError> {
    match method {
        Method::Zlib => inflate(Decompress::new(true), packed, bytes_max),
        Method::Gzip => inflate(Decompress::new_gzip(WINDOW_BITS), packed, bytes_max),
        Method::Zstd => decompress_zstd(packed, bytes_max),
        Method::Lz4 => decompress_lz4(packed, bytes_max),
        Method::QuickLz => decompress_quicklz(packed, bytes_max),
        Method::FastLz => fastlz::decompress(packed, bytes_max),
    }
}

/// The plain form of a stream that followed its plain length, `plain_bytes`.
pub(super) fn decompress_sized(
    method: Method,
    packed: &[u8],
    plain_bytes: usize,
    bytes_max: usize,
) -> Result<Vec<u8>, DecompressError> {
    if plain_bytes > bytes_max {
        return Err(DecompressError::TooLarge);
    }
    let plain = decompress(method, packed, plain_bytes).map_err(|_| DecompressError::Corrupt)?;
    if plain.len() == plain_bytes { Ok(plain) } else { Err(DecompressError::Corrupt) }
}

/// First buffer for an inflated value, as a multiple of its packed length: what text usually needs.
const INFLATE_RATIO: usize = 4;

fn inflate(
    mut inflater: Decompress,
    packed: &[u8],
    bytes_max: usize,
) -> Result<Vec<u8>, DecompressError> {
    let mut plain = Vec::new();
    let mut output_bytes =
        packed.len().saturating_mul(INFLATE_RATIO).clamp(256, 1 << 24).min(bytes_max);
    loop {
        // One byte more than the bound, so that a stream that fills it can end there.
        plain.reserve_exact(output_bytes + 1);
        let unread = packed.get(inflater.total_in() as usize..).unwrap_or_default();
        let bytes_before = plain.len();
        let status = inflater
            .decompress_vec(unread, &mut plain, FlushDecompress::None)
            .map_err(|_| DecompressError::Corrupt)?;
        if plain.len() > bytes_max {
            return Err(DecompressError::TooLarge);
        }
        if status == Status::StreamEnd {
            let is_fully_read = inflater.total_in() as usize == packed.len();
            return if is_fully_read { Ok(plain) } else { Err(DecompressError::Corrupt) };
        }
        if plain.len() == bytes_before && plain.capacity() > bytes_before {
            return Err(DecompressError::Corrupt);
        }
        output_bytes = plain.len().min(bytes_max - plain.len());
    }
}

/// Shortest block of a zstd frame (RFC 8878, 3.1.1.2): its header, and one byte that is repeated.
const ZSTD_BLOCK_BYTES_MIN: usize = 4;
/// Most plain bytes of a block.
const ZSTD_BLOCK_PLAIN_BYTES_MAX: u64 = 128 << 10;

fn decompress_zstd(packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, DecompressError> {
    let plain_bytes =
        zstd::zstd_safe::get_frame_content_size(packed).map_err(|_| DecompressError::Corrupt)?;
    let Some(plain_bytes) = plain_bytes else {
        return decompress_unsized_zstd(packed, bytes_max);
    };
    if plain_bytes > bytes_max as u64 {
        return Err(DecompressError::TooLarge);
    }
    let blocks_max = (packed.len() / ZSTD_BLOCK_BYTES_MIN) as u64 + 1;
    if plain_bytes > blocks_max * ZSTD_BLOCK_PLAIN_BYTES_MAX {
        return Err(DecompressError::Corrupt);
    }
    ZSTD_DECOMPRESSOR.with_borrow_mut(|cached| {
        if cached.is_none() {
            *cached = zstd::bulk::Decompressor::new().ok();
        }
        let mut plain = Vec::with_capacity(plain_bytes as usize);
        let decompressor = cached.as_mut().ok_or(DecompressError::Corrupt)?;
        decompressor
            .decompress_to_buffer(packed, &mut plain)
            .map_err(|_| DecompressError::Corrupt)?;
        Ok(plain)
    })
}

/// A frame without its length, as streaming writers make.
fn decompress_unsized_zstd(packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, DecompressError> {
    let mut decoder =
        zstd::stream::read::Decoder::with_buffer(packed).map_err(|_| DecompressError::Corrupt)?;
    // A window the size of level 19's, or the bound if that is more: a frame cannot allocate gigabytes.
    let window_log = bytes_max.max(1).ilog2().clamp(23, 27);
    decoder.window_log_max(window_log).map_err(|_| DecompressError::Corrupt)?;
    let mut plain = Vec::new();
    decoder
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|_| DecompressError::Corrupt)?;
    if plain.len() > bytes_max { Err(DecompressError::TooLarge) } else { Ok(plain) }
}

/// An lz4 sequence byte stands for at most 255 bytes of match.
const LZ4_RATIO_MAX: usize = 255;

fn decompress_lz4(packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, DecompressError> {
    let (prefix, block) = packed.split_first_chunk::<4>().ok_or(DecompressError::Corrupt)?;
    let plain_bytes = u32::from_le_bytes(*prefix) as usize;
    if plain_bytes > bytes_max {
        return Err(DecompressError::TooLarge);
    }
    if plain_bytes > block.len().saturating_mul(LZ4_RATIO_MAX) {
        return Err(DecompressError::Corrupt);
    }
    let plain =
        lz4_flex::block::decompress(block, plain_bytes).map_err(|_| DecompressError::Corrupt)?;
    if plain.len() == plain_bytes { Ok(plain) } else { Err(DecompressError::Corrupt) }
}

fn decompress_quicklz(mut packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, DecompressError> {
    let limit = u32::try_from(bytes_max).unwrap_or(u32::MAX);
    let plain = quicklz::decompress(&mut packed, limit).map_err(|error| match error {
        quicklz::Error::SizeLimitExceeded { .. } => DecompressError::TooLarge,
        _ => DecompressError::Corrupt,
    })?;
    if packed.is_empty() { Ok(plain) } else { Err(DecompressError::Corrupt) }
}
