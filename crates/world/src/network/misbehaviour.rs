//! Replies that are wrong.

use crate::plan::Misbehaviour;
use crate::random::Random;

/// The first byte of a response in binary.
const MAGIC_RESPONSE: u8 = 0x81;

/// Length of the header of a response in binary.
const HEADER_BYTES: usize = 24;

/// Offsets in the header: the key's length (its lower byte), the length of the extras, the opaque (its lowest byte).
const KEY_LENGTH_OFFSET: usize = 3;
const EXTRAS_LENGTH_OFFSET: usize = 4;
const OPAQUE_OFFSET: usize = 15;

/// What a server that misbehaves in this way sends in place of `reply`; `previous_reply` is its reply before.
pub(super) fn alter_reply(
    misbehaviour: Misbehaviour,
    reply: &[u8],
    previous_reply: &[u8],
    random: &mut Random,
) -> Vec<u8> {
    let mut altered = reply.to_vec();
    let binary_offset = find_binary_offset(misbehaviour, reply);
    if reply.first() == Some(&MAGIC_RESPONSE)
        && matches!(misbehaviour, Misbehaviour::Key | Misbehaviour::Length | Misbehaviour::Opaque)
    {
        if let Some(byte) = binary_offset.and_then(|offset| altered.get_mut(offset)) {
            *byte ^= 1;
        }
        return altered;
    }
    match misbehaviour {
        Misbehaviour::Key => {
            let classic_offset =
                offset_of(&altered, b"VALUE ").map(|offset| offset + b"VALUE ".len());
            let offset = classic_offset
                .or_else(|| offset_of(&altered, b" k").map(|offset| offset + b" k".len()));
            if let Some(byte) = offset.and_then(|offset| altered.get_mut(offset)) {
                *byte = if *byte == b'z' { b'y' } else { b'z' };
            }
        }
        Misbehaviour::Length => {
            if let Some(byte) =
                last_digit_of_length(&altered).and_then(|offset| altered.get_mut(offset))
            {
                *byte = if *byte == b'9' { b'8' } else { *byte + 1 };
            }
        }
        Misbehaviour::Opaque => {
            let offset = offset_of(&altered, b" O").map(|offset| offset + b" O".len());
            if let Some(byte) = offset.and_then(|offset| altered.get_mut(offset)) {
                *byte = if *byte == b'9' { b'8' } else { b'9' };
            }
        }
        Misbehaviour::RepeatsPrevious if !previous_reply.is_empty() => {
            altered = previous_reply.to_vec();
        }
        // A flood sends more than replies.
        Misbehaviour::RepeatsPrevious | Misbehaviour::Flood => {}
        Misbehaviour::Twice => altered.extend_from_slice(reply),
        Misbehaviour::Missing => altered.clear(),
        Misbehaviour::Garbage => {
            altered = (0..random.between(1, 40)).map(|_| random.next_u64() as u8).collect();
            altered.extend_from_slice(b"\r\n");
        }
    }
    altered
}

/// The byte that a misbehaviour changes in the first response in binary: of its key, of the key's length,
/// or of its opaque. Not the length of the body: nothing follows a value, so no client can know that it is wrong.
fn find_binary_offset(misbehaviour: Misbehaviour, reply: &[u8]) -> Option<usize> {
    let header = reply.get(..HEADER_BYTES)?;
    match misbehaviour {
        Misbehaviour::Key if header[KEY_LENGTH_OFFSET] > 0 => {
            Some(HEADER_BYTES + usize::from(header[EXTRAS_LENGTH_OFFSET]))
        }
        Misbehaviour::Length => Some(KEY_LENGTH_OFFSET),
        Misbehaviour::Opaque => Some(OPAQUE_OFFSET),
        _ => None,
    }
}

/// Changes the first value in a reply, whose length and key are right.
pub(super) fn change_value(reply: &mut [u8]) {
    if let Some(byte) = offset_of(reply, b":k").and_then(|offset| reply.get_mut(offset + 1)) {
        *byte = b'q';
    }
}

