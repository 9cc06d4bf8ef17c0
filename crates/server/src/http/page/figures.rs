//! Numbers as text, and small charts of series.

use glasscache_sim::page::{Chart, Series as Line, format_short_bytes, format_short_number};

/// Size of a chart in SVG units.
const CHART_SIZE: [f64; 2] = [560.0, 240.0];
/// Size of a sparkline, and the values that it shows at most.
const SPARK_SIZE: [f64; 2] = [240.0, 44.0];
const SPARK_VALUES: usize = 120;

pub(super) fn number(value: f64) -> String {
    if value.is_finite() { format_short_number(value) } else { "-".to_owned() }
}

pub(super) fn count(value: u64) -> String {
    number(value as f64)
}

pub(super) fn bytes(value: f64) -> String {
    format_short_bytes(value.max(0.0) as u64)
}

/// A ratio in per cent; a dash without anything to divide by.
pub(super) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", 100.0 * part / whole) } else { "-".to_owned() }
}

pub(super) fn duration_us(microseconds: f64) -> String {
    match microseconds {
        us if us >= 1e6 => format!("{} s", number(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", number(us / 1e3)),
        us => format!("{} us", number(us)),
    }
}

pub(super) fn duration_s(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Lines over the time before now: each value is one `step` older than the next.
pub(super) fn time_chart(
    title: &str,
    y_label: &str,
    unit: &str,
    steps_per_unit: f64,
    lines: &[(&str, Vec<f32>)],
) -> String {
    let to_line = |(label, values): &(&str, Vec<f32>)| {
        let newest = values.len().saturating_sub(1) as f64;
        let points = values.iter().enumerate().filter(|(_, value)| value.is_finite());
        let points = points
            .map(|(index, value)| ((index as f64 - newest) / steps_per_unit, f64::from(*value)));
        Line { label: (*label).to_owned(), points: points.collect(), ..Line::default() }
    };
    let chart = Chart {
        title: title.to_owned(),
        x_label: unit.to_owned(),
        y_label: y_label.to_owned(),
        series: lines.iter().map(to_line).collect(),
        ..Chart::default()
    };
    chart.to_svg(CHART_SIZE)
}

/// The curve of misses by memory, with the interval, LRU to compare with and the present limit.
pub(super) fn curve_chart(series: Vec<Line>, present_mib: f64) -> String {
    let chart = Chart {
        title: "Miss ratio by memory".to_owned(),
        x_label: "memory (MiB)".to_owned(),
        y_label: "misses (% of gets)".to_owned(),
        is_x_log: true,
        series,
        marks: vec![glasscache_sim::page::Mark { x: present_mib, label: "now".to_owned() }],
        ..Chart::default()
    };
    chart.to_svg(CHART_SIZE)
}

/// A line without axes.
pub(super) fn sparkline(values: &[f32]) -> String {
    use std::fmt::Write as _;
    let [width, height] = SPARK_SIZE;
    let mut svg = format!(
        "<svg class=\"spark\" viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path d=\""
    );
    let stride = values.len().div_ceil(SPARK_VALUES).max(1);
    let means: Vec<f32> = values.chunks(stride).map(mean).collect();
    let highest =
        means.iter().copied().filter(|value| value.is_finite()).fold(0.0_f32, f32::max).max(1e-6);
    let step = width / (means.len().max(2) - 1) as f64;
    let mut is_begun = false;
    for (index, value) in means.iter().enumerate() {
        if !value.is_finite() {
            is_begun = false;
            continue;
        }
        let (x, y) =
            (step * index as f64, (height - 2.0) * (1.0 - f64::from(*value / highest)) + 1.0);
        let _ = write!(svg, "{}{x:.1} {y:.1}", if is_begun { 'L' } else { 'M' });
        is_begun = true;
    }
    svg.push_str("\"/></svg>");
    svg
}

/// The mean of the values that are numbers.
fn mean(values: &[f32]) -> f32 {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let (sum, count) = finite.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_fits() {
        assert_eq!(duration_us(12.0), "12 us");
        assert_eq!(duration_us(1500.0), "1.5 ms");
        assert_eq!(duration_us(2e6), "2 s");
        assert_eq!(duration_s(90), "90 s");
        assert_eq!(duration_s(7300), "2 h");
        assert_eq!(duration_s(200_000), "2 days");
        assert_eq!(percent(1.0, 0.0), "-");
    }

    #[test]
    fn a_sparkline_has_gaps_and_is_short() {
        let mut values = vec![1.0; 600];
        values[100..200].fill(f32::NAN);
        let svg = sparkline(&values);
        assert_eq!(svg.matches('M').count(), 2);
        assert!(svg.len() < 3000 && !svg.contains("NaN"));
        assert!(!sparkline(&[]).contains("NaN"));
    }
}
