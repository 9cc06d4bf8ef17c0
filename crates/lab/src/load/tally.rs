//! What a run counted: requests, keys by outcome, bytes, and two latency histograms.
//!
//! Histograms are `HdrHistogram`s with three digits up to a minute; those of threads add up exactly. Latency from the
//! intended time is what a user would experience; latency from the send time is that of the server.

use hdrhistogram::Histogram;

use super::by_second::LatenciesBySecond;
use super::histogram::{LATENCY_NS_MAX, new_histogram};
use super::thinned::ThinnedSamples;
use super::workload::KeyResult;

/// Latencies kept in order; enough for a p99 of each of 100 intervals.
const SAMPLES_MAX: usize = 1 << 16;

/// One request of the ordered record of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When its reply was read, in nanoseconds since the start of the run.
    pub(crate) at_ns: u64,
    /// Its latency from the intended time, in nanoseconds.
    pub(crate) latency_ns: u64,
}

/// Counts and latencies of one thread or of a whole run.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// Completed requests.
    pub requests: u64,
    /// Keys that came back with the correct value.
    pub hits: u64,
    /// Keys without a value.
    pub misses: u64,
    /// Writes that took effect.
    pub stored: u64,
    /// Writes with any other reply.
    pub refused: u64,
    /// Keys that came back with a wrong value: an error of the server or of the generator.
    pub wrong: u64,
    /// The first reply that was not a success, for the report.
    pub first_refusal: Option<String>,
    /// Where the first wrong value differed, for the report.
    pub first_difference: Option<String>,
    /// Bytes of the values that came back.
    pub value_bytes: u64,
    /// Those of them that were compared with what was stored.
    pub compared_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub(crate) sent_bytes: u64,
    /// Latency from the intended send time; `None` in a closed loop, where that is the send time.
    pub from_intended: Option<Histogram<u64>>,
    /// Latency from the time before the write.
    pub(crate) from_send: Histogram<u64>,
    /// The same latencies as [`Tally::latency_us`] by second; `None` unless the load plan requires them.
    pub by_second: Option<LatenciesBySecond>,
    /// Requests in the order of their replies, thinned.
    pub samples: ThinnedSamples<Sample>,
    /// Latency from the send time and, of it, how long the reply had been readable before it was read, in
    /// nanoseconds; empty unless the plan measures delays.
    pub(crate) latencies_and_delays: ThinnedSamples<(u64, u64)>,
}

impl Tally {
    /// An empty tally; `is_open_loop` keeps latencies from the intended time as well.
    pub(crate) fn new(is_open_loop: bool) -> Self {
        Self {
            requests: 0,
            hits: 0,
            misses: 0,
            stored: 0,
            refused: 0,
            wrong: 0,
            first_refusal: None,
            first_difference: None,
            value_bytes: 0,
            compared_bytes: 0,
            received_bytes: 0,
            sent_bytes: 0,
            from_intended: is_open_loop.then(new_histogram),
            from_send: new_histogram(),
            by_second: None,
            samples: ThinnedSamples::new(SAMPLES_MAX),
            latencies_and_delays: ThinnedSamples::new(SAMPLES_MAX),
        }
    }

    /// Records a request with its intended time, send time and reply time, and how long its reply was readable
    /// before it was read, where that was measured.
    pub(crate) fn record_reply(
        &mut self,
        (intended_ns, sent_ns, now_ns): (u64, u64, u64),
        delay_ns: Option<u64>,
    ) {
        self.requests += 1;
        let from_send_ns = now_ns.saturating_sub(sent_ns).min(LATENCY_NS_MAX);
        self.from_send.saturating_record(from_send_ns);
        let mut latency_ns = from_send_ns;
        if let Some(histogram) = &mut self.from_intended {
            latency_ns = now_ns.saturating_sub(intended_ns).min(LATENCY_NS_MAX);
            histogram.saturating_record(latency_ns);
        }
        if let Some(by_second) = &mut self.by_second {
            by_second.record(now_ns, latency_ns);
        }
        self.samples.push(Sample { at_ns: now_ns, latency_ns });
        if let Some(delay_ns) = delay_ns {
            self.latencies_and_delays.push((from_send_ns, delay_ns.min(from_send_ns)));
        }
    }

