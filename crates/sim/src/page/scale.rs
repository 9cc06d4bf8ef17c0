//! Axes: convert values to pixel positions, and choose the round numbers at the ticks.

/// One axis of a chart, linear or logarithmic.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    start_px: f64,
    end_px: f64,
    /// Values with a grid line and a label.
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// An axis that shows all `values` between two pixel positions; a logarithmic axis shows only values above 0.
    pub(super) fn new(
        values: impl Iterator<Item = f64>,
        is_log: bool,
        start_px: f64,
        end_px: f64,
    ) -> Self {
        let drawable = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let (low, high) = drawable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(lowest, highest), value| {
                (lowest.min(value), highest.max(value))
            });
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        let (low, high, ticks) =
            if is_log { choose_log_ticks(low, high) } else { choose_linear_ticks(low, high) };
        Self { low, high, is_log, start_px, end_px, ticks }
    }

    /// The axis for the page's script: lowest and highest value, their positions, whether it is logarithmic.
    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::json!([self.low, self.high, self.start_px, self.end_px, self.is_log])
    }

    /// The pixel position of a value; `None` if a logarithmic axis cannot show it.
    pub(super) fn to_px(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.is_log && value <= 0.0) {
            return None;
        }
        let fraction = if self.is_log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        Some(self.start_px + fraction.clamp(0.0, 1.0) * (self.end_px - self.start_px))
    }
}

/// Steps of 1, 2 or 5 times a power of ten, about six of them; 0 belongs to the axis when it is near.
fn choose_linear_ticks(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let axis_low = if low > 0.0 && low < 0.6 * high { 0.0 } else { low };
    let span = if high > axis_low { high - axis_low } else { high.abs().max(1.0) };
    let rough_step = span / 6.0;
    let power_of_ten = 10f64.powf(rough_step.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|multiplier| multiplier * power_of_ten)
        .find(|candidate| *candidate >= rough_step)
        .unwrap_or(span);
    let first_step = (axis_low / step).floor();
    let last_step = (high / step).ceil().max(first_step + 1.0);
    let step_count = (last_step - first_step).round() as usize;
    let ticks: Vec<f64> =
        (0..=step_count).map(|index| (first_step + index as f64) * step).collect();
    (first_step * step, last_step * step, ticks)
}

/// Powers of ten; where they are few, also 2 and 5 times them, where they are many, every second or third.
fn choose_log_ticks(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let high = if high > low { high } else { low * 10.0 };
    let decades = (high / low).log10();
    let (first_exponent, last_exponent) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decade_stride =
        if decades > 8.0 { ((last_exponent - first_exponent) / 6).max(1) as usize } else { 1 };
    let multipliers: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let powers_of_ten = (first_exponent..=last_exponent)
        .step_by(decade_stride)
        .map(|exponent| 10f64.powi(exponent));
    let ticks = powers_of_ten.flat_map(|power_of_ten| {
        multipliers.iter().map(move |multiplier| multiplier * power_of_ten)
    });
    let is_visible = |tick: &f64| *tick >= low * 0.999 && *tick <= high * 1.001;
    (low, high, ticks.filter(is_visible).collect())
}

/// A number in short form: `1.5k`, `20M`, `0.03`.
pub fn format_short_number(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        magnitude if magnitude >= 1e12 => (value / 1e12, "T"),
        magnitude if magnitude >= 1e9 => (value / 1e9, "G"),
        magnitude if magnitude >= 1e6 => (value / 1e6, "M"),
        magnitude if magnitude >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    if scaled == 0.0 {
        return "0".into();
    }
    let decimals = (2 - scaled.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{scaled:.decimals$}");
    let short_text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short_text}{unit}")
}

/// A number of bytes in short form, in powers of 1024: `64 MiB`.
pub fn format_short_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let exponent = if bytes == 0 { 0 } else { (bytes.ilog2() / 10).min(4) };
    let scaled = bytes as f64 / 1024f64.powi(exponent as i32);
    let decimals =
        if exponent == 0 || scaled >= 100.0 { 0 } else { 2 - usize::from(scaled >= 10.0) };
    format!("{scaled:.decimals$} {}", units[exponent as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_in_short_form() {
        let cases = [
            (0.0, "0"),
            (0.03, "0.03"),
            (1500.0, "1500"),
            (20e6, "20M"),
            (15_300.0, "15.3k"),
            (1e9, "1G"),
        ];
        for (value, expected) in cases {
            assert_eq!(format_short_number(value), expected);
        }
    }

    #[test]
    fn formats_bytes_in_powers_of_1024() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (64 << 20, "64.0 MiB"),
            (1 << 30, "1.00 GiB"),
            (700 << 10, "700 KiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(format_short_bytes(bytes), expected);
        }
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let scale = Scale::new([3.0, 97.0].into_iter(), false, 0.0, 100.0);
        assert_eq!(scale.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(scale.to_px(50.0), Some(50.0));
        let scale = Scale::new([0.0, 1.0, 1000.0].into_iter(), true, 0.0, 90.0);
        assert_eq!(scale.ticks, [1.0, 10.0, 100.0, 1000.0]);
        assert!((scale.to_px(10.0).unwrap() - 30.0).abs() < 1e-9);
        assert_eq!(scale.to_px(0.0), None);
    }

    #[test]
    fn one_or_no_values_make_a_valid_axis() {
        for values in [vec![], vec![5.0], vec![0.0], vec![-2.0, -2.0]] {
            for is_log in [false, true] {
                let scale = Scale::new(values.iter().copied(), is_log, 0.0, 1.0);
                assert!(!scale.ticks.is_empty() && scale.ticks.iter().all(|tick| tick.is_finite()));
            }
        }
    }
}
