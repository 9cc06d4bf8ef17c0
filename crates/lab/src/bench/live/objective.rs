//! An objective of a load test, such as `p99.9<1ms`.

use std::str::FromStr;

use serde::Serialize;

/// A latency that must not be exceeded at a percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Objective {
    /// 0 to 100.
    pub percent: f64,
    /// In microseconds.
    pub latency_us: f64,
}

impl FromStr for Objective {
    type Err = String;

    /// `p99.9<1ms`; units are us, ms and s.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid_objective = || format!("{text:?}: expected an objective such as p99.9<1ms");
        let compact: String = text.split_whitespace().collect();
        let (percent_text, limit_text) = compact
            .strip_prefix('p')
            .and_then(|rest| rest.split_once('<'))
            .ok_or_else(invalid_objective)?;
        let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
        let (number_text, us_per_unit) = units
            .iter()
            .find_map(|(unit, us_per_unit)| Some((limit_text.strip_suffix(unit)?, us_per_unit)))
            .ok_or_else(invalid_objective)?;
        let percent: f64 = percent_text.parse().map_err(|_| invalid_objective())?;
        let latency_us = number_text.parse::<f64>().map_err(|_| invalid_objective())? * us_per_unit;
        let is_valid =
            percent > 0.0 && percent < 100.0 && latency_us > 0.0 && latency_us.is_finite();
        is_valid.then_some(Self { percent, latency_us }).ok_or_else(invalid_objective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_objectives() {
        let objective = "p99.9 < 1ms".parse::<Objective>().unwrap();
        assert_eq!(objective, Objective { percent: 99.9, latency_us: 1000.0 });
        assert!("p50<200us".parse::<Objective>().is_ok());
        for invalid_objective in ["", "99<1ms", "p100<1ms", "p99<1", "p99>1ms", "p99<0ms"] {
            assert!(invalid_objective.parse::<Objective>().is_err(), "{invalid_objective}");
        }
    }
}
