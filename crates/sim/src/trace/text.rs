//! Cells of text files: keys, whole numbers, times.

use super::layout::TimeUnit;
use chrono::{DateTime, NaiveDateTime};
use std::collections::HashMap;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Seed of the second hash, which detects two texts with the same first one.
const CHECK_SEED: u64 = 1;

/// Keys that are text, as 64-bit hashes, and how many of them share a hash with another text.
#[derive(Debug, Default)]
pub(super) struct TextKeys {
    /// The second hash of the first text with each hash.
    second_hashes: HashMap<u64, u64>,
    collisions: u64,
}

impl TextKeys {
    /// The key of a text: its value if it is a whole number of 64 bits as it would be printed, else its hash (XXH3).
    pub(super) fn key_of_text(&mut self, text: &[u8]) -> u64 {
        if let Some(number) = printed_number(text) {
            return number;
        }
        let (key, second_hash) = (key_number(text), xxh3_64_with_seed(text, CHECK_SEED));
        if *self.second_hashes.entry(key).or_insert(second_hash) != second_hash {
            self.collisions += 1;
        }
        key
    }

    /// Rows whose key was hashed to the number of another key.
    pub(super) fn collisions(&self) -> u64 {
        self.collisions
    }

    /// Number of distinct hashes of texts.
    pub(super) fn distinct_hashes(&self) -> u64 {
        self.second_hashes.len() as u64
    }
}

/// The key of a text: its value if it is a whole number of 64 bits as it would be printed, else its hash (XXH3).
pub fn key_number(text: &[u8]) -> u64 {
    printed_number(text).unwrap_or_else(|| xxh3_64(text))
}

/// The number that is printed as this text: "007" and "+7" are texts of their own.
fn printed_number(text: &[u8]) -> Option<u64> {
    let is_printed = matches!(text, [b'1'..=b'9', ..] | [b'0']);
    if is_printed { parse_whole_number(text) } else { None }
}

/// A whole number of decimal digits.
pub(super) fn parse_whole_number(text: &[u8]) -> Option<u64> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What a cell with a number looks like, for errors; a row with a greater one is left out.
pub(super) const WHOLE_NUMBER: &str = "a whole number from 0 to 4294967295";

/// A whole number, also one that is written as a float (`10.0`), as programs write a column with gaps; `u64::MAX` for one
/// that is greater.
pub(super) fn parse_whole(text: &[u8]) -> Option<u64> {
    parse_whole_number(text).or_else(|| {
        let is_float = text.first()?.is_ascii_digit();
        let number = std::str::from_utf8(text).ok()?.parse().ok()?;
        if is_float { whole_number_of(number) } else { None }
    })
}

/// The value of a float that is a whole number; `u64::MAX` for one that is greater.
pub(super) fn whole_number_of(number: f64) -> Option<u64> {
    (number >= 0.0 && number.is_finite() && number.fract() == 0.0).then_some(number as u64)
}

/// Forms of date and time that are read besides numbers: access logs, ISO 8601.
const ZONED_FORMATS: [&str; 3] =
    ["%d/%b/%Y:%H:%M:%S %z", "%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f%z"];

/// Forms without a time zone, which count as UTC.
const LOCAL_FORMATS: [&str; 2] = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"];

/// What a time looks like, for errors.
pub(super) const TIME_FORMATS: &str = "a number, an ISO 8601 time, or a time as in access logs";

