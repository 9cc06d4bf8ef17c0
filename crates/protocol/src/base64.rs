//! Standard base64 with padding, for the binary keys of meta commands.
//!
//! Strict: a length that is not a multiple of four, an unknown letter or padding in the middle is
//! refused, since a client's ring would take two spellings of one key for two keys. The unused bits of
//! the last letter are ignored, as in memcached's decoder.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The six bits of each letter; 255 for bytes that are not letters of the alphabet.
const DECODE_TABLE: [u8; 256] = {
    let mut table = [255u8; 256];
    let mut index = 0;
    while index < 64 {
        #[expect(clippy::indexing_slicing, reason = "evaluated when compiling, within 64 and 256")]
        {
            table[ALPHABET[index] as usize] = index as u8;
        }
        index += 1;
    }
    table
};

/// Appends the base64 form of `bytes`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut group_bytes = [0u8; 3];
        for (to, from) in group_bytes.iter_mut().zip(group) {
            *to = *from;
        }
        let group_bits = u32::from_be_bytes([0, group_bytes[0], group_bytes[1], group_bytes[2]]);
        for (index, shift) in [18u32, 12, 6, 0].into_iter().enumerate() {
            let letter = ALPHABET.get((group_bits >> shift & 63) as usize).copied().unwrap_or(b'=');
            out.push(if index <= group.len() { letter } else { b'=' });
        }
    }
}

/// Appends the bytes that `text` encodes and returns how many; `None`, with `out` unchanged, if `text` is invalid.
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
    let body = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    for group in body.chunks(4) {
        let mut group_bits = 0u32;
        for letter in group {
            let bits = DECODE_TABLE.get(usize::from(*letter)).copied().filter(|bits| *bits < 64)?;
            group_bits = group_bits << 6 | u32::from(bits);
        }
        group_bits <<= 6 * (4 - group.len() as u32);
        let [_, bytes @ ..] = group_bits.to_be_bytes();
        out.extend(bytes.iter().take((group.len() * 3) / 4));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_vectors_of_the_standard_are_encoded_and_decoded() {
        for (bytes, text) in
            [(&b"f"[..], &b"Zg=="[..]), (b"fo", b"Zm8="), (b"foo", b"Zm9v"), (b"foob", b"Zm9vYg==")]
        {
            let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
            encode(bytes, &mut encoded);
            assert_eq!(encoded, text);
            assert_eq!(decode(text, &mut decoded), Some(bytes.len()));
            assert_eq!(decoded, bytes);
        }
    }

    #[test]
    fn an_invalid_text_leaves_the_output_unchanged() {
        let mut out = b"kept".to_vec();
        for text in [&b""[..], b"Zg", b"Zg=", b"Z===", b"Zm9*", b"Zm=v"] {
            assert_eq!(decode(text, &mut out), None, "{text:?}");
        }
        assert_eq!(out, b"kept");
    }
}
