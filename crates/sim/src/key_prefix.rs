//! The prefix of a key, by which the tables of all commands group keys.

/// The delimiters of commands that take none.
pub const DELIMITERS: &[u8] = b":/";

/// The row of a table for keys that have no prefix.
pub const NO_PREFIX: &str = "(no prefix)";

/// The key up to its first delimiter, with it; `None` for a key without one.
pub fn key_prefix<'k>(key: &'k [u8], delimiters: &[u8]) -> Option<&'k [u8]> {
    let end = key.iter().position(|byte| delimiters.contains(byte))?;
    key.get(..=end)
}

/// The same of a key that is text.
pub fn text_key_prefix<'k>(key: &'k str, delimiters: &[u8]) -> Option<&'k str> {
    let prefix = key_prefix(key.as_bytes(), delimiters)?;
    key.get(..prefix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_the_first_delimiter() {
        let prefix_of = |key| text_key_prefix(key, DELIMITERS);
        assert_eq!(prefix_of("user:17/name"), Some("user:"));
        assert_eq!(prefix_of("topics/7:x"), Some("topics/"));
        assert_eq!(prefix_of("\u{e9}t\u{e9}:1"), Some("\u{e9}t\u{e9}:"));
        assert_eq!(prefix_of(":"), Some(":"));
        assert_eq!(prefix_of("navigation"), None);
        assert_eq!(key_prefix(b"\xff-1", b"-"), Some(&b"\xff-"[..]));
    }
}
