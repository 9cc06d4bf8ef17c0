//! What serialisers and compressors cost, value by value.

/// What a serialiser costs, by value.
#[derive(Debug, Clone, Default)]
pub(super) struct SerialiserCosts {
    /// Its name, such as `json`.
    pub(super) name: String,
    /// Time to write each value, in nanoseconds.
    pub(super) write_ns: Vec<u64>,
    /// Time to read each value, in nanoseconds.
    pub(super) read_ns: Vec<u64>,
    /// The serialised values.
    pub(super) bodies: Vec<Vec<u8>>,
}

/// Whether the client has a serialiser of this name; values of an empty name need none.
pub(super) fn is_serialiser_of_client(name: &str) -> bool {
    name.is_empty() || name.starts_with("Codec")
}

impl SerialiserCosts {
    /// Values that need no serialiser: texts and bytes.
    pub(super) fn without_serialiser(bodies: Vec<Vec<u8>>) -> Self {
        Self {
            name: String::new(),
            write_ns: vec![0; bodies.len()],
            read_ns: vec![0; bodies.len()],
            bodies,
        }
    }
}

/// What a compressor costs, by value.
#[derive(Debug, Clone, Default)]
pub(super) struct CompressorCosts {
    /// Its name.
    pub(super) name: String,
    /// Compressed length of each value.
    pub(super) compressed_bytes: Vec<usize>,
    /// Time to compress each value, in nanoseconds.
    pub(super) compress_ns: Vec<u64>,
    /// Time to decompress each value, in nanoseconds.
    pub(super) decompress_ns: Vec<u64>,
    /// Values that were not the same after decompression.
    pub(super) wrong_values: u64,
}
