//! Histograms of times that any thread adds to without a lock, and the percentiles of what was added.
//!
//! A bucket is a power of two of 1/16 microsecond, or an equal part of one: more parts make percentiles more exact.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Units of a microsecond: powers of two of a microsecond are bounds of buckets.
const UNITS_PER_US: u64 = 16;

/// Longer times count as this, which is 18 minutes.
const UNITS_MAX: u64 = (1 << UNITS_BITS) - 1;
const UNITS_BITS: u32 = 34;

/// The times that were added since the start.
#[derive(Debug)]
pub(crate) struct TimeHistogram {
    /// Each power of two has 2 to the power of this many buckets.
    parts_bits: u32,
    buckets: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

impl TimeHistogram {
    /// Without a time. A percentile is exact within half of 1/2^`parts_bits`.
    pub(crate) fn new(parts_bits: u32) -> TimeHistogram {
        let bucket_count = ((UNITS_BITS - parts_bits + 1) as usize) << parts_bits;
        TimeHistogram {
            parts_bits,
            buckets: (0..bucket_count).map(|_| AtomicU64::new(0)).collect(),
            sum_ns: AtomicU64::new(0),
        }
    }

    /// Adds a time that `count` events took.
    pub(crate) fn record(&self, time: Duration, count: u64) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let units =
            (time_ns / 1000 * UNITS_PER_US + time_ns % 1000 * UNITS_PER_US / 1000).min(UNITS_MAX);
        if let Some(bucket) = self.buckets.get(bucket_of(units, self.parts_bits)) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(time_ns.saturating_mul(count), Ordering::Relaxed);
    }
}

/// The bucket of a time.
fn bucket_of(units: u64, parts_bits: u32) -> usize {
    let shift = (u64::BITS - units.leading_zeros()).saturating_sub(parts_bits + 1);
    ((u64::from(shift) << parts_bits) + (units >> shift)) as usize
}

/// The smallest time of a bucket.
fn bucket_start(bucket: usize, parts_bits: u32) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> parts_bits).saturating_sub(1);
    (bucket - (shift << parts_bits)) << shift
}

/// What histograms with equal buckets held at one moment, added up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    parts_bits: u32,
    counts: Vec<u64>,
    sum_ns: u64,
}

impl Times {
    /// The times of all `histograms`.
    pub(crate) fn read<'h>(histograms: impl Iterator<Item = &'h TimeHistogram>) -> Times {
        let mut times = Times::default();
        for histogram in histograms {
            times.parts_bits = histogram.parts_bits;
            times.counts.resize(histogram.buckets.len(), 0);
            for (count, bucket) in times.counts.iter_mut().zip(&histogram.buckets) {
                *count += bucket.load(Ordering::Relaxed);
            }
            times.sum_ns += histogram.sum_ns.load(Ordering::Relaxed);
        }
        times
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together, in seconds.
    pub(crate) fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Their mean in microseconds; 0 if there are none.
    pub(crate) fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / 1e3 / self.count().max(1) as f64
    }

    /// The time in microseconds that `share` (0 to 1) of them do not exceed; 0 if there are none.
    pub(crate) fn percentile_us(&self, share: f64) -> f64 {
        let wanted = (share * self.count() as f64).ceil().max(1.0) as u64;
        let mut count_so_far = 0;
        let bucket = self.counts.iter().position(|count| {
            count_so_far += count;
            count_so_far >= wanted
        });
        bucket.map_or(0.0, |bucket| {
            let start = bucket_start(bucket, self.parts_bits);
            let end = bucket_start(bucket + 1, self.parts_bits);
            (start + end) as f64 / 2.0 / UNITS_PER_US as f64
        })
    }

    /// How many are below 2 to the power of `exponent` microseconds.
    pub(crate) fn count_below(&self, exponent: u32) -> u64 {
        let end = bucket_of(UNITS_PER_US << exponent, self.parts_bits);
        self.counts.iter().take(end).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_of(times_us: impl Iterator<Item = u64>, parts_bits: u32) -> Times {
        let histogram = TimeHistogram::new(parts_bits);
        for time_us in times_us {
            histogram.record(Duration::from_micros(time_us), 1);
        }
        Times::read([histogram].iter())
    }

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        for parts_bits in [3, 5] {
            let bucket_count = TimeHistogram::new(parts_bits).buckets.len();
            for bucket in 0..bucket_count {
                let start = bucket_start(bucket, parts_bits);
                assert_eq!(bucket_of(start, parts_bits), bucket);
                if bucket > 0 {
                    assert_eq!(bucket_of(start - 1, parts_bits), bucket - 1);
                }
            }
            assert_eq!(bucket_of(UNITS_MAX, parts_bits), bucket_count - 1);
        }
    }

    #[test]
    fn percentiles_are_exact_within_half_a_part() {
        let times = times_of(1..=10_000, 5);
        assert_eq!(times.count(), 10_000);
        assert!((times.mean_us() - 5000.5).abs() < 0.001);
        for share in [0.001, 0.5, 0.95, 0.999] {
            let exact = share * 10_000.0;
            let error = (times.percentile_us(share) - exact).abs() / exact;
            assert!(error < 0.5 / 32.0 + 0.001, "{share}: {error}");
        }
    }

    #[test]
    fn counts_below_a_power_of_two_are_exact() {
        let times = times_of([1, 3, 4, 5, 1000, 2000].into_iter(), 3);
        assert_eq!(
            [0, 1, 2, 3, 10, 11].map(|exponent| times.count_below(exponent)),
            [0, 1, 2, 4, 5, 6]
        );
    }

    #[test]
    fn no_times_and_endless_ones_have_percentiles() {
        assert!(times_of([].into_iter(), 3).percentile_us(0.5) < 0.001);
        let longest = times_of([u64::MAX / 1000].into_iter(), 3).percentile_us(0.5);
        assert!(longest > 900e6, "{longest}");
        assert!(Times::default().percentile_us(0.99) < 0.001);
    }
}