    /// Records the result of one key.
    pub(crate) const fn count(&mut self, result: KeyResult) {
        match result {
            KeyResult::Hit => self.hits += 1,
            KeyResult::Miss => self.misses += 1,
            KeyResult::Stored => self.stored += 1,
            KeyResult::Refused => self.refused += 1,
            KeyResult::Wrong => self.wrong += 1,
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.misses += other.misses;
        self.stored += other.stored;
        self.refused += other.refused;
        self.wrong += other.wrong;
        self.value_bytes += other.value_bytes;
        self.compared_bytes += other.compared_bytes;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        if self.first_refusal.is_none() {
            self.first_refusal.clone_from(&other.first_refusal);
        }
        if self.first_difference.is_none() {
            self.first_difference.clone_from(&other.first_difference);
        }
        if let (Some(histogram), Some(other_histogram)) =
            (&mut self.from_intended, &other.from_intended)
        {
            histogram
                .add(other_histogram)
                .unwrap_or_else(|_| unreachable!("all have the same bounds"));
        }
        if let (Some(by_second), Some(other_by_second)) = (&mut self.by_second, &other.by_second) {
            by_second.add(other_by_second, 0);
        }
        self.samples.merge(&other.samples, |sample| sample.at_ns);
        self.latencies_and_delays.merge(&other.latencies_and_delays, |(latency_ns, _)| *latency_ns);
        self.from_send
            .add(&other.from_send)
            .unwrap_or_else(|_| unreachable!("all have the same bounds"));
    }

    /// The generator's share of the latency from the send time at `percentile` (0 to 100): which part of it the
    /// reply was readable but not yet read. The mean over the 2 % of requests around the percentile, or over the
    /// slowest requests; `None` if no delay was measured.
    pub(crate) fn generator_share(&self, percentile: f64) -> Option<f64> {
        let mut sorted_by_latency = self.latencies_and_delays.elements().to_vec();
        sorted_by_latency.sort_unstable();
        let sample_count = sorted_by_latency.len() as f64;
        let (rank, half_width) =
            (sample_count * percentile / 100.0, (sample_count * 0.01).max(1.0));
        let half_width = half_width.min((sample_count - rank).max(1.0));
        let nearby_ranks = ((rank - half_width).max(0.0) as usize)
            ..((rank + half_width).min(sample_count) as usize);
        let nearby = sorted_by_latency.get(nearby_ranks).filter(|nearby| !nearby.is_empty())?;
        let (latency_sum_ns, delay_sum_ns) = nearby.iter().fold(
            (0, 0),
            |(latency_sum_ns, delay_sum_ns), &(latency_ns, delay_ns)| {
                (latency_sum_ns + latency_ns, delay_sum_ns + delay_ns)
            },
        );
        Some(delay_sum_ns as f64 / (latency_sum_ns as f64).max(1.0))
    }

    /// Latency at `percentile` (0 to 100) in microseconds, from the intended time where there is one.
    pub(crate) fn latency_us(&self, percentile: f64) -> f64 {
        let histogram = self.from_intended.as_ref().unwrap_or(&self.from_send);
        histogram.value_at_percentile(percentile) as f64 / 1e3
    }

    /// The same, from the send time.
    pub(crate) fn latency_from_send_us(&self, percentile: f64) -> f64 {
        self.from_send.value_at_percentile(percentile) as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sent_late_is_late_from_its_intended_time() {
        let mut tally = Tally::new(true);
        tally.record_reply((0, 900_000, 1_000_000), None);
        assert!((tally.latency_us(50.0) - 1_000.0).abs() < 2.0);
        assert!((tally.latency_from_send_us(50.0) - 100.0).abs() < 1.0);
    }

    #[test]
    fn tallies_of_threads_add_up() {
        let (mut first_tally, mut second_tally) = (Tally::new(false), Tally::new(false));
        for number in 1..=100 {
            first_tally.record_reply((0, 0, number * 1_000), None);
            second_tally.record_reply((0, 0, number * 1_000_000), None);
            second_tally.count(KeyResult::Hit);
        }
        first_tally.add(&second_tally);
        assert_eq!((first_tally.requests, first_tally.hits), (200, 100));
        assert!((first_tally.latency_us(50.0) - 100.0).abs() < 1.0);
        assert!((first_tally.latency_us(100.0) - 100_000.0).abs() < 100.0);
    }

    #[test]
    fn the_share_of_the_generator_is_known_by_percentile() {
        let mut tally = Tally::new(false);
        assert_eq!(tally.generator_share(50.0), None);
        for number in 1..=10_000_u64 {
            // Half of the fast latencies, a tenth of the slow ones.
            let delay_ns = if number <= 8_000 { number * 500 } else { number * 100 };
            tally.record_reply((0, 0, number * 1_000), Some(delay_ns));
        }
        let share = |percentile| tally.generator_share(percentile).unwrap();
        assert!((share(50.0) - 0.5).abs() < 0.01, "{}", share(50.0));
        assert!((share(99.9) - 0.1).abs() < 0.01, "{}", share(99.9));
    }
}
