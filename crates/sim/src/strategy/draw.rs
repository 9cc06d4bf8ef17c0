//! Draws the latency of a call from the measured distribution, with the same random draws for every strategy.
//!
//! The number that decides a draw is a hash of seed, request and the item that caused the call. A
//! call that two strategies both make therefore costs the same in both, which removes noise from
//! their difference (common random numbers). Inverse distribution function: linear in the percentile
//! rank between the measured percentiles, linear in log10 of the size between the measured sizes.

use std::collections::BTreeMap;

use super::error::LatencyError;

/// The percentiles a measured distribution must carry.
const PERCENTILES: [(&str, f64); 8] = [
    ("5", 5.0),
    ("25", 25.0),
    ("50", 50.0),
    ("75", 75.0),
    ("90", 90.0),
    ("95", 95.0),
    ("99", 99.0),
    ("99.9", 99.9),
];

/// How the random draws of one request's calls depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependence {
    /// Each call has a draw of its own.
    Independent,
    /// All calls of a request share one draw: the worst case of dependence for the tail.
    Comonotone,
}

/// The distribution of single gets by value size.
#[derive(Debug, Clone)]
pub struct Quantiles {
    sizes: Vec<SizeQuantiles>,
}

#[derive(Debug, Clone)]
struct SizeQuantiles {
    size: f64,
    log: f64,
    ns: [f64; PERCENTILES.len()],
}

impl Quantiles {
    /// Reads the object `single_pct`: size -> percentile -> microseconds.
    pub(super) fn new(
        table: &BTreeMap<String, BTreeMap<String, f64>>,
    ) -> Result<Self, LatencyError> {
        let mut sizes = table
            .iter()
            .map(|(size, row)| read_size(size, row))
            .collect::<Result<Vec<_>, _>>()?;
        sizes.sort_by(|a, b| a.size.total_cmp(&b.size));
        if sizes.is_empty() {
            Err(LatencyError::Empty("single_pct"))
        } else {
            Ok(Self { sizes })
        }
    }

    /// Nanoseconds of a single get of `bytes` at quantile `u` (0 to 1, 0 is the fastest).
    pub fn single_ns(&self, bytes: u64, u: f64) -> f64 {
        let size = bytes.max(1) as f64;
        let above = self.sizes.partition_point(|row| row.size <= size);
        if above == 0 {
            return self.sizes[0].at(u);
        }
        let low = &self.sizes[above - 1];
        match self.sizes.get(above) {
            Some(high) => {
                low.at(u)
                    + (high.at(u) - low.at(u)) * (size.log10() - low.log) / (high.log - low.log)
            }
            None => low.at(u) * size / low.size,
        }
    }
}

impl SizeQuantiles {
    /// Below the first percentile and above the last, the result is their value; nothing is extrapolated.
    fn at(&self, u: f64) -> f64 {
        let rank = u * 100.0;
        let above = PERCENTILES.partition_point(|&(_, p)| p <= rank);
        if above == 0 {
            return self.ns[0];
        }
        let Some(&(_, high)) = PERCENTILES.get(above) else {
            return self.ns[PERCENTILES.len() - 1];
        };
        let low = PERCENTILES[above - 1].1;
        self.ns[above - 1] + (self.ns[above] - self.ns[above - 1]) * (rank - low) / (high - low)
    }
}

/// The random draw of one call, from 0 to below 1.
pub fn uniform_draw(seed: u64, request: u64, cause: u32, dependence: Dependence) -> f64 {
    let cause = match dependence {
        Dependence::Independent => u64::from(cause) + 1,
        Dependence::Comonotone => 0,
    };
    let bits = mix(mix(mix(seed) ^ request) ^ cause);
    // The 53 upper bits fill the mantissa of a double.
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn read_size(size: &str, row: &BTreeMap<String, f64>) -> Result<SizeQuantiles, LatencyError> {
    let wrong = |problem: String| LatencyError::Distribution {
        size: size.into(),
        problem,
    };
    let bytes: f64 = size
        .parse()
        .map_err(|_| wrong("the size is not a number".into()))?;
    if !(bytes.is_finite() && bytes >= 1.0) {
        return Err(wrong("the size must be at least 1".into()));
    }
    let mut ns = [0.0; PERCENTILES.len()];
    for (index, (name, _)) in PERCENTILES.iter().enumerate() {
        let us = *row
            .get(*name)
            .ok_or_else(|| wrong(format!("percentile {name} is missing")))?;
        ns[index] = us * 1000.0;
        let before = if index == 0 { 0.0 } else { ns[index - 1] };
        if !us.is_finite() || ns[index] < before {
            return Err(wrong(format!("percentile {name} is below the one before")));
        }
    }
    Ok(SizeQuantiles {
        size: bytes,
        log: bytes.log10(),
        ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_sizes() -> Quantiles {
        let row = |scale: f64| {
            PERCENTILES
                .iter()
                .map(|&(name, p)| (name.to_owned(), p * scale))
                .collect()
        };
        Quantiles::new(&BTreeMap::from([
            ("10".to_owned(), row(1.0)),
            ("1000".to_owned(), row(3.0)),
        ]))
        .unwrap()
    }

    #[test]
    fn quantiles_interpolate_rank_and_log_of_size() {
        let quantiles = two_sizes();
        assert!((quantiles.single_ns(10, 0.15) - 15_000.0).abs() < 1e-6);
        assert!((quantiles.single_ns(100, 0.5) - 100_000.0).abs() < 1e-6);
        assert!((quantiles.single_ns(2000, 0.5) - 300_000.0).abs() < 1e-6);
        assert!((quantiles.single_ns(1, 0.0) - 5000.0).abs() < 1e-6);
        assert!((quantiles.single_ns(1, 0.9999) - 99_900.0).abs() < 1e-6);
    }

    #[test]
    fn draws_are_uniform_and_repeatable() {
        let mean = (0..10_000)
            .map(|r| uniform_draw(1, r, 7, Dependence::Independent))
            .sum::<f64>()
            / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01);
        assert!(
            uniform_draw(1, 2, 3, Dependence::Independent).to_bits()
                == uniform_draw(1, 2, 3, Dependence::Independent).to_bits()
        );
        assert!(
            uniform_draw(1, 2, 3, Dependence::Comonotone).to_bits()
                == uniform_draw(1, 2, 4, Dependence::Comonotone).to_bits()
        );
    }
}