/// Puts the first reply with a value under a key in the place of a later one.
pub(super) fn replace_with_first_reply(reply: &mut Vec<u8>, first_replies: &mut Vec<Vec<u8>>) {
    let key_of_single_value = |reply: &[u8]| {
        let line = reply.strip_prefix(b"VALUE ")?;
        let key = line.split(|byte| *byte == b' ').next()?;
        // One value, without its unique.
        let is_single_value =
            reply.ends_with(b"END\r\n") && offset_of(&reply[1..], b"VALUE ").is_none();
        is_single_value.then(|| key.to_vec())
    };
    let Some(reply_key) = key_of_single_value(reply) else {
        return;
    };
    match first_replies
        .iter()
        .find(|other| key_of_single_value(other).as_deref() == Some(&reply_key[..]))
    {
        Some(first_reply) => reply.clone_from(first_reply),
        None => first_replies.push(reply.clone()),
    }
}

fn offset_of(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

/// Where the length of the first value ends.
fn last_digit_of_length(reply: &[u8]) -> Option<usize> {
    let classic_start = offset_of(reply, b"VALUE ");
    let meta_start = offset_of(reply, b"VA ");
    let line_start = classic_start.or(meta_start)?;
    let field_count = if classic_start.is_some() { 4 } else { 2 };
    let line_end = line_start + offset_of(&reply[line_start..], b"\r\n")?;
    let line = &reply[line_start..line_end];
    let word_ends = line
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b' ')
        .map(|(offset, _)| offset)
        .chain([line.len()]);
    word_ends.skip(field_count - 1).map(|offset| line_start + offset - 1).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn altered_text(misbehaviour: Misbehaviour, reply: &str) -> String {
        let altered =
            alter_reply(misbehaviour, reply.as_bytes(), b"EARLIER\r\n", &mut Random::new(1));
        String::from_utf8_lossy(&altered).into_owned()
    }

    #[test]
    fn in_binary_a_misbehaviour_changes_the_key_the_length_or_the_opaque() {
        let header = b"\x81\x0c\0\x02\x04\0\0\0\0\0\0\x08\0\0\0\x07\0\0\0\0\0\0\0\x01";
        let reply = [&header[..], b"\0\0\0\0k1ab"].concat();
        let altered = |misbehaviour| alter_reply(misbehaviour, &reply, b"", &mut Random::new(1));
        assert!(altered(Misbehaviour::Key).ends_with(b"j1ab"));
        assert_eq!(altered(Misbehaviour::Length)[KEY_LENGTH_OFFSET], 3);
        assert_eq!(altered(Misbehaviour::Opaque)[OPAQUE_OFFSET], 6);
    }

    #[test]
    fn each_misbehaviour_changes_only_the_part_that_it_names() {
        let (text_reply, meta_reply) =
            ("VALUE k1 0 12\r\nabc\r\nEND\r\n", "VA 12 kk1 O77\r\nabc\r\n");
        assert_eq!(altered_text(Misbehaviour::Key, text_reply), text_reply.replace("k1", "z1"));
        assert_eq!(altered_text(Misbehaviour::Key, meta_reply), meta_reply.replace("kk1", "kz1"));
        assert_eq!(altered_text(Misbehaviour::Length, text_reply), text_reply.replace("12", "13"));
        assert_eq!(altered_text(Misbehaviour::Length, meta_reply), meta_reply.replace("12", "13"));
        assert_eq!(
            altered_text(Misbehaviour::Opaque, meta_reply),
            meta_reply.replace("O77", "O97")
        );
        assert_eq!(altered_text(Misbehaviour::RepeatsPrevious, text_reply), "EARLIER\r\n");
        assert_eq!(altered_text(Misbehaviour::Twice, "A\r\n"), "A\r\nA\r\n");
        assert_eq!(altered_text(Misbehaviour::Missing, text_reply), "");
        assert_ne!(altered_text(Misbehaviour::Garbage, text_reply), text_reply);
    }
}
