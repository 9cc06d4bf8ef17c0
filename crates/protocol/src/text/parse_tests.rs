//! What the parser accepts and what it refuses, rule by rule.

use super::super::keys::{KeyToken, next_key, parse_single_get};
use super::*;

/// The reply to a refused line, and the bytes to skip after it.
fn parse_refused(input: &[u8]) -> (&'static [u8], u64) {
    match parse(input) {
        Parsed::Refused(refusal, used) => {
            assert_eq!(
                used,
                memchr::memchr(b'\n', input).map_or(input.len(), |newline| newline + 1)
            );
            (refusal.reply, refusal.bytes_to_skip)
        }
        other => panic!("{other:?}"),
    }
}

/// The reply to a refused line.
fn refusal_reply(input: &[u8]) -> &'static [u8] {
    let (reply, _) = parse_refused(input);
    reply
}

fn take_keys(mut input: &[u8]) -> Vec<&[u8]> {
    let mut keys = Vec::new();
    while let KeyToken::Key(key, used) = next_key(input) {
        keys.push(key);
        input = &input[used..];
    }
    keys
}

#[test]
fn the_keys_of_a_get_are_taken_one_by_one() {
    let line = b"get a  bc d\r\n";
    assert_eq!(parse(line), Parsed::Command(Command::Get(GetHead::default()), 3));
    assert_eq!(take_keys(&line[3..]), [&b"a"[..], b"bc", b"d"]);
    assert_eq!(next_key(b"\r\n"), KeyToken::End(2));
    assert_eq!(next_key(b" \n"), KeyToken::End(2));
    assert_eq!(next_key(b"abc"), KeyToken::Incomplete);
    assert_eq!(next_key(&[b'a'; 252]), KeyToken::TooLong);
}

#[test]
fn a_gat_has_its_exptime_before_the_keys() {
    let head = GetHead { with_cas: true, touch: Some(-1) };
    assert_eq!(parse(b"gats -1 a b\r\n"), Parsed::Command(Command::Get(head), 7));
    assert_eq!(refusal_reply(b"gat x a\r\n"), replies::BAD_EXPTIME);
    assert_eq!(refusal_reply(b"gat 0\r\n"), replies::BAD_FORMAT);
}

#[test]
fn an_incomplete_line_waits_up_to_its_bound_and_a_get_continues() {
    assert_eq!(parse(b"set a 0 0 "), Parsed::Incomplete);
    assert_eq!(refusal_reply(&[b'x'; 3000]), b"");
    let mut long = b"gets ".to_vec();
    long.extend(std::iter::repeat_n(b"0123456789 ", 300).flatten());
    assert!(matches!(parse(&long), Parsed::Command(Command::Get(_), _)));
}

#[test]
fn a_refused_set_swallows_its_value() {
    assert_eq!(parse_refused(b"set a -1 0 5\r\n"), (replies::BAD_FORMAT, 7));
    assert_eq!(parse_refused(b"set a 4294967296 0 5\r\n"), (replies::BAD_FORMAT, 7));
    assert_eq!(parse_refused(b"set a 0 0.5 5\r\n"), (replies::BAD_FORMAT, 7));
    assert_eq!(parse_refused(b"set a 0 0 -1\r\n"), (replies::BAD_FORMAT, 0));
    assert_eq!(parse_refused(b"cas a 0 0 5 x\r\n"), (replies::BAD_FORMAT, 7));
    let Parsed::Refused(refusal, _) = parse(b"set a 0 0 4294967297\r\n") else { panic!() };
    assert_eq!(refusal, LineRefusal::of_unknown_length(replies::BAD_FORMAT));
}

#[test]
fn only_the_last_token_can_be_noreply() {
    let Parsed::Command(Command::Delete { noreply, .. }, _) = parse(b"delete a noreply\r\n") else {
        panic!()
    };
    assert!(noreply);
    let Parsed::Command(Command::Delete { noreply, key }, _) = parse(b"delete noreply\r\n") else {
        panic!()
    };
    assert!(!noreply && key == b"noreply");
}

#[test]
fn short_and_unknown_lines_get_the_error_texts_of_memcached() {
    assert_eq!(refusal_reply(b"\r\n"), replies::BAD_FORMAT);
    assert_eq!(refusal_reply(b"a\r\n"), replies::BAD_FORMAT);
    assert_eq!(refusal_reply(b"ab\r\n"), replies::ERROR);
    assert_eq!(refusal_reply(b"get\r\n"), replies::BAD_FORMAT);
    assert_eq!(refusal_reply(b"  get a\r\n"), replies::ERROR);
    assert_eq!(refusal_reply(b"get\ta\r\n"), replies::ERROR);
    assert_eq!(refusal_reply(b"incr a +1\r\n"), replies::BAD_DELTA);
    assert!(matches!(
        parse(b"  flush_all 5 noreply\r\n"),
        Parsed::Command(Command::Admin { verb: AdminVerb::FlushAll, noreply: true, .. }, _)
    ));
}

#[test]
fn the_fast_path_parses_a_get_as_the_general_parser_does() {
    assert_eq!(parse_single_get(b"get abc\r\nget"), Some((&b"abc"[..], 9)));
    assert_eq!(parse_single_get(b"get abc\n"), Some((&b"abc"[..], 8)));
    for input in [&b"get abc"[..], b"get \r\n", b"get  a\r\n", b"get a b\r\n", b"gets a\r\n"] {
        assert_eq!(parse_single_get(input), None);
    }
    let long = [b"get ".as_slice(), &[b'k'; 251], b"\r\n"].concat();
    assert_eq!(parse_single_get(&long), None);
}

#[test]
fn a_refused_get_whose_line_has_not_ended_closes_the_connection() {
    let blanks = " ".repeat(LINE_BYTES_MAX);
    for start in [format!("get {blanks}"), format!("gat 0 {blanks}"), format!("gat x a{blanks}")] {
        let parsed = parse(start.as_bytes());
        assert!(matches!(&parsed, Parsed::Refused(refusal, _) if refusal.must_close), "{parsed:?}");
        let line = format!("{start}\r\n");
        let parsed = parse(line.as_bytes());
        assert!(
            matches!(&parsed, Parsed::Refused(refusal, used) if !refusal.must_close && *used == line.len()),
            "{parsed:?}"
        );
    }
}
