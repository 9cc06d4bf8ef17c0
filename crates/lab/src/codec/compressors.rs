//! The compressors that are compared: those of our client, and zstd with a dictionary.
//!
//! A dictionary is trained on some values and evaluated on others: values of a kilobyte share more with each other than
//! within themselves. No client of ours sends such values yet: the row shows whether it would be worth a dictionary that
//! every reader must have.

use glasscache_client::value::{Codec, CodecOptions, Compression, Decoded, Method, ValueRef};
use zstd::bulk;

use super::choice::Choice;
use super::compressor_name::{SAVING_PERCENT_MIN, read_compressor_name};
use crate::target::{CallError, VALUE_BYTES_MAX};

/// A compressor by its name, with its level.
pub(super) type NamedCompressor<'a> = (&'a str, Option<(Method, i32)>);

/// The compressors that are compared.
pub(super) const COMPRESSORS: [NamedCompressor<'_>; 9] = [
    ("none", None),
    ("zlib 1", Some((Method::Zlib, 1))),
    ("zlib 6", Some((Method::Zlib, 6))),
    ("zlib 9", Some((Method::Zlib, 9))),
    ("zstd -5", Some((Method::Zstd, -5))),
    ("zstd 1", Some((Method::Zstd, 1))),
    ("zstd 3", Some((Method::Zstd, 3))),
    ("lz4", Some((Method::Lz4, 1))),
    ("quicklz", Some((Method::QuickLz, 1))),
];

/// The compressors of the storage table; zlib is level 6.
pub(super) const STORAGE_COMPRESSORS: [NamedCompressor<'_>; 5] = [
    ("none", None),
    ("zlib", Some((Method::Zlib, 6))),
    ("quicklz", Some((Method::QuickLz, 1))),
    ("zstd", Some((Method::Zstd, 1))),
    ("lz4", Some((Method::Lz4, 1))),
];

/// Longest dictionary, as zstd's own tool trains it.
const DICTIONARY_BYTES_MAX: usize = 112_640;

/// A dictionary has at most one byte for this many bytes it is trained on, as zstd's authors recommend.
const TRAINING_BYTES_PER_DICTIONARY_BYTE: usize = 10;

/// A value in the form that is sent: client flags and bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compressed {
    /// The client flags, which say how to decompress it.
    pub(super) flags: u32,
    /// The bytes.
    pub(super) bytes: Vec<u8>,
}

/// A compressor of values.
pub(super) struct Compressor {
    /// Its name, such as `zstd 3`.
    pub(super) name: String,
    method: CompressionMethod,
}

enum CompressionMethod {
    /// Our client's codec.
    Codec(Box<Codec>),
    Dictionary(Box<bulk::Compressor<'static>>, Box<bulk::Decompressor<'static>>),
}

impl Compressor {
    /// The compressor of a row of [`COMPRESSORS`] or [`STORAGE_COMPRESSORS`], which is used wherever it saves anything.
    pub(super) fn new(named_compressor: NamedCompressor<'_>) -> Result<Self, CallError> {
        Self::with_threshold(named_compressor, 1, 0)
    }

    /// The compressor that was chosen, as a client would use it.
    pub(super) fn of_choice(choice: &Choice) -> Result<Self, CallError> {
        Self::with_threshold(
            (&choice.compressor, read_compressor_name(&choice.compressor)),
            choice.threshold_bytes.unwrap_or(usize::MAX),
            SAVING_PERCENT_MIN as u8,
        )
    }

    fn with_threshold(
        (name, method_and_level): NamedCompressor<'_>,
        threshold_bytes: usize,
        min_saving_percent: u8,
    ) -> Result<Self, CallError> {
        let compression = method_and_level.map(|(method, level)| Compression {
            method,
            level,
            threshold_bytes,
            min_saving_percent,
        });
        let options = CodecOptions {
            compression,
            decompressed_bytes_max: VALUE_BYTES_MAX as usize,
            ..CodecOptions::default()
        };
        let codec = Codec::new(options).map_err(|error| CallError::BadData(error.to_string()))?;
        Ok(Self { name: name.to_owned(), method: CompressionMethod::Codec(Box::new(codec)) })
    }

