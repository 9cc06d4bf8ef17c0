//! Meta lines: command, key, for a set the length, then flags.

use crate::ascii;
use crate::base64;
use crate::command::{Command, LineRefusal, MetaFlags, MetaLine, letter_set, parse_value_length};
use crate::limits::KEY_BYTES_MAX;
use crate::replies;

/// The `mg` at the start of `input` and its length, if it is complete and its flags have no arguments; `None`
/// otherwise, and [`crate::text::parse`] has to parse it.
#[inline]
pub fn parse_simple_get(input: &[u8]) -> Option<(MetaLine<'_>, usize)> {
    let after_verb = input.strip_prefix(b"mg ")?;
    let (key, after_key) = after_verb.split_at_checked(ascii::find_separator(after_verb)?)?;
    let (flags, flags_bytes) = MetaFlags::parse_argumentless(after_key)?;
    let is_valid_key = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    is_valid_key.then_some((MetaLine { key, flags }, 3 + key.len() + flags_bytes))
}

/// Flags that `mf` may have.
const FLUSH_FLAGS: u128 = letter_set(b"bkqO");

/// Parses the rest of a line after `mg`, `ms`, `md`, `ma`, `me` or `mf`.
pub fn parse_line<'b>(verb: &[u8], after_verb: &'b [u8]) -> Result<Command<'b>, LineRefusal> {
    let mut arguments = after_verb;
    let key = ascii::take_token(&mut arguments).ok_or(LineRefusal::new(replies::BAD_FORMAT))?;
    match verb {
        b"mg" => parse_meta_line(key, arguments).map(Command::MetaGet).map_err(LineRefusal::new),
        b"md" => parse_meta_line(key, arguments).map(Command::MetaDelete).map_err(LineRefusal::new),
        b"ma" => parse_arith(key, arguments),
        b"ms" => parse_set(key, arguments),
        b"mf" => parse_flush_prefix(key, arguments),
        _ => parse_debug(key, arguments),
    }
}

#[inline]
fn parse_meta_line<'b>(key: &'b [u8], flags_text: &'b [u8]) -> Result<MetaLine<'b>, &'static [u8]> {
    if key.len() > KEY_BYTES_MAX {
        return Err(replies::BAD_FORMAT);
    }
    let line = MetaLine { key, flags: MetaFlags::parse(flags_text)? };
    if line.flags.has(b'b') && base64::decode(key, &mut Vec::new()).is_none() {
        return Err(replies::BAD_KEY);
    }
    Ok(line)
}

fn parse_arith<'b>(key: &'b [u8], arguments: &'b [u8]) -> Result<Command<'b>, LineRefusal> {
    let line = parse_meta_line(key, arguments).map_err(|reply| {
        // memcached has one error text for every bad flag of `ma`, except those that its tokenizer refuses.
        let keeps_reply = [replies::BAD_FORMAT, replies::OPAQUE_TOO_LONG, replies::TOO_MANY_FLAGS]
            .contains(&reply);
        LineRefusal::new(if keeps_reply { reply } else { replies::BAD_ARITH_FLAG })
    })?;
    match line.flags.mode {
        0 | b'I' | b'+' | b'D' | b'-' => Ok(Command::MetaArith(line)),
        _ => Err(LineRefusal::new(replies::BAD_ARITH_MODE)),
    }
}

fn parse_set<'b>(key: &'b [u8], mut arguments: &'b [u8]) -> Result<Command<'b>, LineRefusal> {
    let length_text =
        ascii::take_token(&mut arguments).ok_or(LineRefusal::new(replies::BAD_FORMAT))?;
    let value_bytes = parse_value_length(length_text)?;
    let refusal_for = |reply| LineRefusal {
        bytes_to_skip: u64::from(value_bytes) + 2,
        ..LineRefusal::new(reply)
    };
    let line = parse_meta_line(key, arguments).map_err(refusal_for)?;
    match line.flags.mode {
        0 | b'E' | b'A' | b'P' | b'R' | b'S' => Ok(Command::MetaSet(line, value_bytes)),
        _ => Err(refusal_for(replies::BAD_SET_MODE)),
    }
}

fn parse_flush_prefix<'b>(
    prefix: &'b [u8],
    arguments: &'b [u8],
) -> Result<Command<'b>, LineRefusal> {
    let line = parse_meta_line(prefix, arguments).map_err(LineRefusal::new)?;
    if line.flags.has_any(!FLUSH_FLAGS) {
        return Err(LineRefusal::new(replies::INVALID_FLAG));
    }
    Ok(Command::MetaFlushPrefix(line))
}

