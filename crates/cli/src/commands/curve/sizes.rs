//! Sizes on the command line: numbers, numbers of bytes with k, M or G, and shares of the trace's footprint.

use glasscache_sim::replay::PreparedTrace;
use glasscache_sim::trace::intern::Mode;

use crate::output::Failure;

/// Sizes in the order given.
pub(super) fn parse_sizes(texts: &[String], trace: &PreparedTrace) -> Result<Vec<u64>, Failure> {
    texts.iter().map(|text| parse_size(text, trace)).collect()
}

/// One size, at least 1. A share is rounded half up, like the reference results.
pub(super) fn parse_size(text: &str, trace: &PreparedTrace) -> Result<u64, Failure> {
    let invalid_size = || {
        let expected = "a number, a number with k, M or G, or a share such as 5%";
        Failure::usage(format!("\"{text}\" is not a valid size: expected {expected}"))
    };
    if let Some(percent_text) = text.strip_suffix('%') {
        let percent: f64 = percent_text.parse().map_err(|_| invalid_size())?;
        if !(percent > 0.0 && percent <= 1000.0) {
            return Err(invalid_size());
        }
        return Ok(((trace.footprint() as f64 * percent / 100.0 + 0.5) as u64).max(1));
    }
    if let Ok(number) = text.parse::<u64>() {
        return if number == 0 { Err(invalid_size()) } else { Ok(number) };
    }
    let (number_text, unit) =
        text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(invalid_size)?;
    let factor = match unit {
        "k" | "K" => 1024.0,
        "m" | "M" => 1024.0 * 1024.0,
        "g" | "G" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(invalid_size()),
    };
    if trace.mode() == Mode::Objects {
        let message = format!("\"{text}\" is a number of bytes, but objects are counted");
        return Err(Failure::usage(message).with_hint("add --mode bytes, or leave out the unit"));
    }
    let number: f64 = number_text.parse().map_err(|_| invalid_size())?;
    let size = number * factor;
    if (1.0..1e18).contains(&size) { Ok(size as u64) } else { Err(invalid_size()) }
}
