//! Replies that are wrong.

use crate::plan::Misbehaviour;
use crate::random::Random;

/// What a server that misbehaves in this way sends in place of `reply`; `earlier` is its reply before.
pub(super) fn alter_reply(
    misbehaviour: Misbehaviour,
    reply: &[u8],
    earlier: &[u8],
    random: &mut Random,
) -> Vec<u8> {
    let mut altered = reply.to_vec();
    match misbehaviour {
        Misbehaviour::Key => {
            let classic_index = index_of(&altered, b"VALUE ").map(|index| index + b"VALUE ".len());
            let index = classic_index
                .or_else(|| index_of(&altered, b" k").map(|index| index + b" k".len()));
            if let Some(byte) = index.and_then(|index| altered.get_mut(index)) {
                *byte = if *byte == b'z' { b'y' } else { b'z' };
            }
        }
        Misbehaviour::Length => {
            if let Some(byte) =
                last_digit_of_length(&altered).and_then(|index| altered.get_mut(index))
            {
                *byte = if *byte == b'9' { b'8' } else { *byte + 1 };
            }
        }
        Misbehaviour::Opaque => {
            let index = index_of(&altered, b" O").map(|index| index + b" O".len());
            if let Some(byte) = index.and_then(|index| altered.get_mut(index)) {
                *byte = if *byte == b'9' { b'8' } else { b'9' };
            }
        }
        Misbehaviour::Earlier if !earlier.is_empty() => altered = earlier.to_vec(),
        Misbehaviour::Earlier => {}
        Misbehaviour::Twice => altered.extend_from_slice(reply),
        Misbehaviour::Missing => altered.clear(),
        Misbehaviour::Garbage => {
            altered = (0..random.between(1, 40))
                .map(|_| random.bits() as u8)
                .collect();
            altered.extend_from_slice(b"\r\n");
        }
    }
    altered
}

/// Changes the first value in a reply, whose length and key are right.
pub(super) fn change_value(reply: &mut [u8]) {
    if let Some(byte) = index_of(reply, b":k").and_then(|index| reply.get_mut(index + 1)) {
        *byte = b'q';
    }
}

/// Puts the first reply with a value under a key in the place of a later one.
pub(super) fn send_old(reply: &mut Vec<u8>, first_replies: &mut Vec<Vec<u8>>) {
    let key = |reply: &[u8]| {
        let line = reply.strip_prefix(b"VALUE ")?;
        let key = line.split(|byte| *byte == b' ').next()?;
        // One value, without its unique.
        let is_one = reply.ends_with(b"END\r\n") && index_of(&reply[1..], b"VALUE ").is_none();
        is_one.then(|| key.to_vec())
    };
    let Some(own_key) = key(reply) else { return };
    match first_replies
        .iter()
        .find(|other| key(other).as_deref() == Some(&own_key[..]))
    {
        Some(old) => reply.clone_from(old),
        None => first_replies.push(reply.clone()),
    }
}

fn index_of(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
}

/// Where the length of the first value ends.
fn last_digit_of_length(reply: &[u8]) -> Option<usize> {
    let value = index_of(reply, b"VALUE ");
    let meta = index_of(reply, b"VA ");
    let begin = value.or(meta)?;
    let field_count = if value.is_some() { 4 } else { 2 };
    let line_end = begin + index_of(&reply[begin..], b"\r\n")?;
    let line = &reply[begin..line_end];
    let word_ends = line
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b' ')
        .map(|(index, _)| index)
        .chain([line.len()]);
    word_ends
        .skip(field_count - 1)
        .map(|index| begin + index - 1)
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misbehaviour(misbehaviour: Misbehaviour, reply: &str) -> String {
        let altered = alter_reply(
            misbehaviour,
            reply.as_bytes(),
            b"EARLIER\r\n",
            &mut Random::new(1),
        );
        String::from_utf8_lossy(&altered).into_owned()
    }

    #[test]
    fn each_misbehaviour_changes_only_the_part_that_it_names() {
        let (text, meta) = (
            "VALUE k1 0 12\r\nabc\r\nEND\r\n",
            "VA 12 kk1 O77\r\nabc\r\n",
        );
        assert_eq!(
            misbehaviour(Misbehaviour::Key, text),
            text.replace("k1", "z1")
        );
        assert_eq!(
            misbehaviour(Misbehaviour::Key, meta),
            meta.replace("kk1", "kz1")
        );
        assert_eq!(
            misbehaviour(Misbehaviour::Length, text),
            text.replace("12", "13")
        );
        assert_eq!(
            misbehaviour(Misbehaviour::Length, meta),
            meta.replace("12", "13")
        );
        assert_eq!(
            misbehaviour(Misbehaviour::Opaque, meta),
            meta.replace("O77", "O97")
        );
        assert_eq!(misbehaviour(Misbehaviour::Earlier, text), "EARLIER\r\n");
        assert_eq!(misbehaviour(Misbehaviour::Twice, "A\r\n"), "A\r\nA\r\n");
        assert_eq!(misbehaviour(Misbehaviour::Missing, text), "");
        assert_ne!(misbehaviour(Misbehaviour::Garbage, text), text);
    }
}
