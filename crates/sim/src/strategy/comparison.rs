//! A forecast beside what was measured: the error of each figure, and whether the forecast held.

use serde_json::{Map, Value, json};

use super::figures::{Figures, P50_INDEX, P95_INDEX};

/// The figures of the same requests, forecast and measured.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// What the simulator expected.
    pub forecast: Figures,
    /// What the requests needed.
    pub measured: Figures,
}

impl Comparison {
    /// Whether calls, keys, bytes and used keys differ by at most this share of the forecast.
    pub fn counts_are_within(&self, tolerance: f64) -> bool {
        let counts = |figures: &Figures| {
            [figures.requests, figures.calls, figures.keys, figures.bytes, figures.used_keys]
        };
        let is_within = |(forecast, measured): (u64, u64)| {
            forecast.abs_diff(measured) as f64 <= forecast as f64 * tolerance
        };
        counts(&self.forecast).into_iter().zip(counts(&self.measured)).all(is_within)
    }

    /// Whether the median and the 95th percentile of the added time are within this share of the forecast.
    pub fn times_are_within(&self, tolerance: f64) -> bool {
        let is_close = |percentile_index: usize| {
            self.added_error(percentile_index).is_some_and(|error| error.abs() <= tolerance)
        };
        is_close(P50_INDEX) && is_close(P95_INDEX)
    }

    /// The error of a percentile of the added time, by its index; `None` if it cannot be stated.
    pub fn added_error(&self, percentile_index: usize) -> Option<f64> {
        let forecast_ns = self.forecast.added_ns_pct.get(percentile_index)?;
        let measured_ns = self.measured.added_ns_pct.get(percentile_index)?;
        compute_relative_error(*forecast_ns as f64, *measured_ns as f64)
    }

    /// The error of every figure, under the names of the figures: measured / forecast - 1, and for shares the
    /// difference. What was measured where 0 was forecast has no error and is null.
    pub fn error_document(&self) -> Value {
        compute_errors(
            &self.forecast.to_document(),
            &self.measured.to_document(),
            compute_relative_error,
        )
    }
}

fn compute_relative_error(forecast: f64, measured: f64) -> Option<f64> {
    if forecast.total_cmp(&measured).is_eq() {
        return Some(0.0);
    }
    (forecast != 0.0).then(|| measured / forecast - 1.0)
}

/// The errors of two documents of figures.
fn compute_errors(
    forecast: &Value,
    measured: &Value,
    compute_error: fn(f64, f64) -> Option<f64>,
) -> Value {
    if let (Some(forecast), Some(measured)) = (forecast.as_object(), measured.as_object()) {
        let error_entry = |(name, forecast_entry): (&String, &Value)| {
            let compute_entry_error =
                if name == "share_slower" { compute_difference } else { compute_error };
            let measured_entry = measured.get(name).unwrap_or(&Value::Null);
            (name.clone(), compute_errors(forecast_entry, measured_entry, compute_entry_error))
        };
        return Value::Object(forecast.iter().map(error_entry).collect::<Map<_, _>>());
    }
    let numbers = forecast.as_f64().zip(measured.as_f64());
    json!(numbers.and_then(|(forecast, measured)| compute_error(forecast, measured)))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of `compute_relative_error`")]
fn compute_difference(forecast: f64, measured: f64) -> Option<f64> {
    Some(measured - forecast)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures_of(calls: u64, added_ns: u64) -> Figures {
        Figures {
            requests: 10,
            calls,
            added_ns_pct: vec![0, 0, added_ns, added_ns, added_ns, added_ns, added_ns, added_ns],
            share_slower: [0.5, 0.0, 0.0, 0.0],
            ..Figures::default()
        }
    }

    fn compare(measured: Figures) -> Comparison {
        Comparison { forecast: figures_of(30, 1000), measured }
    }

    #[test]
    fn counts_and_times_are_within_a_share_of_the_forecast() {
        assert!(compare(figures_of(30, 1099)).times_are_within(0.1));
        assert!(compare(figures_of(30, 901)).times_are_within(0.1));
        assert!(!compare(figures_of(30, 1101)).times_are_within(0.1), "too slow");
        assert!(compare(figures_of(30, 1000)).counts_are_within(0.0));
        assert!(!compare(figures_of(31, 1000)).counts_are_within(0.0), "another call");
        assert!(compare(figures_of(31, 1000)).counts_are_within(0.04));
    }

    #[test]
    fn errors_are_relative_and_those_of_shares_differences() {
        let measured = Figures { share_slower: [0.75, 0.0, 0.0, 0.0], ..figures_of(33, 900) };
        let errors = compare(measured).error_document();
        assert!((errors["calls"].as_f64().unwrap() - 0.1).abs() < 1e-9);
        assert!((errors["added_ns_pct"]["95"].as_f64().unwrap() + 0.1).abs() < 1e-9);
        assert_eq!(errors["share_slower"]["0.1"], 0.25);
        assert_eq!(errors["keys"], 0.0, "both are 0");
    }

    #[test]
    fn what_was_measured_where_nothing_was_forecast_has_no_error() {
        let comparison = Comparison { forecast: figures_of(0, 0), measured: figures_of(3, 500) };
        assert_eq!(comparison.error_document()["calls"], Value::Null);
        assert!(!comparison.times_are_within(100.0) && !comparison.counts_are_within(100.0));
    }
}
