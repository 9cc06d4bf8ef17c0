//! The histogram of all latencies: three digits between 64 nanoseconds and a minute, so that any two add up exactly.

use hdrhistogram::Histogram;

/// Resolution of latencies at the low end, in nanoseconds.
const LATENCY_NS_MIN: u64 = 64;

/// The longest recorded latency, in nanoseconds.
pub(super) const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// A histogram without a latency.
pub(super) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, 3)
        .unwrap_or_else(|_| unreachable!("these bounds are valid"))
}
