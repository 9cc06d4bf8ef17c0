//! Switches of the settings: why, what was expected, and what came.

use std::fmt;

/// Why the settings were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchReason {
    /// A candidate was better in several windows in a row.
    Better,
    /// The cache missed more than the forecast said.
    ForecastMissed,
    /// The settings before would miss less; after the trial, the default.
    BeforeBetter,
    /// The trial of the last switch could not be completed.
    Untested,
}

impl SwitchReason {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            SwitchReason::Better => "better",
            SwitchReason::ForecastMissed => "forecast_missed",
            SwitchReason::BeforeBetter => "before_better",
            SwitchReason::Untested => "untested",
        }
    }
}

impl fmt::Display for SwitchReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            SwitchReason::Better => "fewer misses in four windows in a row",
            SwitchReason::ForecastMissed => "more misses than were forecast",
            SwitchReason::BeforeBetter => "earlier settings would miss less",
            SwitchReason::Untested => "the change could not be compared with its forecast",
        })
    }
}

/// What a switch brought, as a share of the misses that the settings before it would have had.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outcome {
    /// Windows that were compared.
    pub windows: u32,
    /// The gain that came; negative: more misses.
    pub gain: f64,
}

/// One switch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwitchRecord {
    /// Gets since the start.
    pub requests: u64,
    /// The time in seconds, where there is a clock.
    pub now_s: Option<u64>,
    /// Candidate before.
    pub from: usize,
    /// Candidate after.
    pub to: usize,
    /// Why.
    pub reason: SwitchReason,
    /// The expected gain, as a share of the misses before.
    pub expected: f64,
    /// How far the gain may be from it (95 %).
    pub error: f64,
    /// What came in the eight windows after it, or until the next switch.
    pub came: Outcome,
    /// Whether it was taken back, because the forecast was missed or earlier settings became better.
    pub is_undone: bool,
}

impl SwitchRecord {
    /// The expected gain and how far it may be off; `None` where the switch only takes another one back.
    pub fn forecast(&self) -> Option<(f64, f64)> {
        (self.reason == SwitchReason::Better).then_some((self.expected, self.error))
    }

    /// The gain that came; `None` if nothing was compared.
    pub fn came_gain(&self) -> Option<f64> {
        (self.came.windows > 0).then_some(self.came.gain)
    }

    /// Whether what came is inside the interval of the forecast; `None` if nothing was forecast or compared.
    pub fn is_forecast_met(&self) -> Option<bool> {
        let ((expected, error), came) = self.forecast().zip(self.came_gain())?;
        Some((came - expected).abs() <= error)
    }
}
