//! How much the added times of a forecast and of a measurement vary by chance: whether their difference is more than that.
//!
//! A latency table is measured in rounds, and each round alone would give a forecast; the requests of a replay are cut
//! into as many blocks in succession. How much these differ says how much the whole would differ if it were repeated. A
//! machine whose speed changes between the table and the replay differs by more than any of both shows within itself, so
//! the forecast by a table that is measured after the replay widens the forecast's interval, too.

use std::ops::Range;

use super::figures::{P50_INDEX, P95_INDEX, compute_percentiles};
use super::run::RequestStats;

/// Rounds of a latency table, and blocks of the measured requests.
pub const ROUNDS: usize = 10;

/// Student's quantile at 97.5 % for nine degrees of freedom: of ten rounds, 95 % on both sides.
const STUDENT_QUANTILE: f64 = 2.262;

/// The median and the 95th percentile of added nanoseconds.
pub type MedianAndP95 = [f64; 2];

/// The range in which a value is with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Not below 0.
    pub low: f64,
    /// At least `low`.
    pub high: f64,
}

impl Interval {
    /// The interval about `value`, of which single rounds had these values.
    fn of_rounds(value: f64, round_values: &[f64]) -> Self {
        let count = round_values.len().max(1) as f64;
        let mean = round_values.iter().sum::<f64>() / count;
        let squares: f64 =
            round_values.iter().map(|round_value| (round_value - mean).powi(2)).sum();
        let margin = STUDENT_QUANTILE * (squares / (count - 1.0).max(1.0) / count).sqrt();
        Self { low: (value - margin).max(0.0), high: value + margin }
    }

    fn hull(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// The median and the 95th percentile of these requests.
pub fn compute_median_and_p95(request_stats: &[RequestStats]) -> MedianAndP95 {
    let mut added_ns: Vec<u64> = request_stats.iter().map(|stats| stats.added_ns).collect();
    let percentiles = compute_percentiles(&mut added_ns);
    [P50_INDEX, P95_INDEX]
        .map(|percentile_index| percentiles.get(percentile_index).map_or(0.0, |&ns| ns as f64))
}

/// A forecast by a whole table, and by each of its rounds.
#[derive(Debug, Clone)]
pub struct RoundForecasts {
    /// By the whole table.
    pub whole: MedianAndP95,
    /// By each round.
    pub rounds: Vec<MedianAndP95>,
}

impl RoundForecasts {
    /// The interval of the median (0) or of the 95th percentile (1).
    fn interval(&self, which: usize) -> Interval {
        let round_values: Vec<f64> = self.rounds.iter().map(|round| round[which]).collect();
        Interval::of_rounds(self.whole[which], &round_values)
    }
}

/// Where the errors of the median and of the 95th percentile are, of requests that a replay measured and that were
/// forecast by the table before it, and by the one after it.
pub fn compute_error_intervals(
    before: &RoundForecasts,
    after: &RoundForecasts,
    measured: &[RequestStats],
) -> [Interval; 2] {
    let measured_whole = compute_median_and_p95(measured);
    let range_of_block = |block_number: usize| -> Range<usize> {
        measured.len() * block_number / ROUNDS..measured.len() * (block_number + 1) / ROUNDS
    };
    let blocks: Vec<MedianAndP95> = (0..ROUNDS)
        .filter_map(|block_number| {
            measured.get(range_of_block(block_number)).filter(|stats| !stats.is_empty())
        })
        .map(compute_median_and_p95)
        .collect();
    [0, 1].map(|which| {
        let forecast_interval = before.interval(which).hull(after.interval(which));
        let block_values: Vec<f64> = blocks.iter().map(|block| block[which]).collect();
        let measured_interval = Interval::of_rounds(measured_whole[which], &block_values);
        // A time of 0 was forecast, or may have been: a nanosecond keeps the ratio finite.
        Interval {
            low: measured_interval.low / forecast_interval.high.max(1.0) - 1.0,
            high: measured_interval.high / forecast_interval.low.max(1.0) - 1.0,
        }
    })
}

/// Whether each of the errors may be within this share by chance.
pub fn may_be_within(errors: &[Interval], tolerance: f64) -> bool {
    errors.iter().all(|error| error.low <= tolerance && error.high >= -tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn forecasts(added_ns: f64, spread: f64) -> RoundForecasts {
        let round_value = |number: usize| {
            added_ns * (1.0 + spread * if number.is_multiple_of(2) { 1.0 } else { -1.0 })
        };
        RoundForecasts {
            whole: [added_ns; 2],
            rounds: (0..ROUNDS).map(|number| [round_value(number); 2]).collect(),
        }
    }

    fn stats_of_requests(added_ns: impl Fn(usize) -> u64) -> Vec<RequestStats> {
        let stats = |number| RequestStats { added_ns: added_ns(number), ..RequestStats::default() };
        (0..1000).map(stats).collect()
    }

    #[test]
    fn a_deviation_beyond_steady_rounds_is_significant() {
        let errors_of = |added_ns| {
            let steady = forecasts(1000.0, 0.01);
            compute_error_intervals(&steady, &steady, &stats_of_requests(|_| added_ns))
        };
        assert!(may_be_within(&errors_of(1150), 0.2));
        assert!(!may_be_within(&errors_of(1300), 0.2));
        assert!(!may_be_within(&errors_of(700), 0.2));
    }

    #[test]
    fn rounds_that_differ_leave_it_open_and_so_does_a_drift() {
        let slower = stats_of_requests(|_| 1300);
        let (steady, noisy) = (forecasts(1000.0, 0.01), forecasts(1000.0, 0.3));
        assert!(may_be_within(&compute_error_intervals(&noisy, &steady, &slower), 0.2));
        let drifted = forecasts(1300.0, 0.01);
        assert!(may_be_within(&compute_error_intervals(&steady, &drifted, &slower), 0.2));
        let much_slower = stats_of_requests(|_| 5000);
        assert!(!may_be_within(&compute_error_intervals(&noisy, &drifted, &much_slower), 0.2));
    }

    #[test]
    fn a_burst_in_the_measured_requests_widens_their_interval() {
        let steady = forecasts(1000.0, 0.01);
        let burst = stats_of_requests(|number| if number >= 800 { 4000 } else { 1000 });
        let [median, p95] = compute_error_intervals(&steady, &steady, &burst);
        assert!(median.high > 0.2 && p95.low < 2.5, "{median:?} {p95:?}");
        assert!(p95.high > 3.5, "{p95:?}");
    }

    #[test]
    fn an_interval_has_the_value_in_19_of_20_repetitions() {
        let mut random = Random::new(5);
        let repetitions = 2000;
        let mut uniform = || random.next_fraction() - 0.5;
        let covered = (0..repetitions)
            .filter(|_| {
                let round_values: Vec<f64> =
                    (0..ROUNDS).map(|_| 100.0 + (0..12).map(|_| uniform()).sum::<f64>()).collect();
                let mean = round_values.iter().sum::<f64>() / ROUNDS as f64;
                let interval = Interval::of_rounds(mean, &round_values);
                (interval.low..=interval.high).contains(&100.0)
            })
            .count();
        let share = covered as f64 / f64::from(repetitions);
        assert!((share - 0.95).abs() < 0.015, "{share}");
    }

    #[test]
    fn no_requests_have_no_times() {
        let nothing = forecasts(0.0, 0.0);
        let errors = compute_error_intervals(&nothing, &nothing, &[]);
        assert!(errors.iter().all(|error| error.low.is_finite() && error.high.is_finite()));
    }
}
