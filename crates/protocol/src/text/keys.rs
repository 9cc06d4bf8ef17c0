//! The keys of a get, parsed one by one, and a fast path for a `get` of one key.

use crate::ascii;
use crate::limits::KEY_BYTES_MAX;

/// The key of a complete `get` line with one key, and the length of the line in bytes; `None` otherwise, and
/// [`super::parse`] has to parse it. This is the most frequent command of a cache, and one search for the end
/// of the key parses it.
#[inline]
pub fn parse_single_get(input: &[u8]) -> Option<(&[u8], usize)> {
    let after_verb = input.strip_prefix(b"get ")?;
    let key_len = ascii::find_separator(after_verb)?;
    let (key, tail) = after_verb.split_at_checked(key_len)?;
    let line_end_bytes = match tail {
        [b'\r', b'\n', ..] => 2,
        [b'\n', ..] => 1,
        _ => return None,
    };
    let is_valid_key = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    is_valid_key.then_some((key, 4 + key_len + line_end_bytes))
}

/// The second token of the first line, which in nearly every command is a key: good enough to prefetch what the key
/// needs.
#[inline]
pub fn likely_key(input: &[u8]) -> Option<&[u8]> {
    let (_, from_separator) = input.split_at_checked(ascii::find_separator(input)?)?;
    let after_verb = from_separator.strip_prefix(b" ")?;
    let (key, _) = after_verb.split_at_checked(ascii::find_separator(after_verb)?)?;
    (!key.is_empty() && key.len() <= KEY_BYTES_MAX).then_some(key)
}

/// The next token of a get line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyToken<'b> {
    /// A key; `used` bytes of the input are consumed.
    Key(&'b [u8], usize),
    /// The end of the line; `used` bytes of the input are consumed.
    End(usize),
    /// Neither a complete key nor the end has been received.
    Incomplete,
    /// A key longer than [`KEY_BYTES_MAX`].
    TooLong,
}

/// Parses the next key of a get line.
#[inline]
pub fn next_key(input: &[u8]) -> KeyToken<'_> {
    let mut text = input;
    while let Some((b' ', tail)) = text.split_first() {
        text = tail;
    }
    let skipped_bytes = input.len() - text.len();
    // Nearly always a space ends a key; other endings are handled below.
    if let Some(key_len) = ascii::find_separator(text)
        && let Some((key, [b' ', ..])) = text.split_at_checked(key_len)
        && key.len() <= KEY_BYTES_MAX
    {
        return KeyToken::Key(key, skipped_bytes + key.len());
    }
    let Some(key_len) = memchr::memchr2(b' ', b'\n', text) else {
        let is_too_long = text.len() > KEY_BYTES_MAX + 1;
        return if is_too_long { KeyToken::TooLong } else { KeyToken::Incomplete };
    };
    let Some((mut key, tail)) = text.split_at_checked(key_len) else {
        return KeyToken::Incomplete;
    };
    if tail.first() == Some(&b'\n') {
        key = key.strip_suffix(b"\r").unwrap_or(key);
        if key.is_empty() {
            return KeyToken::End(skipped_bytes + key_len + 1);
        }
    }
    if key.len() > KEY_BYTES_MAX {
        return KeyToken::TooLong;
    }
    KeyToken::Key(key, skipped_bytes + key.len())
}
