//! Tokens and decimal numbers, shared by the text and meta protocols.
//!
//! Tokens are separated by spaces only (a tab is part of a token). A line ends at a line feed; a carriage return
//! before it belongs to the line ending. Numbers are strict: digits only, no white space, no overflow, and a sign
//! only in [`parse_i64`].

/// The offset of the first space or control byte. Scans eight bytes at a time: keys are too short for the call of
/// a vector search to pay off.
#[inline]
pub fn find_separator(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let mut unscanned = text;
    let mut skipped_bytes = 0;
    while let Some((chunk, after_chunk)) = unscanned.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        // The lowest set bit is that of the first byte below 0x21; higher bits may be false positives.
        let separator_bits = word.wrapping_sub(ONES * 0x21) & !word & (ONES * 0x80);
        if separator_bits != 0 {
            return Some(skipped_bytes + (separator_bits.trailing_zeros() / 8) as usize);
        }
        unscanned = after_chunk;
        skipped_bytes += 8;
    }
    let position = unscanned.iter().position(|byte| *byte <= b' ')?;
    Some(skipped_bytes + position)
}

/// The first line of `input` without its ending, and the length of the line with its ending in bytes.
#[inline]
pub fn split_line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', input)?;
    let line = input.get(..end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// Splits the first token off `remaining_text`, skipping leading spaces; `None` if no token is left.
#[inline]
pub fn take_token<'b>(remaining_text: &mut &'b [u8]) -> Option<&'b [u8]> {
    let mut text = *remaining_text;
    while let Some((b' ', tail)) = text.split_first() {
        text = tail;
    }
    if text.is_empty() {
        *remaining_text = text;
        return None;
    }
    let length = memchr::memchr(b' ', text).unwrap_or(text.len());
    let (token, tail) = text.split_at_checked(length)?;
    *remaining_text = tail;
    Some(token)
}

/// All tokens of a line, in order; meant for flags and other short tokens.
#[inline]
pub fn tokens(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b' ').filter(|token| !token.is_empty())
}

/// A decimal number of up to 64 bits.
#[inline]
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A decimal number of up to 32 bits.
#[inline]
pub fn parse_u32(digits: &[u8]) -> Option<u32> {
    parse_u64(digits).and_then(|number| u32::try_from(number).ok())
}

/// A decimal number with an optional sign.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text.split_first()? {
        (b'-', digits) => parse_u64(digits).and_then(|number| 0i64.checked_sub_unsigned(number)),
        (b'+', digits) => parse_u64(digits).and_then(|number| i64::try_from(number).ok()),
        _ => parse_u64(text).and_then(|number| i64::try_from(number).ok()),
    }
}

/// Appends `number` in decimal.
#[inline]
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_the_line_feed_with_or_without_a_carriage_return() {
        assert_eq!(split_line(b"get a\r\nrest"), Some((&b"get a"[..], 7)));
        assert_eq!(split_line(b"get a\nrest"), Some((&b"get a"[..], 6)));
        assert_eq!(split_line(b"get a\r"), None);
    }

    #[test]
    fn the_first_separator_is_found_at_any_offset() {
        for length in 0..40 {
            for separator in [b' ', b'\n', b'\r', 0] {
                let mut text = vec![0xffu8; length];
                text.push(separator);
                text.extend_from_slice(b"! \n");
                assert_eq!(find_separator(&text), Some(length));
            }
            assert_eq!(find_separator(&vec![b'!'; length]), None);
        }
    }

    #[test]
    fn tokens_are_split_by_spaces_only() {
        assert_eq!(tokens(b"  a\tb   c ").collect::<Vec<_>>(), [&b"a\tb"[..], b"c"]);
    }

    #[test]
    fn numbers_are_strict_and_do_not_wrap() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"-1"), None);
        assert_eq!(parse_u64(b""), None);
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"-"), None);
        assert_eq!(parse_i64(b"12a"), None);
        assert_eq!(parse_u32(b"4294967296"), None);
    }
}
