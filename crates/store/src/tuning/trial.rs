//! What is known of a switch since it was made.

use super::gains::WINDOWS_IN_A_ROW;

/// Losses that are forgiven to a switch that has earned at least four times as much, in margins.
const FORGIVEN_MARGINS_MAX: f64 = 12.0;

/// What is known since the last switch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trial {
    pub(super) windows: u32,
    /// How far the gain may be from the forecast, by its rehearsal alone: a switch that misses more is taken back,
    /// however wrong earlier forecasts were.
    pub(super) error: f64,
    pub(super) windows_above_forecast: u32,
    /// Losses in the last windows in a row, in margins of a certain loss.
    loss_margins: f64,
    /// Gains, in the same margins.
    earned_margins: f64,
    /// What the settings before would have cost, and what the cache did cost.
    pub(super) cost_before: f64,
    pub(super) cost_now: f64,
}

impl Trial {
    /// The trial of a switch whose gain may be so far from its forecast.
    pub(super) fn new(error: f64) -> Self {
        Self { error, ..Self::default() }
    }

    /// A trial that is over after so many windows, of which nothing is known.
    pub(super) fn ended(windows: u32) -> Self {
        Self { windows, ..Self::default() }
    }

    pub(super) fn count_margins(&mut self, loss_margins: f64) {
        self.loss_margins =
            if loss_margins >= 1.0 { self.loss_margins + loss_margins } else { 0.0 };
        self.earned_margins += (-loss_margins).max(0.0);
    }

    /// Whether the losses in a row are those of four windows, or more if the switch has earned more.
    pub(super) fn has_lost_too_much(&self) -> bool {
        let forgiven_margins = (self.earned_margins / 4.0).min(FORGIVEN_MARGINS_MAX);
        self.loss_margins >= f64::from(WINDOWS_IN_A_ROW) + forgiven_margins
    }
}
