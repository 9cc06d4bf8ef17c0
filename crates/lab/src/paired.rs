//! Paired figures: each round measures both sides, and only ratios of one round are compared.
//!
//! A machine that slows down slows both sides of a round. The median of the rounds' ratios and their whole range are
//! printed: with five rounds a confidence interval would not be narrower.

use serde::{Deserialize, Serialize};

use crate::statistics::find_median_ranks;

/// The sides of a round in the order in which they are measured, A B and then B A, so that being measured second meets
/// both alike.
pub(crate) const fn order_sides(round: usize) -> [usize; 2] {
    if round.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

/// Measures both sides of a round in the order of [`order_sides`], and returns them as side 0 and side 1.
pub(crate) fn measure_both<T, E>(
    round: usize,
    mut measure: impl FnMut(usize) -> Result<T, E>,
) -> Result<(T, T), E> {
    let [first_side, second_side] = order_sides(round);
    let (first, second) = (measure(first_side)?, measure(second_side)?);
    Ok(if first_side == 0 { (first, second) } else { (second, first) })
}

/// Finite values in ascending order.
struct SortedValues(Vec<f64>);

impl SortedValues {
    fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }

    /// The value of this rank, counted from 1, or the one nearest to it; 0 if there is none.
    fn at_rank(&self, rank: usize) -> f64 {
        let index = rank.clamp(1, self.0.len().max(1)) - 1;
        self.0.get(index).copied().unwrap_or_default()
    }

    /// The middle value; the mean of the two middle ones where their number is even.
    fn median(&self) -> f64 {
        let count = self.0.len();
        f64::midpoint(self.at_rank(count.div_ceil(2)), self.at_rank(count / 2 + 1))
    }
}

/// A median and the range it comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// The middle value; the mean of the two middle ones where their number is even.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of `values`; all zero if there is none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let sorted = SortedValues::new(values);
        Self { median: sorted.median(), min: sorted.at_rank(1), max: sorted.at_rank(usize::MAX) }
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
/// The bounds are order statistics, so nothing is assumed about the distribution of the values. Fewer than six values
/// cannot promise it: their interval is their whole range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfidenceInterval {
    /// The middle value; the mean of the two middle ones where their number is even.
    pub(crate) median: f64,
    /// Its lower bound.
    pub(crate) low: f64,
    /// Its upper bound.
    pub(crate) high: f64,
}

impl ConfidenceInterval {
    /// The interval of `values`; all zero if there is none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let sorted = SortedValues::new(values);
        let (low_rank, high_rank) = find_median_ranks(sorted.0.len());
        Self {
            median: sorted.median(),
            low: sorted.at_rank(low_rank),
            high: sorted.at_rank(high_rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_is_measured_first_in_every_other_round() {
        let mut measured_sides = Vec::new();
        for round in 0..3 {
            let sides: Result<_, ()> = measure_both(round, |side| {
                measured_sides.push(side);
                Ok(side)
            });
            assert_eq!(sides, Ok((0, 1)));
        }
        assert_eq!(measured_sides, [0, 1, 1, 0, 0, 1]);
        assert_eq!(measure_both(1, Err::<(), usize>), Err(1));
    }

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
