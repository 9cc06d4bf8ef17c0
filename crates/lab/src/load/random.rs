//! The generator's random numbers: one small deterministic stream per thread, from a printed seed.
//!
//! `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014): five instructions a draw, every seed is good, and two streams of
//! neighbouring seeds do not correlate. It is not cryptographically secure.

/// A stream of uniform 64-bit numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A stream that depends on `seed` alone.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over all of `u64`.
    pub(crate) const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which must not be 0; the bias is below `bound` / 2^64.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// A number in [0, 1), in steps of 2^-53.
    pub(crate) fn next_fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A draw from the standard normal distribution (Box and Muller, the cosine half).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.next_fraction()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.next_fraction()).cos()
    }
}

/// Spreads the bits of `word` over all of `u64`, one to one: the finaliser of `SplitMix64`.
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_stream_again() {
        let (mut first, mut second) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| first.next_u64() == second.next_u64()));
    }

    #[test]
    fn draws_below_a_bound_are_uniform() {
        let mut rng = Rng::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
    }

    #[test]
    fn normal_draws_have_mean_zero_and_deviation_one() {
        let mut rng = Rng::new(3);
        let draws: Vec<f64> = (0..100_000).map(|_| rng.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance =
            draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
