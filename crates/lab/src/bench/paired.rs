//! Paired figures: each round measures both sides, and only ratios of one round are compared.
//!
//! A machine that slows down slows both sides of a round. The median of the rounds' ratios and their whole
//! range are printed: with five rounds the range is what an interval could honestly say.

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
        let mut sorted: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let (count, last) = (sorted.len(), sorted.len().saturating_sub(1));
        Self {
            median: f64::midpoint(at(last / 2), at(count / 2)),
            min: at(0),
            max: at(last),
        }
    }

    /// The spread of `theirs` under `ours`, round by round.
    pub fn of_ratios<'a, T: 'a>(
        rounds: impl IntoIterator<Item = &'a (T, T)>,
        figure: impl Fn(&T) -> f64,
    ) -> Self {
        Self::of(
            rounds
                .into_iter()
                .map(|(ours, theirs)| figure(ours) / figure(theirs)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(
            Spread::of([4.0, 1.0, 3.0, 2.0]),
            Spread {
                median: 2.5,
                min: 1.0,
                max: 4.0
            }
        );
        assert_eq!(
            Spread::of([3.0, 1.0, 2.0]),
            Spread {
                median: 2.0,
                min: 1.0,
                max: 3.0
            }
        );
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let rounds = [(1.0, 2.0), (30.0, 60.0), (5.0, 10.0)];
        assert_eq!(
            Spread::of_ratios(&rounds, |x: &f64| *x),
            Spread {
                median: 0.5,
                min: 0.5,
                max: 0.5
            }
        );
    }
}
