//! What the curve expected of a new limit of memory, and what came when the memory had been filled again.

use std::collections::VecDeque;

use super::advice::interpolate;
use super::input::LiveInput;
use super::report::{CurveState, LiveCurve, ResizeForecast};

/// What came is judged after at least this time at the new limit, in milliseconds.
const MEASURED_MS_MIN: u64 = 60_000;

/// And after at least this many gets, so that chance moves their ratio by a hundredth at most.
const MEASURED_GETS_MIN: u64 = 10_000;

/// The minutes before a change whose mean is the level of misses.
const MINUTES_MAX: usize = 5;
const MINUTE_MS: u64 = 60_000;

/// Standard deviations on either side of the level: a 95 % interval, as that of the curve.
const DEVIATIONS: f64 = 1.96;

/// The last change of the limit whose effect was expected.
#[derive(Default)]
pub(super) struct ResizeCheck {
    forecast: Option<ResizeForecast>,
    /// The counts when the memory had been filled again.
    measured_from: Option<LiveInput>,
    /// The counts when the running minute began; none while the memory is being filled.
    minute_began: Option<LiveInput>,
    /// Misses per get of the last minutes at this limit, the oldest first.
    minutes: VecDeque<f64>,
}

/// The miss ratio over some minutes: its mean, and how much it varied between them.
struct Level {
    miss_ratio: f64,
    /// Half the width of the interval for the miss ratio of one minute.
    margin: f64,
}

impl ResizeCheck {
    /// The limit has become `memory_bytes`; `curve` is the last one before.
    ///
    /// The forecast is the miss ratio of the last minutes plus the difference between the two sizes on the curve: the
    /// curve's own level may contain the first filling. The interval is widened by how much the miss ratio varies from
    /// minute to minute.
    pub(super) fn begin(&mut self, curve: &LiveCurve, memory_bytes: u64) {
        let expected = interpolate(&curve.rows, memory_bytes);
        let level = self.level(curve);
        let moved = |miss_ratio: f64| miss_ratio + level.miss_ratio - curve.miss_ratio;
        self.measured_from = None;
        self.minutes.clear();
        self.minute_began = None;
        self.forecast = expected.map(|point| ResizeForecast {
            from_bytes: curve.memory_bytes,
            memory_bytes,
            miss_ratio: moved(point.miss_ratio).clamp(0.0, 1.0),
            low: moved(point.miss_ratio - (point.miss_ratio - point.low).hypot(level.margin))
                .clamp(0.0, 1.0),
            high: moved(point.miss_ratio + (point.high - point.miss_ratio).hypot(level.margin))
                .clamp(0.0, 1.0),
            measured: None,
        });
    }

    /// The level of the last whole minutes, or of the curve if there is none yet.
    fn level(&self, curve: &LiveCurve) -> Level {
        let count = self.minutes.len() as f64;
        if self.minutes.is_empty() {
            return Level { miss_ratio: curve.miss_ratio, margin: 0.0 };
        }
        let mean = self.minutes.iter().sum::<f64>() / count;
        let squares: f64 = self.minutes.iter().map(|ratio| (ratio - mean).powi(2)).sum();
        // The variance of a future minute around this mean: that of the minutes, plus that of their mean.
        let variance = squares / (count - 1.0).max(1.0) * (1.0 + 1.0 / count);
        Level { miss_ratio: mean, margin: DEVIATIONS * variance.sqrt() }
    }

    /// A second has ended.
    pub(super) fn end_second(&mut self, state: CurveState, input: &LiveInput) {
        if matches!(state, CurveState::Warming | CurveState::Resized) {
            // The memory is being filled.
            self.minute_began = None;
            return;
        }
        self.end_minute_if_over(input);
        let Some(forecast) = self.forecast.as_mut().filter(|forecast| forecast.measured.is_none())
        else {
            return;
        };
        let from = self.measured_from.get_or_insert(*input);
        let gets = input.gets.saturating_sub(from.gets);
        let elapsed_ms = input.elapsed_ms.saturating_sub(from.elapsed_ms);
        if elapsed_ms >= MEASURED_MS_MIN && gets >= MEASURED_GETS_MIN {
            let misses = input.misses.saturating_sub(from.misses);
            forecast.measured = Some((misses as f64 / gets as f64).min(1.0));
        }
    }

    fn end_minute_if_over(&mut self, input: &LiveInput) {
        let began = *self.minute_began.get_or_insert(*input);
        if input.elapsed_ms.saturating_sub(began.elapsed_ms) < MINUTE_MS {
            return;
        }
        self.minute_began = Some(*input);
        let gets = input.gets.saturating_sub(began.gets);
        if gets == 0 {
            return;
        }
        if self.minutes.len() == MINUTES_MAX {
            self.minutes.pop_front();
        }
        let misses = input.misses.saturating_sub(began.misses);
        self.minutes.push_back((misses as f64 / gets as f64).min(1.0));
    }

