//! The figures of a strategy: sums, percentiles and the share of requests that got slower.
//!
//! docs/reference/formats.md, "Results". Percentiles are the nearest rank, computed in integers.

use super::prepare::PreparedLog;
use super::run::RequestStats;

/// The percentiles given: each as written in percent, and in thousandths.
pub const PERCENTILES: [(&str, u64); 8] = [
    ("5", 50),
    ("25", 250),
    ("50", 500),
    ("75", 750),
    ("90", 900),
    ("95", 950),
    ("99", 990),
    ("99.9", 999),
];

/// The index of the median in [`PERCENTILES`].
pub const P50_INDEX: usize = 2;
/// The index of the 95th percentile in [`PERCENTILES`].
pub const P95_INDEX: usize = 5;

/// The slowdowns whose share is given, as written and in hundredths.
pub const SLOWDOWNS: [(&str, u64); 4] = [("0.1", 10), ("0.25", 25), ("0.5", 50), ("1", 100)];

/// What a strategy did over some requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    /// How many requests.
    pub requests: u64,
    /// Calls made.
    pub calls: u64,
    /// Keys fetched.
    pub keys: u64,
    /// Bytes fetched.
    pub bytes: u64,
    /// Fetched keys that were used.
    pub used_keys: u64,
    /// Nanoseconds waited.
    pub added_ns: u64,
    /// Nanoseconds in which the values that they read were decoded; `None` if the log does not have it.
    pub decode_ns: Option<u64>,
    /// Nanoseconds that the cache takes: those waited for calls, and those of decoding.
    pub cache_ns: u64,
    /// Percentiles of the added time, in the order of [`PERCENTILES`]; empty without requests.
    pub added_ns_pct: Vec<u64>,
    /// Percentiles of added / base, in the same order.
    pub slowdown_pct: Vec<f64>,
    /// Percentiles of base + added, in the same order.
    pub latency_ns_pct: Vec<u64>,
    /// Share of requests with added / base of at least each of [`SLOWDOWNS`].
    pub share_slower: [f64; 4],
}

impl Figures {
    /// Mean of the time that a request waits for calls, without decoding, in milliseconds.
    pub fn wait_ms(&self) -> f64 {
        self.mean_ms(self.cache_ns - self.decode_ns.unwrap_or(0))
    }

    /// Mean of the time in which the values of a request are decoded, in milliseconds; `None` if that is unknown or nothing
    /// was decoded that takes time.
    pub fn decode_ms(&self) -> Option<f64> {
        self.decode_ns.filter(|&decode_ns| decode_ns > 0).map(|decode_ns| self.mean_ms(decode_ns))
    }

    fn mean_ms(&self, sum_ns: u64) -> f64 {
        sum_ns as f64 / self.requests.max(1) as f64 / 1e6
    }

    /// The same with the time in which values were decoded, which a measured wait contains and a simulated one does not.
    #[must_use]
    pub(super) fn with_decoding(self, decode_ns: Option<u64>, is_measured: bool) -> Self {
        let added_ns = self.added_ns;
        let decode_ns = decode_ns.map(|ns| if is_measured { ns.min(added_ns) } else { ns });
        let besides_ns = if is_measured { 0 } else { decode_ns.unwrap_or(0) };
        Self { decode_ns, cache_ns: added_ns + besides_ns, ..self }
    }
}

/// The figures over these requests (indexes of kept ones, in file order), of which it is unknown how long decoding takes.
pub fn compute_figures(
    prepared: &PreparedLog<'_>,
    request_stats: &[RequestStats],
    selected_requests: impl Iterator<Item = usize>,
) -> Figures {
    let mut figures = Figures::default();
    let (mut slowdown_bits, mut latencies_ns, mut slower_counts) =
        (Vec::new(), Vec::new(), [0u64; 4]);
    let mut added_times_ns = Vec::new();
    for request in selected_requests {
        let (stats, base_ns) = (&request_stats[request], prepared.base_ns[request]);
        figures.requests += 1;
        figures.calls += u64::from(stats.calls);
        figures.keys += u64::from(stats.keys);
        figures.used_keys += u64::from(stats.used_keys);
        figures.bytes += stats.bytes;
        figures.added_ns += stats.added_ns;
        added_times_ns.push(stats.added_ns);
        latencies_ns.push(base_ns + stats.added_ns);
        // A base of 0 counts as 1 us, the log's resolution, so that the ratio stays finite.
        let divisor_ns = base_ns.max(1000);
        // Doubles of one sign sort as their bits do.
        slowdown_bits.push((stats.added_ns as f64 / divisor_ns as f64).to_bits());
        for (slower_count, (_, hundredths)) in slower_counts.iter_mut().zip(SLOWDOWNS) {
            *slower_count += u64::from(
                u128::from(stats.added_ns) * 100 >= u128::from(divisor_ns) * u128::from(hundredths),
            );
        }
    }
    figures.cache_ns = figures.added_ns;
    figures.added_ns_pct = compute_percentiles(&mut added_times_ns);
    figures.slowdown_pct =
        compute_percentiles(&mut slowdown_bits).into_iter().map(f64::from_bits).collect();
    figures.latency_ns_pct = compute_percentiles(&mut latencies_ns);
    figures.share_slower =
        slower_counts.map(|slower_count| slower_count as f64 / figures.requests.max(1) as f64);
    figures
}

/// The values of rank ceil(p n / 100), at least 1, for each of [`PERCENTILES`]; reorders `values`.
pub(super) fn compute_percentiles(values: &mut [u64]) -> Vec<u64> {
    if values.is_empty() {
        return Vec::new();
    }
    let count = values.len() as u64;
    // Each selection leaves larger values to its right, so the next one searches only there.
    let mut selected_below = 0;
    let select_value = |(_, thousandths): (&str, u64)| {
        let rank = (thousandths * count).div_ceil(1000).max(1) as usize;
        let (_, value, _) = values[selected_below..].select_nth_unstable(rank - 1 - selected_below);
        let value = *value;
        selected_below = rank - 1;
        value
    };
    PERCENTILES.into_iter().map(select_value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut values: Vec<u64> = (1..=20).rev().collect();
        assert_eq!(compute_percentiles(&mut values), [1, 5, 10, 15, 18, 19, 20, 20]);
        assert_eq!(compute_percentiles(&mut [7]), [7; 8]);
        assert!(compute_percentiles(&mut []).is_empty());
    }
}
