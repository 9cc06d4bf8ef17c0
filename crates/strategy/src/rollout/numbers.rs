//! Numbers as the sentences about a roll-out have them.

/// A number with three digits that count, as in 58.1 and 0.520.
pub(super) fn short(number: f64) -> String {
    match number.abs() {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        let texts = [58.12, 0.5201, 1.8, 1234.0].map(short);
        assert_eq!(texts, ["58.1", "0.520", "1.80", "1234"]);
    }
}
