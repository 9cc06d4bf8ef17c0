//! What an experiment with other settings brings, and when that is certain.

/// Windows in a row in which a candidate has to be better, or a forecast has to be missed.
pub(super) const WINDOWS_IN_A_ROW: u32 = 4;

/// A gain below this share of the misses is not worth a switch.
const GAIN_SHARE_MIN: f64 = 0.01;

/// Standard errors by which a gain has to exceed zero.
pub(super) const ERRORS_MIN: f64 = 3.0;

/// Standard errors over the windows by which the gain of a rehearsal has to exceed zero. The load of these windows is the
/// same with and without the switch, so less is asked than over the keys.
const WINDOW_ERRORS_MIN: f64 = 0.75;

/// Gains in the windows of an experiment, as shares of the cost without it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gains {
    pub(super) windows: u32,
    cost: f64,
    pub(super) gain: f64,
    variance: f64,
    /// Sum and sum of squares of the windows' shares.
    shares: f64,
    squares: f64,
}

impl Gains {
    pub(super) fn add(&mut self, cost: f64, gain: f64, error: f64) {
        let share = gain / cost.max(1.0);
        self.windows += 1;
        self.cost += cost;
        self.gain += gain;
        self.variance += error * error;
        self.shares += share;
        self.squares += share * share;
    }

    pub(super) fn share(&self) -> f64 {
        self.gain / self.cost.max(1.0)
    }

    /// Whether the gain is worth a switch, and certain over keys and windows.
    pub(super) fn is_certain(&self) -> bool {
        let window_error = self.deviation() / f64::from(self.windows.max(1)).sqrt();
        self.gain > margin(self.cost, self.variance.sqrt())
            && self.share() > WINDOW_ERRORS_MIN * window_error
    }

    /// The standard deviation of the windows' shares.
    fn deviation(&self) -> f64 {
        let windows = f64::from(self.windows.max(2));
        let variance = (self.squares - self.shares * self.shares / windows) / (windows - 1.0);
        variance.max(0.0).sqrt()
    }

    /// Half of a 95 % interval of the share: how it differs between windows and between keys, and one per cent for
    /// what a miniature cannot show.
    pub(super) fn interval(&self) -> f64 {
        let error = self.variance.sqrt() / self.cost.max(1.0);
        2.0 * self.deviation().hypot(error) + GAIN_SHARE_MIN
    }
}

/// What a difference has to exceed to count.
pub(super) fn margin(total: f64, error: f64) -> f64 {
    (GAIN_SHARE_MIN * total).max(ERRORS_MIN * error)
}
