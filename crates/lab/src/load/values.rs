//! Values: random bytes that a key's number alone decides, so that every reply can be checked.
//!
//! All values are windows into one pool of random bytes, at an offset drawn from the key (and a version
//! where a key is written more than once). No value is stored on our side, none can be compressed, and
//! comparing costs one `memcmp`.

use super::random::{Rng, mix};

/// Distinct offsets into the pool: 2^20 values of each size.
const OFFSETS: u64 = 1 << 20;

/// The length of a key's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// The same number of bytes for each key.
    Fixed(u32),
    /// Log-normal, drawn from the key's number: `median` bytes, `sigma` of the logarithm, at most `max`.
    LogNormal {
        /// Half of the values are below this many bytes.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        /// Longer draws are cut to this many bytes.
        max: u32,
    },
}

impl Size {
    /// The mix that caches really hold, after the sizes of the server's memory tests: 230 B, sigma 1.5, 1 MB.
    pub const MIX: Self = Self::LogNormal {
        median: 230.0,
        sigma: 1.5,
        max: 1_000_000,
    };

    /// Bytes of the value under key `id`; at least 1 for log-normal sizes.
    pub fn of(self, id: u64) -> usize {
        match self {
            Self::Fixed(bytes) => bytes as usize,
            Self::LogNormal { median, sigma, max } => {
                let draw = Rng::new(mix(id ^ 0x7a1e)).normal();
                (median * (sigma * draw).exp())
                    .round()
                    .clamp(1.0, f64::from(max)) as usize
            }
        }
    }

    /// The longest value that can be drawn.
    pub const fn max(self) -> usize {
        match self {
            Self::Fixed(bytes) | Self::LogNormal { max: bytes, .. } => bytes as usize,
        }
    }
}

/// The random bytes of which all values are windows.
#[derive(Debug)]
pub struct Pool(Vec<u8>);

impl Pool {
    /// A pool for values of up to `value_bytes_max` bytes; the same `seed` gives the same bytes.
    pub fn new(value_bytes_max: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let words = (OFFSETS as usize + value_bytes_max).div_ceil(8);
        Self((0..words).flat_map(|_| rng.next().to_le_bytes()).collect())
    }

    /// The value of `bytes` bytes under key `id` at its `version`; shorter only if the pool is too small.
    pub fn value(&self, id: u64, version: u32, bytes: usize) -> &[u8] {
        let offset = (mix(id ^ (u64::from(version) << 40)) % OFFSETS) as usize;
        let end = (offset + bytes).min(self.0.len());
        self.0.get(offset..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_depends_on_key_and_version() {
        let pool = Pool::new(1000, 1);
        assert_eq!(pool.value(1, 0, 1000).len(), 1000);
        assert_eq!(pool.value(1, 0, 64), &pool.value(1, 0, 1000)[..64]);
        assert_ne!(pool.value(1, 0, 64), pool.value(2, 0, 64));
        assert_ne!(pool.value(1, 0, 64), pool.value(1, 1, 64));
    }

    #[test]
    fn log_normal_sizes_have_their_median_and_stay_in_bounds() {
        let mut sizes: Vec<usize> = (0..20_001).map(|id| Size::MIX.of(id)).collect();
        sizes.sort_unstable();
        assert!((220..=240).contains(&sizes[10_000]), "{}", sizes[10_000]);
        assert!(sizes[0] >= 1 && sizes[20_000] <= 1_000_000);
        assert_eq!(Size::MIX.of(7), Size::MIX.of(7));
    }
}
