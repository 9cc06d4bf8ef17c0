//! The latencies of each second of a run, as histograms that add up over threads.
//!
//! A full second is kept in `HdrHistogram`'s V2 form, some kilobytes without its empty buckets, so that a run of an
//! hour costs megabytes and no latency is left out.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use super::histogram::new_histogram;

/// Nanoseconds of a second.
const NS_PER_SECOND: u64 = 1_000_000_000;

/// The latencies of one second.
#[derive(Debug, Clone)]
pub(crate) struct SecondHistogram {
    /// Second since the start of the run.
    pub at_s: u64,
    /// Latencies in nanoseconds, from the intended time where there is one.
    pub histogram: Histogram<u64>,
}

/// Latencies by the second in which the reply was read.
#[derive(Debug, Clone)]
pub(crate) struct LatenciesBySecond {
    current_s: u64,
    current_histogram: Histogram<u64>,
    /// Seconds that have passed: their number and their histogram in V2 form; several may have one number.
    finished_seconds: Vec<(u64, Vec<u8>)>,
}

impl Default for LatenciesBySecond {
    fn default() -> Self {
        Self { current_s: 0, current_histogram: new_histogram(), finished_seconds: Vec::new() }
    }
}

impl LatenciesBySecond {
    /// Records a latency of a reply that was read at `now_ns` since the start of the run.
    pub(crate) fn record(&mut self, now_ns: u64, latency_ns: u64) {
        let at_s = now_ns / NS_PER_SECOND;
        if at_s != self.current_s {
            self.finish_second();
            self.current_s = at_s;
        }
        self.current_histogram.saturating_record(latency_ns);
    }

    fn finish_second(&mut self) {
        if self.current_histogram.is_empty() {
            return;
        }
        let mut serialised_histogram = Vec::new();
        V2Serializer::new()
            .serialize(&self.current_histogram, &mut serialised_histogram)
            .unwrap_or_else(|_| unreachable!("a vector takes any histogram of these bounds"));
        self.finished_seconds.push((self.current_s, serialised_histogram));
        self.current_histogram.reset();
    }

    /// Adds what another thread or a later round recorded; its seconds begin `offset_s` after ours.
    pub(crate) fn add(&mut self, other: &Self, offset_s: u64) {
        self.finish_second();
        let mut other = other.clone();
        other.finish_second();
        let other_seconds = other.finished_seconds.into_iter();
        self.finished_seconds.extend(
            other_seconds
                .map(|(at_s, serialised_histogram)| (at_s + offset_s, serialised_histogram)),
        );
    }

    /// The seconds in order, without those that had no reply.
    pub(crate) fn seconds(&self) -> Vec<SecondHistogram> {
        let mut histograms: BTreeMap<u64, Histogram<u64>> = BTreeMap::new();
        let mut all_seconds = self.clone();
        all_seconds.finish_second();
        for (at_s, serialised_histogram) in &all_seconds.finished_seconds {
            let histogram =
                Deserializer::new().deserialize::<u64, _>(&mut serialised_histogram.as_slice());
            let histogram = histogram.unwrap_or_else(|_| unreachable!("these bytes are our own"));
            histograms
                .entry(*at_s)
                .or_insert_with(new_histogram)
                .add(histogram)
                .unwrap_or_else(|_| unreachable!("all have the same bounds"));
        }
        histograms
            .into_iter()
            .map(|(at_s, histogram)| SecondHistogram { at_s, histogram })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(latencies: &[(u64, u64)]) -> LatenciesBySecond {
        let mut by_second = LatenciesBySecond::default();
        for &(now_ms, latency_us) in latencies {
            by_second.record(now_ms * 1_000_000, latency_us * 1_000);
        }
        by_second
    }

    #[test]
    fn each_second_has_its_own_latencies_and_an_empty_one_is_left_out() {
        let seconds = recorded(&[(0, 5), (999, 7), (1_000, 100), (3_500, 9)]).seconds();
        let summaries: Vec<(u64, u64, u64)> = seconds
            .iter()
            .map(|second| (second.at_s, second.histogram.len(), second.histogram.max() / 1_000))
            .collect();
        assert_eq!(summaries, [(0, 2, 7), (1, 1, 100), (3, 1, 9)]);
    }

    #[test]
    fn threads_add_up_and_a_later_round_follows_the_earlier_ones() {
        let mut sum = recorded(&[(100, 1), (1_100, 2)]);
        sum.add(&recorded(&[(200, 3)]), 0);
        sum.add(&recorded(&[(300, 4), (400, 5)]), 2);
        let counts: Vec<(u64, u64)> =
            sum.seconds().iter().map(|second| (second.at_s, second.histogram.len())).collect();
        assert_eq!(counts, [(0, 2), (1, 1), (2, 2)]);
    }
}
