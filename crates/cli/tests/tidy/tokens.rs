//! A tokenizer for Rust sources that skips comments, strings and characters.

/// The identifiers and punctuation of a source, without comments and literals.
pub(super) fn split_into_tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut index = 0;
    while index < bytes.len() {
        let rest = &bytes[index..];
        let length = match rest {
            [b'/', b'/', ..] => length_until(rest, |rest| rest.starts_with(b"\n")),
            [b'/', b'*', ..] => comment_length(rest),
            [b'"', ..] => string_length(rest),
            [b'\'', ..] => quote_length(rest),
            [b'r', b'"' | b'#', ..] if raw_string_length(rest) > 0 => raw_string_length(rest),
            [b'b' | b'c', b'r', b'"' | b'#', ..] => 1 + raw_string_length(&rest[1..]),
            [b':', b':', ..] => {
                tokens.push(&text[index..index + 2]);
                2
            }
            [first, ..] if first.is_ascii_alphanumeric() || *first == b'_' => {
                let is_end = |rest: &[u8]| !rest[0].is_ascii_alphanumeric() && rest[0] != b'_';
                let length = length_until(rest, is_end);
                tokens.push(&text[index..index + length]);
                length
            }
            [first, ..] if first.is_ascii_punctuation() => {
                tokens.push(&text[index..=index]);
                1
            }
            _ => 1,
        };
        index += length;
    }
    tokens
}

fn length_until(bytes: &[u8], is_end: impl Fn(&[u8]) -> bool) -> usize {
    let end = (0..bytes.len()).find(|index| is_end(&bytes[*index..]));
    end.unwrap_or(bytes.len())
}

/// The length of a block comment, including nested ones.
fn comment_length(bytes: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut index = 0;
    while index < bytes.len() {
        match &bytes[index..] {
            [b'/', b'*', ..] => {
                depth += 1;
                index += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                index += 2;
                if depth == 0 {
                    return index;
                }
            }
            _ => index += 1,
        }
    }
    index
}

fn string_length(bytes: &[u8]) -> usize {
    let mut index = 1;
    while index < bytes.len() && bytes[index] != b'"' {
        index += if bytes[index] == b'\\' { 2 } else { 1 };
    }
    index + 1
}

/// A string without escapes; 0 where none begins.
fn raw_string_length(bytes: &[u8]) -> usize {
    let hash_count = length_until(&bytes[1..], |rest| rest[0] != b'#');
    if bytes.get(1 + hash_count) != Some(&b'"') {
        return 0;
    }
    let ending = [b"\"".as_slice(), &b"#".repeat(hash_count)].concat();
    let text = &bytes[2 + hash_count..];
    2 + hash_count + length_until(text, |rest| rest.starts_with(&ending)) + ending.len()
}

/// The length of a character literal, or of the quote before a lifetime.
fn quote_length(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(&bytes[1..bytes.len().min(16)]).into_owned();
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => 4 + length_until(&bytes[3..], |rest| rest[0] == b'\''),
        (Some(character), Some('\'')) => 2 + character.len_utf8(),
        _ => 1,
    }
}
