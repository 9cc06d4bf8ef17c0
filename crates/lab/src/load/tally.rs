//! What a run counted: requests, keys by outcome, bytes, and two latency histograms.
//!
//! Histograms are `HdrHistogram`s with three digits up to a minute; those of threads add
//! up exactly. Latency from the intended time is what a user would feel, from the send time what the server did.

use hdrhistogram::Histogram;

use super::work::Outcome;

/// Latencies are told apart in steps of this many nanoseconds at the low end.
const LATENCY_NS_MIN: u64 = 64;

/// The longest latency that is told apart, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Counts and latencies of one thread or of a whole run.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Requests answered.
    pub requests: u64,
    /// Keys that came back with the right value.
    pub hits: u64,
    /// Keys without a value.
    pub misses: u64,
    /// Writes that took effect.
    pub stored: u64,
    /// Writes answered otherwise.
    pub refused: u64,
    /// Keys that came back with a wrong value: a broken server, or a broken generator.
    pub wrong: u64,
    /// The first reply that was no success, for the report.
    pub refusal: Option<String>,
    /// Where the first wrong value differed, for the report.
    pub difference: Option<String>,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// From the moment a request was due; `None` in a closed loop, where it is due when it is sent.
    pub from_intended: Option<Histogram<u64>>,
    /// From the moment before its write.
    pub from_send: Histogram<u64>,
}

impl Tally {
    /// An empty tally; `open` keeps latencies from the intended time as well.
    pub fn new(open: bool) -> Self {
        let empty = || {
            Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, 3)
                .unwrap_or_else(|_| unreachable!("these bounds are valid"))
        };
        Self {
            requests: 0,
            hits: 0,
            misses: 0,
            stored: 0,
            refused: 0,
            wrong: 0,
            refusal: None,
            difference: None,
            received_bytes: 0,
            sent_bytes: 0,
            from_intended: open.then(empty),
            from_send: empty(),
        }
    }

    /// Notes a request that was due, sent and answered at these times.
    pub(crate) fn answered(&mut self, intended_ns: u64, sent_ns: u64, now_ns: u64) {
        self.requests += 1;
        self.from_send
            .saturating_record(now_ns.saturating_sub(sent_ns).min(LATENCY_NS_MAX));
        if let Some(histogram) = &mut self.from_intended {
            histogram.saturating_record(now_ns.saturating_sub(intended_ns).min(LATENCY_NS_MAX));
        }
    }

    /// Notes what became of one key.
    pub(crate) const fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Hit => self.hits += 1,
            Outcome::Miss => self.misses += 1,
            Outcome::Stored => self.stored += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::Wrong => self.wrong += 1,
        }
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.misses += other.misses;
        self.stored += other.stored;
        self.refused += other.refused;
        self.wrong += other.wrong;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        if self.refusal.is_none() {
            self.refusal.clone_from(&other.refusal);
        }
        if self.difference.is_none() {
            self.difference.clone_from(&other.difference);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.from_intended, &other.from_intended) {
            mine.add(theirs)
                .unwrap_or_else(|_| unreachable!("all have the same bounds"));
        }
        self.from_send
            .add(&other.from_send)
            .unwrap_or_else(|_| unreachable!("all have the same bounds"));
    }

    /// Latency at `percentile` (0 to 100) in microseconds, from the intended time where there is one.
    pub fn latency_us(&self, percentile: f64) -> f64 {
        let histogram = self.from_intended.as_ref().unwrap_or(&self.from_send);
        histogram.value_at_percentile(percentile) as f64 / 1e3
    }

    /// The same, from the send time.
    pub fn latency_from_send_us(&self, percentile: f64) -> f64 {
        self.from_send.value_at_percentile(percentile) as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sent_late_is_late_from_its_intended_time() {
        let mut tally = Tally::new(true);
        tally.answered(0, 900_000, 1_000_000);
        assert!((tally.latency_us(50.0) - 1_000.0).abs() < 2.0);
        assert!((tally.latency_from_send_us(50.0) - 100.0).abs() < 1.0);
    }

    #[test]
    fn tallies_of_threads_add_up() {
        let (mut a, mut b) = (Tally::new(false), Tally::new(false));
        for n in 1..=100 {
            a.answered(0, 0, n * 1_000);
            b.answered(0, 0, n * 1_000_000);
            b.count(Outcome::Hit);
        }
        a.add(&b);
        assert_eq!((a.requests, a.hits), (200, 100));
        assert!((a.latency_us(50.0) - 100.0).abs() < 1.0);
        assert!((a.latency_us(100.0) - 100_000.0).abs() < 100.0);
    }
}