    /// Forgets it: what was stored is gone.
    pub(super) fn clear(&mut self) {
        *self = ResizeCheck::default();
    }

    pub(super) fn report(&self) -> Option<ResizeForecast> {
        self.forecast
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::CurvePoint;
    use super::*;

    fn curve() -> LiveCurve {
        let point = |memory_bytes, miss_ratio| CurvePoint {
            memory_bytes,
            miss_ratio,
            low: miss_ratio - 0.01,
            high: miss_ratio + 0.01,
            lru_miss_ratio: miss_ratio,
        };
        LiveCurve {
            memory_bytes: 100,
            miss_ratio: 0.4,
            rows: vec![point(100, 0.4), point(200, 0.2)],
            ..LiveCurve::default()
        }
    }

    fn input(elapsed_ms: u64, gets: u64, misses: u64) -> LiveInput {
        LiveInput { elapsed_ms, gets, misses, ..LiveInput::default() }
    }

    fn measure(misses: u64) -> ResizeForecast {
        let mut check = ResizeCheck::default();
        check.begin(&curve(), 150);
        check.end_second(CurveState::Resized, &input(1000, 5000, 5000));
        check.end_second(CurveState::Ok, &input(2000, 6000, 6000));
        check.end_second(CurveState::Ok, &input(32_000, 20_000, 7000));
        assert_eq!(check.report().unwrap().measured, None);
        check.end_second(CurveState::Ok, &input(62_000, 26_000, 6000 + misses));
        check.end_second(CurveState::Ok, &input(63_000, 99_000, 99_000));
        check.report().unwrap()
    }

    #[test]
    fn what_came_after_the_memory_was_filled_is_compared_with_what_was_expected() {
        let inside = measure(6100);
        assert!((inside.miss_ratio - 0.3).abs() < 1e-9);
        assert!((inside.measured.unwrap() - 0.305).abs() < 1e-9);
        assert_eq!(inside.is_inside(), Some(true));
        assert_eq!(measure(8000).is_inside(), Some(false));
    }

    #[test]
    fn the_level_is_that_of_the_last_minute() {
        let mut check = ResizeCheck::default();
        for second in 1..=600 {
            // All miss at first, then a quarter does.
            let misses = if second <= 100 { second * 100 } else { 10_000 + (second - 100) * 25 };
            check.end_second(CurveState::Ok, &input(second * 1000, second * 100, misses));
        }
        check.begin(&curve(), 150);
        let forecast = check.report().unwrap();
        assert!((forecast.miss_ratio - 0.15).abs() < 0.005, "{forecast:?}");
        assert!((forecast.high - forecast.low - 0.02).abs() < 1e-9);
    }

    /// The forecast for 150 bytes after ten minutes that alternate between these numbers of misses in 6,000 gets.
    fn forecast_after(misses: [u64; 2]) -> ResizeForecast {
        let mut check = ResizeCheck::default();
        let mut missed = 0;
        for minute in 0..=10 {
            check.end_second(CurveState::Ok, &input(minute * 60_000, minute * 6000, missed));
            missed += misses[minute as usize % 2];
        }
        check.begin(&curve(), 150);
        check.report().unwrap()
    }

    #[test]
    fn a_load_that_moves_from_minute_to_minute_widens_the_interval() {
        let steady = forecast_after([2400, 2400]);
        assert!((steady.high - steady.low - 0.02).abs() < 1e-9);
        let moving = forecast_after([2700, 2100]);
        // Miss ratios of 45 and 35 % alternate: a standard deviation of 5.5 %, 6 with that of the mean.
        assert!((moving.miss_ratio - 0.3).abs() < 0.02, "{moving:?}");
        assert!((moving.high - moving.low - 0.235).abs() < 0.01, "{moving:?}");
    }

    #[test]
    fn what_came_is_measured_though_few_items_are_sampled() {
        let mut check = ResizeCheck::default();
        check.begin(&curve(), 150);
        check.end_second(CurveState::Resized, &input(1000, 5000, 5000));
        check.end_second(CurveState::TooFew, &input(2000, 6000, 6000));
        check.end_second(CurveState::TooFew, &input(62_000, 26_000, 12_100));
        assert_eq!(check.report().unwrap().is_inside(), Some(true));
    }

    #[test]
    fn a_size_that_the_curve_does_not_reach_has_no_forecast() {
        let mut check = ResizeCheck::default();
        check.begin(&curve(), 400);
        assert_eq!(check.report(), None);
        check.begin(&LiveCurve::default(), 150);
        assert_eq!(check.report(), None);
        check.begin(&curve(), 150);
        assert_eq!(check.report().unwrap().is_inside(), None);
        check.clear();
        assert_eq!(check.report(), None);
    }
}
