//! The ratio of two targets that were measured in paired rounds.

use serde::Serialize;

use super::Percentiles;

/// A ratio with the interval that contains the true one with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RatioInterval {
    /// The median over the rounds.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// As many ratios are enough for an interval.
const RATIOS_MIN: usize = 10;

impl RatioInterval {
    /// The median of the ratios of paired rounds, with its interval; fewer than six give their whole range.
    ///
    /// Rounds measure the targets in the order A B, then B A. Of twenty rounds each two, of forty each four in succession
    /// are joined to their geometric mean: neither a steady change of the machine nor being measured second has a part in
    /// it, and a phase of the machine that outlasts a round counts fewer times.
    pub fn of(ratios: impl IntoIterator<Item = f64>) -> Self {
        let rounds: Vec<f64> = ratios.into_iter().collect();
        let joined = match rounds.len() / RATIOS_MIN {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        let means = rounds
            .chunks_exact(joined)
            .map(|chunk| chunk.iter().product::<f64>().powf(1.0 / joined as f64));
        let ratios = Percentiles::new(means.filter(|mean| mean.is_finite()).collect());
        let median = ratios.estimate(50.0);
        Self {
            value: ratios.value(50.0),
            low: median.low.max(ratios.value(0.1)),
            high: median.high.unwrap_or_else(|| ratios.value(99.999)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::independent_samples;
    use super::*;

    #[test]
    fn the_interval_of_equal_targets_contains_one_in_90_of_100_runs() {
        let contains_one = |seed: &u64| {
            let rounds = independent_samples(40, *seed)
                .into_iter()
                .map(|sample| sample.powf(0.1));
            let interval = RatioInterval::of(rounds);
            interval.low <= 1.0 && interval.high >= 1.0
        };
        assert!((0..100).filter(contains_one).count() >= 90);
    }

    #[test]
    fn a_target_that_is_slower_when_measured_second_is_equal_to_itself() {
        let rounds = (0..40).map(|round| if round % 2 == 0 { 0.9 } else { 1.0 / 0.9 });
        let interval = RatioInterval::of(rounds);
        assert!((interval.low - 1.0).abs() < 1e-9 && (interval.high - 1.0).abs() < 1e-9);
    }

    #[test]
    fn few_rounds_give_their_range() {
        let interval = RatioInterval::of([1.1, 0.9, 1.0]);
        assert!((interval.low - 0.9).abs() < 1e-9 && (interval.high - 1.1).abs() < 1e-9);
        assert!((interval.value - 1.0).abs() < 1e-9);
    }
}
