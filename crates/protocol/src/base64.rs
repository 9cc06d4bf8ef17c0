//! Standard base64 with padding, for the binary keys of meta commands.
//!
//! Strict: a length that is no multiple of four, a foreign letter or padding in the middle is
//! refused, since two spellings of one key would be two keys to a client's ring. The unused bits of
//! the last letter may be anything, as memcached's decoder has it.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Letter to its six bits; 255 where the letter is foreign.
const BITS: [u8; 256] = {
    let mut table = [255u8; 256];
    let mut index = 0;
    while index < 64 {
        #[expect(
            clippy::indexing_slicing,
            reason = "evaluated when compiling, within 64 and 256"
        )]
        {
            table[LETTERS[index] as usize] = index as u8;
        }
        index += 1;
    }
    table
};

/// Appends the base64 form of `bytes`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut word = [0u8; 3];
        for (to, from) in word.iter_mut().zip(group) {
            *to = *from;
        }
        let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
        for (place, shift) in [18u32, 12, 6, 0].into_iter().enumerate() {
            let letter = LETTERS
                .get((word >> shift & 63) as usize)
                .copied()
                .unwrap_or(b'=');
            out.push(if place <= group.len() { letter } else { b'=' });
        }
    }
}

/// Appends the bytes that `text` spells and returns how many; `None` leaves `out` as it was.
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let start = out.len();
    let decoded = decode_into(text, out);
    if decoded.is_none() {
        out.truncate(start);
    }
    decoded.map(|()| out.len() - start)
}

fn decode_into(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let body = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    for group in body.chunks(4) {
        let mut word = 0u32;
        for letter in group {
            let bits = BITS
                .get(usize::from(*letter))
                .copied()
                .filter(|bits| *bits < 64)?;
            word = word << 6 | u32::from(bits);
        }
        word <<= 6 * (4 - group.len() as u32);
        let [_, bytes @ ..] = word.to_be_bytes();
        out.extend(bytes.iter().take((group.len() * 3) / 4));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_are_spelled_as_the_standard_has_them() {
        for (bytes, text) in [
            (&b"f"[..], &b"Zg=="[..]),
            (b"fo", b"Zm8="),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg=="),
        ] {
            let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
            encode(bytes, &mut encoded);
            assert_eq!(encoded, text);
            assert_eq!(decode(text, &mut decoded), Some(bytes.len()));
            assert_eq!(decoded, bytes);
        }
    }

    #[test]
    fn a_refused_text_leaves_nothing_behind() {
        let mut out = b"kept".to_vec();
        for text in [&b""[..], b"Zg", b"Zg=", b"Z===", b"Zm9*", b"Zm=v"] {
            assert_eq!(decode(text, &mut out), None, "{text:?}");
        }
        assert_eq!(out, b"kept");
    }
}
