//! zstd with a dictionary that is trained on some values and evaluated on others.
//!
//! Values of a kilobyte share more with each other than within themselves. No client of ours sends such values yet: the
//! row shows whether it would be worth a dictionary that every reader must have.

use zstd::bulk;

use super::measure::{Compressed, Compressor};

/// Longest dictionary, as zstd's own tool trains it.
const DICTIONARY_BYTES_MAX: usize = 112_640;

/// A dictionary has at most one byte for this many bytes it is trained on, as zstd's authors recommend.
const TRAINING_BYTES_PER_DICTIONARY_BYTE: usize = 10;

/// Compresses with a dictionary.
pub struct DictionaryCompressor {
    name: String,
    compressor: bulk::Compressor<'static>,
    decompressor: bulk::Decompressor<'static>,
    value_bytes_max: usize,
    /// Length of the dictionary.
    pub dictionary_bytes: usize,
}

impl std::fmt::Debug for DictionaryCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DictionaryCompressor").field(&self.name).finish()
    }
}

impl DictionaryCompressor {
    /// Trains a dictionary on `values`; the error is a reason such as too few values.
    pub fn train(values: &[&[u8]], level: i32) -> Result<Self, String> {
        let training_bytes: usize = values.iter().map(|value| value.len()).sum();
        let dictionary_bytes_max =
            (training_bytes / TRAINING_BYTES_PER_DICTIONARY_BYTE).min(DICTIONARY_BYTES_MAX);
        let error_text = |error: std::io::Error| error.to_string();
        let dictionary =
            zstd::dict::from_samples(values, dictionary_bytes_max).map_err(error_text)?;
        Ok(Self {
            name: format!("zstd {level} with dictionary"),
            compressor: bulk::Compressor::with_dictionary(level, &dictionary)
                .map_err(error_text)?,
            decompressor: bulk::Decompressor::with_dictionary(&dictionary).map_err(error_text)?,
            value_bytes_max: 1 << 30,
            dictionary_bytes: dictionary.len(),
        })
    }
}

impl Compressor for DictionaryCompressor {
    fn name(&self) -> &str {
        &self.name
    }

    fn compress(&mut self, plain: &[u8]) -> Compressed {
        let compressed_value = self.compressor.compress(plain).ok();
        match compressed_value.filter(|bytes| bytes.len() < plain.len()) {
            Some(bytes) => Compressed { flags: 1, bytes },
            None => Compressed { flags: 0, bytes: plain.to_vec() },
        }
    }

    fn decompress(&mut self, compressed: &Compressed) -> Option<Vec<u8>> {
        if compressed.flags == 0 {
            return Some(compressed.bytes.clone());
        }
        let content_bytes = zstd::zstd_safe::get_frame_content_size(&compressed.bytes).ok()??;
        let plain_bytes_max = usize::try_from(content_bytes).ok()?.min(self.value_bytes_max);
        self.decompressor.decompress(&compressed.bytes, plain_bytes_max).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::measure;

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
        let mut compressor = DictionaryCompressor::train(&training_values, 3).unwrap();
        let costs = measure(&mut compressor, untrained_values);
        let plain_bytes: usize = untrained_values.iter().map(Vec::len).sum();
        assert_eq!(costs.wrong_values, 0);
        assert!(costs.compressed_bytes.iter().sum::<usize>() * 2 < plain_bytes);
    }

    #[test]
    fn too_few_values_are_an_error_and_not_a_crash() {
        assert!(DictionaryCompressor::train(&[b"one", b"two"], 3).is_err());
    }
}
