//! Whether a forecast came true: said of every figure, and decided by nobody.
//!
//! A forecast has an interval for 2,000 requests of one process; of fewer requests figures vary more, by the square root
//! of their number. Only more calls, keys or time than forecast are a miss: less does no harm.

use std::fmt;

use super::counts::GroupCounts;
use super::metrics::Metric;
use super::numbers::short;
use crate::file::Forecast;

/// Requests of one process that the interval of a forecast is for.
pub const REQUESTS_OF_FORECAST: u64 = 2000;

/// Requests of the strategy without which counts are not compared.
const REQUESTS_MIN: u64 = 20;
/// Requests without which the 95th percentile is not compared: five are above it.
const REQUESTS_OF_P95_MIN: u64 = 100;

/// The fraction of the forecast, and the number of calls or keys, by which counts may exceed it.
const COUNT_TOLERANCE: (f64, f64) = (0.05, 0.1);
/// The same for times, in milliseconds; the fraction is that within which a replay counts a forecast as met.
const TIME_TOLERANCE: (f64, f64) = (0.2, 0.1);

/// How full the near caches of the processes are.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NearFill {
    /// What they hold of what they may, 0 to 1; `None` without a near cache.
    pub fraction: Option<f64>,
    /// Whether they still grow.
    pub is_growing: bool,
}

/// A figure of the forecast and what was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FigureCheck {
    /// The figure.
    pub metric: Metric,
    /// Its forecast.
    pub forecast: f64,
    /// The end of its interval for this many requests.
    pub bound: f64,
    /// What was measured.
    pub measured: f64,
}

impl FigureCheck {
    /// Whether it is not above the forecast's interval.
    pub fn has_held(&self) -> bool {
        self.measured <= self.bound
    }
}

/// The figures of a forecast for which there are enough requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ForecastCheck {
    /// Each figure.
    pub figures: Vec<FigureCheck>,
    /// How full the near caches were meanwhile.
    pub near_fill: NearFill,
}

/// Compares what requests of the strategy needed with the forecast.
pub fn check_forecast(
    forecasts: &[Forecast],
    strategy: &GroupCounts,
    near_fill: NearFill,
) -> ForecastCheck {
    let figures = forecasts.iter().filter_map(|forecast| check_figure(forecast, strategy));
    ForecastCheck { figures: figures.collect(), near_fill }
}

/// The upper end of a forecast's interval for this many requests, tolerance included.
pub fn forecast_bound(forecast: &Forecast, metric: Metric, requests: u64) -> f64 {
    let sampling_factor = (REQUESTS_OF_FORECAST as f64 / requests.max(1) as f64).max(1.0);
    let (relative_tolerance, tolerance_min) =
        if metric.is_time() { TIME_TOLERANCE } else { COUNT_TOLERANCE };
    let margin = (forecast.high - forecast.value) * sampling_factor.sqrt();
    forecast.value + margin.max(forecast.value * relative_tolerance).max(tolerance_min)
}

fn check_figure(forecast: &Forecast, strategy: &GroupCounts) -> Option<FigureCheck> {
    // Figures of later versions are for clients that know them.
    let metric = Metric::from_name(&forecast.figure)?;
    let requests = strategy.sum.requests;
    let requests_min = match metric {
        Metric::AddedP95 => REQUESTS_OF_P95_MIN,
        _ => REQUESTS_MIN,
    };
    (requests >= requests_min).then_some(())?;
    let bound = forecast_bound(forecast, metric, requests);
    Some(FigureCheck { metric, forecast: forecast.value, bound, measured: metric.value(strategy)? })
}

impl fmt::Display for ForecastCheck {
    /// As a sentence, without a full stop: of a forecast that was missed, what it was and why that may be.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, missed): (Vec<&FigureCheck>, Vec<&FigureCheck>) =
            self.figures.iter().partition(|figure| figure.has_held());
        let names = |figures: &[&FigureCheck]| {
            let names = figures.iter().map(|figure| figure.metric.name());
            names.collect::<Vec<_>>().join(", ")
        };
        if self.figures.is_empty() {
            return f.write_str("There is no forecast to compare with");
        }
        if missed.is_empty() {
            return write!(f, "The forecast held: {} are not above it", names(&held));
        }
        let forecasts = missed.iter().map(|figure| {
            let FigureCheck { metric, forecast, measured, .. } = figure;
            let unit = match metric {
                Metric::Calls => " (calls)".to_owned(),
                _ => format!(" ({}, measured {})", metric.name(), short(*measured)),
            };
            format!("{}{unit}", short(*forecast))
        });
        write!(f, "The forecast was {}", forecasts.collect::<Vec<_>>().join(", "))?;
        let NearFill { fraction, is_growing } = self.near_fill;
        if let Some(fraction) = fraction.filter(|&fraction| fraction < 0.995) {
            let growing = if is_growing { " and still growing" } else { "" };
            write!(f, ": near caches are {:.0} % full{growing}", fraction * 100.0)?;
        }
        if held.is_empty() { Ok(()) } else { write!(f, ". Held: {}", names(&held)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{Random, Traffic};
    use super::*;

    fn forecast_of(metric: Metric, value: f64, high: f64) -> Forecast {
        Forecast { figure: metric.name().to_owned(), value, low: 0.0, high }
    }

    #[test]
    fn the_bound_widens_with_the_root_of_fewer_requests_and_has_a_tolerance() {
        let forecast_of_metric = forecast_of(Metric::Calls, 4.0, 5.0);
        for (requests, expected) in [(2000, 5.0), (500, 6.0), (1_000_000, 5.0)] {
            assert!(
                (forecast_bound(&forecast_of_metric, Metric::Calls, requests) - expected).abs()
                    < 1e-9
            );
        }
        let forecast_without_margin = Forecast { high: 4.0, ..forecast_of_metric.clone() };
        assert!((forecast_bound(&forecast_without_margin, Metric::Calls, 2000) - 4.2).abs() < 1e-9);
        assert!(
            (forecast_bound(&forecast_without_margin, Metric::AddedP50, 2000) - 4.8).abs() < 1e-9
        );
    }

    #[test]
    fn what_held_is_named_and_what_was_missed_has_its_forecast_and_a_cause() {
        let strategy = Traffic::typical().draw_group(1000, &mut Random(3));
        let high_forecast = forecast_of(Metric::Keys, 100.0, 101.0);
        let low_forecast = forecast_of(Metric::Calls, 0.34, 0.35);
        let near_fill = NearFill { fraction: Some(0.71), is_growing: false };
        let sentence =
            |forecasts: &[Forecast]| check_forecast(forecasts, &strategy, near_fill).to_string();
        assert_eq!(
            sentence(&[low_forecast, high_forecast.clone()]),
            "The forecast was 0.340 (calls): near caches are 71 % full. Held: keys"
        );
        assert_eq!(sentence(&[high_forecast]), "The forecast held: keys are not above it");
        assert_eq!(sentence(&[]), "There is no forecast to compare with");
    }

    #[test]
    fn too_few_requests_and_unknown_figures_are_not_compared() {
        let unknown = Forecast { figure: "later".into(), ..forecast_of(Metric::Calls, 0.0, 0.0) };
        let forecasts = [unknown, forecast_of(Metric::Calls, 0.0, 0.0)];
        let strategy = Traffic::typical().draw_group(19, &mut Random(3));
        let check = check_forecast(&forecasts, &strategy, NearFill::default());
        assert_eq!(check.figures, []);
    }
}
