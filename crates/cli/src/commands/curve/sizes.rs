//! Sizes on the command line: numbers, numbers with k, M or G, and shares of everything a trace asks for.

use glasscache_sim::replay::Prepared;

use crate::output::Failure;

/// Sizes in the order given.
pub(super) fn all(texts: &[String], trace: &Prepared) -> Result<Vec<u64>, Failure> {
    texts.iter().map(|text| one(text, trace)).collect()
}

/// One size, at least 1. A share is rounded half up, as the reference results are.
pub(super) fn one(text: &str, trace: &Prepared) -> Result<u64, Failure> {
    let wrong = || {
        let wanted = "a number, a number with k, M or G, or a share such as 5%";
        Failure::usage(format!("\"{text}\" is no size: expected {wanted}"))
    };
    if let Some(share) = text.strip_suffix('%') {
        let share: f64 = share.parse().map_err(|_| wrong())?;
        if !(share > 0.0 && share <= 1000.0) {
            return Err(wrong());
        }
        return Ok(((trace.footprint() as f64 * share / 100.0 + 0.5) as u64).max(1));
    }
    if let Ok(number) = text.parse::<u64>() {
        return if number == 0 {
            Err(wrong())
        } else {
            Ok(number)
        };
    }
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(wrong)?;
    let factor = match unit {
        "k" | "K" => 1024.0,
        "m" | "M" => 1024.0 * 1024.0,
        "g" | "G" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let size = number * factor;
    if (1.0..1e18).contains(&size) {
        Ok(size as u64)
    } else {
        Err(wrong())
    }
}
