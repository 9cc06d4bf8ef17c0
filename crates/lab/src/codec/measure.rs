//! The costs of serialisers and compressors, value by value, in the process that runs them.

use std::time::Instant;

/// How often each value is compressed and decompressed; the median counts.
const REPEATS: usize = 3;

/// A value in the form that is sent: client flags and bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compressed {
    /// The client flags, which say how to decompress it.
    pub flags: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A compressor of values.
pub trait Compressor {
    /// Its name, such as `zstd 3`.
    fn name(&self) -> &str;

    /// The compressed form of `plain`; plain again if compression does not save enough.
    fn compress(&mut self, plain: &[u8]) -> Compressed;

    /// The plain form, or `None` if the compressed one is damaged.
    fn decompress(&mut self, compressed: &Compressed) -> Option<Vec<u8>>;
}

/// What a serialiser costs, by value.
#[derive(Debug, Clone, Default)]
pub struct SerialiserCosts {
    /// Its name, such as `json`.
    pub name: String,
    /// Time to write each value, in nanoseconds.
    pub write_ns: Vec<u64>,
    /// Time to read each value, in nanoseconds.
    pub read_ns: Vec<u64>,
    /// The serialised values.
    pub bodies: Vec<Vec<u8>>,
}

impl SerialiserCosts {
    /// Values that need no serialiser: texts and bytes.
    pub fn without_serialiser(bodies: Vec<Vec<u8>>) -> Self {
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
pub struct CompressorCosts {
    /// Its name.
    pub name: String,
    /// Compressed length of each value.
    pub compressed_bytes: Vec<usize>,
    /// Time to compress each value, in nanoseconds.
    pub compress_ns: Vec<u64>,
    /// Time to decompress each value, in nanoseconds.
    pub decompress_ns: Vec<u64>,
    /// Values that were not the same after decompression.
    pub wrong_values: u64,
}

/// Compresses and decompresses every value, in several passes over all of them: the same value again would be in the CPU's
/// caches, where an application does not have it.
pub fn measure(compressor: &mut dyn Compressor, values: &[Vec<u8>]) -> CompressorCosts {
    let mut costs =
        CompressorCosts { name: compressor.name().to_owned(), ..CompressorCosts::default() };
    let mut times_ns = vec![([0; REPEATS], [0; REPEATS]); values.len()];
    for repeat in 0..REPEATS {
        costs.compressed_bytes.clear();
        for (plain, (compress_times_ns, decompress_times_ns)) in values.iter().zip(&mut times_ns) {
            let compress_start = Instant::now();
            let compressed = compressor.compress(plain);
            compress_times_ns[repeat] = compress_start.elapsed().as_nanos() as u64;
            let decompress_start = Instant::now();
            let decompressed = compressor.decompress(&compressed);
            decompress_times_ns[repeat] = decompress_start.elapsed().as_nanos() as u64;
            costs.wrong_values += u64::from(decompressed.as_ref() != Some(plain));
            costs.compressed_bytes.push(compressed.bytes.len());
        }
    }
    let median = |mut repeats: [u64; REPEATS]| {
        repeats.sort_unstable();
        repeats[REPEATS / 2]
    };
    costs.compress_ns =
        times_ns.iter().map(|(compress_times_ns, _)| median(*compress_times_ns)).collect();
    costs.decompress_ns =
        times_ns.iter().map(|(_, decompress_times_ns)| median(*decompress_times_ns)).collect();
    costs
}
