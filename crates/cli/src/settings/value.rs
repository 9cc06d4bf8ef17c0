//! Reading the values of settings: each function returns the value or the violated bound.
//!
//! The caller prepends the name and the source of the setting, so that all error messages have the
//! same form: setting, value, bound.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use glasscache_server::IpNet;

/// A whole number from `min` to `max`.
pub(super) fn parse_whole_number(raw: &str, min: i64, max: i64) -> Result<i64, String> {
    let describe_bound = || format!("must be a whole number from {min} to {max}");
    let number: i64 = raw.trim().parse().map_err(|_| describe_bound())?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(describe_bound()) }
}

/// A number above `exclusive_min` and at most `max`.
pub(super) fn parse_number(raw: &str, exclusive_min: f64, max: f64) -> Result<f64, String> {
    let describe_bound = || format!("must be a number above {exclusive_min} and at most {max}");
    let number: f64 = raw.trim().parse().map_err(|_| describe_bound())?;
    if number > exclusive_min && number <= max { Ok(number) } else { Err(describe_bound()) }
}

/// A size with an optional suffix k, m, g or t; a bare number counts in `unit` bytes.
pub(super) fn parse_size(raw: &str, unit: u64, min: u64, max: u64) -> Result<u64, String> {
    let describe_bound = || {
        format!(
            "must be a size from {} to {} (suffix k, m, g or t)",
            format_size(min),
            format_size(max)
        )
    };
    let text = raw.trim().to_ascii_lowercase();
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g') => (&text[..text.len() - 1], 1 << 30),
        Some(b't') => (&text[..text.len() - 1], 1 << 40),
        _ => (text.as_str(), unit),
    };
    let number: u64 = digits.parse().map_err(|_| describe_bound())?;
    let bytes = number.checked_mul(scale).ok_or_else(describe_bound)?;
    if (min..=max).contains(&bytes) { Ok(bytes) } else { Err(describe_bound()) }
}

/// A path; none if the text is empty.
pub(super) fn parse_path(raw: &str) -> Option<PathBuf> {
    (!raw.is_empty()).then(|| raw.into())
}

/// A path that has to be given.
pub(super) fn parse_required_path(raw: &str) -> Result<PathBuf, String> {
    parse_path(raw).ok_or_else(|| "must be the path of a file".to_owned())
}

/// The text of a path; empty if there is none.
pub(super) fn format_path(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// Networks, separated by commas: addresses with or without a prefix length.
pub(super) fn parse_networks(raw: &str) -> Result<Vec<IpNet>, String> {
    let parts = raw.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parse_network = |part: &str| match part.parse::<IpAddr>() {
        Ok(address) => Ok(IpNet::from(address)),
        Err(_) => part
            .parse::<IpNet>()
            .map_err(|_| format!("must be addresses such as 10.0.0.5 or 10.0.0.0/24, not {part}")),
    };
    let networks: Vec<IpNet> = parts.map(parse_network).collect::<Result<_, _>>()?;
    if networks.is_empty() {
        return Err("must be addresses such as 10.0.0.5 or 10.0.0.0/24".to_owned());
    }
    Ok(networks)
}

/// A permission mask in octal, 0 to 777.
pub(super) fn parse_octal(raw: &str) -> Result<u32, String> {
    match u32::from_str_radix(raw.trim(), 8) {
        Ok(mask) if mask <= 0o777 => Ok(mask),
        _ => Err("must be an octal mask from 0 to 777".to_owned()),
    }
}

/// Yes or no; a flag without a value means yes.
pub(super) fn parse_switch(raw: &str) -> Result<bool, String> {
    match raw.trim() {
        "" | "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// One of `choices`, as written there.
pub(super) fn parse_choice(raw: &str, choices: &[&'static str]) -> Result<&'static str, String> {
    let matching = choices.iter().find(|choice| **choice == raw.trim());
    matching.copied().ok_or_else(|| format!("must be one of {}", choices.join(", ")))
}

/// Renders a number of bytes with the largest suffix that divides it.
pub(super) fn format_size(bytes: u64) -> String {
    for (scale, suffix) in [(1 << 40, "t"), (1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")] {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{}{suffix}", bytes / scale);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_suffixes_and_keep_their_bounds() {
        assert_eq!(parse_size("512k", 1, 1024, 1 << 30), Ok(512 << 10));
        assert_eq!(parse_size("64", 1 << 20, 1, u64::MAX), Ok(64 << 20));
        assert_eq!(parse_size("1T", 1 << 20, 1, 1 << 44), Ok(1 << 40));
        assert_eq!(format_size(16 << 40), "16t");
        assert!(parse_size("1000", 1, 1024, 1 << 30).unwrap_err().contains("from 1k to 1g"));
        assert!(parse_size("99999999999999999999g", 1, 0, u64::MAX).is_err());
        assert!(parse_size("m", 1, 0, u64::MAX).is_err());
    }

    #[test]
    fn numbers_outside_their_bounds_name_them() {
        assert_eq!(parse_whole_number("-1", -1, 65535), Ok(-1));
        assert!(parse_whole_number("0", 1, 64).unwrap_err().contains("from 1 to 64"));
        assert!(parse_whole_number("4x", 1, 64).is_err());
        assert!(parse_number("1", 1.0, 10.0).is_err());
        assert!(parse_number("nan", 1.0, 10.0).is_err());
        assert_eq!(parse_octal("755"), Ok(0o755));
        assert!(parse_octal("888").is_err());
    }

    #[test]
    fn networks_are_addresses_with_or_without_a_prefix_length() {
        let parse_to_texts = |raw| {
            parse_networks(raw).map(|networks| networks.iter().map(ToString::to_string).collect())
        };
        let expected: Vec<String> =
            vec!["10.0.0.5/32".into(), "10.1.0.0/16".into(), "::1/128".into()];
        assert_eq!(parse_to_texts("10.0.0.5, 10.1.0.0/16,::1"), Ok(expected));
        for invalid_text in ["", ",", "10.0.0.0/33", "proxy.example", "10.0.0", "10.0.0.5:80"] {
            assert!(parse_networks(invalid_text).is_err(), "{invalid_text}");
        }
    }
}
