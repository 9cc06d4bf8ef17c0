//! Keys in lines of text.

use std::io::Write as _;

/// Whether a key has no blank and no control byte, so that a line may contain it.
pub(crate) fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 127)
}

/// Appends `key` with everything but letters, digits and `-._~` as percent and two hex digits.
pub(crate) fn uri_encode(key: &[u8], out: &mut Vec<u8>) {
    for byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(*byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_percent_encoded() {
        let mut out = Vec::new();
        uri_encode(b"a#b c", &mut out);
        assert_eq!(out, b"a%23b%20c");
    }
}
