//! What another size would bring, from the curve, in figures and in words.

use super::report::{CurvePoint, LiveCurve, MemoryAdvice};

/// The changes that are evaluated, in per cent.
const CHANGES_PERCENT: [i32; 4] = [25, 10, -25, -50];

/// The advice for a curve whose rows are known.
pub(super) fn advise(curve: &LiveCurve) -> Vec<MemoryAdvice> {
    CHANGES_PERCENT
        .iter()
        .filter_map(|change_percent| advise_change(curve, *change_percent))
        .collect()
}

fn advise_change(curve: &LiveCurve, change_percent: i32) -> Option<MemoryAdvice> {
    let factor = 1.0 + f64::from(change_percent) / 100.0;
    let memory_bytes = (curve.memory_bytes as f64 * factor) as u64;
    let point = interpolate(&curve.rows, memory_bytes)?;
    let per_second = |ratio: f64| ratio * curve.gets_per_second;
    let misses_per_second = per_second(curve.miss_ratio);
    let avoided_per_second = per_second(curve.miss_ratio - point.miss_ratio);
    let advice = MemoryAdvice {
        memory_bytes,
        change_percent,
        misses_per_second,
        avoided_per_second,
        avoided_backend_s: curve.miss_time_s.map(|time_s| time_s * avoided_per_second),
        low: per_second(curve.miss_ratio - point.high),
        high: per_second(curve.miss_ratio - point.low),
        sentence: String::new(),
    };
    let sentence = write_sentence(&advice, curve.memory_bytes);
    Some(MemoryAdvice { sentence, ..advice })
}

/// The point at a size between two rows.
pub(super) fn interpolate(rows: &[CurvePoint], memory_bytes: u64) -> Option<CurvePoint> {
    let upper = rows.iter().position(|row| row.memory_bytes >= memory_bytes)?;
    let above = rows.get(upper)?;
    let Some(below) = upper.checked_sub(1).and_then(|lower| rows.get(lower)) else {
        return (above.memory_bytes == memory_bytes).then_some(*above);
    };
    let width = (above.memory_bytes - below.memory_bytes).max(1) as f64;
    let part = (memory_bytes - below.memory_bytes) as f64 / width;
    let between = |from: f64, to: f64| from + (to - from) * part;
    Some(CurvePoint {
        memory_bytes,
        miss_ratio: between(below.miss_ratio, above.miss_ratio),
        low: between(below.low, above.low),
        high: between(below.high, above.high),
        lru_miss_ratio: between(below.lru_miss_ratio, above.lru_miss_ratio),
    })
}

/// For example `+256 MB (+25 %) would avoid 41 of 310 misses/s (13 % +- 2)`, and if the time of a miss is known `, 0.66
/// s of backend time a second`.
fn write_sentence(advice: &MemoryAdvice, present_bytes: u64) -> String {
    let MemoryAdvice {
        memory_bytes, change_percent, misses_per_second, avoided_per_second, ..
    } = *advice;
    let megabytes = (memory_bytes as f64 - present_bytes as f64) / f64::from(1 << 20);
    let percent = |rate: f64| 100.0 * rate / misses_per_second.max(f64::MIN_POSITIVE);
    let error = percent((advice.high - advice.low) / 2.0);
    let change = format!("{megabytes:+.0} MB ({change_percent:+} %)");
    let misses = format_rate(misses_per_second);
    if misses_per_second <= 0.0 {
        return format!("{change}: there are no misses now");
    }
    let share = percent(avoided_per_second.abs());
    let rate = format_rate(avoided_per_second.abs());
    let effect = if avoided_per_second >= 0.0 {
        format!("{change} would avoid {rate} of {misses} misses/s ({share:.0} % +- {error:.0})")
    } else {
        format!("{change} would add {rate} to {misses} misses/s ({share:.0} % +- {error:.0})")
    };
    match advice.avoided_backend_s {
        Some(time_s) => format!("{effect}, {:.2} s of backend time a second", time_s.abs()),
        None => effect,
    }
}

/// A rate with two significant digits below 10.
fn format_rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(megabytes: u64, miss_ratio: f64) -> CurvePoint {
        CurvePoint {
            memory_bytes: megabytes << 20,
            miss_ratio,
            low: miss_ratio - 0.01,
            high: miss_ratio + 0.01,
            lru_miss_ratio: miss_ratio,
        }
    }

    #[test]
    fn more_memory_avoids_misses_and_less_adds_some_in_words() {
        let curve = LiveCurve {
            rows: vec![point(512, 0.4), point(1024, 0.3), point(2048, 0.2)],
            memory_bytes: 1 << 30,
            miss_ratio: 0.3,
            gets_per_second: 1000.0,
            ..LiveCurve::default()
        };
        let advice = advise(&curve);
        let sentences: Vec<&str> = advice.iter().map(|a| a.sentence.as_str()).collect();
        assert_eq!(
            sentences,
            [
                "+256 MB (+25 %) would avoid 25 of 300 misses/s (8 % +- 3)",
                "+102 MB (+10 %) would avoid 10.0 of 300 misses/s (3 % +- 3)",
                "-256 MB (-25 %) would add 50 to 300 misses/s (17 % +- 3)",
                "-512 MB (-50 %) would add 100 to 300 misses/s (33 % +- 3)",
            ]
        );
        assert!(advice[0].low < advice[0].avoided_per_second);
        let advice = advise(&LiveCurve { miss_time_s: Some(0.016), ..curve });
        assert_eq!(
            advice[0].sentence,
            "+256 MB (+25 %) would avoid 25 of 300 misses/s (8 % +- 3), 0.40 s of backend time a second"
        );
        assert!(advice[3].avoided_backend_s.is_some_and(|time_s| (time_s + 1.6).abs() < 1e-9));
    }
}
