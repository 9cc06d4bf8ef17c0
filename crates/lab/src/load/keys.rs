//! Keys: 20 bytes of text from a number, and the choice of the next one, uniform or by Zipf's law.
//!
//! Zipf draws use rejection-inversion (Hoermann and Derflinger, ACM TOMACS 6(3), 1996): exact for any
//! exponent above 0, no table. Ranks are scattered over the key space; otherwise the
//! hottest keys would be neighbours in every hash table that was filled in order.

use super::random::Rng;

/// Bytes of a key's text.
pub const KEY_BYTES: usize = 20;

/// The text of key `id`: `key-` and 16 hexadecimal digits.
pub(crate) fn format_key(id: u64) -> [u8; KEY_BYTES] {
    let mut text = *b"key-0000000000000000";
    for (index, digit) in text.iter_mut().skip(4).enumerate() {
        let nibble = (id >> (60 - 4 * index)) & 15;
        *digit = b"0123456789abcdef".get(nibble as usize).copied().unwrap_or(b'0');
    }
    text
}

/// How the next key is chosen among `0..count`.
#[derive(Debug, Clone)]
pub(crate) enum Picker {
    /// Each key with the same chance.
    Uniform {
        /// How many keys there are; at least 1.
        count: u64,
    },
    /// The key of rank r with a chance proportional to r^-exponent.
    Zipf(Zipf),
}

impl Picker {
    /// Uniform over `count` keys, or by Zipf's law when an exponent is given.
    pub(crate) fn new(count: u64, zipf_exponent: Option<f64>) -> Self {
        match zipf_exponent {
            Some(exponent) => Self::Zipf(Zipf::new(count.max(1), exponent)),
            None => Self::Uniform { count: count.max(1) },
        }
    }

    /// The next key, below `count`.
    pub(crate) fn pick(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Uniform { count } => rng.below(*count),
            Self::Zipf(zipf) => scatter(zipf.rank(rng) - 1, zipf.count),
        }
    }
}

/// Permutes `0..count`: the prime 2^61 - 1 has no common divisor with any smaller count.
const fn scatter(rank: u64, count: u64) -> u64 {
    ((rank as u128 * 2_305_843_009_213_693_951_u128) % count as u128) as u64
}

/// Ranks 1 to `count` by Zipf's law.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    count: u64,
    exponent: f64,
    area_first: f64,
    area_all: f64,
    acceptance_distance: f64,
}

impl Zipf {
    /// `count` ranks with an `exponent` above 0.
    pub(crate) fn new(count: u64, exponent: f64) -> Self {
        let mut zipf =
            Self { count, exponent, area_first: 0.0, area_all: 0.0, acceptance_distance: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_all = zipf.area(count as f64 + 0.5);
        zipf.acceptance_distance = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// The next rank, 1 to `count`.
    pub(crate) fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let drawn_area =
                self.area_all + rng.next_fraction() * (self.area_first - self.area_all);
            let drawn_rank = self.area_inverse(drawn_area);
            let rank = drawn_rank.round().clamp(1.0, self.count as f64);
            let is_under_curve = drawn_area >= self.area(rank + 0.5) - self.height(rank);
            if rank - drawn_rank <= self.acceptance_distance || is_under_curve {
                return rank as u64;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of `height`: (x^(1-e) - 1) / (1-e), continued to ln x at e = 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over(((1.0 - self.exponent) * log).max(-700.0)) * log
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (log1p_over(scaled) * area).exp()
    }
}

/// (e^x - 1) / x, continued to 1 at 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x * 0.5 }
}

/// ln(1 + x) / x, continued to 1 at 0.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x * 0.5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_text_is_20_bytes_with_the_number() {
        assert_eq!(&format_key(0xbeef), b"key-000000000000beef");
        assert_ne!(format_key(1), format_key(1 << 60));
    }

    #[test]
    fn zipf_rank_frequencies_match_the_law() {
        for exponent in [0.6, 0.99, 1.0, 1.2] {
            let (zipf, mut rng) = (Zipf::new(1000, exponent), Rng::new(42));
            let weight = |rank: u64| (rank as f64).powf(-exponent);
            let total_weight: f64 = (1..=1000).map(weight).sum();
            let mut counts = vec![0_u32; 1001];
            let draws = 400_000;
            for _ in 0..draws {
                counts[zipf.rank(&mut rng) as usize] += 1;
            }
            for rank in [1_u64, 2, 3, 10, 100] {
                let expected = f64::from(draws) * weight(rank) / total_weight;
                let drawn_count = f64::from(counts[rank as usize]);
                assert!(
                    (drawn_count - expected).abs() < 5.0 * expected.sqrt(),
                    "{exponent} {rank}: {drawn_count} {expected}"
                );
            }
        }
    }

    #[test]
    fn scattering_ranks_loses_no_key() {
        for count in [1_u64, 7, 1000, 200_000] {
            let mut scattered_ids: Vec<u64> = (0..count).map(|rank| scatter(rank, count)).collect();
            scattered_ids.sort_unstable();
            assert!(
                scattered_ids.iter().enumerate().all(|(index, &key)| index as u64 == key),
                "{count}"
            );
        }
    }

    #[test]
    fn picks_stay_below_the_count() {
        let mut rng = Rng::new(5);
        for picker in
            [Picker::new(10, None), Picker::new(10, Some(0.99)), Picker::new(1, Some(0.99))]
        {
            assert!((0..1000).all(|_| picker.pick(&mut rng) < 10));
        }
    }
}
