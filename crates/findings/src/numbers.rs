//! Numbers as people read them: thousands separators, units, percent.

use std::time::Duration;

/// A whole number with its thousands set apart: `1,234,567`.
pub fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 key`, `2,000 keys`.
pub fn format_count_of(number: u64, singular: &str, plural: &str) -> String {
    let noun = if number == 1 { singular } else { plural };
    format!("{} {noun}", format_count(number))
}

/// A number with about three digits: `0`, `0.123`, `1.23`, `12.3`, `1,234`.
pub fn format_decimal(number: f64) -> String {
    match number {
        n if !n.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        n if n < 0.995 => format!("{n:.3}"),
        n if n < 9.95 => format!("{n:.2}"),
        n if n < 99.5 => format!("{n:.1}"),
        n => format_count(n.round() as u64),
    }
}

/// Bytes in decimal units: `999 B`, `31.2 MB`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KB", "MB", "GB"];
    let mut amount = bytes as f64;
    let mut unit_index = 0;
    while amount >= 999.5 && unit_index + 1 < UNITS.len() {
        amount /= 1000.0;
        unit_index += 1;
    }
    let unit_name = UNITS.get(unit_index).copied().unwrap_or_default();
    if unit_index == 0 || amount >= 99.95 {
        format!("{amount:.0} {unit_name}")
    } else {
        format!("{amount:.1} {unit_name}")
    }
}

/// A share from 0 to 1 as percent: `83.8 %`; a dash for `None`.
pub fn format_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// A time span in its two greatest units: `1 d 2 h`, `3 min 20 s`, `1.5 s`, `250 ms`.
pub fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..60 => {
            let tenths = (span.as_secs_f64() * 10.0).round() / 10.0;
            format!("{tenths} s")
        }
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_with_separators_and_units() {
        assert_eq!(
            [
                format_count(0),
                format_count(7),
                format_count(123),
                format_count(999),
                format_count(1000)
            ],
            ["0", "7", "123", "999", "1,000"]
        );
        assert_eq!([format_count(1_234_567), format_count(5_292_456)], ["1,234,567", "5,292,456"]);
        assert_eq!(
            [
                format_decimal(0.1234),
                format_decimal(1.234),
                format_decimal(45.67),
                format_decimal(1234.4)
            ],
            ["0.123", "1.23", "45.7", "1,234"]
        );
        assert_eq!(
            [
                format_bytes(12),
                format_bytes(1500),
                format_bytes(31_234_567),
                format_bytes(256_000_000)
            ],
            ["12 B", "1.5 KB", "31.2 MB", "256 MB"]
        );
    }

    #[test]
    fn formats_durations_and_shares() {
        let spans = [250, 1500, 10_000, 200_000, 7_500_000, 93_784_000];
        assert_eq!(
            spans.map(|ms| format_duration(Duration::from_millis(ms))),
            ["250 ms", "1.5 s", "10 s", "3 min 20 s", "2 h 5 min", "1 d 2 h"]
        );
        assert_eq!([format_percent(Some(0.8379)), format_percent(None)], ["83.8 %", "-"]);
    }
}