/// Whether a time is a number, with decimals or without.
pub(super) fn is_number(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

/// A time in microseconds if there is a unit, else in the file's own unit.
///
/// A number may have decimals. A date is a number of microseconds since 1970 with a unit, and of seconds without.
pub(super) fn parse_time(text: &[u8], unit: Option<TimeUnit>) -> Option<u64> {
    let unit_us = unit.map_or(1, TimeUnit::microseconds);
    if let Some(number) = parse_whole_number(text) {
        return Some(number.saturating_mul(unit_us));
    }
    if let Some(dot_index) = text.iter().position(|&byte| byte == b'.')
        && let Some(whole_units) = parse_whole_number(&text[..dot_index])
    {
        return Some(
            whole_units
                .saturating_mul(unit_us)
                .saturating_add(parse_decimals(&text[dot_index + 1..], unit_us)?),
        );
    }
    let date_text = std::str::from_utf8(text).ok()?;
    let signed_time_us = DateTime::parse_from_rfc3339(date_text)
        .ok()
        .or_else(|| {
            ZONED_FORMATS.iter().find_map(|format| DateTime::parse_from_str(date_text, format).ok())
        })
        .map(|time| time.timestamp_micros())
        .or_else(|| {
            let parsed = LOCAL_FORMATS
                .iter()
                .find_map(|format| NaiveDateTime::parse_from_str(date_text, format).ok());
            parsed.map(|time| time.and_utc().timestamp_micros())
        })?;
    let time_us = u64::try_from(signed_time_us).ok()?;
    Some(if unit.is_some() { time_us } else { time_us / 1_000_000 })
}

/// The decimals of a number, times `scale`, rounded down.
fn parse_decimals(digits: &[u8], scale: u64) -> Option<u64> {
    let mut sum = 0;
    let mut digit_value = scale;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        digit_value /= 10;
        sum += u64::from(digit - b'0') * digit_value;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_and_other_texts_are_hashed() {
        let mut keys = TextKeys::default();
        assert_eq!(keys.key_of_text(b"17"), 17);
        assert_eq!(keys.key_of_text(b"18446744073709551615"), u64::MAX);
        let texts: [&[u8]; 6] = [b"007", b"+7", b"user:17", b"18446744073709551616", b"", b" 7"];
        for text in texts {
            assert_eq!(keys.key_of_text(text), xxh3_64(text));
        }
        assert_eq!((keys.distinct_hashes(), keys.collisions()), (6, 0));
    }

    #[test]
    fn a_whole_number_may_be_written_as_a_float() {
        for (text, number) in [
            ("10", Some(10)),
            ("10.0", Some(10)),
            ("0.0", Some(0)),
            ("1e+3", Some(1000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("99999999999999999999", Some(u64::MAX)),
            ("10.5", None),
            ("-1", None),
            ("-0.0", None),
            ("+1", None),
            ("nan", None),
            ("inf", None),
            ("", None),
            (" 1", None),
            ("1e999", None),
        ] {
            assert_eq!(parse_whole(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn two_texts_with_one_hash_are_counted() {
        let mut keys = TextKeys::default();
        keys.second_hashes.insert(xxh3_64(b"a"), 0);
        keys.key_of_text(b"a");
        keys.key_of_text(b"b");
        keys.key_of_text(b"a");
        assert_eq!(keys.collisions(), 2);
    }

    #[test]
    fn times_are_read_in_every_form() {
        let unit = Some(TimeUnit::Seconds);
        assert_eq!(parse_time(b"12", unit), Some(12_000_000));
        assert_eq!(parse_time(b"12.5", unit), Some(12_500_000));
        assert_eq!(parse_time(b"12.0000019", unit), Some(12_000_001));
        assert_eq!(parse_time(b"12.5", Some(TimeUnit::Milliseconds)), Some(12_500));
        assert_eq!(parse_time(b"12.5", None), Some(12));
        assert_eq!(parse_time(b"10/Oct/2000:13:55:36 -0700", unit), Some(971_211_336_000_000));
        assert_eq!(parse_time(b"10/Oct/2000:13:55:36 -0700", None), Some(971_211_336));
        assert_eq!(parse_time(b"2000-10-10T20:55:36Z", unit), Some(971_211_336_000_000));
        assert_eq!(parse_time(b"2000-10-10 20:55:36.25", unit), Some(971_211_336_250_000));
        for invalid_time in [&b"-1"[..], b"yesterday", b"1.x", b"", b"1e5"] {
            assert_eq!(parse_time(invalid_time, unit), None);
        }
    }
}
