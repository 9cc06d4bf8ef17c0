//! The ratio of two targets that were measured in paired rounds.

use serde::Serialize;

use super::Percentiles;

/// A ratio with the interval that contains the true one with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct RatioInterval {
    /// The median over the rounds.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Rounds are joined only where at least this many mean ratios remain: enough for an interval.
const MEAN_RATIOS_MIN: usize = 10;

impl RatioInterval {
    /// The median of the ratios of paired rounds, with its interval; fewer than six give their whole range.
    ///
    /// Rounds measure the targets in the order A B, then B A. From twenty rounds on, each two in succession are joined to
    /// their geometric mean, from forty on each four: then neither a steady change of the machine nor being measured
    /// second affects the result, and a phase of the machine that outlasts a round counts fewer times. A round in which
    /// a target completed no request, or used no CPU time that could be seen, has no ratio; the round of the other order
    /// is left out with it, and the others that it would be joined with are kept.
    pub(crate) fn of(ratios: impl IntoIterator<Item = f64>) -> Self {
        let round_ratios: Vec<f64> = ratios.into_iter().collect();
        let rounds_per_mean = match round_ratios.len() / MEAN_RATIOS_MIN {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        let mean_ratios = round_ratios.chunks_exact(rounds_per_mean).filter_map(compute_mean_ratio);
        let percentiles = Percentiles::new(mean_ratios.collect());
        let median_estimate = percentiles.estimate(50.0);
        Self {
            value: percentiles.value(50.0),
            low: median_estimate.low.max(percentiles.value(0.1)),
            high: median_estimate.high.unwrap_or_else(|| percentiles.value(99.999)),
        }
    }
}

/// The geometric mean of rounds in succession; of two rounds in both orders, both count or neither.
fn compute_mean_ratio(round_ratios: &[f64]) -> Option<f64> {
    let is_ratio = |ratio: &f64| ratio.is_finite() && *ratio > 0.0;
    let pairs = round_ratios.chunks(2).filter(|pair| pair.iter().all(is_ratio));
    let ratios: Vec<f64> = pairs.flatten().copied().collect();
    let product: f64 = ratios.iter().product();
    (!ratios.is_empty()).then(|| product.powf(1.0 / ratios.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::draw_independent_samples;
    use super::*;

    #[test]
    fn the_interval_of_equal_targets_contains_one_in_90_of_100_runs() {
        let contains_one = |seed: &u64| {
            let round_ratios =
                draw_independent_samples(40, *seed).into_iter().map(|sample| sample.powf(0.1));
            let interval = RatioInterval::of(round_ratios);
            interval.low <= 1.0 && interval.high >= 1.0
        };
        assert!((0..100).filter(contains_one).count() >= 90);
    }

    #[test]
    fn a_target_that_is_slower_when_measured_second_is_equal_to_itself() {
        let round_ratios = (0..40).map(|round| if round % 2 == 0 { 0.9 } else { 1.0 / 0.9 });
        let interval = RatioInterval::of(round_ratios);
        assert!((interval.low - 1.0).abs() < 1e-9 && (interval.high - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_round_without_a_ratio_is_left_out_with_the_round_of_the_other_order_alone() {
        for unmeasured in [f64::NAN, f64::INFINITY, 0.0] {
            let round_ratios = (0..80).map(|round| match round % 4 {
                0 => unmeasured,
                1 => 9.0, // measured in one order only
                2 => 1.5 * 0.9,
                _ => 1.5 / 0.9,
            });
            let RatioInterval { value, low, high } = RatioInterval::of(round_ratios);
            for bound in [value, low, high] {
                assert!((bound - 1.5).abs() < 1e-9, "{unmeasured}: {bound}");
            }
        }
    }

    #[test]
    fn few_rounds_give_their_range() {
        let interval = RatioInterval::of([1.1, 0.9, 1.0]);
        assert!((interval.low - 0.9).abs() < 1e-9 && (interval.high - 1.1).abs() < 1e-9);
        assert!((interval.value - 1.0).abs() < 1e-9);
    }
}