    /// Trains a dictionary on `values`; the error is a reason such as too few values.
    pub(super) fn train(values: &[&[u8]], level: i32) -> Result<Self, String> {
        let training_bytes: usize = values.iter().map(|value| value.len()).sum();
        let dictionary_bytes_max =
            (training_bytes / TRAINING_BYTES_PER_DICTIONARY_BYTE).min(DICTIONARY_BYTES_MAX);
        let train = || {
            let dictionary = zstd::dict::from_samples(values, dictionary_bytes_max)?;
            std::io::Result::Ok(CompressionMethod::Dictionary(
                Box::new(bulk::Compressor::with_dictionary(level, &dictionary)?),
                Box::new(bulk::Decompressor::with_dictionary(&dictionary)?),
            ))
        };
        let method = train().map_err(|error| error.to_string())?;
        Ok(Self { name: format!("zstd {level} with dictionary"), method })
    }

    /// The compressed form of `plain`; plain again if compression does not save enough.
    pub(super) fn compress(&mut self, plain: &[u8]) -> Compressed {
        match &mut self.method {
            CompressionMethod::Codec(codec) => codec.encode(&ValueRef::Bytes(plain)).map_or_else(
                |_| Compressed::default(),
                |encoded| Compressed { flags: encoded.flags, bytes: encoded.bytes.into_owned() },
            ),
            CompressionMethod::Dictionary(compressor, _) => {
                let compressed_value = compressor.compress(plain).ok();
                match compressed_value.filter(|bytes| bytes.len() < plain.len()) {
                    Some(bytes) => Compressed { flags: 1, bytes },
                    None => Compressed { flags: 0, bytes: plain.to_vec() },
                }
            }
        }
    }

    /// The plain form, or `None` if the compressed one is damaged.
    pub(super) fn decompress(&mut self, compressed: &Compressed) -> Option<Vec<u8>> {
        let Compressed { flags, bytes } = compressed;
        match &mut self.method {
            CompressionMethod::Codec(codec) => match codec.decode(*flags, bytes).ok()?.0 {
                Decoded::Bytes(bytes) => Some(bytes.into_owned()),
                _ => None,
            },
            CompressionMethod::Dictionary(..) if *flags == 0 => Some(bytes.clone()),
            CompressionMethod::Dictionary(_, decompressor) => {
                let content_bytes = zstd::zstd_safe::get_frame_content_size(bytes).ok()??;
                let plain_bytes_max = content_bytes.min(VALUE_BYTES_MAX);
                decompressor.decompress(bytes, usize::try_from(plain_bytes_max).ok()?).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::codec::measure::measure;

    #[test]
    fn a_dictionary_of_one_half_shortens_the_other_half() {
        let values: Vec<Vec<u8>> = (0..2000)
            .map(|index| {
                format!("{{\"user\": {index}, \"country\": \"Portugal\", \"language\": \"pt\"}}")
                    .into()
            })
            .collect();
        let (training_values, untrained_values) = values.split_at(1000);
        let training_values: Vec<&[u8]> = training_values.iter().map(Vec::as_slice).collect();
        let mut compressor = Compressor::train(&training_values, 3).unwrap();
        let costs = measure(&mut compressor, untrained_values);
        let plain_bytes: usize = untrained_values.iter().map(Vec::len).sum();
        assert_eq!(costs.wrong_values, 0);
        assert!(costs.compressed_bytes.iter().sum::<usize>() * 2 < plain_bytes);
    }

    #[test]
    fn too_few_values_are_an_error_and_not_a_crash() {
        assert!(Compressor::train(&[b"one", b"two"], 3).is_err());
    }
}
