//! Values: random bytes that a key's number alone decides, so that every reply can be checked.
//!
//! All values are windows into one buffer of random bytes, at an offset drawn from the key (and a version
//! where a key is written more than once). No value is stored on our side, none can be compressed, and
//! comparing costs one `memcmp`.

use std::sync::Arc;

use super::random::{Rng, mix};

/// Distinct offsets into the buffer: 2^20 values of each size.
const OFFSET_COUNT: u64 = 1 << 20;

/// Most sizes of a table of counted ones: enough for the share of one in 65,536.
const SIZES_MAX: u64 = 1 << 16;

/// The length of a key's value.
#[derive(Debug, Clone, PartialEq)]
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
    /// One of these, drawn from the key's number, each with the same chance: sizes that were counted somewhere.
    FromTable(Arc<[u32]>),
    /// The size of each key of a trace, by the lower 32 bits of the key's number.
    FromTrace(Arc<[u32]>),
}

impl Size {
    /// The mix that caches really hold, after the sizes of the server's memory tests: 230 B, sigma 1.5, 1 MB.
    pub const MIX: Self = Self::LogNormal { median: 230.0, sigma: 1.5, max: 1_000_000 };

    /// Sizes that come as often as they were counted, from pairs of size and count.
    pub fn from_counts(counts: &[(u32, u64)]) -> Self {
        let mut counts = counts.to_vec();
        counts.sort_unstable();
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        let table_length = total.min(SIZES_MAX);
        let (mut sizes, mut cumulative_count) = (Vec::with_capacity(table_length as usize), 0);
        for (size, count) in counts {
            cumulative_count += count;
            // The number of evenly spaced ranks at or below this size.
            let ranks_up_to_size =
                u128::from(cumulative_count) * u128::from(table_length) / u128::from(total.max(1));
            sizes.resize(ranks_up_to_size as usize, size);
        }
        Self::FromTable(sizes.into())
    }

    /// Bytes of the value under key `id`; at least 1 for log-normal sizes.
    pub(crate) fn of(&self, id: u64) -> usize {
        match *self {
            Self::Fixed(bytes) => bytes as usize,
            Self::LogNormal { median, sigma, max } => {
                let draw = Rng::new(mix(id ^ 0x7a1e)).normal();
                (median * (sigma * draw).exp()).round().clamp(1.0, f64::from(max)) as usize
            }
            Self::FromTable(ref sizes) => {
                let index = Rng::new(mix(id ^ 0x7a1e)).below(sizes.len().max(1) as u64);
                sizes.get(index as usize).map_or(0, |&bytes| bytes as usize)
            }
            Self::FromTrace(ref sizes) => {
                let key_number = id & u64::from(u32::MAX);
                sizes.get(key_number as usize).map_or(0, |&bytes| bytes as usize)
            }
        }
    }

    /// The longest value that can be drawn.
    pub(crate) fn max(&self) -> usize {
        match self {
            Self::Fixed(bytes) | Self::LogNormal { max: bytes, .. } => *bytes as usize,
            Self::FromTable(sizes) | Self::FromTrace(sizes) => {
                sizes.iter().max().map_or(0, |&bytes| bytes as usize)
            }
        }
    }
}

/// The source of value bytes: random bytes of which each value is a window.
#[derive(Debug)]
pub(crate) struct ValueSource(Vec<u8>);

impl ValueSource {
    /// A source of values of up to `value_bytes_max` bytes; the same `seed` gives the same bytes.
    pub(crate) fn new(value_bytes_max: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let words = (OFFSET_COUNT as usize + value_bytes_max).div_ceil(8);
        Self((0..words).flat_map(|_| rng.next_u64().to_le_bytes()).collect())
    }

    /// The value of `value_bytes` bytes under key `id` at its `version`; shorter only if the buffer is too small.
    pub(crate) fn value(&self, id: u64, version: u32, value_bytes: usize) -> &[u8] {
        let offset = (mix(id ^ (u64::from(version) << 40)) % OFFSET_COUNT) as usize;
        let end = (offset + value_bytes).min(self.0.len());
        self.0.get(offset..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_depends_on_key_and_version() {
        let value_source = ValueSource::new(1000, 1);
        assert_eq!(value_source.value(1, 0, 1000).len(), 1000);
        assert_eq!(value_source.value(1, 0, 64), &value_source.value(1, 0, 1000)[..64]);
        assert_ne!(value_source.value(1, 0, 64), value_source.value(2, 0, 64));
        assert_ne!(value_source.value(1, 0, 64), value_source.value(1, 1, 64));
    }

    #[test]
    fn log_normal_sizes_have_their_median_and_stay_in_bounds() {
        let mut sizes: Vec<usize> = (0..20_001).map(|id| Size::MIX.of(id)).collect();
        sizes.sort_unstable();
        assert!((220..=240).contains(&sizes[10_000]), "{}", sizes[10_000]);
        assert!(sizes[0] >= 1 && sizes[20_000] <= 1_000_000);
        assert_eq!(Size::MIX.of(7), Size::MIX.of(7));
    }

    #[test]
    fn counted_sizes_come_as_often_as_they_were_counted() {
        let size = Size::FromTable([100, 100, 100, 5_000].into());
        let large_count = (0..10_000).filter(|&id| size.of(id) == 5_000).count();
        assert!((2_300..2_700).contains(&large_count), "{large_count}");
        assert_eq!(size.max(), 5_000);
        assert_eq!(Size::FromTable([].into()).of(1), 0);
    }

    #[test]
    fn counts_become_a_bounded_table_of_the_same_shares() {
        let Size::FromTable(sizes) = Size::from_counts(&[(900, 1_000_000), (20, 3_000_000)]) else {
            panic!("expected a table");
        };
        assert_eq!(sizes.len(), 1 << 16);
        let small_count = sizes.iter().filter(|&&size| size == 20).count();
        assert_eq!(small_count, 3 << 14);
        assert_eq!(Size::from_counts(&[(7, 2)]), Size::FromTable([7, 7].into()));
    }

    #[test]
    fn a_key_of_a_trace_has_its_own_size_whatever_the_seed() {
        let size = Size::FromTrace([10, 20].into());
        assert_eq!([size.of(7 << 32), size.of(9 << 32 | 1)], [10, 20]);
        assert_eq!(size.of(2), 0);
    }
}
