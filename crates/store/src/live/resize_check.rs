//! What the curve expected of a new limit of memory, and what came when the memory had been filled again.

use super::advice::interpolate;
use super::input::LiveInput;
use super::report::{CurveState, LiveCurve, ResizeForecast};

/// What came is judged after at least this time at the new limit, in milliseconds.
const MEASURED_MS_MIN: u64 = 60_000;

/// And after at least this many gets, so that chance moves their ratio by a hundredth at most.
const MEASURED_GETS_MIN: u64 = 10_000;

/// The level of misses before a change is a mean with a weight that falls by this share a second.
const RECENT_DECAY: f64 = 1.0 / 60.0;

/// The last change of the limit whose effect was expected.
#[derive(Default)]
pub(super) struct ResizeCheck {
    forecast: Option<ResizeForecast>,
    /// The counts when the memory had been filled again.
    measured_from: Option<LiveInput>,
    /// The counts of the last second, and gets and misses of about the last minute.
    last_second: LiveInput,
    recent_gets: f64,
    recent_misses: f64,
}

impl ResizeCheck {
    /// The limit has become `memory_bytes`; `curve` is the last one before.
    ///
    /// The curve says what the change brings; the level from which it starts is that of the last minute, for the curve's
    /// window may contain the time in which the memory was filled for the first time.
    pub(super) fn begin(&mut self, curve: &LiveCurve, memory_bytes: u64) {
        let expected = interpolate(&curve.rows, memory_bytes);
        let level = if self.recent_gets > 0.0 {
            self.recent_misses / self.recent_gets - curve.miss_ratio
        } else {
            0.0
        };
        let at_level = |miss_ratio: f64| (miss_ratio + level).clamp(0.0, 1.0);
        self.measured_from = None;
        self.forecast = expected.map(|point| ResizeForecast {
            from_bytes: curve.memory_bytes,
            memory_bytes,
            miss_ratio: at_level(point.miss_ratio),
            low: at_level(point.low),
            high: at_level(point.high),
            measured: None,
        });
    }

    /// A second has ended.
    pub(super) fn end_second(&mut self, state: CurveState, input: &LiveInput) {
        let before = std::mem::replace(&mut self.last_second, *input);
        let fade = |mean: &mut f64, now: u64, before: u64| {
            *mean = *mean * (1.0 - RECENT_DECAY) + now.saturating_sub(before) as f64;
        };
        fade(&mut self.recent_gets, input.gets, before.gets);
        fade(&mut self.recent_misses, input.misses, before.misses);
        let Some(forecast) = &mut self.forecast else {
            return;
        };
        if state != CurveState::Ok || forecast.measured.is_some() {
            return;
        }
        let from = self.measured_from.get_or_insert(*input);
        let gets = input.gets.saturating_sub(from.gets);
        let elapsed_ms = input.elapsed_ms.saturating_sub(from.elapsed_ms);
        if elapsed_ms >= MEASURED_MS_MIN && gets >= MEASURED_GETS_MIN {
            let misses = input.misses.saturating_sub(from.misses);
            forecast.measured = Some((misses as f64 / gets as f64).min(1.0));
        }
    }

    /// Forgets it: what was stored is gone.
    pub(super) fn clear(&mut self) {
        self.forecast = None;
        self.measured_from = None;
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