fn parse_debug<'b>(key: &'b [u8], mut arguments: &'b [u8]) -> Result<Command<'b>, LineRefusal> {
    if key.len() > KEY_BYTES_MAX {
        return Err(LineRefusal::new(replies::BAD_FORMAT));
    }
    let is_base64 = ascii::take_token(&mut arguments) == Some(b"b");
    if is_base64 && base64::decode(key, &mut Vec::new()).is_none() {
        return Err(LineRefusal::new(replies::BAD_FORMAT));
    }
    Ok(Command::MetaDebug { key, is_base64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Parsed, parse};

    fn parse_refused(input: &[u8]) -> (&'static [u8], u64) {
        match parse(input) {
            Parsed::Refused(refusal, _) => (refusal.reply, refusal.bytes_to_skip),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_meta_get_keeps_its_flags_in_order() {
        let Parsed::Command(Command::MetaGet(line), 14) = parse(b"mg foo t v s\r\n") else {
            panic!()
        };
        assert_eq!(line.key, b"foo");
        assert_eq!(ascii::tokens(line.flags.text).collect::<Vec<_>>(), [b"t", b"v", b"s"]);
    }

    #[test]
    fn a_simple_get_parses_as_in_the_general_parser() {
        for input in [&b"mg foo t v\r\nrest"[..], b"mg k\n", b"mg k v\r\n"] {
            let (line, used) = parse_simple_get(input).unwrap();
            assert_eq!(parse(input), Parsed::Command(Command::MetaGet(line), used));
        }
        let long = [b"mg ", &[b'k'; 251][..], b" v\r\n"].concat();
        for input in [&b"mg  foo v\r\n"[..], b"mg foo b\r\n", b"mg foo v", b"mg \r\n", &long] {
            assert_eq!(parse_simple_get(input), None);
        }
    }

    #[test]
    fn a_binary_key_is_decoded_on_demand() {
        let Parsed::Command(Command::MetaGet(line), _) = parse(b"mg aGVsbG8= b v\r\n") else {
            panic!()
        };
        assert_eq!(line.item_key(&mut Vec::new()), Ok(&b"hello"[..]));
        assert_eq!(parse_refused(b"mg aGVsbG8 b\r\n"), (replies::BAD_KEY, 0));
    }

    #[test]
    fn a_flush_of_a_prefix_takes_only_flags_that_shape_its_reply() {
        let Parsed::Command(Command::MetaFlushPrefix(line), _) = parse(b"mf dXNlcg== b k O1 q\r\n")
        else {
            panic!()
        };
        assert_eq!(line.item_key(&mut Vec::new()), Ok(&b"user"[..]));
        assert_eq!(parse_refused(b"mf user T5\r\n"), (replies::INVALID_FLAG, 0));
        assert_eq!(parse_refused(b"mf user v\r\n"), (replies::INVALID_FLAG, 0));
        assert_eq!(parse_refused(b"mf\r\n"), (replies::BAD_FORMAT, 0));
        assert_eq!(parse_refused(b"mf dXNlcg b\r\n"), (replies::BAD_KEY, 0));
    }

    #[test]
    fn bad_lines_get_the_error_texts_of_memcached_and_swallow_the_value() {
        assert_eq!(parse_refused(b"mg\r\n"), (replies::BAD_FORMAT, 0));
        assert_eq!(parse_refused(b"mg foo !\r\n"), (replies::BAD_FORMAT, 0));
        assert_eq!(parse_refused(b"ms foo\r\n"), (replies::BAD_FORMAT, 0));
        assert_eq!(parse_refused(b"ms foo S1\r\n"), (replies::BAD_FORMAT, 0));
        assert_eq!(parse_refused(b"ms foo 3 MZ\r\n"), (replies::BAD_SET_MODE, 5));
        assert_eq!(parse_refused(b"ms foo 3 T\r\n"), (replies::BAD_TOKEN, 5));
        assert_eq!(parse_refused(b"ma foo Dabc\r\n"), (replies::BAD_ARITH_FLAG, 0));
        assert_eq!(parse_refused(b"ma foo MX\r\n"), (replies::BAD_ARITH_MODE, 0));
    }
}
