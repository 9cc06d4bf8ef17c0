//! Draws the latency of a call from the measured distribution, with the same random draws for every strategy.
//!
//! The number that decides a draw is a hash of seed, request and the item that caused the call. A
//! call that two strategies both make therefore costs the same in both, which removes noise from
//! their difference (common random numbers). Inverse distribution function: linear in the percentile
//! rank between the measured percentiles, linear in log10 of the size between the measured sizes.
//!
//! A total is *comonotone* if one draw decides all calls of its request.

use std::collections::BTreeMap;

use super::error::LatencyError;
use crate::random::step;

/// The percentiles that a measured distribution must have; it may have others.
const REQUIRED_PERCENTILES: [&str; 8] = ["5", "25", "50", "75", "90", "95", "99", "99.9"];

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
    by_size: Vec<SizeQuantiles>,
}

#[derive(Debug, Clone)]
struct SizeQuantiles {
    size: f64,
    log10: f64,
    /// Each percentile with its nanoseconds, ascending.
    points: Vec<(f64, f64)>,
}

impl Quantiles {
    /// Reads the object `single_pct`: size -> percentile -> microseconds.
    pub(super) fn new(
        table: &BTreeMap<String, BTreeMap<String, f64>>,
    ) -> Result<Self, LatencyError> {
        let mut by_size = table
            .iter()
            .map(|(size_text, us_by_percentile)| parse_size_quantiles(size_text, us_by_percentile))
            .collect::<Result<Vec<_>, _>>()?;
        by_size.sort_by(|a, b| a.size.total_cmp(&b.size));
        if by_size.is_empty() {
            Err(LatencyError::Empty("single_pct"))
        } else {
            Ok(Self { by_size })
        }
    }

    /// Nanoseconds of a single get of `bytes` at `quantile` (0 to 1, 0 is the fastest).
    pub fn single_ns(&self, bytes: u64, quantile: f64) -> f64 {
        let size = bytes.max(1) as f64;
        let upper_index = self.by_size.partition_point(|of_size| of_size.size <= size);
        if upper_index == 0 {
            return self.by_size[0].latency_ns_at(quantile);
        }
        let low = &self.by_size[upper_index - 1];
        match self.by_size.get(upper_index) {
            Some(high) => {
                low.latency_ns_at(quantile)
                    + (high.latency_ns_at(quantile) - low.latency_ns_at(quantile))
                        * (size.log10() - low.log10)
                        / (high.log10 - low.log10)
            }
            None => low.latency_ns_at(quantile) * size / low.size,
        }
    }
}

impl SizeQuantiles {
    /// Below the first percentile and above the last, the result is their value; nothing is extrapolated.
    fn latency_ns_at(&self, quantile: f64) -> f64 {
        let rank = quantile * 100.0;
        let upper_index = self.points.partition_point(|&(percentile, _)| percentile <= rank);
        match (
            upper_index.checked_sub(1).map(|below| self.points[below]),
            self.points.get(upper_index),
        ) {
            (Some((low_percentile, low_ns)), Some(&(high_percentile, high_ns))) => {
                low_ns
                    + (high_ns - low_ns) * (rank - low_percentile)
                        / (high_percentile - low_percentile)
            }
            (Some((_, ns)), None) | (None, Some(&(_, ns))) => ns,
            (None, None) => 0.0,
        }
    }
}

/// The random draw of one call, from 0 to below 1.
pub fn draw_uniform(seed: u64, request: u64, cause: u32, dependence: Dependence) -> f64 {
    let cause_number = match dependence {
        Dependence::Independent => u64::from(cause) + 1,
        Dependence::Comonotone => 0,
    };
    let bits = step(step(step(seed) ^ request) ^ cause_number);
    // The 53 upper bits fill the mantissa of a double.
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn parse_size_quantiles(
    size_text: &str,
    us_by_percentile: &BTreeMap<String, f64>,
) -> Result<SizeQuantiles, LatencyError> {
    let distribution_error =
        |problem: String| LatencyError::Distribution { size: size_text.into(), problem };
    let size: f64 =
        size_text.parse().map_err(|_| distribution_error("the size is not a number".into()))?;
    if !(size.is_finite() && size >= 1.0) {
        return Err(distribution_error("the size must be at least 1".into()));
    }
    if let Some(missing) =
        REQUIRED_PERCENTILES.iter().find(|name| !us_by_percentile.contains_key(**name))
    {
        return Err(distribution_error(format!("percentile {missing} is missing")));
    }
    let mut points = Vec::with_capacity(us_by_percentile.len());
    for (percentile_text, &us) in us_by_percentile {
        let parsed = percentile_text.parse().ok();
        let percentile = parsed.filter(|percentile| (0.0..=100.0).contains(percentile));
        let percentile: f64 = percentile.ok_or_else(|| {
            distribution_error(format!("`{percentile_text}` must be a percentile from 0 to 100"))
        })?;
        points.push((percentile, us * 1000.0));
    }
    points.sort_by(|(percentile, _), (other, _)| percentile.total_cmp(other));
    let mut previous_ns = 0.0;
    for &(percentile, ns) in &points {
        if !ns.is_finite() || ns < previous_ns {
            return Err(distribution_error(format!(
                "percentile {percentile} is below the one before"
            )));
        }
        previous_ns = ns;
    }
    Ok(SizeQuantiles { size, log10: size.log10(), points })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_sizes() -> Quantiles {
        let row = |scale: f64| {
            REQUIRED_PERCENTILES
                .iter()
                .map(|&name| (name.to_owned(), name.parse::<f64>().unwrap() * scale))
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
    fn further_percentiles_are_used_where_a_distribution_has_them() {
        let mut row: BTreeMap<String, f64> =
            REQUIRED_PERCENTILES.iter().map(|&name| (name.to_owned(), 10.0)).collect();
        row.extend([
            ("99".to_owned(), 1000.0),
            ("99.9".to_owned(), 1000.0),
            ("98".to_owned(), 12.0),
        ]);
        let quantiles_of_row = |row| Quantiles::new(&BTreeMap::from([("1".to_owned(), row)]));
        let with_98th = quantiles_of_row(row.clone()).unwrap();
        assert!((with_98th.single_ns(1, 0.97) - 11_333.333).abs() < 0.01, "between 95 and 98");
        row.insert("98".to_owned(), 9.0);
        assert!(quantiles_of_row(row.clone()).is_err(), "below 95");
        row.remove("98");
        row.insert("p98".to_owned(), 12.0);
        assert!(quantiles_of_row(row).is_err(), "no number");
    }

    #[test]
    fn draws_are_uniform_and_repeatable() {
        let mean = (0..10_000)
            .map(|request| draw_uniform(1, request, 7, Dependence::Independent))
            .sum::<f64>()
            / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01);
        assert!(
            draw_uniform(1, 2, 3, Dependence::Independent).to_bits()
                == draw_uniform(1, 2, 3, Dependence::Independent).to_bits()
        );
        assert!(
            draw_uniform(1, 2, 3, Dependence::Comonotone).to_bits()
                == draw_uniform(1, 2, 4, Dependence::Comonotone).to_bits()
        );
    }
}
