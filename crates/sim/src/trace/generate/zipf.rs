//! Draws from a Zipf distribution over any number of ranks in constant time and memory.
//!
//! Rejection-inversion (Hörmann and Derflinger, ACM TOMACS 1996): the probability of rank k is bounded by a curve
//! whose integral can be inverted; a draw from the curve is a rank, and more than 80 % of the draws are accepted.

use crate::random::Random;

/// Ranks from 1 to a number, rank k as often as 1 / k^skew.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    rank_count: f64,
    skew: f64,
    /// The integral of the bound at its two ends.
    low_integral: f64,
    high_integral: f64,
    /// Draws this close to their rank are accepted without a further check.
    accepted_distance: f64,
}

impl Zipf {
    pub(super) fn new(rank_count: u64, skew: f64) -> Self {
        let rank_count = rank_count as f64;
        let mut zipf = Self {
            rank_count,
            skew,
            low_integral: 0.0,
            high_integral: 0.0,
            accepted_distance: 0.0,
        };
        zipf.low_integral = zipf.integral(1.5) - 1.0;
        zipf.high_integral = zipf.integral(rank_count + 0.5);
        zipf.accepted_distance = 2.0 - zipf.inverse_integral(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// A rank.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.high_integral
                + random.next_fraction() * (self.low_integral - self.high_integral);
            let position = self.inverse_integral(area);
            let rank = position.round().clamp(1.0, self.rank_count);
            if rank - position <= self.accepted_distance
                || area >= self.integral(rank + 0.5) - self.weight(rank)
            {
                return rank as u64;
            }
        }
    }

    fn weight(&self, rank: f64) -> f64 {
        rank.powf(-self.skew)
    }

    /// The integral of 1 / x^skew, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        let exponent = 1.0 - self.skew;
        if exponent.abs() < 1e-9 { x.ln() } else { (x.powf(exponent) - 1.0) / exponent }
    }

    fn inverse_integral(&self, area: f64) -> f64 {
        let exponent = 1.0 - self.skew;
        if exponent.abs() < 1e-9 {
            area.exp()
        } else {
            (area * exponent + 1.0).max(0.0).powf(1.0 / exponent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_frequencies_match_the_formula() {
        for skew in [0.0, 0.7, 1.0, 1.6] {
            let zipf = Zipf::new(50, skew);
            let mut random = Random::new(11);
            let mut counts = [0_u32; 51];
            for _ in 0..400_000 {
                counts[zipf.draw(&mut random) as usize] += 1;
            }
            let weight_sum: f64 = (1..=50).map(|rank| f64::from(rank).powf(-skew)).sum();
            for rank in [1, 2, 3, 10, 50] {
                let expected_share = f64::from(rank).powf(-skew) / weight_sum;
                let share = f64::from(counts[rank as usize]) / 400_000.0;
                let deviations =
                    (share - expected_share).abs() / (expected_share / 400_000.0).sqrt();
                assert!(deviations < 5.0, "skew {skew}, rank {rank}: {share} for {expected_share}");
            }
        }
    }
}
