//! Paired figures: each round measures both sides, and only ratios of one round are compared.
//!
//! A machine that slows down slows both sides of a round. The median of the rounds' ratios and their whole range are
//! printed: with five rounds a confidence interval would not be narrower.

use serde::{Deserialize, Serialize};

/// A median and the range it comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle value; the mean of the two middle ones where their number is even.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; all zero if there is none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let value_at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let (count, last_index) = (sorted.len(), sorted.len().saturating_sub(1));
        Self {
            median: f64::midpoint(value_at(last_index / 2), value_at(count / 2)),
            min: value_at(0),
            max: value_at(last_index),
        }
    }

    /// The spread of `ours` over `theirs`, round by round.
    pub(crate) fn of_ratios<'a, T: 'a>(
        rounds: impl IntoIterator<Item = &'a (T, T)>,
        figure: impl Fn(&T) -> f64,
    ) -> Self {
        Self::of(rounds.into_iter().map(|(ours, theirs)| figure(ours) / figure(theirs)))
    }
}

/// A median with the interval that contains the true median with a probability of at least 95 %.
///
/// The bounds are order statistics, so nothing is assumed about the distribution of the values: the k-th
/// smallest and the k-th largest, with the largest k that keeps that probability. Fewer than six values
/// cannot promise it: their interval is their whole range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceInterval {
    /// The middle value; the mean of the two middle ones where their number is even.
    pub median: f64,
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
}

impl ConfidenceInterval {
    /// The interval of `values`; all zero if there is none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let value_at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let (count, last_index) = (sorted.len(), sorted.len().saturating_sub(1));
        let excluded = count_excluded_at_each_end(count);
        Self {
            median: f64::midpoint(value_at(last_index / 2), value_at(count / 2)),
            low: value_at(excluded),
            high: value_at(last_index.saturating_sub(excluded)),
        }
    }
}

/// How many of `count` sorted values are outside the interval at each end: the largest k for which at most k of
/// `count` tosses of a fair coin are heads with a probability of at most 2.5 %.
fn count_excluded_at_each_end(count: usize) -> usize {
    let (mut tail_probability, mut binomial_term) =
        (0.0, 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX)));
    for head_count in 0..count / 2 {
        tail_probability += binomial_term;
        if tail_probability > 0.025 {
            return head_count.saturating_sub(1);
        }
        binomial_term *= (count - head_count) as f64 / (head_count + 1) as f64;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_the_median_has_the_ranks_of_the_sign_test() {
        // The tables of the sign test: of 20 values the 6th and 15th, of 30 the 10th and 21st.
        for (count, low, high) in [(6, 1, 6), (9, 2, 8), (20, 6, 15), (30, 10, 21)] {
            let interval = ConfidenceInterval::of((1..=count).map(f64::from));
            let bounds = (interval.low, interval.high);
            assert_eq!(bounds, (f64::from(low), f64::from(high)), "{count} values");
        }
    }

    #[test]
    fn an_interval_of_few_values_is_their_range() {
        let interval = ConfidenceInterval::of([3.0, 1.0, 2.0]);
        assert_eq!((interval.low, interval.median, interval.high), (1.0, 2.0, 3.0));
        assert_eq!(ConfidenceInterval::of([]), ConfidenceInterval::default());
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let rounds = [(1.0, 2.0), (30.0, 60.0), (5.0, 10.0)];
        assert_eq!(
            Spread::of_ratios(&rounds, |figure: &f64| *figure),
            Spread { median: 0.5, min: 0.5, max: 0.5 }
        );
    }
}
