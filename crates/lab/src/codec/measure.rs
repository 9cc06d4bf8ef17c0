//! The costs of serialisers and compressors, value by value, in the process that runs them.

use std::time::Instant;

use super::compressors::Compressor;
use super::costs::CompressorCosts;

/// How often each value is compressed and decompressed; the median counts.
const REPEATS: usize = 5;

/// Compresses and decompresses every value, in several passes over all of them: the same value again would be in the CPU's
/// caches, where an application does not have it.
pub(super) fn measure(compressor: &mut Compressor, values: &[Vec<u8>]) -> CompressorCosts {
    let mut costs = CompressorCosts { name: compressor.name.clone(), ..CompressorCosts::default() };
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
