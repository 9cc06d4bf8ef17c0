//! The percent-encoding of keys in lines of text: `a b` is `a%20b`, as in `watch` and `lru_crawler metadump`.

use std::fmt::Write as _;

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

/// The key as a text for people: printable characters stay as they are, everything else is percent and two hex digits.
///
/// The text has no blank and no control character, and [`decode`] returns the key: two keys never have one text. So a
/// percent sign is encoded where two hex digits follow it.
pub fn to_printable(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    let mut remaining = key;
    for chunk in key.utf8_chunks() {
        for character in chunk.valid().chars() {
            let character_bytes = remaining.split_off(..character.len_utf8()).unwrap_or_default();
            let looks_encoded = character == '%'
                && matches!(remaining, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit());
            if is_printable(character) && !looks_encoded {
                text.push(character);
            } else {
                push_encoded(&mut text, character_bytes);
            }
        }
        push_encoded(&mut text, remaining.split_off(..chunk.invalid().len()).unwrap_or_default());
    }
    text
}

fn push_encoded(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

/// Whether a terminal shows the character as itself: no blank, no control character, and none that changes how others are
/// shown (Unicode TR 36, section 3.6) or is invisible.
fn is_printable(character: char) -> bool {
    !character.is_control()
        && !character.is_whitespace()
        && !matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
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
    fn printable_texts_have_no_control_characters_and_are_apart() {
        for (key, text) in [
            (&b"user:17/caf\xc3\xa9"[..], "user:17/caf\u{e9}"),
            (b"a\r\nuser:17", "a%0D%0Auser:17"),
            (b"\x1b[2Jx", "%1B[2Jx"),
            (b"\xff", "%FF"),
            (b"\xfe", "%FE"),
            (b"a b", "a%20b"),
            (b"a%20b", "a%2520b"),
            (b"a%b", "a%b"),
            (b"50%", "50%"),
            (b"%\xff%41", "%%FF%2541"),
            ("\u{202e}abc\u{85}".as_bytes(), "%E2%80%AEabc%C2%85"),
        ] {
            assert_eq!(to_printable(key), text);
            assert_eq!(decode(text.as_bytes()), key);
        }
    }

    #[test]
    fn printable_texts_of_every_short_key_give_the_key_back() {
        const BYTES: &[u8] = b"%4aF \n\xc3\xa9\xff\x1b";
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for _ in 0..4 {
            let longer =
                keys.iter().flat_map(|key| BYTES.iter().map(|byte| [&key[..], &[*byte]].concat()));
            keys = longer.collect();
            for key in &keys {
                let text = to_printable(key);
                assert_eq!(&decode(text.as_bytes()), key, "{text}");
                assert!(text.chars().all(is_printable), "{text:?}");
            }
        }
    }

    #[test]
    fn percent_sign_without_two_digits_is_kept() {
        assert_eq!(decode(b"50%"), b"50%");
        assert_eq!(decode(b"%4"), b"%4");
        assert_eq!(decode(b"%zz%41%4a"), b"%zzAJ");
    }
}
