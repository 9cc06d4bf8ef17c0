//! The percent-encoding of keys in lines of text: `a b` is `a%20b`, as in `watch` and `lru_crawler metadump`.

/// Appends `key` with everything but letters, digits and `-._~` as percent and two hex digits.
pub fn encode(key: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let hex_digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
    for &byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
}

/// Returns the key behind the encoding. A percent sign without two hex digits after it is kept as it is.
pub fn decode(text: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len());
    let mut remaining = text;
    while let Some((&byte, tail)) = remaining.split_first() {
        let escape = match (byte, tail) {
            (b'%', [high, low, rest @ ..]) => {
                parse_hex_digit(*high).zip(parse_hex_digit(*low)).map(|digits| (digits, rest))
            }
            _ => None,
        };
        if let Some(((high, low), rest)) = escape {
            key.push(high << 4 | low);
            remaining = rest;
        } else {
            key.push(byte);
            remaining = tail;
        }
    }
    key
}

fn parse_hex_digit(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_encoded_and_decoded_whatever_their_bytes() {
        let mut text = Vec::new();
        encode(b"a#b c", &mut text);
        assert_eq!(text, b"a%23b%20c");
        let every_byte: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        encode(&every_byte, &mut text);
        assert!(text.iter().all(u8::is_ascii_graphic));
        assert_eq!(decode(&text), every_byte);
    }

    #[test]
    fn percent_sign_without_two_digits_is_kept() {
        assert_eq!(decode(b"50%"), b"50%");
        assert_eq!(decode(b"%4"), b"%4");
        assert_eq!(decode(b"%zz%41%4a"), b"%zzAJ");
    }
}
